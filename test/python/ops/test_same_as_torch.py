"""Calls that were found to differ from PyTorch: both libraries make them, results (values, dtypes, shapes), first and second gradients and
classes of exceptions must agree. What differs on purpose is tested below with its reason."""

import math

import pytest
import rows
import tapegrad as tg

torch = pytest.importorskip("torch")
inf, nan = math.inf, math.nan


def outcome(call, t):
    """What call(t) gives: a nested result, or the class of the exception."""
    try:
        return call(t)
    except Exception as e:
        return type(e).__name__


def same(call, where=""):
    got, expected = outcome(call, tg), outcome(call, torch)
    if isinstance(expected, str):
        # A NotImplementedError is a RuntimeError.
        assert isinstance(got, str), f"{where}: {got} where PyTorch raises {expected}"
        assert got == expected or (expected, got) == ("RuntimeError", "NotImplementedError"), f"{where}: {got}, expected {expected}"
    else:
        assert not isinstance(got, str), f"{where}: {got}, expected {expected}"
        rows.assert_equal(got, expected, where)


def derivatives(call, t, *inputs):
    """The result of call(*inputs), its gradients, and the gradients of these (for one cotangent without pattern)."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    result = call(*inputs)
    first = t.autograd.grad(result, inputs, t.ones_like(result), create_graph=True)
    parts = [(g * ((t.arange(g.numel(), dtype=t.float64).reshape(g.shape) + 1) * 0.37).to(g.dtype)) for g in first if g.requires_grad]
    second = t.autograd.grad([p.sum() for p in parts], inputs, [t.ones_like(p.sum()) for p in parts]) if parts else []
    return [x.detach().clone() for x in (result, *first, *second)]


def cases(**named):
    """Parameters out of NAME=[calls]."""
    return [pytest.param(call, id=f"{name}-{i}") for name, calls in named.items() for i, call in enumerate(calls)]


def of(t, values, dtype="float32"):
    return t.tensor(values, dtype=getattr(t, dtype))


FLAT = ([1 + 1j, 1 + 1j], [1 + 1j], [[1 + 2j, 1 + 2j], [1, 2j]])


@pytest.mark.parametrize("name", ["std", "var"])
@pytest.mark.parametrize("values", FLAT, ids=str)
@pytest.mark.parametrize("correction", [0, 1])
def test_spread_of_complex_numbers(name, values, correction):
    for dtype in ("complex64", "complex128"):
        same(lambda t: derivatives(lambda x: getattr(t, name)(x, dim=-1, correction=correction), t, of(t, values, dtype)))
        same(lambda t: derivatives(lambda x: getattr(t, name + "_mean")(x, dim=-1, correction=correction)[0], t, of(t, values, dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_signs(dtype):
    values = [nan, -nan, inf, -inf, 0.0, -0.0, 1e-45, -3.0] * 5  # in vectors and behind them
    for name in ("sign", "sgn"):
        same(lambda t: getattr(t, name)(of(t, values, dtype)))
        same(lambda t: getattr(of(t, values, dtype), name + "_")())
        same(lambda t: derivatives(lambda x: t.abs(x), t, of(t, values, dtype))[1])


def image(t, *sizes):
    return t.arange(math.prod(sizes)).to(t.float64).mul(1.3).sin().reshape(sizes)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("scale", [0.9, 1.05, 1.1, 1.3, 2.0, 2.1, 2.3, (1.1, 2.1), (0.9, 1.2), (2.2, 0.5), (1.05, 1.0)], ids=str)
def test_images_whose_scale_was_rounded(mode, scale):
    for size in ((1, 1, 4, 5), (2, 3, 3, 7), (1, 2, 3, 4), (1, 1, 10, 4)):
        same(lambda t: t.nn.functional.interpolate(image(t, *size), scale_factor=scale, mode=mode), f"{size}")
        same(lambda t: t.nn.functional.interpolate(image(t, *size).contiguous(memory_format=t.channels_last), scale_factor=scale, mode=mode))
        if mode.startswith("bi"):
            for corners in (None, True):
                same(lambda t: t.nn.functional.interpolate(image(t, *size), scale_factor=scale, mode=mode, antialias=True, align_corners=corners))
    if mode == "nearest":  # the gradient is that of what was computed
        same(lambda t: derivatives(lambda x: t.nn.functional.interpolate(x, scale_factor=scale, mode=mode), t, image(t, 1, 2, 4, 3)))


def test_lanczos_keeps_an_image_of_equal_size():
    x = image(tg, 1, 1, 3, 4)
    x[0, 0, 1, 1] = inf
    for kwargs in ({"size": (3, 4)}, {"scale_factor": 1.1}):
        assert tg.equal(tg.nn.functional.interpolate(x, mode="lanczos", antialias=True, **kwargs), x)


ODD = {"float32": [nan, inf, -inf, 1.0, -0.0], "float16": [nan, inf, -inf], "bfloat16": [nan, -inf], "int64": [1, 2], "bool": [True],
       "complex64": [complex(nan, inf), complex(-inf, nan), 1 + 2j, complex(inf, 1)], "complex128": [complex(nan, -inf)]}


@pytest.mark.parametrize("dtype", ODD)
def test_nan_to_num(dtype):
    for kwargs in ({}, {"nan": None}, {"nan": 5.0}, {"nan": None, "posinf": 7.0}, {"posinf": 2.0, "neginf": None}, {"nan": inf}, {"posinf": nan}):
        same(lambda t: t.nan_to_num(of(t, ODD[dtype], dtype), **kwargs), f"{kwargs}")
        same(lambda t: of(t, ODD[dtype] * 9, dtype).nan_to_num_(**kwargs), f"{kwargs}")
    x = of(tg, ODD["complex64"], "complex64").requires_grad_()  # PyTorch has no gradient for complex numbers
    tg.nan_to_num(x).real.sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("values", [[[1, 0], [0, 0], [1, 1]], True, [], [[nan, 0.0]], [1j, 0], [[], []]], ids=str)
def test_any_and_all_over_no_dimensions(values):
    for name in ("all", "any"):
        for kwargs in ({"dim": ()}, {"dim": []}, {"dim": (), "keepdim": True}, {"dim": None}, {"dim": (0,)} if values is not True else {}):
            same(lambda t: getattr(t, name)(t.tensor(values), **kwargs), f"{name} {kwargs}")
            same(lambda t: getattr(t.tensor(values), name)(**kwargs), f"{name} {kwargs}")
        same(lambda t: getattr(t, name)(of(t, [3, 0], "uint8"), dim=(), out=t.empty(2, dtype=t.uint8)))
    same(lambda t: t.func.vmap(lambda x: t.any(x, dim=()))(t.tensor([[1, 0], [0, 0]])))
    same(lambda t: t.sum(t.tensor(values), dim=()))  # of other reductions none are all


def powers(t, dtype):
    least, most = {"int8": (-128, 127), "uint8": (0, 255)}.get(dtype, (-2000, 2000))
    return of(t, [least, -3 % 256 if dtype == "uint8" else -3, 0, 1, 9, most], dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "bool"])
@pytest.mark.parametrize("power", ["int8", "uint8", "int32", "int64", "float32", "float16", "bool"])
def test_ldexp(dtype, power):
    values = [0.7, -1.5, 3.0, -0.0, 1e-5, 2.0]
    same(lambda t: t.ldexp(of(t, values, dtype), powers(t, power) if power != "bool" else of(t, [True] * 6, "bool")))
    same(lambda t: t.ldexp(of(t, 0.5, dtype), of(t, [1, 3], power)))
    same(lambda t: t.ldexp(of(t, [0.5, 1], dtype), of(t, 3, power)))
    same(lambda t: of(t, [0.5, 1], dtype).ldexp_(of(t, 3, power)))


def test_ldexp_is_exact_where_the_power_is_out_of_range():
    for dtype, least in (("float64", 5e-324), ("float32", 2.0**-149)):
        x = of(tg, [least, least, 1.0, -0.0, inf, 1.5], dtype)
        n = tg.tensor([200, 100, -150, 5, -2**62, -149])
        expected = [math.ldexp(v, e) if abs(e) < 10**6 else v for v, e in zip(x.tolist(), n.tolist())]
        assert tg.ldexp(x, n).tolist() == of(tg, expected, dtype).tolist()
    same(lambda t: t.ldexp(of(t, [1e-30, 1e30, 1.0]), of(t, [140, -140, 128], "int32")))
    same(lambda t: derivatives(lambda x: t.ldexp(x, of(t, [3, 2], "int32")), t, of(t, [1.0, 2.0], "float64")))
    x = of(tg, [1.0, 2.0]).requires_grad_()  # PyTorch's gradient is 0 where the power is negative
    tg.ldexp(x, tg.tensor([-2, 3])).sum().backward()
    assert x.grad.tolist() == [0.25, 8]


@pytest.mark.parametrize("kwargs, size, kernel", [({"padding": 1}, 1, 2), ({"padding": 1}, 2, 1), ({"stride": 2, "padding": 2}, 2, 2),
                                                  ({"padding": 1}, 1, 1), ({"padding": 5}, 2, 2), ({"padding": 2, "dilation": 3}, 1, 2)])
def test_transposed_convolutions_with_nothing_in_the_result(kwargs, size, kernel):
    for channels in (1, 2):  # PyTorch has an implementation that takes it and one that does not: batches of 2 go to the first
        same(lambda t: [x.detach() for x in (lambda x, w: (lambda y: (y, *t.autograd.grad(y.sum(), (x, w))))(
            t.nn.functional.conv_transpose1d(x, w, **kwargs)))(t.ones(2, 2, size, requires_grad=True), t.ones(2, channels, kernel, requires_grad=True))])
    same(lambda t: t.nn.functional.conv_transpose2d(t.ones(2, 2, 3, size), t.ones(2, 1, 2, kernel), t.ones(1), **kwargs))


def test_transposed_convolutions_of_nothing():
    for size in (0, 1, 2):
        for kernel in (1, 2, 3):
            for padding in (0, 1):
                same(lambda t: t.nn.functional.conv_transpose1d(t.ones(0, 2, size), t.ones(2, 1, kernel), padding=padding), f"{size} {kernel} {padding}")
    x, w = tg.ones(2, 1, 1, dtype=tg.float64, requires_grad=True), tg.ones(1, 1, 2, dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradcheck(lambda x, w: tg.nn.functional.conv_transpose1d(x, w, padding=1), (x, w))
    assert tg.autograd.gradgradcheck(lambda x, w: tg.nn.functional.conv_transpose1d(x, w, padding=1), (x, w))


FACTORS = (1, 2, 1.5, 0.5, -1.5, 1.9999, 0.0, True, 1j, nan, inf, 300, -300, 1e20)


@pytest.mark.parametrize("call", cases(
    topk=[lambda t, k=k, kwargs=kwargs: list(t.topk(t.tensor(3.0), k, **kwargs)) for k in (-1, 0, 1, 2) for kwargs in ({}, {"dim": 0}, {"dim": 1}, {"largest": False})],
    topk_grad=[lambda t: derivatives(lambda x: t.topk(x, 0).values, t, t.tensor(3.0))],
    cat=[lambda t, dim=dim, n=n: t.cat([t.tensor([])] * n, dim=dim) for dim in (-3, -1, 0, 1, 5) for n in (1, 3)],
    cat_dtype=[lambda t: t.cat([t.tensor([]), of(t, [], "int64")], dim=1), lambda t: t.cat([t.zeros(0, 2)], dim=2),
               lambda t: t.cat([t.tensor([]), t.ones(2, 2)], dim=1), lambda t: t.cat([t.tensor([]), t.ones(2)], dim=1)],
    cat_grad=[lambda t: derivatives(lambda x, y: t.cat([x, y], dim=2), t, t.zeros(0), t.zeros(0))],
    only_one=[lambda t, name=name, dim=dim, dtype=dtype: list(getattr(t, name)(of(t, 1, dtype), *args, dim=dim))
              for name, args in (("cummax", ()), ("cummin", ()), ("mode", ()), ("kthvalue", (1,))) for dim in (0, -1, 1)
              for dtype in ("complex64", "complex128", "float32", "int64", "bool")],
    none=[lambda t, name=name, size=size, dim=dim: list(getattr(t, name)(t.zeros(size, dtype=t.complex64), dim=dim))
          for name in ("cummax", "cummin", "mode") for size in ((0,), (2, 0), (0, 2)) for dim in (0, -1)],
    some=[lambda t, name=name: list(getattr(t, name)(of(t, [1, 2], "complex64"), dim=0)) for name in ("cummax", "cummin", "mode", "sort", "median")],
    only_one_grad=[lambda t, name=name: derivatives(lambda x: getattr(t, name)(x, 0).values, t, of(t, 1.5)) for name in ("cummax", "cummin", "mode")],
    repeat=[lambda t, n=n, kwargs=kwargs: t.repeat_interleave(t.tensor(1.0), n if isinstance(n, int) else t.tensor(n), **kwargs)
            for n in (0, 1, 2, [2]) for kwargs in ({}, {"dim": 0}, {"dim": -1}, {"dim": 1}, {"dim": -2})],
    index_add=[lambda t, alpha=alpha, dtype=dtype: t.index_add(of(t, [5, 6], dtype), 0, t.tensor([0, 1]), of(t, [5, 6], dtype), alpha=alpha)
               for alpha in FACTORS for dtype in ("int64", "uint8", "float32")],
    repeat_more=[lambda t, dim=dim: t.repeat_interleave(t.ones(2, 1), 2, dim=dim) for dim in (-3, -2, 0, 1, 2)],
))
def test_sizes_at_the_edge(call):
    same(call)


BASE = {"t": lambda x: x.t(), "gaps": lambda x: x[:, ::2], "offset": lambda x: x[1:3], "shared": lambda x: x[:1].expand(4, 5),
        "permuted": lambda x: x.reshape(2, 2, 5).permute(2, 0, 1), "whole": lambda x: x, "offset of gaps": lambda x: x[1:, 1::2]}


@pytest.mark.parametrize("base", BASE)
@pytest.mark.parametrize("size, stride, offset", [((2, 2), (1, 2), None), ((2, 2), (1, 2), 0), ((2, 2), (1, 2), 1), ((3,), (4,), None), ((), (), 3),
                                                  ((30,), (1,), 0), ((2,), (1,), 40), ((0,), (1,), None), ((2, 2), (5, 1), 5)])
def test_as_strided_scatter(base, size, stride, offset):
    def call(t):
        src = t.arange(1, 1 + math.prod(size)).to(t.float64).reshape(size)
        return t.as_strided_scatter(BASE[base](image(t, 4, 5)), src, size, stride, offset)

    same(call)
    got = outcome(call, tg)
    if isinstance(got, str) or base == "shared":
        return
    assert got.stride() == call(torch).stride()
    # PyTorch has no gradient for such inputs (and for others not that of what it computes)
    x, src = image(tg, 4, 5).requires_grad_(), tg.ones(size, dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradcheck(lambda x, src: tg.as_strided_scatter(BASE[base](x), src, size, stride, offset), (x, src))


def test_lu_with_infos():
    singular = [[[1.0, 2.0], [2.0, 4.0]], [[1.0, 2.0], [3.0, 4.0]]]
    for t in (tg, torch):
        result = t.lu(t.tensor(singular), get_infos=True)
        assert result.info.tolist() == [2, 0] and result.pivots.dtype == t.int32 and result.LU.shape == (2, 2, 2)
    for values in (singular, singular[0], [[]]):
        for kwargs in ({}, {"get_infos": True}, {"pivot": True, "get_infos": True}):
            same(lambda t: list(t.lu(t.tensor(values), **kwargs)), f"{values} {kwargs}")
            same(lambda t: list(t.tensor(values).lu(**kwargs)), f"{values} {kwargs}")
    same(lambda t: derivatives(lambda x: t.lu(x, get_infos=True)[0], t, of(t, [[1.0, 2.0], [3.0, 4.5]], "float64")))
    same(lambda t: type(t.lu(t.tensor(singular)))(t.lu(t.tensor(singular))))


def test_linear_cross_entropy_in_chunks_has_second_derivatives():
    """PyTorch's implementation in chunks has no second derivatives; here the options change nothing."""
    target = tg.tensor([0, 4, 1, 1])
    for reduction in ("mean", "sum"):
        plain, chunked = (derivatives(lambda x, w: tg.nn.functional.linear_cross_entropy(x, w, target, reduction=reduction, options=options), tg, image(tg, 4, 3), image(tg, 5, 3))
                          for options in (None, tg.nn.LinearCrossEntropyOptions(batch_chunk_size=2)))
        rows.assert_equal(chunked, plain, reduction)
        assert len(plain) == 5
    assert tg.autograd.gradgradcheck(lambda x, w: tg.nn.functional.linear_cross_entropy(x, w, target), [image(tg, *size).requires_grad_() for size in ((4, 3), (5, 3))])


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("kwargs", [{}, {"label_smoothing": 0.1}, {"ignore_index": 1}], ids=str)
def test_linear_cross_entropy(reduction, kwargs):
    def call(t, target):
        x, w, b = image(t, 4, 3), image(t, 5, 3) * 2, image(t, 5)
        return derivatives(lambda x, w, b: t.nn.functional.linear_cross_entropy(x, w, target, linear_bias=b, reduction=reduction, **kwargs), t, x, w, b)

    same(lambda t: call(t, t.tensor([0, 4, 1, 1])))
    if "ignore_index" not in kwargs:
        same(lambda t: call(t, t.softmax(image(t, 4, 5), 1)))


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("name", ["addmv", "addmm", "addbmm", "baddbmm", "addr"])
def test_products_of_integers_with_fractional_factors(name, dtype):
    def call(t, alpha, beta, inplace):
        v, m, b = of(t, [5, 6], dtype), of(t, [[1, 2], [3, 4]], dtype), of(t, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]], dtype)
        args = {"addmv": (v, m, v), "addmm": (m, m, m), "addbmm": (m, b, b), "baddbmm": (b, b, b), "addr": (m, v, v)}[name]
        return getattr(args[0].clone(), name + "_")(*args[1:], alpha=alpha, beta=beta) if inplace else getattr(t, name)(*args, alpha=alpha, beta=beta)

    for alpha in FACTORS:
        for beta in (1, 0.5, 0, -2.7, 1j, nan):
            if name == "addr" and alpha is True:
                continue  # PyTorch refuses booleans there alone
            for inplace in (False, True):
                same(lambda t: call(t, alpha, beta, inplace), f"{alpha} {beta}")
    if name in ("addmm", "baddbmm"):  # PyTorch's vmap gives floats
        x = tg.arange(24).reshape((6, 2, 2) if name == "addmm" else (3, 2, 2, 2)).to(getattr(tg, dtype))
        each = [getattr(tg, name)(v, v, v, alpha=1.5, beta=2.5) for v in x]
        rows.assert_equal(tg.func.vmap(lambda v: getattr(tg, name)(v, v, v, alpha=1.5, beta=2.5))(x), tg.stack(each), name)


