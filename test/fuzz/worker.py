"""Makes broken calls of operators in this process. usage: worker.py SEED CALLS NAME...

Prints `finding: ...` for a refusal without type or message and for a call that no interrupt ends; the last line tells
the number of calls. What the process was doing when it died is in the file that TG_LAST_CALL names.
"""

import gc
import os
import random
import signal
import sys
import warnings
import zlib
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "python")]

sys.modules["torch"] = None  # not needed here, and large

import mutate  # noqa: E402
import others  # noqa: E402
import rows  # noqa: E402
import tapegrad as tg  # noqa: E402
from child import MEMORY, SANITIZED, Journal, describe, limit_memory  # noqa: E402

TYPED = (TypeError, ValueError, RuntimeError, IndexError, OverflowError, MemoryError, KeyError, AttributeError, NotImplementedError, ZeroDivisionError, BufferError)
# Time that all threads spent in the program itself: neither a busy machine nor slow pages stretch it.
SECONDS = 0.3  # after which a call is interrupted: what only takes long finds nothing
GRACE = 2.0  # for it to end; 0.2 is usual
SMALL = 20_000  # elements that are read back and walked through by backward


class TooLong(KeyboardInterrupt):
    """Raised by the alarm; like Ctrl-C, it must end any operator."""


def _alarm(signum, frame):
    raise TooLong


def callables(record):
    """(text, function, whether out= exists) of the forms of a row."""
    yield "", record.function, record.out
    for suffix, present in (("", record.method), ("_", record.inplace)):
        method = getattr(tg.Tensor, record.name + suffix, None) if present else None
        if method is not None:
            yield "Tensor." + suffix, method, False


def leaves(node):
    """The tensors at the ends of a graph."""
    rest, seen = [node], set()
    while rest:
        node = rest.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        rest += [after for after, _ in node.next_functions]


def use(result, rng: random.Random):
    """Reads a result, and goes back through the tape."""
    tensors = rows.tensors_of(result)
    for t in tensors[:3]:
        if t.is_meta or t.numel() > SMALL:
            continue
        repr(t)
        if t.requires_grad and t.grad_fn is not None and rng.random() < 0.5:
            create = rng.random() < 0.2
            total = t.sum()
            try:
                (total.abs() if total.dtype.is_complex else total).backward(create_graph=create)
            finally:
                if create:  # a gradient that has a graph leads back to its tensor: a cycle that the program has to cut
                    for leaf in leaves(total.grad_fn):
                        leaf.grad = None


def one_call(record, samples, rng: random.Random, journal: Journal, number: int):
    args, kwargs = rng.choice(samples)
    args, kwargs = rows.map_tree(lambda t: t.detach().clone().requires_grad_(t.requires_grad), (list(args), kwargs))
    if rng.random() < 0.3:
        args = rows.map_tree(lambda t: t.requires_grad_() if (t.dtype.is_floating_point or t.dtype.is_complex) and t.is_leaf else t, args)
    journal.write(f"breaking the arguments of call {number}: {record.name} {describe(args)} {describe(kwargs)}")
    try:
        call = mutate.mutated(rng, args, kwargs, record.args)
        text, function, out = rng.choice(list(callables(record)))
        if out and rng.random() < 0.3:
            like = tg.ones(3)
            call.kwargs["out"] = mutate.target(rng, (like,) * len(record.outputs) if len(record.outputs) > 1 else like, call)
    except TYPED:  # what was to be broken cannot be broken so
        return None
    journal.write(f"call {number}: {text}{record.name} {describe(call.args)} {describe(call.kwargs)}")
    begun = os.times().user
    try:
        use(function(*call.args, **call.kwargs), rng)
    except (*TYPED, *getattr(record, "refusals", ())) as error:
        message = str(error)
        if not message and not isinstance(error, (MemoryError, KeyError)):
            return f"no message: {type(error).__name__}"
        if "internal assertion" in message or isinstance(error, SystemError):
            return f"{type(error).__name__}: {message}"
    except TooLong:  # a long call is right as long as it can be ended
        late = os.times().user - begun - SECONDS
        return f"ended {late:.1f} s after it was interrupted" if late > GRACE else None
    except Exception as error:  # noqa: BLE001 - reported
        return f"untyped refusal {type(error).__name__}: {error}"
    return None


def main():
    seed, calls, wanted = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    warnings.simplefilter("ignore")
    journal = Journal()
    signal.signal(signal.SIGVTALRM, _alarm)
    records = {r.name: r for r in rows.load_records()} | others.records()
    if SANITIZED:
        limit_memory(MEMORY)
    before = None
    for name in wanted:
        record = records[name]
        rng = random.Random(seed * 1_000_003 + zlib.crc32(name.encode()))
        samples = record.make_samples(rng.choice((tg.float32, tg.float64)))
        for number in range(calls):
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                try:
                    finding = one_call(record, samples, rng, journal, number)
                finally:
                    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            except TooLong:  # it came a moment after the call, perhaps in the line above; it comes once
                finding = None
            if finding:
                print(f"finding: {name}: {finding}\n  {journal.read()}", flush=True)
        samples = None
        if before is None:  # the first operator's calls have filled whatever is filled once
            gc.collect()
            before = tg.cpu.memory_allocated()
    gc.collect()
    after = tg.cpu.memory_allocated()
    if after > before + (1 << 20):
        print(f"finding: memory: {after - before} bytes more are allocated than before the calls")
    print(f"{calls * len(wanted)} calls")


if __name__ == "__main__":
    main()
