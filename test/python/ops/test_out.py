"""Outputs that a caller gives: also an input, resized, of shared elements; what PyTorch's samples found."""

import warnings

import numpy as np
import pytest
import tapegrad as tg


def test_out_that_is_an_input_is_resized_after_the_reading():
    z = tg.zeros(0, 5)
    tg.sum(z, 0, out=z)
    assert z.tolist() == [0.0] * 5


def test_out_that_overlaps_an_input_gets_what_a_copy_would():
    base = tg.arange(10.0)
    expected = tg.cumsum(base[:8], 0)
    tg.cumsum(base[:8], 0, out=base[1:9])
    assert (base[1:9] == expected).all()


@pytest.mark.parametrize("call", [lambda out: tg.cat((tg.ones(2, 3), tg.ones(2, 3)), out=out), lambda out: tg.matmul(tg.ones(4, 2), tg.ones(2, 3), out=out)])
def test_out_whose_elements_share_memory_raises(call):
    out = tg.zeros(1, 3).expand(4, 3)
    with pytest.raises(RuntimeError, match="unsupported operation: elements of out share memory: sizes \\[4, 3\\], strides \\[0, 1\\]"):
        call(out)
    assert out.tolist() == [[0.0] * 3] * 4


def test_out_of_a_size_that_depends_on_the_data():
    x = tg.tensor([[0.0, 2.0], [3.0, 0.0]])
    out = tg.empty(0, dtype=tg.int64)
    assert tg.nonzero(x, out=out) is out and out.tolist() == [[0, 1], [1, 0]]
    chosen = tg.empty(0)
    assert tg.masked_select(x, x > 0, out=chosen).tolist() == [2.0, 3.0]


def test_numbers_keep_their_digits_in_gradients():
    x = tg.tensor([2.0, 5.0], dtype=tg.float64, requires_grad=True)
    (g,) = tg.autograd.grad((x ** (1 / 3)).sum(), x)
    np.testing.assert_allclose(g.numpy(), np.array([2.0, 5.0]) ** (1 / 3 - 1) / 3, rtol=1e-14)
    (g,) = tg.autograd.grad(tg.lerp(x, tg.zeros(2, dtype=tg.float64), 0.3).sum(), x)
    np.testing.assert_allclose(g.numpy(), [0.7, 0.7], rtol=1e-14)


def test_inplace_flag_of_activations():
    x = tg.tensor([-1.0, 1.0])
    assert tg.nn.functional.leaky_relu(x, 0.5, True) is x and x.tolist() == [-0.5, 1.0]
    assert tg.nn.functional.relu(x, inplace=True) is x and x.tolist() == [0.0, 1.0]
    assert tg.nn.functional.relu(x) is not x


def test_forms_that_a_row_cannot_say():
    x = tg.tensor([[0, 2], [3, 0]])
    rows, columns = x.nonzero(as_tuple=True)
    assert rows.tolist() == [0, 1] and columns.tolist() == [1, 0]
    a, b = tg.arange(6.0).reshape(2, 3), tg.arange(6.0).reshape(3, 2)
    assert (tg.tensordot(a, b, ([1], [0])) == a @ b).all()
    assert (tg.tensordot(a, b, 1) == a @ b).all()
    assert (tg.tensordot(a, tg.ones(1, 2), 1) == a.sum(1, keepdim=True) * tg.ones(2)).all()
    first, second = tg.atleast_2d(tg.tensor(1.0), tg.ones(3))
    assert first.shape == (1, 1) and second.shape == (1, 3)


def test_slices_are_compared_in_order_along_any_dimension():
    values = np.random.default_rng(0).integers(0, 2, (3, 4, 5)).astype(np.float32)
    for dim in range(3):
        assert (tg.unique(tg.tensor(values), dim=dim).numpy() == np.unique(values, axis=dim)).all()


def test_circular_padding_cuts_first():
    x = tg.arange(5.0).reshape(1, 1, 5)
    assert tg.nn.functional.pad(x, (-1, 2), "circular").tolist() == [[[1, 2, 3, 4, 1, 2]]]


@pytest.mark.parametrize("call", [lambda out: tg.diff(tg.ones(4), out=out), lambda out: tg.add(tg.ones(3), 1, out=out)], ids=["composite", "kernel"])
def test_out_on_another_device(call):
    with pytest.raises(RuntimeError, match="(diff: expected out|add: expected all tensors) on (cpu|one device): got (cpu and )?meta"):
        call(tg.empty(3, device="meta"))


