"""The 16-bit formats: every one of their 65,536 numbers through operators of one element, and rows of lengths around the blocks in
which they are converted, against the same in float64."""

import numpy as np
import pytest
import tapegrad as tg
import torch

FORMATS = {"bfloat16": 2.0**-8, "float16": 2.0**-11}  # half of the distance between 1 and the next number
LENGTHS = (1, 15, 16, 17, 31, 32, 33, 47, 48, 65, 130, 520, 4130)
FUNCTIONS = ("neg", "exp", "log", "sin", "tanh", "erf", "sqrt")


def _all_numbers(dtype):
    bits = torch.arange(-(1 << 15), 1 << 15).to(torch.int16)
    return bits.view(getattr(torch, dtype))


def _ours(t):
    return tg.from_dlpack(t.clone())


def _places_apart(ours, expected):
    """How many representable numbers lie between the two, at most; NaN must meet NaN."""
    a, b = torch.from_dlpack(ours), expected.to(torch.from_dlpack(ours).dtype)
    assert torch.equal(a.isnan(), b.isnan())
    low = -(1 << 15)
    ordered = [torch.where(v < 0, low - v, v) for v in (t[~b.isnan()].view(torch.int16).int() for t in (a, b))]
    return (ordered[0] - ordered[1]).abs().max().item() if ordered[0].numel() else 0


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", FORMATS)
def test_every_number(dtype, name):
    x = _all_numbers(dtype)
    assert _places_apart(getattr(_ours(x), name)(), getattr(x.double(), name)()) <= (1 if dtype == "float16" else 0)


