"""No memory is an exception, in every operator and wherever it is that memory is missing; afterwards all is as before."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="AddressSanitizer reserves terabytes of addresses, which a limit would refuse")
SHARED = int(os.environ.get("TAPEGRAD_TEST_SEEDS", "1"))


def run(program, *arguments, **environment):
    done = subprocess.run([sys.executable, str(Path(__file__).with_name(program)), *map(str, arguments)], capture_output=True, text=True, timeout=900,
                          env={**os.environ, **environment})
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize(("left", "thread"), [(1_000_000, False), (100_000, False), (0, False), (100_000, True)],
                         ids=["1 MB", "100 kB", "nothing", "100 kB for a new thread"])
def test_every_row(left, thread):
    said = run("scarce.py", left, 0, 1, **({"TAPEGRAD_TEST_THREAD": "1", "MALLOC_ARENA_MAX": "1"} if thread else {}))
    calls, found_none = int(said.split()[0]), int(said.split("'OutOfMemoryError': ")[1].split(",")[0])
    assert calls > 1000 and found_none > calls / 2, said  # else nothing was tried


@pytest.mark.parametrize("left", [2 << 20, 40 << 20, 160 << 20])
def test_threads_that_share_too_little(left):
    for seed in range(SHARED):
        run("scarce_threads.py", left, seed)


PARTS = {"nn.functional.conv2d(x, w)": "conv2d", "linalg.eig(m)": "eig", "optim.Adam": "optim", "distributions.Normal(0., 1.).sample()": "distributions",
         "multiprocessing": "multiprocessing", "utils.data.DataLoader": "data", "save({'x': x}, '/dev/null')": "save", "func.grad(lambda a: (a * a).sum())(x)": "func",
         "vmap(lambda a: a.sum())(x)": "vmap", "checkpoint": "checkpoint", "fx.Graph": "fx", "_dynamo.OptimizedModule": "_dynamo"}


@pytest.mark.parametrize(("call", "shifts"), [*((call, [0]) for call in PARTS), ("nn.functional.conv2d(x, w)", range(0, 1_000_000, 50_000)),
                                              ("multiprocessing", range(192_000, 320_000, 8_192))],
                         ids=[*PARTS.values(), "conv2d at many limits", "multiprocessing at many limits"])
def test_parts_that_are_loaded_when_memory_is_scarce(call, shifts):
    """Never an ImportError, which would say that something is missing; the part is whole when there is memory again."""
    program = textwrap.dedent(f"""
        import resource, sys
        import tapegrad as tg
        x, w, m = tg.randn(2, 3, 8, 8), tg.randn(4, 3, 3, 3), tg.randn(30, 30)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        def call(limit):
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            return tg.{call}
        for left in (100_000, 400_000, 1_000_000, 3_000_000, 6_000_000, 20_000_000, 41_000_000, 43_000_000):
            try:
                call(used + left + int(sys.argv[1]))
            except (tg.OutOfMemoryError, MemoryError):
                pass
        call(resource.RLIM_INFINITY)
    """)
    # Its files are compiled before: without memory Python's compiler says "invalid syntax" of what it has not read.
    compiles = f"import tapegrad as tg\nx, w, m = tg.ones(1, 1, 8, 8), tg.ones(1, 1, 3, 3), tg.eye(3)\ntg.{call}"
    for code, shift in [(compiles, 0), *((program, shift) for shift in shifts)]:
        done = subprocess.run([sys.executable, "-c", code, str(shift)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"status {done.returncode}\n{done.stderr[-2000:]}"


def test_scratch_of_threads_that_have_ended_is_used_again():
    """OpenBLAS keeps 32 MiB of addresses for each thread that calls it at one time, and no more when threads come and go."""
    program = textwrap.dedent("""
        import resource, threading
        import tapegrad as tg
        def used():
            return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        a = tg.randn(100, 100)
        def work():
            tg.linalg.qr(a @ a)
        def all_at_once(n):
            threads = [threading.Thread(target=work) for _ in range(n)]
            for t in threads: t.start()
            for t in threads: t.join()
        tg.set_num_threads(1)
        all_at_once(3)
        before = used()
        for _ in range(30): all_at_once(3)
        assert used() - before < 300 << 20, (before, used())
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env={**os.environ, "MALLOC_ARENA_MAX": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
