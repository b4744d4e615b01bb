"""Indexing at sizes where it works in blocks and pieces: against numpy, bad indices anywhere, 16-bit sums, threads."""

import numpy as np
import pytest
import tapegrad as tg

RNG = np.random.default_rng(3)
DTYPES = [tg.uint8, tg.bfloat16, tg.float32, tg.float64, tg.complex128]


def numbers(shape, dtype):
    x = tg.tensor(RNG.integers(0, 200, shape)).to(dtype)
    return x, x.float().numpy() if dtype == tg.bfloat16 else x.numpy()


def same(t, expected):
    np.testing.assert_array_equal(t.float().numpy() if t.dtype == tg.bfloat16 else t.numpy(), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [7, 511, 513, 40_000])
def test_reads(n, dtype):
    x, a = numbers((60, 50), dtype)
    i, j, flat = RNG.integers(-60, 60, n), RNG.integers(-50, 50, n), RNG.integers(-3000, 3000, n)
    same(x[tg.tensor(i), tg.tensor(j)], a[i, j])
    same(x[tg.tensor(i).int(), tg.tensor(j)], a[i, j])
    same(x.take(tg.tensor(flat)), a.reshape(-1)[flat])
    same(x.t()[tg.tensor(j)], a.T[j])
    same(x.index_select(0, tg.tensor(i % 60)), a[i % 60])
    same(x.index_select(1, tg.tensor(j % 50)), a[:, j % 50])
    rows = RNG.integers(0, 50, (60, n // 60 + 1))
    same(x.gather(1, tg.tensor(rows)), np.take_along_axis(a, rows, 1))
    same(x.t().gather(0, tg.tensor(rows.T.copy())), np.take_along_axis(a, rows, 1).T)


@pytest.mark.parametrize("bad", [-1, 9, 1 << 62, -(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("where", [0, 49_999, 99_999])
def test_a_bad_index_is_found_before_anything_is_written(bad, where):
    index = tg.tensor(RNG.integers(0, 9, 100_000))
    index[where] = bad
    x, out = tg.arange(9.0), tg.zeros(100_000)
    for call in (lambda: tg.gather(x, 0, index, out=out), lambda: tg.index_select(x, 0, index, out=out),
                 lambda: out.scatter_add_(0, index + (out.numel() - 9 if bad > 0 else 0), tg.ones(100_000))):
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            call()
        assert out.count_nonzero() == 0
    if bad != -1:
        with pytest.raises(IndexError, match=f"index {bad} is out of bounds"):
            x[index]


def test_sums_of_bfloat16_are_rounded_once():
    ones, zero = tg.full((4000,), 1.0, dtype=tg.bfloat16), tg.zeros(1, dtype=tg.bfloat16)
    index = tg.zeros(4000, dtype=tg.int64)
    assert zero.scatter_add(0, index, ones).item() == 4000  # 256 + 1 is 256 in bfloat16
    assert zero.scatter_reduce(0, index, ones, "mean", include_self=False).item() == 1
    assert zero.scatter_reduce(0, index, ones, "sum").item() == 4000


def test_the_same_bits_for_any_number_of_threads():
    rows, source = tg.tensor(RNG.integers(0, 30, 5000)), tg.tensor(RNG.standard_normal((5000, 200))).float()
    columns = tg.tensor(RNG.integers(0, 200, (5000, 200)))
    results = []
    for threads in (1, 2, 5):
        tg.set_num_threads(threads)
        zeros = tg.zeros(30, 200)
        results.append([zeros.index_add(0, rows, source), zeros.index_put((rows,), source, accumulate=True),
                        tg.zeros(5000, 200).scatter_add(1, columns, source), tg.zeros(5000, 200).bfloat16().scatter_add(1, columns, source.bfloat16())])
    for other in results[1:]:
        assert all(tg.equal(a, b) for a, b in zip(results[0], other))


@pytest.mark.parametrize("dtype", [tg.float32, tg.float64, tg.int64, tg.uint8], ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 1000])
def test_searchsorted(n, dtype):
    sequence = tg.tensor(np.sort(RNG.integers(0, 99, n))).to(dtype)
    values = tg.tensor(RNG.integers(0, 110, 333)).to(dtype)
    if dtype.is_floating_point:
        values[100], values[101], values[200] = np.nan, np.inf, -np.inf
    for side in ("left", "right"):
        expected = np.searchsorted(sequence.numpy(), values.numpy(), side)
        assert tg.searchsorted(sequence, values, side=side).tolist() == expected.tolist()
        assert tg.searchsorted(sequence.repeat(3, 1), values.reshape(3, 111), side=side, out_int32=True).reshape(-1).tolist() == expected.tolist()


@pytest.mark.parametrize("dtype", [tg.float32, tg.bfloat16, tg.float64, tg.int16], ids=str)
@pytest.mark.parametrize("bins", [1, 8, 1024, 3000])
def test_histc(bins, dtype):
    x = tg.tensor(RNG.integers(-500, 500, 5003)).to(dtype)
    values = x.double().numpy()
    expected, _ = np.histogram(values, bins, (-512, 512))
    assert tg.histc(x.double(), bins, -512, 512).tolist() == expected.tolist()
    assert tg.histc(x, bins, -512, 512).double().sum().item() == pytest.approx(5003, rel=0.01)
    np.testing.assert_array_equal(tg.histc(x.double(), bins, -256, 256).numpy().sum(), np.count_nonzero(np.abs(values) <= 256))
    if dtype.is_floating_point:
        x[17] = np.nan
        with pytest.raises(RuntimeError, match="histc: the range of the input must be finite: got nan at element 17"):
            tg.histc(x, bins)


@pytest.mark.parametrize("n", [0, 1, 3, 513, 40000, 200_001])
@pytest.mark.parametrize("tops", [(1,), (3, 200), (255, 1024, 1025), (9, 65536), (9, 65537), (70000,)], ids=str)
@pytest.mark.parametrize("ordered", [False, True])
def test_bincount_of_values_that_grow(n, tops, ordered):
    """Tables grow, and are given up where values are too large for them, at any place and with any number of threads."""
    x = np.concatenate([RNG.integers(0, top, n) for top in tops])
    x = np.sort(x) if ordered else x
    for threads in (1, 2, 3):
        tg.set_num_threads(threads)
        np.testing.assert_array_equal(tg.bincount(tg.tensor(x), minlength=7).numpy(), np.bincount(x, minlength=7))


@pytest.mark.parametrize("bad", [0, 1, 4999])
def test_bincount_finds_the_negative_value(bad):
    x = tg.tensor(RNG.integers(0, 9, 5000))
    assert tg.bincount(x).tolist() == np.bincount(x.numpy()).tolist()
    x[bad] = -3
    with pytest.raises(RuntimeError, match=f"only 1-d non-negative integral inputs are supported: got -3 at index {bad}"):
        tg.bincount(x)


@pytest.mark.parametrize("shape", [(3, 40), (200, 37, 5), (7, 1), (1, 300)])
@pytest.mark.parametrize("dtype", [tg.uint8, tg.bfloat16, tg.float64, tg.complex128], ids=str)
def test_lines_put_side_by_side_and_rolled(shape, dtype):
    x, a = numbers(shape, dtype)
    y, b = numbers(shape, dtype)
    for d in range(len(shape)):
        same(tg.cat([x, y, x[:0], x], d) if d == 0 else tg.cat([x, y, x], d), np.concatenate([a, b, a], d))
        for shift in (0, 1, -3, 500):
            same(x.roll(shift, d), np.roll(a, shift, d))
        same(x.roll(shift, None), np.roll(a, shift))
        same(tg.roll(x, shift, dims=None), np.roll(a, shift))
    same(tg.cat([x.float(), x.double()], -1) if dtype != tg.complex128 else x, np.concatenate([a, a], -1) if dtype != tg.complex128 else a)


@pytest.mark.parametrize("dtype", [tg.int8, tg.uint8, tg.int32, tg.int64], ids=str)
@pytest.mark.parametrize("spread", [0, 1, 100, 1 << 40])
def test_unique_integers(spread, dtype):
    x = RNG.integers(-spread, spread + 1, (7, 300)).astype(str(dtype).split(".")[1])
    values, inverse, counts = tg.unique(tg.tensor(x), return_inverse=True, return_counts=True)
    expected = np.unique(x, return_inverse=True, return_counts=True)
    assert values.tolist() == expected[0].tolist() == tg.unique(tg.tensor(x)).tolist()
    assert inverse.tolist() == expected[1].reshape(x.shape).tolist()
    assert counts.tolist() == expected[2].tolist()


def test_unique_at_the_ends_of_int64():
    ends = [-(1 << 63), 0, (1 << 63) - 1]
    assert tg.tensor(ends[::-1]).unique().tolist() == ends
    assert tg.tensor([ends[2], ends[2] - 2]).unique().tolist() == [ends[2] - 2, ends[2]]


def test_where_of_a_condition_alone_gives_indices():
    torch = pytest.importorskip("torch")
    mask = np.array([[True, False, True], [False, True, False]])
    for ours, theirs in zip(tg.where(tg.tensor(mask)), torch.where(torch.tensor(mask)), strict=True):
        assert ours.dtype == tg.int64 and ours.tolist() == theirs.tolist()
    assert tg.where(tg.tensor([True, False]), 1.0, tg.zeros(2)).tolist() == [1.0, 0.0]
    assert tg.where(condition=tg.tensor([True]), input=tg.ones(1), other=tg.zeros(1)).tolist() == [1.0]


RANKS = [(), (1,), (3,), (2, 3), (1, 1), (2, 3, 4), (0,), (2, 0)]
INTO = {
    "gather": lambda lib, x, i, s: x.gather(-1, i),
    "scatter": lambda lib, x, i, s: x.scatter(0, i, s),
    "scatter a value": lambda lib, x, i, s: x.scatter(-1, i, 2.0),
    "scatter and multiply": lambda lib, x, i, s: x.scatter(0, i, s, reduce="multiply"),
    "scatter_add": lambda lib, x, i, s: x.scatter_add(-1, i, s),
    "scatter_add_": lambda lib, x, i, s: x.scatter_add_(0, i, s),
    "scatter_reduce": lambda lib, x, i, s: x.scatter_reduce(0, i, s, "prod"),
    "scatter_reduce without self": lambda lib, x, i, s: x.scatter_reduce(-1, i, s, "mean", include_self=False),
}


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("name", INTO)
def test_numbers_count_as_one_dimension(name):
    """A tensor, an index or a source without dimensions goes with one-dimensional others, and an empty index with anything: as in PyTorch."""
    torch = pytest.importorskip("torch")

    def outcome(lib, shape, index, source):
        try:
            result = INTO[name](lib, lib.ones(shape), lib.zeros(index, dtype=lib.int64), lib.full(source, 3.0))
            return tuple(result.shape), result.tolist()
        except (RuntimeError, IndexError):  # PyTorch has both for a source of fewer dimensions
            return "refused"

    taken = 0
    for shape in RANKS:
        for index in RANKS:
            for source in RANKS if name not in ("gather", "scatter a value") else [()]:
                expected = outcome(torch, shape, index, source)
                assert outcome(tg, shape, index, source) == expected, (shape, index, source)
                taken += expected != "refused"
    assert taken > 20


@pytest.mark.parametrize("reduce", ["scatter", "scatter_add", "sum", "prod", "mean", "amax"])
@pytest.mark.parametrize(("shape", "index", "source"), [((), (1,), ()), ((3,), (1,), ()), ((3,), (), (1,)), ((3,), (), (2,)), ((), (), (2,)), ((), (3,), (3,)), ((3,), (2,), (4,))])
def test_gradients_beside_numbers(shape, index, source, reduce):
    where = tg.zeros(index, dtype=tg.int64)

    def run(x, s):
        return getattr(x, reduce)(0, where, s) if reduce.startswith("scatter") else x.scatter_reduce(0, where, s, reduce)

    numbers = [tg.tensor(RNG.uniform(1, 2, size), dtype=tg.float64, requires_grad=True) for size in (shape, source)]
    if reduce == "scatter" and where.numel() > 1:
        return  # which of several writes to one place stays is nobody's promise
    assert tg.autograd.gradcheck(run, numbers)


@pytest.mark.parametrize("include_self", [True, False])
def test_second_derivatives_of_products_with_zeros(include_self):
    index = tg.tensor([0, 1, 1, 0, 2])
    source = tg.tensor([[2.0, 0, 0], [0, 3, 0], [1, 2, 0], [5, 0, 1], [2, 0, 0]], dtype=tg.float64, requires_grad=True)
    x = tg.tensor([[1.0, 2, 0], [0, 2, 3], [1, 0, 0]], dtype=tg.float64, requires_grad=True)

    def product(x, source):
        return x.index_reduce(0, index, source, "prod", include_self=include_self)

    assert tg.autograd.gradcheck(product, (x, source))
    assert tg.autograd.gradgradcheck(product, (x, source))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "int64", "complex64", "complex128"])
def test_stack_of_pairs(dtype):
    """Two tensors along the last dimension are interleaved, whatever their size, strides, and the memory of the result."""
    for shape in ((), (1,), (3, 5), (70001,), (0, 4), (2, 0)):
        n = int(np.prod(shape))
        a, b = (np.arange(k, k + n).astype(np.float32).astype("complex128" if "complex" in dtype else "float64").reshape(shape) for k in (0, 100))
        x, y = (tg.tensor(v).to(getattr(tg, dtype)) for v in (a, b))
        expected = np.stack([x.numpy(), y.numpy()], -1)
        np.testing.assert_array_equal(tg.stack([x, y], -1).numpy(), expected)
        np.testing.assert_array_equal(tg.stack([x, y], len(shape)).numpy(), expected)
        out = tg.zeros(*shape, 4, dtype=x.dtype)[..., ::2]
        tg.stack([x, y], -1, out=out)
        np.testing.assert_array_equal(out.numpy(), expected)
        if len(shape) == 2:
            np.testing.assert_array_equal(tg.stack([x.t(), y.t()], -1).numpy(), np.stack([x.numpy().T, y.numpy().T], -1))


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.int16, tg.float32])
@pytest.mark.parametrize(("size", "length"), [(1, 1), (7, 9), (64, 15), (64, 16), (500, 500), (4096, 3000), (4097, 4097)])
def test_scatter_of_lines_keeps_bits(dtype, size, length):
    """Whatever a line goes through, elements are moved, not converted: bits of NaNs stay, and the last of equal indices wins."""
    rng = np.random.default_rng(size)
    bits = np.int32 if dtype is tg.float32 else np.int16
    x, y = (rng.integers(np.iinfo(bits).min, np.iinfo(bits).max, (5, n)).astype(bits) for n in (size, length))
    index = rng.integers(0, size, (5, length))
    expected = x.copy()
    for row in range(5):
        expected[row, index[row]] = y[row]  # numpy assigns in order
    mine, source, where = tg.tensor(x).view(dtype), tg.tensor(y).view(dtype), tg.tensor(index)
    integer = tg.int32 if dtype is tg.float32 else tg.int16
    np.testing.assert_array_equal(mine.scatter(1, where, source).view(integer).numpy(), expected)
    np.testing.assert_array_equal(mine.t().contiguous().scatter(0, where.t(), source.t()).t().view(integer).numpy(), expected)
    mine.scatter_(1, where, source)
    np.testing.assert_array_equal(mine.view(integer).numpy(), expected)


