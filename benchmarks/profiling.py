"""What a running profiler costs a training step, with nothing asked of it and with everything.

Pieces of training with and without a session alternate; what counts is the recording, not the start of a session nor its end,
when the events become Python objects. Times are of the thread, so that what else runs on the machine is not measured."""

import statistics
import time

import tapegrad as tg

from .overhead import tiny_mlp

OPTIONS = {"defaults": (), "record_shapes": ("shapes",), "profile_memory": ("memory",), "with_stack": ("stack",), "with_modules": ("modules",),
           "everything": ("shapes", "memory", "stack", "modules")}


def _mlp(width: int, batch: int):
    """A step of a network for the digits: 784 inputs, one hidden layer, ten classes, Adam."""
    tg.manual_seed(0)
    nn = tg.nn
    model = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = tg.optim.Adam(model.parameters(), lr=1e-3)
    x, y = tg.randn(batch, 784), tg.randint(0, 10, (batch,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def _piece(step, count: int) -> float:
    start = time.thread_time()
    for _ in range(count):
        step()
    return (time.thread_time() - start) / count


def _cost(step, asked: tuple[str, ...], rounds: int) -> tuple[float, float, float]:
    """(seconds of a step without, seconds that recording adds, events of a step): medians of alternating pieces."""
    count = max(1, int(0.004 / _piece(step, 50)))
    without, added = [], []
    for _ in range(rounds):
        before = _piece(step, count)
        tg._C._profiler_start(*(name in asked for name in ("shapes", "memory", "stack", "modules")))
        during = _piece(step, count)
        threads, _ = tg._C._profiler_stop()
        events = sum(len(log) for _, _, log in threads) / count
        after = _piece(step, count)
        without.append((before + after) / 2)
        added.append(during - without[-1])
    return statistics.median(without), statistics.median(added), events


def measure_profiler(rounds: int):
    """(network, options, microseconds of a step, share added, nanoseconds per event, events)"""
    threads = tg.get_num_threads()
    tg.set_num_threads(1)
    try:
        for network, step in (("tiny MLP 4-16-16-2, batch 8", tiny_mlp(tg)), ("MLP 784-128-10, batch 64", _mlp(128, 64))):
            for name, asked in OPTIONS.items():
                without, added, events = _cost(step, asked, max(rounds, 51))
                yield network, name, 1e6 * without, added / without, 1e9 * added / events, events
    finally:
        tg.set_num_threads(threads)


def table(rows) -> str:
    lines = ["", "## What a running profiler costs", "", "Medians of alternating pieces, on one thread; the recording only.", "",
             "| training step | asked for | a step without | added | per event | events |", "| --- | --- | --- | --- | --- | --- |"]
    for network, name, us, share, ns, events in rows:
        lines.append(f"| {network} | {name} | {us:.1f} us | {100 * share:+.1f} % | {ns:.0f} ns | {events:.0f} |")
    return "\n".join(lines) + "\n"