@pytest.mark.parametrize("dtype", FORMATS)
def test_gelu_of_every_number(dtype):
    x = _all_numbers(dtype)
    exact = torch.nn.functional.gelu(x.double())
    near = x.abs() < 3  # further down the float that 1/2 is taken from has few bits left, in torch, too
    found = torch.from_dlpack(tg.nn.functional.gelu(_ours(x)))
    assert _places_apart(_ours(found[near]), exact[near]) <= 1
    torch.testing.assert_close(found.double(), exact.to(x.dtype).double(), rtol=2 * FORMATS[dtype], atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", FORMATS)
def test_conversions_of_every_number(dtype):
    x = _all_numbers(dtype)
    ours = _ours(x)
    np.testing.assert_array_equal(ours.float().numpy(), x.float().numpy())
    assert _places_apart(ours.float().to(ours.dtype), x) == 0
    between = (x.double() * (1 + 2.0**-9)).float()  # not representable: rounded, subnormal results too
    assert _places_apart(_ours(between).to(ours.dtype), between.to(x.dtype)) == 0
    np.testing.assert_array_equal(ours.double().numpy(), x.double().numpy())
    np.testing.assert_array_equal(ours.bool().numpy(), x.bool().numpy())
    small = x.abs() < 120  # what all integer types hold
    for name in ("int64", "int32", "int16", "int8", "uint8"):
        held = x[small & (x >= 0)] if name == "uint8" else x[small]
        whole = held.to(getattr(torch, name))
        np.testing.assert_array_equal(_ours(held).to(getattr(tg, name)).numpy(), whole.numpy())
        assert _places_apart(_ours(whole).to(ours.dtype), whole.to(x.dtype)) == 0
    for start, byte in ((0, "uint8"), (-128, "int8")):
        every = (torch.arange(1541) % 256 + start).to(getattr(torch, byte))  # all bytes, and a rest that fills no block
        back = _ours(every).to(ours.dtype)
        np.testing.assert_array_equal(back.float().numpy(), every.float().numpy())
        np.testing.assert_array_equal(back.to(getattr(tg, byte)).numpy(), every.numpy())


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", FORMATS)
def test_an_element_does_not_depend_on_its_place(dtype, n):
    """Blocks, pairs of blocks and what is left over give the same bits; subnormal numbers among them, too."""
    x = _all_numbers(dtype)[torch.randperm(1 << 16, generator=torch.Generator().manual_seed(n))[:n]]
    whole, alone = _ours(x), [_ours(x[i : i + 1]) for i in range(0, n, 7)]
    for f in (lambda t: t * 0.5, lambda t: t + t, lambda t: tg.addcmul(t, t, t), tg.exp, lambda t: tg.where(t > 0, t, -t)):
        assert _places_apart(f(whole)[::7].contiguous(), torch.cat([torch.from_dlpack(f(t)) for t in alone])) == 0
    np.testing.assert_array_equal((whole > 0.5).numpy(), (x > 0.5).numpy())


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", FORMATS)
def test_rows(dtype, n):
    generator = torch.Generator().manual_seed(n)
    x, weight, bias = (torch.randn(s, generator=generator).to(getattr(torch, dtype)) for s in ((5, n), (n,), (n,)))
    a, w, b, exact = _ours(x), _ours(weight), _ours(bias), x.double()
    f, g = tg.nn.functional, torch.nn.functional

    def close(ours, expected):
        assert str(ours.dtype).endswith(dtype)
        difference = (torch.from_dlpack(ours).double() - expected).abs()
        assert (difference <= FORMATS[dtype] * 1.01 * expected.abs() + 1e-5 * expected.abs().max() + 1e-7).all()

    close(a.softmax(1), exact.softmax(1))
    close(a.log_softmax(1), exact.log_softmax(1))
    close(a.softmax(0), exact.softmax(0))
    close(f.rms_norm(a, (n,), w, 1e-5), g.rms_norm(exact, (n,), weight.double(), 1e-5))
    if n > 1:
        close(f.layer_norm(a, (n,), w, b), g.layer_norm(exact, (n,), weight.double(), bias.double()))
        close(f.layer_norm(a, (n,)), g.layer_norm(exact, (n,)))
    close(f.batch_norm(a, None, None, w, b, True), g.batch_norm(exact, None, None, weight.double(), bias.double(), True))
    for dim in (0, 1):
        for name in ("sum", "mean", "amax", "amin"):
            close(getattr(a, name)(dim), getattr(exact, name)(dim))
        close(tg.linalg.vector_norm(a, dim=dim), torch.linalg.vector_norm(exact, dim=dim))
        np.testing.assert_array_equal(a.argmax(dim).numpy(), x.argmax(dim).numpy())
    target = torch.randint(0, n, (5,), generator=generator)
    close(f.cross_entropy(a, _ours(target)), g.cross_entropy(exact, target))
    np.testing.assert_array_equal(a[:, ::2].contiguous().float().numpy(), x[:, ::2].float().numpy())


@pytest.mark.parametrize("n", [2, 40, 33_000])
@pytest.mark.parametrize("dtype", FORMATS)
def test_extremes_of_columns(dtype, n):
    """Places and values among few different numbers: ties, both zeros, infinities, subnormal numbers, NaN."""
    generator = torch.Generator().manual_seed(n)
    some = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0**-24, -(2.0**-24), float("inf"), -float("inf"), float("nan")])
    few = torch.tensor([3, 5, 9])[torch.arange(45) % 3]  # a column has the first 3 of them, 5 or all
    x = some[(torch.rand(n, 45, generator=generator) * few).long()].to(getattr(torch, dtype))
    for name in ("max", "min"):
        values, places = getattr(_ours(x), name)(0)
        exact, _ = getattr(x.float(), name)(0)
        torch.testing.assert_close(torch.from_dlpack(values).float(), exact, rtol=0, atol=0, equal_nan=True)
        first = ((x.float() == exact) | (x.isnan() & exact.isnan())).int().argmax(0)
        assert torch.equal(torch.from_dlpack(places), first)
        assert torch.equal(torch.from_dlpack(getattr(_ours(x), "arg" + name)(0)), first)