TWO = ("remainder fmod pow eq ne lt le gt ge maximum minimum fmax fmin atan2 hypot copysign ldexp logaddexp logaddexp2 bitwise_and bitwise_or bitwise_xor "
       "bitwise_left_shift bitwise_right_shift logical_and float_power nextafter xlogy heaviside gcd lcm isclose rsub isin add sub mul div floor_divide "
       "special.xlogy special.xlog1py special.zeta special.chebyshev_polynomial_t special.chebyshev_polynomial_u special.hermite_polynomial_h "
       "special.hermite_polynomial_he special.laguerre_polynomial_l special.legendre_polynomial_p").split()


@pytest.mark.parametrize("name", TWO)
def test_two_numbers(name):
    for args in ((2, 3), (2.0, 3.0), (2, 3.0)):
        same(lambda t: rows.lookup(t, *name.rsplit(".", 1) if "." in name else ("", name))(*args), f"{args}")


def double(t, *size):
    return t.empty(size, dtype=t.float64)


@pytest.mark.parametrize("call", cases(
    gather=[lambda t, dtype=dtype: t.gather(t.tensor([1.0, 2.0]), 0, t.tensor([0]), out=t.empty(1, dtype=getattr(t, dtype)))
            for dtype in ("float32", "float64", "int64", "float16", "complex64")],
    aminmax=[lambda t: list(t.aminmax(t.tensor([1.0, 2.0]), out=(double(t), double(t)))),
             lambda t: list(t.aminmax(t.tensor([1.0, 2.0]), dim=0, out=(t.empty(()), double(t)))),
             lambda t: list(t.aminmax(t.tensor([1.0, 2.0]), dim=0, out=(t.empty(()), t.empty(()))))],
    complex=[lambda t, name=name, dtype=dtype, wide=wide: getattr(t, name)(*[of(t, [1.0, 2.0], wide)] * 2, out=t.empty(2, dtype=getattr(t, dtype)))
             for name in ("complex", "polar") for wide in ("float32", "float64") for dtype in ("complex64", "complex128", "float32", "int32")],
    float_power=[lambda t, dtype=dtype, e=e: of(t, [1, 2], dtype).float_power_(e) for dtype in ("float32", "float64", "complex64", "complex128", "int64", "bool")
                 for e in (2, 2.5, 2j)],
    float_power_out=[lambda t, dtype=dtype: t.float_power(t.tensor([1, 2]), 2, out=t.empty(2, dtype=getattr(t, dtype))) for dtype in ("float32", "float64", "complex128")],
    cat=[lambda t: (lambda x: t.cat([x, x], out=x))(t.ones(3)), lambda t: (lambda x: t.cat([x], out=x))(t.ones(3)),
         lambda t: (lambda x: t.cat([x, t.zeros(0)], out=x))(t.ones(3)), lambda t: (lambda x: t.cat([x, t.ones(2)], out=x))(t.zeros(0)),
         lambda t: (lambda x: t.cat([x[:1], x[2:]], out=x[:2]))(t.arange(3.0)), lambda t: (lambda x: t.cat([x[:1], t.ones(1)], out=x[1:]))(t.arange(3.0))],
    stack=[lambda t: (lambda x: t.stack([x[0], x[1]], out=x))(t.ones(2, 2)), lambda t: (lambda x: t.hstack([x, x], out=x))(t.ones(2)),
           lambda t: (lambda x: t.vstack([x, x], out=x))(t.ones(2, 2)), lambda t: (lambda x: t.dstack([x, x], out=x))(t.ones(2, 2, 2)),
           lambda t: (lambda x: t.column_stack([x, x], out=x))(t.ones(2, 2))],
    apart=[lambda t, name=name, args=args: getattr(t, name)(*args(t, y := t.arange(4.0), t.tensor([1, 0, 3, 2])), out=y) for name, args in (
        ("take", lambda t, y, i: (y, i)), ("gather", lambda t, y, i: (y, 0, i)), ("index_select", lambda t, y, i: (y, 0, i)),
        ("take_along_dim", lambda t, y, i: (y, i, 0)), ("masked_select", lambda t, y, i: (y, y >= 0)), ("scatter_add", lambda t, y, i: (y, 0, i, y)),
        ("index_add", lambda t, y, i: (y, 0, i, y)), ("index_add", lambda t, y, i: (y, 0, i, y.clone())), ("index_copy", lambda t, y, i: (y, 0, i, y)),
        ("index_reduce", lambda t, y, i: (y, 0, i, y, "prod")), ("cumsum", lambda t, y, i: (y, 0)), ("gather", lambda t, y, i: (y + 1, 0, i)))],
    apart_cross=[lambda t: (lambda y: t.linalg.cross(y, y + 1, out=y))(t.arange(3.0)), lambda t: (lambda y: t.cross(y + 1, y, dim=0, out=y))(t.arange(3.0))],
    apart_indices=[lambda t: (lambda i: t.take(i + 2, i, out=i))(t.tensor([1, 0])), lambda t: (lambda i: t.nonzero(i, out=i))(t.ones(2, 1).long())],
    narrow=[lambda t, args=args: t.ones(3).narrow(*args) for args in ((True, 0, 1), (0, True, 1), (0, 0, True), (0, False, False), (0, 1, 1))],
    narrow_tensor=[lambda t: t.ones(3).narrow(0, t.tensor(True), 1), lambda t: t.ones(3).narrow(0, 0, t.tensor(True)), lambda t: t.ones(3).narrow(0, t.tensor(1), 1),
                   lambda t: t.ones(3).select(0, t.tensor(True)), lambda t: t.narrow_copy(t.ones(3), 0, t.tensor(True), 1)],
    batch_norm=[lambda t, eps=eps, training=training: t.nn.functional.batch_norm(image(t, 2, 3), t.zeros(3).double(), t.ones(3).double(), training=training, eps=eps)
                for eps in (0.0, -1e-5, -1.0, 1e-5, nan, inf, 0, True) for training in (True, False)],
    BatchNorm=[lambda t, eps=eps, training=training: t.nn.BatchNorm1d(3, eps=eps).double().train(training)(image(t, 2, 3)).detach()
               for eps in (0.0, -1e-5, nan) for training in (True, False)],
    HuberLoss=[lambda t, delta=delta: t.nn.HuberLoss(delta=delta)(t.ones(2), t.zeros(2)) for delta in (1j, 2 + 0j, 0, -1.0, 1, 0.5, nan, "a", None, True)],
    HuberLoss_tensor=[lambda t: t.nn.HuberLoss(delta=t.tensor(1.0))],
    cosine_similarity=[lambda t, eps=eps: t.nn.functional.cosine_similarity(t.ones(2), t.ones(2), 0, eps) for eps in (0.0, -1.0, nan, 1e-8)],
    empty_norms=[lambda t, p=p, kwargs=kwargs: t.linalg.vector_norm(t.ones(0, 2), p, **kwargs)
                 for p in (inf, -inf, -1, 0, 1, 2) for kwargs in ({}, {"dim": 0}, {"dim": 1}, {"dim": (0, 1)})],
    bool_products=[lambda t: t.mm(t.ones(2, 2).bool(), t.ones(2, 2).bool()), lambda t: t.mv(t.ones(2, 2).bool(), t.ones(2).bool())],
))
def test_what_is_refused(call):
    same(call)


