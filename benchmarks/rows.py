"""Training steps that touch 4,096 rows of a table x 64, `embedding(sparse=True)` with each optimizer that takes such gradients: the time must not
depend on the size of the table. `python -m benchmarks.rows [ROWS]` prints time and memory for one large table, 10,000,000 rows unless told otherwise,
one library after the other (the table and the state of SparseAdam: 7.7 GB)."""

import gc
import resource
import statistics
import sys
import time

from .harness import Case, duration

OPTIMIZERS = {"SGD": {"lr": 0.1}, "Adagrad": {"lr": 0.1}, "SparseAdam": {"lr": 0.01}}
TOUCHED = 4096
WIDTH = 64


def _step(lib, optimizer, rows):
    """One step on rows that lie all over the table, each of them once."""
    table = lib.full((rows, WIDTH), 0.5, requires_grad=True)
    index = (lib.arange(TOUCHED) * 7919 + 13) * (rows // TOUCHED) % rows
    rule = getattr(lib.optim, optimizer)([table], **OPTIMIZERS[optimizer])

    def step():
        rule.zero_grad()
        lib.nn.functional.embedding(index, table, sparse=True).square().sum().backward()
        rule.step()

    return step


def cases(libraries):
    for optimizer in OPTIMIZERS:
        for rows in (10_000, 1_000_000):
            yield Case("rows of a table", f"{optimizer}: {TOUCHED} of {rows:,} rows x {WIDTH}",
                       {name: _step(lib, optimizer, rows) for name, lib in libraries.items() if name != "numpy"})


def _resident() -> float:
    """GB of this process now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e9


def main():
    from .__main__ import libraries

    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
    for name, lib in libraries().items():
        if name == "numpy":
            continue
        for optimizer in OPTIMIZERS:
            before = _resident()
            step = _step(lib, optimizer, rows)
            start = time.perf_counter()
            step()
            first = time.perf_counter() - start
            made = _resident()
            seconds = []
            for _ in range(30):
                start = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - start)
            print(f"{name:9} {optimizer:11} {rows:,} x {WIDTH}: first step {duration(first):>8}, then {duration(statistics.median(seconds)):>8}"
                  f" (least {duration(min(seconds))}), {made - before:5.2f} GB, 30 steps later {_resident() - made:+.3f} GB", flush=True)
            del step
            gc.collect()


if __name__ == "__main__":
    main()