def test_histogram_counts_beyond_16_bits_and_refuses_too_many_bins():
    for dtype in (tg.bfloat16, tg.float16):
        x = tg.ones(5000, dtype=dtype)  # 16 bits would stop counting at 256 or 2,048
        hist, edges = tg.histogram(x, 2, range=(0.0, 2.0))
        assert hist.dtype == edges.dtype == dtype and hist.float().tolist() == [0.0, tg.tensor(5000.0).to(dtype).item()] and edges.tolist() == [0.0, 1.0, 2.0]
        assert tg.histogram(x, edges)[0].equal(hist)
    with pytest.raises(tg.OutOfMemoryError, match="no memory for 9223372036854775807 bins"):
        tg.histogram(tg.rand(3), 2**63 - 1)


@pytest.mark.parametrize("seed", range(60))
def test_bags_with_and_without_a_last_offset_and_padding(seed):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    rows, n, bags = 5, int(rng.integers(0, 8)), int(rng.integers(1, 5))
    last = n if seed % 3 else int(rng.integers(0, n + 1))
    offsets = sorted([0, *rng.integers(0, last + 1, bags - 1).tolist()])
    include = seed % 2 == 0
    if include:
        offsets.append(last)
    index = rng.integers(0, rows, n).tolist()
    for mode in ("sum", "mean", "max"):
        for padding_idx in (None, 0, 2, -1):
            for extra in ({}, {"sparse": True}, {"per_sample_weights": True}):  # PyTorch's scale_grad_by_freq counts the wrong rows here
                if (mode == "max" and extra) or (mode != "sum" and "per_sample_weights" in extra):
                    continue

                def run(t):
                    weight = (t.arange(10.0, dtype=t.float64) ** 2).reshape(rows, 2).requires_grad_()
                    options, factors = dict(extra), None
                    if "per_sample_weights" in extra:
                        options["per_sample_weights"] = factors = (t.arange(float(n), dtype=t.float64) * 0.5 + 1).requires_grad_()
                    y = t.nn.functional.embedding_bag(t.tensor(index, dtype=t.int64), weight, t.tensor(offsets), mode=mode, padding_idx=padding_idx,
                                                      include_last_offset=include, **options)
                    (y * t.arange(1.0, 1 + y.numel(), dtype=t.float64).reshape(y.shape)).sum().backward()
                    return y.tolist(), weight.grad.to_dense().tolist() if weight.grad.is_sparse else weight.grad.tolist(), \
                        None if factors is None else factors.grad.tolist()

                assert run(tg) == run(torch), (mode, padding_idx, extra, index, offsets, include)