# In PyTorch it depends on the way that the arguments lead to: products of numbers, powers 0 and 1, limits that are tensors.
BY_WAY = ("inner", "matrix_power", "linalg_matrix_power", "clamp")
WITH_OUT = [r for r in rows.load_records() if r.out and r.samples and r.kind in ("kernel", "composite") and r.torch_function is not None and r.name not in BY_WAY]


@pytest.mark.parametrize("record", WITH_OUT, ids=lambda r: r.name)
def test_out_of_a_wider_dtype(record):
    """Taken or refused as PyTorch does."""
    def call(t, function, args, kwargs, results):
        outs = [t.empty(tuple(x.shape), dtype=getattr(t, WIDER.get(rows.dtype_name(x), rows.dtype_name(x)))) for x in results]
        function(*args, out=outs[0] if len(outs) == 1 else tuple(outs), **kwargs)

    for args, kwargs in record.make_samples(tg.float32)[:2]:
        results = rows.tensors_of(record.function(*args, **kwargs))
        if not any(rows.dtype_name(x) in WIDER for x in results):
            continue
        expected = outcome(lambda t: call(torch, record.torch_function, rows.to_torch(args), rows.to_torch(kwargs), results), torch)
        if expected != "TypeError":  # no out= there
            got = outcome(lambda t: call(tg, record.function, args, kwargs, results), tg)
            assert (got is None) == (expected is None), f"{got}, expected {expected}"


