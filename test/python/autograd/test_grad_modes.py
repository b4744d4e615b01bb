"""no_grad, enable_grad, inference_mode and set_grad_enabled: as scopes, decorators and around generators."""

import asyncio
import threading

import pytest
import tapegrad as tg


@pytest.fixture
def x():
    return tg.ones(2, requires_grad=True)


@pytest.mark.smoke
def test_scopes_nest(x):
    assert tg.is_grad_enabled()
    with tg.no_grad():
        assert not tg.is_grad_enabled() and not (x * 2).requires_grad
        with tg.enable_grad():
            assert (x * 2).requires_grad
            with tg.set_grad_enabled(False):
                assert not tg.is_grad_enabled()
            assert tg.is_grad_enabled()
        assert not tg.is_grad_enabled()
    assert tg.is_grad_enabled()


def test_one_object_may_be_entered_twice(x):
    scope = tg.no_grad()
    with scope:
        with scope:
            assert not tg.is_grad_enabled()
        assert not tg.is_grad_enabled()
    assert tg.is_grad_enabled()


def test_exceptions_restore():
    with pytest.raises(ValueError):
        with tg.no_grad():
            raise ValueError
    assert tg.is_grad_enabled()


def test_decorators(x):
    @tg.no_grad()
    def plain(y):
        "doc"
        return y * 2

    @tg.no_grad
    def bare(y):
        return y * 2

    @tg.enable_grad()
    def recorded(y):
        return y * 2

    @tg.inference_mode()
    def inference(y):
        return y * 2

    assert not plain(x).requires_grad and not bare(x).requires_grad
    assert plain.__name__ == "plain" and plain.__doc__ == "doc"
    with tg.no_grad():
        assert recorded(x).requires_grad
    assert inference(x).is_inference() and not x.is_inference()


def test_recursive_decorated_function(x):
    @tg.no_grad()
    def walk(n):
        assert not tg.is_grad_enabled()
        return x * 1 if n == 0 else walk(n - 1)

    assert not walk(40).requires_grad
    assert tg.is_grad_enabled()


def test_set_grad_enabled(x):
    tg.set_grad_enabled(False)
    try:
        assert not (x * 2).requires_grad
    finally:
        tg.set_grad_enabled(True)
    assert (x * 2).requires_grad

    @tg.set_grad_enabled(False)
    def function():
        return tg.is_grad_enabled()

    assert tg.is_grad_enabled()
    assert function() is False
    assert tg.is_grad_enabled()


def test_generators_keep_the_mode_to_themselves():
    @tg.no_grad()
    def steps():
        assert not tg.is_grad_enabled()
        got = yield 1
        assert not tg.is_grad_enabled() and got == "sent"
        try:
            yield 2
        except KeyError:
            assert not tg.is_grad_enabled()
        yield 3
        return "end"

    generator = steps()
    assert next(generator) == 1
    assert tg.is_grad_enabled()
    assert generator.send("sent") == 2
    assert tg.is_grad_enabled()
    assert generator.throw(KeyError()) == 3
    assert tg.is_grad_enabled()
    with pytest.raises(StopIteration) as end:
        next(generator)
    assert end.value.value == "end" and tg.is_grad_enabled()


def test_closed_generators_clean_up_inside_the_mode():
    seen = []

    @tg.no_grad()
    def steps():
        try:
            yield 1
        finally:
            seen.append(tg.is_grad_enabled())

    generator = steps()
    next(generator)
    generator.close()
    assert seen == [False] and tg.is_grad_enabled()


def test_coroutines():
    @tg.no_grad()
    async def work():
        return tg.is_grad_enabled()

    assert asyncio.run(work()) is False
    assert tg.is_grad_enabled()


def test_modes_belong_to_threads(x):
    seen = []
    with tg.no_grad():
        thread = threading.Thread(target=lambda: seen.append((x * 2).requires_grad))
        thread.start()
        thread.join()
    assert seen == [True]


def test_no_grad_writes_to_leaves(x):
    with tg.no_grad():
        x -= 0.5
        x[0] = 7
    assert x.requires_grad and x.is_leaf and x.tolist() == [7, 0.5]


def test_made_in_no_grad_may_ask_for_a_gradient():
    with tg.no_grad():
        y = tg.ones(2, requires_grad=True)
        z = tg.nn.Parameter(tg.ones(2))
    assert y.requires_grad and z.requires_grad
    (y * z).sum().backward()
    assert y.grad is not None


def test_inference_tensors(x):
    with tg.inference_mode():
        assert tg.is_inference_mode_enabled()
        made = x * 2
        made.add_(1)
        assert made.is_inference() and not made.requires_grad
        view = made[0]
        assert view.is_inference()
        with tg.inference_mode(False):
            assert not tg.is_inference_mode_enabled()
            assert (x * 2).requires_grad
    with pytest.raises(RuntimeError, match="outside InferenceMode"):
        made.add_(1)
    with pytest.raises(RuntimeError, match="cannot be saved for backward"):
        x * made
    with pytest.raises(RuntimeError):
        made.requires_grad_()
    assert (x * made.clone()).requires_grad
    assert (x + made).requires_grad
    assert not made.detach().clone().is_inference()


def test_inference_mode_writes_to_normal_tensors():
    y = tg.ones(2)
    with tg.inference_mode():
        y.add_(1)
    assert y.tolist() == [2, 2] and not y.is_inference()


def test_a_decorated_class_is_warned_of():
    with pytest.warns(FutureWarning, match="Decorating classes is deprecated"):
        @tg.no_grad()
        class Inside:
            def __init__(self):
                self.recorded = tg.is_grad_enabled()

    assert not Inside().recorded


@pytest.mark.parametrize("mode", [tg.no_grad, tg.enable_grad])
def test_a_mode_without_arguments_takes_no_keywords(mode):
    with pytest.raises(TypeError, match=r"^tapegrad\.\w+_grad\(\) takes no keyword arguments$"):
        mode(mode=False)