def test_the_last_offset_ends_a_bag_on_the_short_way():
    """In 32 bits, without padding, PyTorch stops at the last offset. But it divides by what lies behind it, too, and its gradients of that are
    memory that nobody has written."""
    torch = pytest.importorskip("torch")
    for mode in ("sum", "mean"):
        def run(t):
            weight = t.arange(10.0).reshape(5, 2).requires_grad_()
            y = t.nn.functional.embedding_bag(t.tensor([1, 2, 3, 1]), weight, t.tensor([0, 1, 3]), mode=mode, include_last_offset=True)
            return y, weight

        (y, weight), (expected, _) = run(tg), run(torch)
        if mode == "sum":
            np.testing.assert_array_equal(y.detach().numpy(), expected.detach().numpy())
        assert y.tolist() == [[2, 3], [10, 12] if mode == "sum" else [5, 6]]
        y.sum().backward()
        share = 1.0 if mode == "sum" else 0.5
        assert weight.grad[:, 0].tolist() == [0, 1, share, share, 0]


def overlapping():
    """Writes in place whose target shares memory with what is read."""
    y, i = tg.rand(6), tg.tensor([2, 1, 0])
    yield from ((name, lambda name=name: getattr(y, name)(0, i, y[:3])) for name in ("index_add_", "index_copy_", "scatter_", "scatter_add_"))
    yield from ((f"{name} of its index", lambda name=name: getattr(i, name)(0, i, i.clone())) for name in ("index_add_", "index_copy_", "scatter_"))
    yield "index_fill_", lambda: i.index_fill_(0, i, 0)
    yield "put_", lambda: y.put_(i, y[:3])
    yield "put_ of its index", lambda: i.put_(i, i.clone())
    yield "index_put_", lambda: y.index_put_((i,), y[:3])
    yield "index_put_ of its index", lambda: i.index_put_((i,), i.clone())
    yield "scatter_ of a number", lambda: i.scatter_(0, i, 5)