@pytest.mark.parametrize("dtype", FORMATS)
def test_norms_of_very_large_and_very_small_numbers(dtype):
    """Their squares lie outside of what the format, and for bfloat16 float32, can hold."""
    largest = torch.finfo(getattr(torch, dtype)).max
    for value in (largest / 1024, 2.0**-20 if dtype == "float16" else 2.0**-120):
        x = torch.full((3, 256), value).to(getattr(torch, dtype))
        for dim in (0, 1):
            expected = torch.linalg.vector_norm(x.double(), dim=dim)
            assert _places_apart(tg.linalg.vector_norm(_ours(x), dim=dim), expected.to(x.dtype)) == 0


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("shape", [(1, 128), (5, 128), (3, 1000), (2, 5000), (150, 37), (131, 600)])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_norms_of_a_mixture_of_magnitudes(dtype, shape, kept):
    """Squares are joined in float where they fit: each result is right whatever lies beside it."""
    generator = torch.Generator().manual_seed(shape[1] + kept)
    pieces = [0.0, -0.0, 1.0, 6e4] if dtype == "float16" else [0.0, -0.0, 1.0, 1e-20, 3e-39, 2e19, 1e36]
    scale = torch.tensor(pieces, dtype=torch.float64)[torch.randint(0, len(pieces), shape, generator=generator)]
    scale[..., : shape[1] // 2] = torch.tensor([0.0, 1e-3, 6e-6 if dtype == "float16" else 1e-30])[kept]
    x = (scale * torch.rand(shape, generator=generator)).to(getattr(torch, dtype))
    for dim in (0, 1, (0, 1)):
        expected = torch.linalg.vector_norm(x.double(), dim=dim)
        result = torch.from_dlpack(tg.linalg.vector_norm(_ours(x), dim=dim, dtype=tg.float32))
        assert torch.allclose(result.double(), expected, rtol=3e-7, atol=2e-45), dim
        for value in (float("inf"), float("-inf"), float("nan")):
            y = x.clone()
            y[0, shape[1] - 1] = value
            special = torch.linalg.vector_norm(y.double(), dim=dim)
            result = torch.from_dlpack(tg.linalg.vector_norm(_ours(y), dim=dim, dtype=tg.float32))
            assert torch.allclose(result.double(), special, rtol=3e-7, atol=2e-45, equal_nan=True), (dim, value)


@pytest.mark.parametrize("rows, width", [(3, 5), (40, 33), (700, 300), (2, 2100)])
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("by_frequency", [False, True])
def test_gradient_of_embedding(dtype, rows, width, by_frequency):
    generator = torch.Generator().manual_seed(rows)
    index = torch.randint(0, rows, (90,), generator=generator)
    grad = torch.randn(90, width, generator=generator).to(getattr(torch, dtype))
    options = {"padding_idx": 1, "scale_grad_by_freq": by_frequency}
    results = []
    for threads in (1, 3):
        tg.set_num_threads(threads)
        table = tg.zeros(rows, width, dtype=getattr(tg, dtype), requires_grad=True)
        tg.nn.functional.embedding(_ours(index), table, **options).backward(_ours(grad))
        results.append(torch.from_dlpack(table.grad))
    assert torch.equal(results[0], results[1])
    table = torch.zeros(rows, width, dtype=torch.float32, requires_grad=True)
    torch.nn.functional.embedding(index, table, **options).backward(grad.float())
    torch.testing.assert_close(results[0], table.grad.to(results[0].dtype), rtol=2 * FORMATS[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", FORMATS)
def test_products(dtype):
    """Four float16 numbers at a time: no product overflows or vanishes on the way, and zeros, infinities and NaN stay what they are."""
    generator = torch.Generator().manual_seed(1)
    x = (torch.randn(6, 1000, generator=generator) * 0.05 + 1).to(getattr(torch, dtype))
    x[1, ::2], x[1, 1::2] = torch.finfo(x.dtype).max / 4, 4 / torch.finfo(x.dtype).max
    x[2, 7], x[3, 500], x[3, 2], x[4, 999] = 0, 0, float("inf"), float("inf")
    for dim in (0, 1):
        torch.testing.assert_close(torch.from_dlpack(_ours(x).prod(dim)), x.double().prod(dim).to(x.dtype), rtol=2 * FORMATS[dtype], atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size, length", [(1, 3), (300, 900), (700, 2500), (4096, 100), (5000, 100)])
def test_sums_into_lines(dtype, size, length):
    generator = torch.Generator().manual_seed(size)
    x, y = (torch.randn(7, n, generator=generator).to(getattr(torch, dtype)) for n in (size, length))
    index = torch.randint(0, size, (7, length), generator=generator)
    exact = x.float().scatter_add(1, index, y.float()).to(x.dtype)
    tolerance = {"rtol": 2 * FORMATS[dtype], "atol": 2 * FORMATS[dtype]}
    a, i, b = _ours(x), _ours(index), _ours(y)
    found = a.scatter_add(1, i, b)
    torch.testing.assert_close(torch.from_dlpack(found), exact, **tolerance)
    spread = tg.zeros(7, 2 * size, dtype=a.dtype)[:, ::2].copy_(a)  # lines that are not dense go another way
    assert (spread.scatter_add(1, i, b) - found).abs().max() <= 4 * FORMATS[dtype] * found.abs().max()
    torch.testing.assert_close(torch.from_dlpack(a.scatter_reduce(1, i, b, "prod")), x.float().scatter_reduce(1, index, y.float(), "prod").to(x.dtype), **tolerance)
    cube, places, added = (t.unsqueeze(-1).repeat(1, 1, 70) for t in (a, i, b))  # columns, in strips where they are short
    sums = cube.scatter_add(1, places, added)
    assert (sums - found.unsqueeze(-1)).abs().max() <= (0 if size < 500 else 4 * FORMATS[dtype] * found.abs().max())
    assert cube.scatter_add_(1, places, added).equal(sums)
    assert a.scatter_add_(-1, i, b) is a and a.equal(found)
    with pytest.raises(RuntimeError, match="out of bounds"):
        a.scatter_add_(1, i + size, b)
    assert a.equal(found)  # nothing was written


@pytest.mark.parametrize("other_dtype", [*FORMATS, "float32"])
@pytest.mark.parametrize("dtype", FORMATS)
def test_nextafter_has_torch_s_values_and_gradients(dtype, other_dtype):
    values = [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan, 1e-7, 65504.0, -65504.0]

    def look(library):
        x, y = (library.tensor(v).to(getattr(library, d)).requires_grad_() for v, d in zip(np.meshgrid(values, values), (dtype, other_dtype)))
        z = library.nextafter(x, y)
        z.backward(library.arange(1, z.numel() + 1).reshape(z.shape).to(z.dtype))
        return z.detach(), x.grad, y.grad

    for got, expected in zip(look(tg), look(torch)):
        assert str(got.dtype).rpartition(".")[2] == str(expected.dtype).rpartition(".")[2]
        np.testing.assert_array_equal(got.float().numpy(), expected.float().numpy())


@pytest.mark.parametrize("dtype", FORMATS)
def test_matrix_exp_is_float32_s(dtype):
    """PyTorch's own are not finite, even of small matrices."""
    x = tg.tensor(np.random.default_rng(2).standard_normal((2, 4, 4))).to(getattr(tg, dtype)).requires_grad_()
    wide = x.detach().float().requires_grad_()
    for f in (tg.linalg.matrix_exp, tg.matrix_exp):
        got, expected = f(x), tg.linalg.matrix_exp(wide)
        assert got.dtype == x.dtype and tg.equal(got, expected.to(x.dtype))
        (grad,) = tg.autograd.grad(got.sum(), x)
        np.testing.assert_allclose(grad.float().numpy(), tg.autograd.grad(expected.sum(), wide)[0].numpy(), rtol=4 * FORMATS[dtype], atol=4 * FORMATS[dtype])
    with pytest.raises(RuntimeError, match="linalg.matrix_exp: A must be batches of square matrices: got shape"):
        tg.linalg.matrix_exp(x[:, :2])


@pytest.mark.parametrize("dtype", FORMATS)
def test_places_and_counts_are_not_rounded(dtype):
    """Where elements lie, and how many there are, is worked out in float32; PyTorch rounds both to the 16 bits: its counts stop at 512
    or 4096, and its places are off by whole elements."""
    make, error = np.random.default_rng(3), FORMATS[dtype]
    x = tg.tensor(make.random(20_000)).to(getattr(tg, dtype))
    assert tg.equal(x.histc(3, 0, 1), x.float().histc(3, 0, 1).to(x.dtype)) and x.histc(1, 0, 1).item() > 19_000
    image, grid = tg.tensor(make.standard_normal((1, 2, 300, 300))).to(x.dtype), tg.tensor(make.uniform(-1, 1, (1, 20, 20, 2))).to(x.dtype)
    for mode in ("nearest", "bilinear", "bicubic"):
        got, expected = (tg.nn.functional.grid_sample(a, b, mode=mode, align_corners=False) for a, b in ((image, grid), (image.float(), grid.float())))
        np.testing.assert_allclose(got.float().numpy(), expected.numpy(), rtol=error, atol=1e-6)
    samples = tg.tensor(make.random((1, 2, 2))).to(x.dtype)
    got, expected = (tg.nn.functional.fractional_max_pool2d(a, 2, output_size=210, return_indices=True, _random_samples=s)[1]
                     for a, s in ((image, samples), (image.float(), samples.float())))
    assert tg.equal(got, expected)


@pytest.mark.parametrize("dtype", FORMATS)
def test_gradients_count_in_whole_numbers(dtype):
    """Bags of 5000 rows, and 2000 windows of three: counts of 16 bits stop at 256 or 2048."""
    make = np.random.default_rng(4)
    index, padding = tg.tensor(make.integers(0, 3, 5000)), 2
    weight = tg.tensor(make.standard_normal((3, 2))).to(getattr(tg, dtype)).requires_grad_()
    for options in ({}, {"padding_idx": padding}):
        wide = weight.detach().double().requires_grad_()
        grads = []
        for w in (weight, wide):
            bags = tg.nn.functional.embedding_bag(index, w, tg.tensor([0, 4000]), mode="mean", **options)
            grads.append(tg.autograd.grad(bags.sum(), w)[0].double().numpy())
        np.testing.assert_allclose(*grads, rtol=8 * FORMATS[dtype])
    x = tg.ones(50, dtype=getattr(tg, dtype), requires_grad=True)
    (grad,) = tg.autograd.grad(x.as_strided((2000, 3), (0, 1)).sum(), x)
    assert grad.tolist() == [2000.0] * 3 + [0.0] * 47
    base = tg.ones(3, dtype=x.dtype, requires_grad=True)
    y = base.expand(3000, 3)
    (grad,) = tg.autograd.grad(y.as_strided((3, 3), (0, 1)).sum(), base)
    np.testing.assert_allclose(grad.float().numpy(), [3.0] * 3, rtol=4 * FORMATS[dtype])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_at_places_are_rounded_once(dtype):
    """Many elements that come to one place, as in the gradient of an index, are added up in float32."""
    kind, n, m = getattr(tg, dtype), 9, 16384
    where = tg.arange(m) * 7919 % n
    rows = (tg.rand(m, 4) * 2 - 0.5).to(kind)
    exact = tg.zeros(n, 4, dtype=tg.float64).index_add(0, where, rows.double())
    flat, columns = (where[:, None] * 4 + tg.arange(4)).reshape(-1), rows.T.contiguous()
    weight = tg.ones(n, 4, dtype=kind, requires_grad=True)
    (weight.index_select(0, where) * rows).sum().backward()
    zeros = tg.zeros(n, 4, dtype=kind)
    results = {"index_add": zeros.index_add(0, where, rows), "index_add_": zeros.clone().index_add_(0, where, rows),
               "alpha": zeros.index_add(0, where, rows, alpha=2) / 2, "columns": zeros.T.contiguous().T.index_add_(0, where, rows),
               "transposed": zeros.T.contiguous().index_add(1, where, columns).T, "index_put": zeros.index_put((where,), rows, accumulate=True),
               "put": zeros.put(flat, rows.reshape(-1), accumulate=True), "gradient": weight.grad,
               "coalesced": tg.sparse_coo_tensor(where[None], rows, (n, 4)).coalesce().to_dense()}
    for name, result in results.items():
        assert result.dtype == kind and ((result.double() - exact).abs() / exact.abs()).max() < (0.005 if dtype == "bfloat16" else 0.001), name
    few = tg.zeros(100, 4, dtype=kind).index_add_(0, where[:5], rows[:5])  # little to do: in the format itself
    assert tg.allclose(few[:n].float(), tg.zeros(n, 4).index_add(0, where[:5], rows[:5].float()), rtol=0.01)


@pytest.mark.parametrize("dtype", FORMATS)
def test_losses_with_a_bend_are_rounded_once(dtype):
    """Differences are not rounded before they are squared, and the gradient is that of the difference."""
    kind, F = getattr(tg, dtype), tg.nn.functional
    tg.manual_seed(3)
    y = tg.randn(500).to(kind)
    for loss in (lambda a, b: F.smooth_l1_loss(a, b, reduction="none", beta=0.7), lambda a, b: F.huber_loss(a, b, reduction="none", delta=0.7)):
        x = (y.float() + tg.randn(500)).to(kind).requires_grad_()
        wide = x.detach().float().requires_grad_()
        ours, exact = loss(x, y), loss(wide, y.float())
        assert ours.equal(exact.to(kind))
        ours.sum().backward()
        exact.sum().backward()
        assert x.grad.equal(wide.grad.to(kind))
