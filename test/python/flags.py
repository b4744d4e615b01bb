"""Calls of rows with tensors of bool, and the same truth in other bytes than 0 and 1."""

import itertools

import numpy as np
import rows
import tapegrad as tg

VALUES = [r for r in rows.load_records() if r.samples and not r.name.startswith("_") and r.kind != "random" and not r.test.get("random") and r.test.get("values", True)]
SEEDS = itertools.count()


def dirty(t):
    """The same truth in other bytes."""
    if t.dtype != tg.bool or t.numel() == 0:
        return t
    bytes_ = np.random.default_rng(next(SEEDS)).choice([1, 2, 6, 128, 255], t.shape)
    return tg.tensor(np.where(t.numpy(), bytes_, 0).astype("u1")).view(tg.bool)


def with_flags(record):
    for dtype in (tg.bool, tg.float32):
        try:
            samples = record.make_samples(dtype)
        except (RuntimeError, NotImplementedError, KeyError, TypeError, ValueError, ZeroDivisionError):
            continue  # they are computed by what bool has not
        for args, kwargs in samples:
            if any(t.dtype == tg.bool for t in rows.tensors_of([args, kwargs])):
                yield args, kwargs
