"""Backward and recording from several Python threads."""

import functools
import threading

import numpy as np
import pytest
import tapegrad as tg
from autograd.leaves import Square, leaf
from threads import run_all


def in_threads(count, work):
    run_all([functools.partial(work, i) for i in range(count)], 60)


def test_graphs_of_their_own_over_shared_leaves():
    w = leaf(1, 2, 3)

    def work(i):
        for _ in range(100):
            (w * w * (i + 1)).sum().backward()

    in_threads(4, work)
    np.testing.assert_allclose(w.grad.numpy(), 100 * 10 * 2 * w.detach().numpy())


def test_one_graph_from_several_threads():
    x = leaf(1, 2)
    y = (tg.exp(x) * x).sum()
    in_threads(4, lambda i: [y.backward(retain_graph=True) for _ in range(100)])
    expected = 400 * np.exp([1, 2]) * np.array([2, 3])
    np.testing.assert_allclose(x.grad.numpy(), expected)


def test_hooks_from_several_threads():
    x, seen = leaf(1, 2), []
    y = x * 2
    y.register_hook(lambda g: seen.append(threading.get_ident()))
    z = y.sum()
    in_threads(4, lambda i: [z.backward(retain_graph=True) for _ in range(50)])
    assert len(seen) == 200 and x.grad.tolist() == [400, 400]


def test_custom_functions_from_several_threads():
    x = leaf(1, 2)
    in_threads(4, lambda i: [Square.apply(x).sum().backward() for _ in range(100)])
    assert x.grad.tolist() == [800, 1600]


def test_freeing_while_others_run():
    """One thread frees what another wants: an error or a gradient, never a crash."""
    for _ in range(50):
        x = leaf(1, 2)
        y = (tg.exp(x) * x).sum()
        failed = []

        def work(i, y=y, failed=failed):
            try:
                y.backward()
            except RuntimeError as error:
                assert "a second time" in str(error)
                failed.append(i)

        in_threads(3, work)
        assert len(failed) <= 3


def test_modes_and_anomaly_in_threads():
    x = leaf(1)

    def work(i):
        for _ in range(200):
            if i % 2:
                with tg.no_grad():
                    assert not (x * 2).requires_grad
            else:
                assert (x * 2).requires_grad

    in_threads(4, work)


def test_exceptions_stay_in_their_thread():
    x = leaf(1)

    def work(i):
        y = x * 2
        if i == 0:
            y.register_hook(lambda g: 1 / 0)
        for _ in range(50):
            if i == 0:
                with pytest.raises(ZeroDivisionError):
                    y.backward(retain_graph=True)
            else:
                y.backward(retain_graph=True)

    in_threads(3, work)
    assert x.grad.tolist() == [200]