@pytest.mark.parametrize("call", [pytest.param(call, id=name) for name, call in overlapping()])
def test_targets_share_no_memory_with_what_is_read(call):
    with pytest.raises(RuntimeError, match="unsupported operation: the tensor to write to shares memory with"):
        call()


def test_absent_indices_share_no_memory():
    x = tg.zeros(2, 3)
    x[:, tg.tensor([1])] = tg.ones(2, 1)
    assert x.tolist() == [[0, 1, 0], [0, 1, 0]]


def test_a_source_has_the_target_s_dimensions():
    with pytest.raises(RuntimeError, match="source tensor shape must match self tensor shape, excluding the specified dimension"):
        tg.tensor(0.0).index_add(0, tg.tensor([0]), tg.ones(1, 1, 1))
    assert tg.tensor(1.0).index_add(0, tg.tensor([0]), tg.ones(1)).item() == 2


def test_embedding_bag_takes_pytorch_s_former_order():
    weight, places = tg.rand(5, 3), tg.tensor([1, 2, 4])
    with pytest.warns(UserWarning, match="Argument order of nn.functional.embedding_bag was changed"):
        got = tg.nn.functional.embedding_bag(weight, places, tg.tensor([0, 2]))
    assert got.equal(tg.nn.functional.embedding_bag(places, weight, tg.tensor([0, 2])))


