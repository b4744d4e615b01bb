"""Sizes as a recorded step has them: integers that are followed, which a program may keep, hand on and ask what they are."""

import pytest
import tapegrad as tg


def test_a_number_of_another_recording_is_a_number():
    kept = []

    @tg.record
    def keeping(x):
        n = x.size(0)
        kept.append(n)
        return x * n

    keeping(tg.randn(4, 6))
    rows = kept[0]

    def program(x):
        columns = x.size(1)
        return x.view(rows, -1) + tg.zeros(columns)

    step = tg.record(program)
    for n in (4, 4, 4, 1, 4, 2):  # with 4 columns it is as large as the first size that this one reads
        x = tg.randn(4, n)
        got, expected = step(x), program(x)
        assert got.shape == expected.shape and got.equal(expected), n
    assert rows == 4


def test_a_number_that_was_kept_has_no_symbol_here():
    kept = []

    @tg.record
    def keeping(x):
        n = x.size(0)
        for i in range(50):
            m = n + i
        kept.append(m)
        return x * n

    keeping(tg.randn(4, 6))
    far = kept[0]
    step = tg.record(lambda x: tg.tensor([far]) + x.size(0))
    for n in (4, 4, 4, 5, 3):
        assert step(tg.randn(n, 2)).tolist() == [53 + n]


def test_calls_that_are_of_another_function_each_time():
    def program(x):
        n, made = x.size(0), []
        for f in (tg.zeros, range):
            made.append(f(n))
        return x.sum() + len(made[1])

    step = tg.record(program)
    for n in (4, 4, 4, 3, 5):
        x = tg.randn(n, 6)
        assert step(x).equal(program(x)), n


def is_plain(n):
    return type(n) is int


@pytest.mark.parametrize("ask", [lambda x: type(x.size(0)) is int, lambda x: is_plain(x.size(0)), lambda x: is_plain(x.shape[0])])
def test_the_type_of_a_size(ask):
    step = tg.record(lambda x: x * (1.0 if ask(x) else 2.0))
    for n in (4, 4, 4, 3):
        x = tg.randn(n, 6)
        assert step(x).equal(x), n


@pytest.mark.parametrize("transform", [lambda f: tg.vmap(f), lambda f: tg.func.grad(lambda x: f(x).sum())])
def test_sizes_within_transforms(transform):
    program = transform(lambda t: t * t.size(0))
    step = tg.record(program)
    for n in (4, 4, 4, 3, 4, 5):
        x = tg.randn(n, 6)
        assert step(x).equal(program(x)), n