@pytest.mark.parametrize("form", ["plain", "strided", "empty", "number"])
@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float16", "float64"), ("bfloat16", "float32"), ("float16", "bfloat16")], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "atan2", "hypot", "maximum", "exp", "sqrt", "sigmoid", "sin", "lerp", "addcmul", "clamp"])
def test_out_of_a_wider_dtype_gets_the_result_as_its_own_dtype_rounds_it(name, dtypes, form):
    torch = pytest.importorskip("torch")

    def run(t):
        x, y, z = (t.tensor(v, dtype=getattr(t, dtypes[0])) for v in ([60000.0, 0.1, -3.0], [5984.0, 0.3, 1.7], [0.7, 0.01, 3.0]))
        if form == "strided":
            x = x[:, None].expand(3, 2)[:, 0]
        out = t.empty(0 if form == "empty" else 3, dtype=getattr(t, dtypes[1]))
        args = {"lerp": (x, y, z), "addcmul": (x, y, z), "clamp": (x, 0.1, 5.3)}.get(name) or (
            (x,) if name in ("exp", "sqrt", "sigmoid", "sin") else (x, 1.3 if form == "number" and name not in ("atan2", "hypot", "maximum") else y))
        getattr(t, name)(*args, out=out)
        np.testing.assert_array_equal(out.float().numpy(), getattr(t, name)(*args).to(out.dtype).float().numpy())
        return out.float().numpy()

    mine = run(tg)
    if form != "number" and name not in ("lerp", "clamp"):  # PyTorch rounds numbers first, and takes no such out of the two
        np.testing.assert_array_equal(mine, run(torch))


@pytest.mark.parametrize("dtypes", [("float16", "float64"), ("float16", "float32"), ("float32", "float64"), ("bfloat16", "float32"), ("int32", "int32"),
                                    ("int64", "int32"), ("bool", "int32"), ("uint8", "float32"), ("int32", "float64")], ids=str)
@pytest.mark.parametrize("name", ["sum", "nansum", "prod", "mean"])
def test_sums_are_taken_in_the_dtype_of_their_out(name, dtypes):
    torch = pytest.importorskip("torch")

    def run(t):
        x = t.tensor([[60000.0, 60000.0, 3.0], [1.3, 2.7, 0.1]] if "float" in dtypes[0] else [[100, 20, 3], [1, 1, 0]])
        out = t.empty(2, dtype=getattr(t, dtypes[1]))
        try:
            getattr(t, name)(x.to(getattr(t, dtypes[0])), 1, out=out)
        except RuntimeError:
            return None
        return out.double().numpy()

    mine, theirs = run(tg), run(torch)
    assert (mine is None) == (theirs is None)
    if mine is not None:
        np.testing.assert_allclose(mine, theirs, rtol=2e-7)


RESIZED = [lambda x, out: tg.sum(x, out=out), lambda x, out: tg.add(x, x, out=out), lambda x, out: tg.cat((x, x), out=out),
           lambda x, out: tg.masked_select(x, x > 1, out=out), lambda x, out: tg.linspace(0, 1, 5, out=out)]