@pytest.mark.parametrize("dtype", [np.int8, np.float32, np.complex64], ids=["int8", "float32", "complex64"])
@pytest.mark.parametrize(("sizes", "dim"), [((5, 6, 7), 0), ((5, 6, 7), 1), ((5, 6), 0), ((3, 4, 5, 6), 1), ((4, 300), 0)])
def test_an_expanded_index_gathers_whole_rows(sizes, dim, dtype):
    rng = np.random.default_rng(1)
    x = rng.normal(size=sizes).astype(np.float32).astype(dtype)
    index = rng.integers(0, sizes[dim], [*sizes[:dim], 4] + [1] * (len(sizes) - dim - 1))
    for less in (0, 2):
        behind = [s - less for s in sizes[dim + 1 :]]
        wide = np.broadcast_to(index, [*sizes[:dim], 4, *behind])
        expected = np.take_along_axis(x[(slice(None),) * (dim + 1) + tuple(slice(0, s) for s in behind)], wide, dim)
        for layout in (x, np.ascontiguousarray(x.T).T):  # dense rows, and others
            got = tg.from_numpy(layout).gather(dim, tg.from_numpy(index).expand(*wide.shape))
            assert np.array_equal(got.numpy(), expected)
    with pytest.raises((IndexError, RuntimeError), match="index 99 is out of"):
        tg.from_numpy(x).gather(dim, tg.full(index.shape, 99).expand(*index.shape[: dim + 1], *sizes[dim + 1 :]))


@pytest.mark.parametrize("index", [1, [1]])
def test_index_copy_of_a_number(index):
    source = tg.tensor(5.0, requires_grad=True)
    x = tg.ones(3, requires_grad=True)
    result = x.index_copy(0, tg.tensor(index), source)
    assert result.tolist() == [1, 5, 1]
    (result * tg.tensor([1.0, 2, 3])).sum().backward()
    assert source.grad.item() == 2 and x.grad.tolist() == [1, 0, 3]
    batch = tg.vmap(lambda s: tg.ones(3).index_copy(0, tg.tensor([1]), s))(tg.tensor([7.0, 8]))
    assert batch.tolist() == [[1, 7, 1], [1, 8, 1]]
    with pytest.raises(RuntimeError, match="index_add: source tensor shape must match"):
        tg.ones(3).index_add(0, tg.tensor([1]), tg.tensor(5.0))
    for bad in ((tg.ones(3, 2), tg.tensor([1])), (tg.ones(3), tg.tensor([1, 2]))):
        with pytest.raises(RuntimeError, match="index_copy: source tensor shape must match"):
            bad[0].index_copy(0, bad[1], tg.tensor(5.0))
