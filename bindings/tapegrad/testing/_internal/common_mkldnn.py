"""Lower precision of float32 on CPUs, which products here never use: tests run once."""

import contextlib


def reduced_f32_on_and_off(bf32_precision=1e-2, tf32_precision=1e-5):
    """The test itself: there is one precision."""
    return lambda test: test


def bf32_is_not_fp32() -> bool:
    return False


def tf32_is_not_fp32() -> bool:
    return False


@contextlib.contextmanager
def reduced_f32_off():
    yield
