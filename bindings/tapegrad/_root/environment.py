"""Variables of the environment: docs/environment.md says what each does, and a test compares. Those of the C++ code are read by c10/environment.h."""

import os

# Of programs; of the launcher for its ranks; of the simulated device; of tests and tools.
KNOWN = frozenset("TAPEGRAD_" + name for name in (
    "ALLOW_PICKLE CACHE_MB CUDA_ALLOC_CONF DISTRIBUTED_ENGINE HUGE_PAGES ISA LOOPS NUM_THREADS RECORD SHARED_DIR SHARED_MEMORY STORE_LISTEN "
    "AGENT_STORE JOB_TOKEN LAUNCH_ID MAIN "
    "CUDA_SIMULATE CUDA_SIMULATE_COMPILER CUDA_SIMULATE_MEMORY CUDA_SIMULATE_SCHEDULE "
    "CUDNN CUDNN_PLANS EXIT_RUNS FUZZ_SECONDS GPU INTERRUPT_ELEMENTS INTERRUPT_ROWS LONG_TESTS NVIDIA SOAK TEST_DAMAGED TEST_SAMPLES TEST_SCALE "
    "TEST_SEEDS TEST_THREAD").split())


def warn_of_unknown(names) -> None:
    """Names the variables that no part of tapegrad reads."""
    from .._hints import did_you_mean
    from .._warn import warn

    for name in sorted(set(names) - KNOWN):
        warn(f"{name} is no variable that tapegrad reads{did_you_mean(name, KNOWN)}\ndocs/environment.md lists them")


def flag(name: str) -> bool:
    """Whether a variable is 1. One that is neither 0 nor 1 is named and counts as 0."""
    return choice(name, ("0", "1")) == "1"


def choice(name: str, allowed) -> str | None:
    """What a variable says; None where it is not set or empty. Another value than those allowed is named and counts as not set."""
    value = os.environ.get(name) or None
    if value is None or value in allowed:
        return value
    from .._warn import warn

    warn(f"{name}: expected {', '.join(allowed[:-1])} or {allowed[-1]}: got {value!r}: it is ignored")
    return None
