"""cat and stack: the layout of what they join."""

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

INPUTS = {
    "all": lambda t: [wide(t), wide(t)],
    "one": lambda t: [wide(t)],
    "dtypes": lambda t: [wide(t).double(), wide(t)],
    "first": lambda t: [wide(t), plain(t)],
    "second": lambda t: [plain(t), wide(t)],
    "none": lambda t: [plain(t), plain(t)],
    "slices": lambda t: [wide(t)[:, :, 1:3], wide(t)[:, :, 1:3]],
    "channels": lambda t: [wide(t)[:, :1], wide(t)[:, :1]],
    "plain_channels": lambda t: [plain(t)[:, :1], plain(t)[:, :1]],
    "pixels": lambda t: [wide(t)[:, :, :1, :1], wide(t)[:, :, :1, :1]],
    "samples": lambda t: [wide(t)[:1], wide(t)[:1]],
    "rows": lambda t: [wide(t)[:, :, :1], wide(t)[:, :, :1]],
    "no_samples": lambda t: [wide(t)[:0], wide(t)[:0]],
    "expanded": lambda t: [wide(t)[:, :1].expand(2, 3, 4, 5)] * 2,
    "volumes": lambda t: [numbers(t, (2, 3, 2, 4, 2)).to(memory_format=getattr(t, "channels_last_3d", t.channels_last))] * 2,
    "matrices": lambda t: [numbers(t, (3, 4)).t(), numbers(t, (3, 4)).t()],
    "turned": lambda t: [numbers(t, (5, 4, 3, 2)).permute(3, 2, 1, 0)] * 2,
}


def numbers(t, shape):
    return t.arange(float(np.prod(shape))).reshape(shape)


def plain(t):
    return numbers(t, (2, 3, 4, 5))


def wide(t):
    return plain(t).to(memory_format=t.channels_last)


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", ["cat", "stack", "concat", "hstack", "vstack", "dstack"])
def test_the_layout_is_that_of_the_joined_tensors(name, kind):
    def run(t, dim):
        tensors = INPUTS[kind](t)
        result = getattr(t, name)(tensors, *([dim] if name in ("cat", "stack", "concat") else []))
        steps = [s for s, n in zip(result.stride(), result.shape) if n > 1]  # those of one element lead nowhere
        return tuple(result.shape), steps if result.numel() else None, result.tolist()

    for dim in range(INPUTS[kind](tg)[0].ndim + (name == "stack")) if name in ("cat", "stack", "concat") else [None]:
        assert run(tg, dim) == run(torch, dim), dim


def test_an_empty_vector_among_them_makes_it_contiguous():
    for order in (1, -1):
        mine, theirs = (t.cat([wide(t), t.empty(0)][::order], 2) for t in (tg, torch))
        assert mine.stride() == theirs.stride() and mine.tolist() == theirs.tolist()


@pytest.mark.parametrize("shape", [(2, 64, 9, 11), (3, 5, 40, 30)])
@pytest.mark.parametrize("dim", range(4))
def test_larger_ones_and_their_gradients(shape, dim):
    a, b = (tg.randn(shape).to(memory_format=tg.channels_last).requires_grad_() for _ in range(2))
    joined = tg.cat([a, b, a], dim)
    np.testing.assert_array_equal(joined.detach().numpy(), np.concatenate([t.detach().numpy() for t in (a, b, a)], dim))
    assert joined.is_contiguous(memory_format=tg.channels_last)
    weight = tg.randn(joined.shape)
    (joined * weight).sum().backward()
    n = shape[dim]
    np.testing.assert_array_equal(b.grad.numpy(), weight.narrow(dim, n, n).numpy())


def test_an_out_keeps_its_own_layout():
    for strides in ("channels_last", "contiguous"):
        out = tg.empty(2, 6, 4, 5)
        out = out.to(memory_format=tg.channels_last) if strides == "channels_last" else out
        before = out.stride()
        tg.cat([wide(tg), wide(tg)], 1, out=out)
        assert out.stride() == before and out.tolist() == torch.cat([wide(torch), wide(torch)], 1).tolist()


def test_meshgrid_says_what_it_will_not_do():
    x = tg.ones(2)
    with pytest.warns(UserWarning, match="it will be required to pass the indexing argument"):
        tg.meshgrid(x, x)
    for call, text in [(lambda: tg.meshgrid(indexing="ij"), "meshgrid expects a non-empty TensorList"),
                       (lambda: tg.meshgrid(x, x.long(), indexing="ij"), "meshgrid expects all tensors to have the same dtype"),
                       (lambda: tg.meshgrid(x, x.to("meta"), indexing="ij"), "meshgrid expects all tensors to have the same device"),
                       (lambda: tg.meshgrid(tg.ones(1, 2), indexing="ij"), "Expected 0D or 1D tensor"),
                       (lambda: tg.meshgrid(x, indexing=""), 'indexing must be one of "xy" or "ij"')]:
        with pytest.raises(RuntimeError, match=text):
            call()


def test_no_tensor_spelled_out():
    assert tg.block_diag().shape == (1, 0) and tuple(tg.broadcast_tensors()) == ()
    for call in (tg.cartesian_prod, tg.chain_matmul, lambda: tg.einsum("i->i")):
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            call()


def test_einsum_with_lists_of_subscripts():
    def run(t):
        x, y, z = (t.arange(float(n)).reshape(shape) for n, shape in ((6, (2, 3)), (12, (3, 4)), (24, (2, 3, 4))))
        return [t.einsum(*args).tolist() for args in (
            (x, [0, 1], y, [1, 2], [0, 2]), (x, [0, 1], y, [1, 51]), (x, [5, 3]), (x, [0, 1], []), (z, [..., 0], z, [..., 0], [...]),
            (z, (0, Ellipsis), (Ellipsis, 0)), (x, [0, 1], x, [0, 1], [0]), ("ij,jk", x, y), ("ij,jk->k", [x, y]))]

    assert run(tg) == run(torch)
    x = tg.ones(2, 3)
    for args, error, text in (((x,), ValueError, "must specify the equation string"), ((), ValueError, "must specify"), ((x, [0, 52]), ValueError, "valid range"),
                              ((x, [0, -1]), ValueError, "valid range"), ((x, x), TypeError, "a list of ints and Ellipsis"), ((x, [0, "j"]), ValueError, "valid range")):
        with pytest.raises(error, match=text):
            tg.einsum(*args)
