"""Layers over images whose channels lie innermost: the values of planes, PyTorch's layouts, the same bits for any number of threads."""
import itertools

import numpy as np
import pytest
import tapegrad as tg
import torch

SHAPES = [(2, 8, 7, 9), (1, 33, 5, 5), (1, 130, 6, 4), (1, 16, 1, 6), (2, 5, 6, 6), (1, 17, 20, 3)]
VOLUMES = [(2, 8, 3, 4, 5), (1, 34, 4, 4, 2)]
DTYPES = ["float32", "float64", "bfloat16", "float16"]


def images(shape, dtype, lib=tg, seed=0):
    """Numbers that 16 bits hold, in both libraries, channels innermost."""
    values = np.random.default_rng(seed).integers(-31, 32, shape).astype(np.float64) / 16
    format = lib.channels_last if len(shape) == 4 else lib.channels_last_3d
    return lib.tensor(values, dtype=getattr(lib, dtype)).to(memory_format=format)


def operations(F, spatial):
    n = spatial
    pools = [(2, 2, 0), (3, 2, 1), (3, 1, 1), (2, 3, 0)]
    for (kernel, stride, padding), ceil in itertools.product(pools, [False, True]):
        yield f"max {kernel} {stride} {padding} {ceil}", lambda x, k=kernel, s=stride, p=padding, c=ceil: getattr(F, f"max_pool{n}d")(x, k, s, p, ceil_mode=c)
        for pad in {False, padding > 0}:
            yield f"avg {kernel} {stride} {padding} {ceil} {pad}", lambda x, k=kernel, s=stride, p=padding, c=ceil, i=pad: getattr(F, f"avg_pool{n}d")(x, k, s, p, c, i)
    yield "max dilated", lambda x: getattr(F, f"max_pool{n}d")(x, 2, 1, 1, 2) if min(x.shape[2:]) > 1 else x  # no windows of padding alone
    yield "indices", lambda x: getattr(F, f"max_pool{n}d")(x, 2, 1, 1, return_indices=True)[1]
    yield "divisor", lambda x: getattr(F, f"avg_pool{n}d")(x, 2, 1, divisor_override=3) if min(x.shape[2:]) > 1 else x
    for size in (1, 3, 5):
        yield f"adaptive avg {size}", lambda x, s=size: getattr(F, f"adaptive_avg_pool{n}d")(x, s)
        yield f"adaptive max {size}", lambda x, s=size: getattr(F, f"adaptive_max_pool{n}d")(x, s)
    if n == 2:
        yield "shuffled", lambda x: F.pixel_shuffle(x[:, : x.shape[1] // 4 * 4], 2)
        yield "unshuffled", lambda x: F.pixel_unshuffle(x[:, :, : x.shape[2] // 2 * 2, : x.shape[3] // 2 * 2], 2) if min(x.shape[2:]) > 1 else x
    modes = ["nearest", "nearest-exact"] + (["bilinear", "bicubic"] if n == 2 else ["trilinear"])
    for mode, factor in itertools.product(modes, [2, 0.5, 1.7, 1]):
        yield f"{mode} {factor}", lambda x, m=mode, f=factor: F.interpolate(x, scale_factor=f, mode=m) if min(x.shape[2:]) > 1 else x


def normed(F, x, w, b, training):
    c = x.shape[1]
    return F.batch_norm(x, None if training else w[:c].detach() * 0.5, None if training else w[:c].detach() + 1, w[:c], b[:c], training)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES + VOLUMES, ids=str)
def test_values_and_gradients_are_those_of_torch(shape, dtype):
    exact = {"float32": 2e-6, "float64": 1e-12, "bfloat16": 1e-2, "float16": 2e-3}[dtype]
    x, y = images(shape, dtype), images(shape, dtype, torch)
    for (name, f), (_, g) in zip(operations(tg.nn.functional, len(shape) - 2), operations(torch.nn.functional, len(shape) - 2)):
        a, b = x.detach().requires_grad_(), y.double().requires_grad_()
        try:
            want = g(b)
        except RuntimeError:  # a window that does not fit
            continue
        got = f(a)
        assert got.shape == want.shape, name
        np.testing.assert_allclose(got.detach().double().numpy(), want.detach().numpy(), 0, exact * 8, err_msg=name)
        if name == "indices" or not want.requires_grad:
            continue
        for layout in (tg.contiguous_format, tg.channels_last if len(shape) == 4 else tg.channels_last_3d):
            seed = images(tuple(want.shape), dtype, seed=1).contiguous(memory_format=layout)
            (grad,) = tg.autograd.grad(got, a, seed, retain_graph=True)
            (expected,) = torch.autograd.grad(want, b, torch.from_numpy(seed.double().numpy().copy()), retain_graph=True)
            np.testing.assert_allclose(grad.double().numpy(), expected.numpy(), 0, exact * 32, err_msg=name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_results_keep_the_layout(dtype):
    for shape in [(2, 16, 6, 8), (1, 8, 9, 9)]:
        x, y = images(shape, dtype), images(shape, dtype, torch)
        gap = images((2, 16, 6, 11), dtype)[:, 2:12, :, :8]  # with gaps
        for (name, f), (_, g) in zip(operations(tg.nn.functional, 2), operations(torch.nn.functional, 2)):
            want = g(y if dtype != "float16" or "cubic" not in name else y.float())
            assert f(x).stride() == want.stride(), name
            assert f(x.contiguous()).is_contiguous(), name
            assert np.array_equal(f(gap).double().numpy(), f(gap.contiguous(memory_format=tg.channels_last)).double().numpy()), name
        assert normed(tg.nn.functional, x.float(), tg.ones(16), tg.zeros(16), True).stride() == x.stride()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(2, 8, 7, 9), (3, 130, 6, 4), (1, 64, 70, 71), (2, 12, 3, 4, 5)], ids=str)
def test_batch_norm(shape, training):
    x, y = images(shape, "float32"), images(shape, "float64", torch)
    x, y = (x + 5).requires_grad_(), (y + 5).requires_grad_()
    w, b = np.linspace(0.5, 2, 130, dtype=np.float32), np.linspace(-1, 1, 130, dtype=np.float32)
    p, q = [tg.tensor(w, requires_grad=True), tg.tensor(b, requires_grad=True)], [torch.tensor(w, dtype=torch.float64, requires_grad=True), torch.tensor(b, dtype=torch.float64, requires_grad=True)]
    got, want = normed(tg.nn.functional, x, *p, training), normed(torch.nn.functional, y, *q, training)
    assert got.stride() == x.stride()
    assert np.abs(got.detach().numpy() - want.detach().numpy()).max() < 1e-5
    for layout in (tg.contiguous_format, tg.channels_last if len(shape) == 4 else tg.channels_last_3d):
        seed = images(shape, "float32", seed=1).contiguous(memory_format=layout)
        grads = tg.autograd.grad(got, [x, *p], seed, retain_graph=True)
        expected = torch.autograd.grad(want, [y, *q], torch.from_numpy(seed.double().numpy().copy()), retain_graph=True)
        for a, e in zip(grads, expected):
            assert np.abs(a.numpy() - e.numpy()).max() < 1e-5 * max(1, float(e.abs().max()))


def test_nan_and_infinity():
    inf, nan = float("inf"), float("nan")
    x = images((1, 40, 4, 4), "float32")
    x[0, 3] = -inf
    x[0, 5, 1, 1] = nan
    x[0, 6, 2, 3] = inf
    x[0, 7] = -0.0
    for dtype in (tg.float32, tg.bfloat16):
        for f in (lambda t: tg.nn.functional.max_pool2d(t, 2, return_indices=True), lambda t: tg.nn.functional.adaptive_max_pool2d(t, 3, return_indices=True),
                  lambda t: [tg.nn.functional.avg_pool2d(t, 2)], lambda t: [tg.nn.functional.interpolate(t, scale_factor=2, mode="bilinear")]):
            for a, b in zip(f(x.to(dtype)), f(x.contiguous().to(dtype))):
                assert np.array_equal(a.double().numpy(), b.double().numpy(), equal_nan=True)


def test_out_and_empty_batches():
    x = images((2, 16, 6, 8), "float32")
    for out in (tg.empty(2, 16, 3, 4), tg.empty(2, 16, 3, 4).contiguous(memory_format=tg.channels_last), tg.empty(0)):
        assert np.array_equal(tg.nn.functional.avg_pool2d(x, 2, out=out).numpy(), tg.nn.functional.avg_pool2d(x.contiguous(), 2).numpy())
    for f in (lambda t: tg.nn.functional.max_pool2d(t, 2), lambda t: tg.nn.functional.avg_pool2d(t, 2), lambda t: tg.nn.functional.interpolate(t, scale_factor=2)):
        assert f(x[:0]).shape[0] == 0


def test_positions_of_others_are_refused():
    x = images((1, 16, 4, 4), "float32").requires_grad_()
    values, indices = tg.nn.functional.max_pool2d(x, 2, return_indices=True)
    indices += 16
    with pytest.raises(RuntimeError, match="index .* is out of range for planes of 16 elements|modified"):
        values.sum().backward()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_same_bits_for_any_number_of_threads(dtype):
    """Also of more threads than samples, which share the places of one."""
    before = tg.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 3, 5):
            tg.set_num_threads(threads)
            parts = []
            x = images((3, 64, 41, 43), dtype).requires_grad_()
            for _name, f in operations(tg.nn.functional, 2):
                y = f(x)
                parts.append(y.detach().float().numpy().copy())
                if y.requires_grad:
                    parts.append(tg.autograd.grad(y, x, images(tuple(y.shape), dtype, seed=2))[0].float().numpy().copy())
            y = normed(tg.nn.functional, x, tg.ones(64, dtype=x.dtype), tg.zeros(64, dtype=x.dtype), True)
            parts += [y.detach().float().numpy().copy(), tg.autograd.grad(y, x, images(tuple(y.shape), dtype, seed=2))[0].float().numpy().copy()]
            results.append(parts)
        for other in results[1:]:
            assert all(a.tobytes() == b.tobytes() for a, b in zip(results[0], other))
    finally:
        tg.set_num_threads(before)


CONVOLUTIONS = [  # input, weight, stride, padding, dilation, groups
    ((2, 8, 9, 7), (4, 8, 3, 3), 1, 1, 1, 1), ((1, 3, 33, 31), (16, 3, 7, 7), 2, 3, 1, 1), ((3, 64, 28, 28), (130, 64, 3, 3), 1, 1, 1, 1), ((2, 48, 12, 12), (20, 48, 1, 1), 1, 0, 1, 1),
    ((2, 48, 12, 12), (20, 48, 1, 1), 2, 0, 1, 1), ((2, 12, 11, 9), (24, 1, 3, 3), 1, 1, 1, 12), ((2, 12, 11, 9), (18, 4, 3, 2), (2, 1), (1, 0), (1, 2), 3), ((2, 5, 4, 6, 5), (7, 5, 3, 2, 3), 1, 1, 1, 1),
    ((1, 16, 90, 90), (16, 16, 3, 3), 1, 1, 1, 1), ((2, 32, 16, 16), (8, 32, 4, 4), 4, 0, 1, 1), ((0, 4, 5, 5), (2, 4, 3, 3), 1, 0, 1, 1)]


def convolved(lib, x, w, b, stride, padding, dilation, groups, transposed):
    F, n = lib.nn.functional, x.dim() - 2
    if transposed:
        return getattr(F, f"conv_transpose{n}d")(x, w, b, stride, padding, 0, groups, dilation)
    return getattr(F, f"conv{n}d")(x, w, b, stride, padding, dilation, groups)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(case, dtype):
    shape, kernel, stride, padding, dilation, groups = case
    exact = {"float32": 1e-6, "float64": 1e-14, "bfloat16": 1e-2}[dtype]
    for transposed, of_input, of_weight in itertools.product([False, True], [True, False], [True, False]):
        operands = [images(shape if not transposed else (shape[0], kernel[0], *shape[2:]), dtype, seed=3), images(kernel, dtype, seed=4)]
        operands = [t if last else t.contiguous() for t, last in zip(operands, (of_input, of_weight))]
        bias = images((1, operands[1].shape[1] * groups if transposed else kernel[0], 1, 1), dtype, seed=5).flatten()
        mine = [t.detach().requires_grad_() for t in (*operands, bias)]
        theirs = [torch.empty_strided(t.shape, t.stride(), dtype=getattr(torch, dtype)).copy_(torch.from_numpy(t.double().numpy())).requires_grad_() for t in (*operands, bias)]
        got, want = convolved(tg, *mine, *case[2:], transposed), convolved(torch, *theirs, *case[2:], transposed)
        assert got.shape == want.shape and (got.stride() == want.stride() or not want.numel()), (transposed, of_input, of_weight)
        scale = max(1.0, float(want.detach().abs().max())) if want.numel() else 1.0
        np.testing.assert_allclose(got.detach().double().numpy(), want.detach().double().numpy(), 0, 32 * exact * scale)
        seed = images(tuple(want.shape), dtype, seed=1)
        grads = tg.autograd.grad(got, mine, seed)
        expected = torch.autograd.grad(want, theirs, torch.empty_strided(want.shape, seed.stride(), dtype=want.dtype).copy_(torch.from_numpy(seed.double().numpy())))
        for a, e in zip(grads, expected):
            assert a.stride() == e.stride() or a.is_contiguous() == e.is_contiguous() or not want.numel(), (transposed, of_input, of_weight)
            top = max(1.0, float(e.abs().max())) if e.numel() else 1.0
            np.testing.assert_allclose(a.double().numpy(), e.double().numpy(), 0, 32 * exact * top)


def test_convolutions_have_the_same_bits_for_any_number_of_threads():
    before, results = tg.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            tg.set_num_threads(threads)
            parts = []
            for shape, kernel, *numbers in CONVOLUTIONS[:-1]:
                x, w = images(shape, "float32").requires_grad_(), images(kernel, "float32", seed=1).requires_grad_()
                y = convolved(tg, x, w, None, *numbers, False)
                parts += [t.detach().numpy().tobytes() for t in (y, *tg.autograd.grad(y, [x, w], images(tuple(y.shape), "float32", seed=2)))]
            results.append(parts)
    finally:
        tg.set_num_threads(before)
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 8, 6, 7), (2, 3, 6, 7), (2, 4, 5, 6, 7), (0, 4, 5, 6)], ids=str)
def test_padding_and_norms_keep_the_layout(shape, dtype):
    n, exact = len(shape) - 2, {"float32": 4e-6, "float64": 1e-12, "bfloat16": 2e-2}[dtype]
    calls = [lambda F, x, m=mode: F.pad(x, (1, 2) + (2, 1) * (n - 1), m) for mode in ("reflect", "replicate", "circular")]
    calls += [lambda F, x, p=p: F.pad(x, p, value=3.0) for p in ((1, 2), (0, -1, 2, 1), (0, 0) * n + (1, 2), (-1, 0) + (0, 0) * n + (1, 0), (0, 0))]
    calls += [lambda F, x: F.group_norm(x, 1), lambda F, x: F.group_norm(x, x.shape[1]), lambda F, x: F.instance_norm(x), lambda F, x: F.layer_norm(x, x.shape[1:])]
    if shape[0]:  # of no images PyTorch makes planes, or raises
        calls += [lambda F, x: normed(F, x, x.new_ones(8), x.new_zeros(8), True), lambda F, x: normed(F, x, x.new_ones(8), x.new_zeros(8), False)]
    for number, call in enumerate(calls):
        x, y = images(shape, dtype).requires_grad_(), images(shape, dtype, torch).requires_grad_()
        try:
            want = call(torch.nn.functional, y)
        except RuntimeError:
            continue
        got = call(tg.nn.functional, x)
        assert got.shape == want.shape and (got.stride() == want.stride() or want.numel() == 0), number
        if want.numel():
            np.testing.assert_allclose(got.detach().double().numpy(), want.detach().double().numpy(), 0, exact, err_msg=str(number))
            seed = images(tuple(want.shape), dtype, seed=1)
            (a,), (e,) = tg.autograd.grad(got, x, seed), torch.autograd.grad(want, y, images(tuple(want.shape), dtype, torch, seed=1))
            assert a.stride() == e.stride(), number
            np.testing.assert_allclose(a.double().numpy(), e.double().numpy(), 0, 8 * exact, err_msg=str(number))
