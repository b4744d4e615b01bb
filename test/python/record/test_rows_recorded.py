"""Every row of the op table, recorded with the numbers of two seeds and replayed with those of others, over memory that was
overwritten: the bits are eager's."""

import numpy as np
import pytest
import rows
import tapegrad
from rows import map_tree, tensors_of

RECORDS = [r for r in rows.load_records() if r.samples and r.kind != "overload" and r.test.get("values") is not False]
# What a replay cannot repeat, as reasons say it.
EXPECTED = ("reads a value", "is a view of", "needs a gradient", "was exchanged", "random numbers", "shares memory", "share memory", "runs on",
            "are kept somewhere", "is on ", "other arguments", "sparse", "has another shape", "made has other values")


def _bits(value):
    """The tensors of a result as bytes, and what else it is."""
    found = []
    for t in tensors_of([value]):
        t = t.detach()
        dense = t.to_dense() if t.layout is not tapegrad.strided else t
        found.append((str(t.dtype), tuple(t.shape), dense.reshape(-1).clone().view(tapegrad.uint8).numpy().tobytes() if dense.numel() and dense.ndim
                      else np.asarray(dense.tolist()).tobytes()))
    return found


def _run(function, sample, seed):
    args, kwargs = sample
    tapegrad.manual_seed(seed)
    return function(*args, **kwargs)


def _samples(record, seed):
    return record.make_samples(tapegrad.float32, seed)


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_replay_has_the_bits_of_eager(record):
    try:
        made = [_samples(record, seed) for seed in range(4)]
    except (KeyError, RuntimeError, NotImplementedError):
        made = [record.make_samples(None, seed) for seed in range(4)]
    replayed, reasons = 0, set()
    for n in range(len(made[0])):
        step = tapegrad.record(record.function, pure=True)
        for seed, samples in enumerate(made):
            sample = map_tree(lambda t: t.detach(), samples[n])
            again = map_tree(lambda t: t.clone() if t.layout is tapegrad.strided else t, sample)
            try:
                expected = _run(record.function, again, seed)
            except (RuntimeError, ValueError, IndexError, TypeError) as error:
                with pytest.raises(type(error)):
                    _run(step, sample, seed)
                continue
            step._replays.scribble()
            got = _run(step, sample, seed)
            assert _bits(got) == _bits(expected), f"{record.name} sample {n}, seed {seed}: {step.summary()}"
            # What it wrote to its arguments, too.
            assert _bits(sample) == _bits(again), f"{record.name} sample {n}, seed {seed}: {step.summary()}"
        replayed += sum(count for _, _, count in step._replays.plans())
        reasons |= step._reasons
    unknown = [r for r in reasons if not any(known in r for known in EXPECTED)]
    assert not unknown, f"{record.name}: {unknown}"
    record_counts[record.name] = replayed


record_counts: dict = {}


def test_most_rows_are_replayed():
    """Runs last: of the rows that this process has seen, nearly all were replayed."""
    if len(record_counts) < 100:
        pytest.skip("only some of the rows ran here")
    never = sorted(name for name, count in record_counts.items() if count == 0)
    assert len(never) < 0.2 * len(record_counts), never