WIDER = {"float32": "float64", "complex64": "complex128"}


def test_a_refused_target_is_left_alone():
    x, wide = tg.tensor([1.0, 2.0]), tg.full((2,), 7.0, dtype=tg.float64)
    with pytest.raises(RuntimeError, match=r"^gather: Expected out tensor to have dtype float32, but got float64 instead$"):
        tg.gather(x, 0, tg.tensor([0, 1]), out=wide)
    with pytest.raises(RuntimeError, match=r"^float_power: Expected out tensor to have dtype float64, but got float32 instead$"):
        x.float_power_(2)
    with pytest.raises(RuntimeError, match=r"^cat: unsupported operation: the tensor to write to shares memory with one of tensors: shapes \[2\] and \[2\]$"):
        tg.cat([x, x], out=x)
    with pytest.raises(TypeError, match=r"^pow\(\): one of the arguments input and exponent must be a Tensor: got int and float$"):
        tg.pow(2, 3.0)
    assert wide.tolist() == [7, 7] and x.tolist() == [1, 2]


@pytest.mark.parametrize("p", [0, 1, 3, 4, inf, -inf])
@pytest.mark.parametrize("values", [[0.0, 0.0], [0.0], [0.0, 3.0], [0j, 3 + 4j], [[0.0, 0.0], [3.0, 4.0]]], ids=str)
def test_derivatives_of_norms_at_zero(p, values):
    dtype = "complex128" if "j" in str(values) else "float64"
    for dim in (None, -1):
        if p != 0:  # PyTorch cuts it off the tape
            same(lambda t: derivatives(lambda x: t.linalg.vector_norm(x, p, dim=dim), t, of(t, values, dtype)), f"{dim}")


