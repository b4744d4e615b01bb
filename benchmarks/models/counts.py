"""What a training step of each model asks for, counted: allocations, copies of tensors, calls of the maths libraries.

`python -m benchmarks.models.counts` compares them with counts.json and prints what differs; `--write` writes the file anew. Models are
tiny, with as many layers as the real ones. A busy neighbour changes no count, and neither does the processor, as long as it has
AVX2: it is run with kernels for that, in oneDNN too, and on one thread."""

import json
import os
import sys
from pathlib import Path

TABLE = Path(__file__).with_name("counts.json")
KINDS = ("allocations", "copies", "library_calls")
FIXED = {"TAPEGRAD_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "TAPEGRAD_NUM_THREADS": "1"}


def count(steps: int = 3) -> dict[str, dict[str, float]]:
    """Of one step, by model, once what is made at first is there."""
    import tapegrad

    from . import MODELS, Sizes
    from .training import Run

    native, found = tapegrad._C, {}
    for model in MODELS:
        run = Run(tapegrad, model, Sizes(True), model.tiny)
        for _ in range(3):
            run.step()
        native._start_counting_work()
        before = native._cpu_memory_stats()["num_allocs"]
        for _ in range(steps):
            run.step()
        allocations = native._cpu_memory_stats()["num_allocs"] - before
        counted = {"allocations": allocations, **native._stop_counting_work()}
        found[model.name] = {kind: counted[kind] / steps for kind in KINDS}
    return found


def differences(expected: dict, found: dict) -> list[str]:
    """Lines that say what is not as it was."""
    lines = [f"{name}: not in {TABLE.name}" for name in found.keys() - expected.keys()] + [f"{name}: no longer a model" for name in expected.keys() - found.keys()]
    return lines + [f"{name}: {kind} {expected[name][kind]:g} -> {found[name][kind]:g}" for name in found if name in expected for kind in KINDS if expected[name][kind] != found[name][kind]]


def main() -> None:
    if any(os.environ.get(name) != value for name, value in FIXED.items()):  # read when the libraries are loaded
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.models.counts", *sys.argv[1:]], {**os.environ, **FIXED})
    found = count()
    if "--write" in sys.argv[1:]:
        TABLE.write_text("{\n" + ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items()) + "\n}\n")
        return
    wrong = differences(json.loads(TABLE.read_text()), found)
    print("\n".join(wrong) or "as expected")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