@pytest.mark.parametrize("call", RESIZED)
def test_out_of_another_size_is_resized_with_a_warning(call, recwarn):
    x, out = tg.tensor([1.0, 2.0]), tg.zeros(3)
    expected = call(x, tg.empty(0))
    assert not recwarn.list
    view = out[:]
    with pytest.warns(UserWarning, match="^An output with one or more elements was resized since it had shape \\[3\\], which does not match"):
        assert call(x, out) is out
    assert out.shape == expected.shape and tg.equal(out, expected) and view.tolist() == [0, 0, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = tg.zeros(3)
        with pytest.raises(UserWarning):
            call(x, other)
        assert other.tolist() == [0, 0, 0]
        assert call(x, tg.empty_like(expected)).tolist() == expected.tolist()


def test_out_says_which_dtype_is_made():
    assert tg.linspace(0, 4, 3, out=tg.empty(3, dtype=tg.int32)).tolist() == [0, 2, 4]
    assert tg.arange(3, out=tg.empty(3, dtype=tg.float64)).dtype == tg.float64
    with pytest.raises(RuntimeError, match=r"linspace: dtype float32 does not match dtype of out parameter \(int32\)"):
        tg.linspace(0, 4, 3, dtype=tg.float32, out=tg.empty(3, dtype=tg.int32))
    tg.manual_seed(0)
    same = tg.rand(3, dtype=tg.complex128)
    tg.manual_seed(0)
    assert tg.equal(tg.rand(3, out=tg.empty(0, dtype=tg.complex128)), same) and tg.full((2,), 1.5, out=tg.empty(2, dtype=tg.int64)).tolist() == [1, 1]


def test_vectors_fill_an_out_of_another_shape_with_as_many_elements(recwarn):
    for call in (lambda **k: tg.linspace(0, 3, 4, **k), lambda **k: tg.logspace(0, 3, 4, **k), lambda **k: tg.arange(4, **k), lambda **k: tg.arange(1, 5, **k)):
        x = tg.zeros(2, 3)
        assert call(out=x[:, 1:]).shape == (2, 2)
        assert tg.equal(x[:, 1:].reshape(-1), call(dtype=tg.float32)) and x[:, 0].tolist() == [0, 0]
    assert not recwarn.list


def test_numbers_as_second_argument():
    torch = pytest.importorskip("torch")
    x, y = tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0])
    with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
        tg.addcmul(x, 2, x, y)
    assert tg.add(x, 2, y).tolist() == x.add(2, y).tolist() == [7, 10] and tg.sub(x, 2, y).tolist() == [-5, -6]
    assert tg.addcmul(x, 2, x, y).tolist() == [7, 18] and tg.addcdiv(x, 2.0, y, x).tolist() == [7, 6]
    assert x.clone().addcmul_(0.5, x, y).tolist() == [2.5, 6] and x.clone().add_(2.0, y).tolist() == [7, 10]
    for t in (tg, torch):  # of two numbers beta is the first; one alone is beta
        m, v, b, p = t.ones(2, 2), t.ones(2), t.ones(3, 2, 2), t.full((2, 2), 3.0)
        results = [m.addmm(2, p, p), m.addmm(2, 5, p, p), t.addmm(2, m, p, p), t.addmm(2, m, 5, p, p), m.addbmm(2, 5, b, b), t.addbmm(2, m, b, b),
                   b.baddbmm(2, 5, b, b), b.clone().baddbmm_(2, b, b), v.addmv(2, p, v), t.addmv(2, v, 5, p, v), m.addr(2, 5, v, v), t.addr(2, m, v, v)]
        assert [r.sum().item() for r in results] == [80, 368, 80, 368, 128, 32, 144, 48, 16, 64, 28, 12]
    for call in (lambda: tg.addmm(2, 3, x, y, y), lambda: tg.addmm(x, 2, x, y, y, y), lambda: tg.add(x, y, x), lambda: tg.add(x, 2, y, alpha=3), lambda: tg.add(x, 2, y, x), lambda: tg.mul(x, 2, y)):
        with pytest.raises(TypeError):
            call()


def test_dtypes_that_must_be_one():
    x, y = tg.ones(2), tg.ones(2, dtype=tg.float64)
    for call in (tg.allclose, tg.isclose):
        with pytest.raises(RuntimeError, match=f"^{call.__name__}: .*float32 did not match .*float64$"):
            call(x, y)
    with pytest.raises(RuntimeError, match="expected dtype .*float32 for `end` but got dtype .*float64"):
        tg.lerp(x, y, 0.5)
    z = tg.arange(6.0)
    with pytest.raises(RuntimeError, match="^copy_: unsupported operation: the tensor to write to overlaps"):
        z[1:].copy_(z[:-1])
    assert z.tolist() == list(range(6)) and z.copy_(z).tolist() == list(range(6))


def test_resize_as_in_another_order():
    like = tg.empty(2, 3, 4, 5).contiguous(memory_format=tg.channels_last)
    assert tg.empty(0).resize_as_(like).is_contiguous()
    assert tg.empty(0).resize_as_(like, memory_format=tg.preserve_format).is_contiguous(memory_format=tg.channels_last)
    assert tg.empty(0).resize_as_(tg.empty(2, 3, 4, 5), memory_format=tg.channels_last).stride() == (60, 1, 15, 3)


def test_diff_of_what_does_not_fit():
    x = tg.ones(2, 3)
    for other, text in ((tg.ones(3), "to be the same dimension as input"), (tg.ones(1, 2), "to match that of input except along the differencing dimension")):
        with pytest.raises(RuntimeError, match=text):
            x.diff(dim=0, prepend=other)


@pytest.mark.parametrize("lib", ["tapegrad", "torch"])
def test_dtypes_that_out_must_have(lib):
    lib = pytest.importorskip(lib, reason="compared with PyTorch")
    x = lib.ones(3, 4)
    for name in ("any", "all"):
        for dtype in (lib.float32, lib.int8, lib.int64, lib.complex64):
            with pytest.raises(RuntimeError, match=f"{name} only supports bool tensor for result, got"):
                getattr(lib, name)(x, 0, out=lib.empty(4, dtype=dtype))
        assert [getattr(lib, name)(x, 0, out=lib.empty(4, dtype=d)).dtype for d in (lib.bool, lib.uint8)] == [lib.bool, lib.uint8]
    for name in ("sum", "prod", "mean"):
        with pytest.raises(RuntimeError, match="Expected out tensor to have dtype "):
            getattr(lib, name)(x, 0, dtype=lib.float32, out=lib.empty(4, dtype=lib.float64))
        assert getattr(lib, name)(x, 0, dtype=lib.float64, out=lib.empty(4, dtype=lib.float64)).tolist() == [3, 3, 3, 3] or name != "sum"