@pytest.mark.parametrize("p", [2, 1.5, 0.5, 1.9, 2.5, -1])
def test_second_derivatives_of_norms_at_zero_are_zero(p):
    """PyTorch gives NaN for these orders and 0 for 1, 3, 4 and infinity; here the derivative of the 0 that the gradient is taken to be is 0 for all."""
    for values in ([0.0, 0.0], [[0.0, 0.0], [3.0, 4.0]]):
        for got, expected in zip(*(derivatives(lambda x: t.linalg.vector_norm(x, p, dim=-1), t, of(t, values, "float64")) for t in (tg, torch))):
            rows.assert_equal(got, torch.nan_to_num(expected), "")
    # One zero among others: above 2 that is the limit
    assert derivatives(lambda x: tg.linalg.vector_norm(x, p), tg, of(tg, [0.0, 3.0], "float64"))[2][0] == 0 or p == 2
    # and of distances, where every point is at distance 0 of itself
    if p > 0:
        x = image(tg, 3, 2).requires_grad_()
        assert tg.autograd.gradgradcheck(lambda x: tg.pdist(x, p), (x,))
        assert not any(g.isnan().any() for g in derivatives(lambda x: tg.cdist(x, x, p), tg, x.detach()))


def test_cosine_embedding_loss_of_zero():
    for values in ([[0.0, 0.0], [3.0, 4.0]], [[1e-7, 2e-7], [0.0, 1e-9]], [[0.0, 0.0], [0.0, 0.0]]):
        for target in ([1, -1], [-1, 1]):
            same(lambda t: derivatives(lambda x: t.nn.functional.cosine_embedding_loss(x, x.detach().flip(0) + 0.5, t.tensor(target), margin=-0.9), t, of(t, values, "float64")))


def test_cosine_similarity_of_zero():
    for values in ([0.0, 0.0], [[0.0, 0.0], [3.0, 4.0]], [1e-9, -2e-9], [3e200, 4e200]):
        same(lambda t: derivatives(lambda x: t.nn.functional.cosine_similarity(x, x.detach() / 2 + 1, -1), t, of(t, values, "float64"))[:2], f"{values}")
