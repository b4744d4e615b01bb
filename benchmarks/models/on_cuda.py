"""Training steps on a GPU, eager and as graphs; on a simulated device (TAPEGRAD_CUDA_SIMULATE) of tiny models.

`python -m benchmarks.models.on_cuda LIBRARY MODEL` prints, as JSON, how long a fresh process takes to its first step.
"""

import importlib
import json
import os
import sys
import time

from . import Model, Sizes, named
from .training import Run

SIZES = Sizes(bool(os.environ.get("TAPEGRAD_CUDA_SIMULATE")), "cuda")


def batches(model: Model) -> tuple:
    """A small batch and one that fills a large card; () for a model that is not measured there."""
    return (model.tiny,) if SIZES.tiny and model.cuda else model.cuda


def captured(lib, step, before=lambda: None):
    """A function that replays `step`, captured after three runs on another stream; `before` runs in front of each and of the capture."""
    side = lib.cuda.Stream()
    side.wait_stream(lib.cuda.current_stream())
    with lib.cuda.stream(side):
        for _ in range(3):
            before()
            step()
    lib.cuda.current_stream().wait_stream(side)
    before()
    graph = lib.cuda.CUDAGraph()
    with lib.cuda.graph(graph):
        step()
    return lambda: graph.replay()


def training_step(lib, model: Model, n: int, dtype: str = "float32", graphed: bool = False):
    """A function that makes a step; `graphed`: captured once and replayed. `step.model` is the module."""
    run = Run(lib, model, SIZES, n, dtype, graphed=graphed)
    replay = captured(lib, run.train, run.clear) if graphed else run.step

    def step():
        replay()

    step.model = run.module
    return step


def traffic(lib, step, steps: int = 5) -> dict:
    """What a step asks of the allocator: requests, their bytes, and how often it had to go to the driver."""
    names = {"requests": "allocation.all.allocated", "bytes": "allocated_bytes.all.allocated", "driver": "num_device_alloc"}
    before = lib.cuda.memory_stats()
    for _ in range(steps):
        step()
    lib.cuda.synchronize()
    after = lib.cuda.memory_stats()
    return {name: (after.get(key, 0) - before.get(key, 0)) / steps for name, key in names.items()} | {"peak": after.get("reserved_bytes.all.peak", 0)}


def first_step(library: str, name: str) -> dict:
    """Seconds of this process: the import, the network and its first batch on the device, the first step, the fourth."""
    times, start = {}, time.perf_counter()

    def lap(what):
        nonlocal start
        now = time.perf_counter()
        times[what], start = now - start, now

    lib = importlib.import_module(library)
    lap("import")
    model = named(name)
    step = training_step(lib, model, batches(model)[0])
    lib.cuda.synchronize()
    lap("build")
    for what in ("first", "second", "third", "fourth"):
        step(), lib.cuda.synchronize()
        lap(what)
    return {what: times[what] for what in ("import", "build", "first", "fourth")}


if __name__ == "__main__":
    print(json.dumps(first_step(*sys.argv[1:3])))
