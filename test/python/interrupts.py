"""How long a call goes on after an interrupt, and operands with which an operator runs long."""

import contextlib
import os
import signal
import time

import tapegrad as tg
from rows import map_tree, tensors_of

AFTER = 0.3  # seconds of processor time until the interrupt
MOST_ELEMENTS = int(os.environ.get("TAPEGRAD_INTERRUPT_ELEMENTS", 1 << 24))  # of a call's operands


def lateness(call, after: float = AFTER) -> float | None:
    """The seconds from an interrupt until the call raises KeyboardInterrupt; None where it was done before.

    Counted in processor time of all threads, which other processes on the machine do not change, and not more than those on
    the clock.
    """
    armed = True

    def interrupt(*_):
        nonlocal armed
        if armed:
            armed = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGPROF, interrupt)
    start, clock = time.process_time(), time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_PROF, after)
        call()
        armed = False
        late = time.process_time() - start - after
        return late if late > 0.05 else None  # it was never asked about the interrupt
    except KeyboardInterrupt:
        return min(time.process_time() - start, max(time.monotonic() - clock, after)) - after
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _tiled(value, size: int, times: int, numbers: bool):
    """The nested value with every dimension of `size` that many times as long: tensors repeat themselves, so that numbers stay
    in the domain and places within bounds. `numbers`: whole numbers and lists of them, too."""
    def longer(t):
        if t.is_sparse or size not in t.shape:
            return t
        return t.detach().repeat([times if n == size else 1 for n in t.shape])

    def number(v):
        if type(v) is int:
            return v * times if v == size else v
        if isinstance(v, (list, tuple)) and not isinstance(v, tg.Size):
            return type(v)(number(x) for x in v) if type(v) in (list, tuple) else v
        return {k: number(x) for k, x in v.items()} if isinstance(v, dict) else v

    value = map_tree(longer, value)
    return number(value) if numbers else value


def latenesses(record, samples: int = 2, after: float = AFTER):
    """(what was grown, lateness or None) for each size that the samples of a row have: the row's operands grow along it until
    the call is interrupted, or they become too large, or the row refuses them."""
    drawn = sorted(record.make_samples(tg.float32 if "float32" in record.dtypes else None),
                   key=lambda s: -len({n for t in tensors_of(s) for n in t.shape}))
    for number, sample in enumerate(drawn[:samples]):
        sizes = sorted({n for t in tensors_of(sample) for n in t.shape if n > 1} | {v for v in sample[0] if type(v) is int and v > 1})
        for size in sizes:
            late = None
            for numbers in (False, True):
                times, used = 1, 0.0
                while late is None:
                    with contextlib.suppress(Exception):
                        args, kwargs = _tiled(sample, size, times, numbers)
                        if sum(t.numel() for t in tensors_of([args, kwargs])) > MOST_ELEMENTS or times > MOST_ELEMENTS:
                            break
                        start = time.process_time()
                        late = lateness(lambda: record.function(*args, **kwargs), after)  # noqa: B023
                        used = time.process_time() - start
                        times *= 64 if used < after / 32 else max(2, round(3 * after / used))
                        continue
                    break  # refused
                if late is not None:
                    break
            yield f"sample {number}, size {size} times {times}", late
