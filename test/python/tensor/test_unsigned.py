"""uint16, uint32 and uint64: stored, moved, compared, converted and exchanged as in torch; kernels refuse the rest by name."""

import copy
import io
import pickle

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")
NAMES = ("uint16", "uint32", "uint64")
OTHERS = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128")
PAIRS = [(a, b) for a in NAMES for b in (*OTHERS, *NAMES)]
PAIRS += [(b, a) for a in NAMES for b in OTHERS]
WHOLE = [0, 1, 2, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]


def both(values, name):
    return tg.tensor(values, dtype=getattr(tg, name)), torch.tensor(values, dtype=getattr(torch, name))


def fitting(name):
    return [v for v in WHOLE if v < 2 ** (8 * getattr(torch, name).itemsize)]


def edges(name):
    """Values of a dtype, its ends among them; of floating ones those that the unsigned ones hold, with parts and signs."""
    dtype = getattr(torch, name)
    if name == "bool":
        return [True, False]
    if name in NAMES:
        return fitting(name)
    if not dtype.is_floating_point and not dtype.is_complex:
        info = torch.iinfo(dtype)
        return [info.min, info.min + 1, *([-1] if info.min else []), 0, 1, info.max - 1, info.max]
    values = [0.0, 0.5, 1.0, 1.5, 255.75, 2047.0, 30000.0, 65472.0, -1.0, -1.5, -3.0, -0.0]
    return [complex(v, 3.0) for v in values] if dtype.is_complex else values


def same(ours, theirs):
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    assert list(ours.shape) == list(theirs.shape)
    a, b = ours.tolist(), theirs.tolist()
    assert repr(a) == repr(b), (a, b)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("repeats", [1, 40])  # alone, and as many as vectors take
def test_conversions(source, target, repeats):
    ours, theirs = both(edges(source) * repeats, source)
    to = getattr(tg, target), getattr(torch, target)
    same(ours.to(to[0]), theirs.to(to[1]))
    same(ours[::2].to(to[0]), theirs[::2].to(to[1]))
    n = len(ours) // 2 * 2
    same(ours[:n].reshape(2, -1).t().to(to[0]), theirs[:n].reshape(2, -1).t().to(to[1]))
    same(tg.zeros(len(ours), dtype=to[0]).copy_(ours), torch.zeros(len(ours), dtype=to[1]).copy_(theirs))
    same(tg.zeros(2 * len(ours), dtype=to[0])[1::2].copy_(ours), torch.zeros(2 * len(ours), dtype=to[1])[1::2].copy_(theirs))
    same(ours[0].to(to[0]), theirs[0].to(to[1]))


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["uint32", "uint64"])
def test_large_floating_numbers(source, target):
    values = [2.0**31, 2.0**31 + 256, 2.0**32 - 256, -(2.0**31)]
    values += [2.0**32, 2.0**40, 2.0**62, 2.0**63, 2.0**63 + 2.0**40, 2.0**64 - 2.0**40, -(2.0**40)] if target == "uint64" else []
    for repeats in (1, 40):
        ours, theirs = both(values * repeats, source)
        same(ours.to(getattr(tg, target)), theirs.to(getattr(torch, target)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("floating", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_operators_take_them_in_with_floating_operands(name, floating):
    """Through the staging of operands, which is another table of conversions than that of copies."""
    ours, theirs = both(fitting(name)[:9] * 9, name)
    a, b = both([1.0] * len(ours), floating)
    if floating == "complex64":
        with pytest.raises(RuntimeError, match="^promote_types: "):
            ours * a
        return
    same(ours * a, theirs * b)
    same(ours[::3] * a[::3], theirs[::3] * b[::3])
    same(ours * 1.0, theirs * 1.0)
    same(ours / 2, theirs / 2)
    assert tg.allclose(ours.float().sqrt(), ours.sqrt())


@pytest.mark.parametrize("name", NAMES)
def test_promotion(name):
    ours, theirs = getattr(tg, name), getattr(torch, name)
    for other in (*OTHERS, *NAMES):
        for swap in (False, True):
            a, b = [(d, o)[:: -1 if swap else 1] for d, o in ((ours, getattr(tg, other)), (theirs, getattr(torch, other)))]
            try:
                wanted = str(torch.promote_types(*b))
            except RuntimeError:
                with pytest.raises(RuntimeError, match="^promote_types: uint16, uint32 and uint64 promote with floating dtypes only: got "):
                    tg.promote_types(*a)
            else:
                assert str(tg.promote_types(*a)).replace("tapegrad", "torch") == wanted
            assert tg.can_cast(*a) == torch.can_cast(*b)
    x, y = both([1, 2], name)
    for value in (1, True, 1.5):
        assert str(tg.result_type(x, value)).replace("tapegrad", "torch") == str(torch.result_type(y, value))
    assert str(tg.result_type(x, tg.tensor(3))).replace("tapegrad", "torch") == str(torch.result_type(y, torch.tensor(3)))


@pytest.mark.parametrize("name", NAMES)
def test_properties(name):
    ours, theirs = getattr(tg, name), getattr(torch, name)
    for attribute in ("is_floating_point", "is_complex", "is_signed", "itemsize"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert repr(ours) == f"tapegrad.{name}" and repr(tg.iinfo(ours)) == repr(torch.iinfo(theirs))
    assert (tg.iinfo(ours).min, tg.iinfo(ours).max, tg.iinfo(ours).bits) == (0, torch.iinfo(theirs).max, torch.iinfo(theirs).bits)
    assert pickle.loads(pickle.dumps(ours)) is ours and copy.deepcopy(ours) is ours
    with pytest.raises(TypeError, match="^finfo: expected a floating dtype"):
        tg.finfo(ours)
    with pytest.raises(TypeError, match="floating"):
        tg.set_default_dtype(ours)
    with pytest.raises(RuntimeError, match="can require gradients"):
        tg.zeros(2, dtype=ours, requires_grad=True)
    x, y = both([1], name)
    assert x.type() == y.type().replace("torch", "tapegrad")
    assert not x.is_floating_point() and not x.is_complex() and not x.is_signed() and x.element_size() == y.element_size()


@pytest.mark.parametrize("name", NAMES)
def test_printing_and_numbers(name):
    for values in (fitting(name), [], [[1, 20], [300, 4]], fitting(name)[-1], list(range(1200))):
        ours, theirs = both(values, name)
        assert repr(ours) == repr(theirs).replace("torch", "tapegrad")
        assert ours.tolist() == theirs.tolist() == values
    for value in fitting(name):
        t = tg.tensor(value, dtype=getattr(tg, name))
        assert t.item() == int(t) == t.__index__() == value and f"{t}" == str(value) and float(t) == float(value) and bool(t) == bool(value)
        assert isinstance(t.item(), int)


@pytest.mark.parametrize("name", NAMES)
def test_construction(name):
    ours, theirs, largest = getattr(tg, name), getattr(torch, name), fitting(name)[-1]
    for make in ("zeros", "ones"):
        same(getattr(tg, make)(2, 3, dtype=ours), getattr(torch, make)(2, 3, dtype=theirs))
    for value in fitting(name):
        same(tg.full((3,), value, dtype=ours), torch.full((3,), value, dtype=theirs))
        same(tg.zeros(3, dtype=ours).fill_(value), torch.zeros(3, dtype=theirs).fill_(value))
        same(tg.full_like(tg.zeros(3, dtype=ours), value), torch.full_like(torch.zeros(3, dtype=theirs), value))
        same(tg.scalar_tensor(value, dtype=ours), torch.scalar_tensor(value, dtype=theirs))
    same(tg.zeros(3, dtype=ours).fill_(-1), torch.zeros(3, dtype=theirs).fill_(-1))
    assert tg.empty(3, dtype=ours).dtype == tg.empty_like(tg.zeros(2, dtype=ours)).dtype == ours
    same(tg.as_tensor([1, 2], dtype=ours), torch.as_tensor([1, 2], dtype=theirs))
    same(tg.zeros(2, dtype=ours).new_tensor([3]), torch.zeros(2, dtype=theirs).new_tensor([3]))
    assert tg.tensor([1.5, 2.0], dtype=ours).tolist() == [1, 2]
    for wrong in (largest + 1, -largest - 1):
        with pytest.raises((RuntimeError, OverflowError), match="does not fit into"):
            tg.tensor([wrong], dtype=ours)
    drawn = tg.randint(0, 10, (1000,), dtype=ours)
    assert drawn.dtype == ours and set(drawn.tolist()) == set(range(10))
    assert set(tg.empty(1000, dtype=ours).random_(3, 7).tolist()) == {3, 4, 5, 6}
    assert tg.empty(1000, dtype=ours).random_().double().mean().item() == pytest.approx(largest / 2, rel=0.1)
    assert tg.arange(5, dtype=ours).tolist() == [0, 1, 2, 3, 4]
    made = tg.testing.make_tensor(100, dtype=ours, device="cpu")
    assert made.dtype == ours and set(made.tolist()) <= set(range(10))


def test_numbers_from_2_63_on():
    big = 2**63
    same(tg.tensor([1.5]) + big, torch.tensor([1.5]) + big)
    same(tg.tensor([1, -1]) + big, torch.tensor([1, -1]) + big)
    ours, theirs = both([1, big, 2**64 - 1], "uint64")
    same(ours == big, theirs == big)
    same(ours & big, theirs & big)
    same(tg.full((2,), big, dtype=tg.float32), torch.full((2,), big, dtype=torch.float32))
    same(tg.tensor(big, dtype=tg.float64), torch.tensor(big, dtype=torch.float64))
    assert tg.tensor(np.uint64(2**64 - 1)).item() == (tg.tensor([0], dtype=tg.uint64) | np.uint64(2**64 - 1)).item() == 2**64 - 1
    for call in (lambda: tg.full((2,), big), lambda: tg.full((2,), big, dtype=tg.int32), lambda: tg.zeros(2, dtype=tg.int64).fill_(big),
                 lambda: tg.zeros(2, dtype=tg.int64).new_full((2,), big), lambda: tg.add(tg.tensor([1]), 1, alpha=big),
                 lambda: tg.tensor([1]).clamp_(max=big)):
        with pytest.raises(RuntimeError, match=rf"without overflow: {big}$|{big} does not fit into int"):
            call()
    with pytest.raises(OverflowError, match="does not fit into int64"):
        tg.tensor(big)
    with pytest.raises(OverflowError, match="does not fit into 64 bits"):
        tg.full((1,), 2**64, dtype=tg.uint64)
    with pytest.raises((IndexError, RuntimeError, OverflowError)):
        tg.zeros(3)[big]


@pytest.mark.parametrize("name", NAMES)
def test_numpy(name):
    a = np.array(fitting(name) * 2, dtype=name)
    t = tg.from_numpy(a)
    assert t.dtype == getattr(tg, name) and t.data_ptr() == a.ctypes.data and t.tolist() == a.tolist()
    back = t.numpy()
    assert back.dtype == a.dtype and back.ctypes.data == a.ctypes.data
    assert tg.tensor(a).dtype == tg.as_tensor(a).dtype == tg.asarray(a[::2]).dtype == t.dtype
    assert tg.tensor(a[1]).dtype == t.dtype and tg.tensor([a[0], a[1]]).dtype == t.dtype
    assert np.asarray(memoryview(t)).dtype == a.dtype and memoryview(t).tolist() == a.tolist()
    assert tg.frombuffer(a.tobytes(), dtype=t.dtype).tolist() == a.tolist()
    assert np.array_equal(np.asarray(t[::3]), a[::3])
    for alias in ("uintc", "ulonglong", "ulong"):
        assert tg.from_numpy(np.ones(2, dtype=alias)).tolist() == [1, 1]


@pytest.mark.parametrize("name", NAMES)
def test_dlpack(name):
    a = np.array(fitting(name), dtype=name)
    ours, theirs = tg.from_dlpack(a), torch.from_dlpack(a)
    same(ours, theirs)
    same(tg.from_dlpack(theirs), theirs)
    same(ours, torch.from_dlpack(ours))
    assert np.from_dlpack(ours).dtype == a.dtype


@pytest.mark.parametrize("name", NAMES)
def test_files(name, tmp_path):
    ours, theirs = both([fitting(name)[-1], 0, 3, 4], name)
    state = {"x": ours, "view": ours[1:3], "square": ours.reshape(2, 2).t(), "a": ours.numpy()}
    for path in ("f.safetensors", "f.pt"):
        tg.save(state, tmp_path / path)
        back = tg.load(tmp_path / path)
        same(back["x"], theirs)
        same(back["square"], theirs.reshape(2, 2).t())
        assert back["view"].data_ptr() == back["x"].data_ptr() + ours.element_size()
        assert back["a"].dtype == name and back["a"].tolist() == ours.tolist()
    tg.save(ours, tmp_path / "one.pt")
    same(ours, torch.load(tmp_path / "one.pt"))
    tg.save({"x": ours, "p": tg.nn.Buffer(ours), "e": ours[:0], "none": tg.zeros(0, dtype=ours.dtype)}, tmp_path / "many.pt")
    read = torch.load(tmp_path / "many.pt", weights_only=False)
    same(ours, read["x"])
    same(ours, read["p"])
    assert read["e"].numel() == 0 and read["none"].dtype == theirs.dtype
    torch.save({"x": theirs, "view": theirs[1:3], "e": theirs[:0]}, tmp_path / "theirs.pt")
    read = tg.load(tmp_path / "theirs.pt")
    same(read["x"], theirs)
    same(read["view"], theirs[1:3])
    assert read["view"].data_ptr() == read["x"].data_ptr() + ours.element_size()
    same(pickle.loads(pickle.dumps(ours)), theirs)
    same(copy.deepcopy(ours), theirs)
    stream = io.BytesIO()
    np.save(stream, ours.numpy())
    assert np.load(io.BytesIO(stream.getvalue())).dtype == name


def test_safetensors(tmp_path):
    theirs = pytest.importorskip("safetensors.torch")
    x = {name: torch.tensor(fitting(name), dtype=getattr(torch, name)) for name in NAMES}
    theirs.save_file(x, tmp_path / "a.safetensors")
    back = tg.load(tmp_path / "a.safetensors")
    for name in NAMES:
        same(back[name], x[name])
    tg.save({name: tg.tensor(fitting(name), dtype=getattr(tg, name)) for name in NAMES}, tmp_path / "b.safetensors")
    back = theirs.load_file(tmp_path / "b.safetensors")
    for name in NAMES:
        assert torch.equal(back[name], x[name])


# Each as a function of the library and of two tensors of one unsigned dtype, of shape (2, 3), and a mask.
WORK = {
    "view": lambda m, x, y, b: [x.view(m.uint8), x.view(getattr(m, str(x.dtype).rpartition(".")[2][1:])), x.view(x.dtype)],
    "view_back": lambda m, x, y, b: [m.arange(8).view(x.dtype), m.arange(16, dtype=m.uint8).view(x.dtype)],
    "cat": lambda m, x, y, b: [m.cat([x, y]), m.cat([x, y], 1), m.stack([x, y]), m.hstack([x, y]), m.cat([x, m.tensor([[1.5, 2.0, 3.0]])])],
    "shape": lambda m, x, y, b: [x.t().contiguous(), x.reshape(3, 2), x.permute(1, 0).clone(), x.repeat(2, 2), x.expand(2, 2, 3).contiguous(), x.flatten(),
                                 *x.chunk(2), *x.unbind(1), x.unsqueeze(0), x.roll(1), x.tile(2), x.movedim(0, 1), x.unfold(1, 2, 1), x.diagonal(), x.mT.clone(),
                                 m.diag(x[0]), m.nn.functional.pad(x, (1, 2)), m.nn.functional.pad(x, (1, 2), value=7), m.rot90(m.eye(2))],
    "index": lambda m, x, y, b: [x[0], x[:, 1], x[..., ::2], x[b], x[[1, 0]], x[m.tensor([1, 0]), m.tensor([2, 2])], x[:, None], x[0, 0]],
    "assign": lambda m, x, y, b: [_assigned(x, 0, 5), _assigned(x, (slice(None), 1), y[:, 0]), _assigned(x, (1, 2), y[0, 0])],
    "compare": lambda m, x, y, b: [x == y, x != y, x == 3, x != 65535, x == x, m.eq(x, 1), m.ne(x, y), x == 1.0, m.isnan(x), m.isinf(x), m.isfinite(x)],
    "bits": lambda m, x, y, b: [x & y, x | y, x ^ y, x & 3, 3 | x, x ^ 1, m.bitwise_and(x, 1), x.clone().bitwise_or_(y)],
    "products": lambda m, x, y, b: [x * y, x * 3, 2 * x, x.clone().mul_(y), m.outer(x[0], y[0]), m.kron(x, y), x.ceil(), x.floor(), x.round(), x.trunc(),
                                    x.nan_to_num(), +x, x.conj(), x.real],
    "where": lambda m, x, y, b: [m.where(b, x, y), m.where(b, x, 5), m.where(b, 5, y), m.where(b, x, m.tensor([1.5, 2.0, 3.0])), x.where(b, y)],
    "sums": lambda m, x, y, b: [x.sum(), x.sum(1), x.prod(0), m.prod(x[0, :2]), x.cumsum(1), x.any(), x.all(), x.any(1), x.all(0), x.sum(dtype=m.float32), x.mean(dtype=m.float64)],
    "order": lambda m, x, y, b: [*x.sort(), *x.sort(0, descending=True), x.unique(), *x.unique(return_inverse=True, return_counts=True), x.argsort(1), *m.sort(x.t(), stable=True)],
    "floats": lambda m, x, y, b: [x.exp2(), m.sin(x), x.float().log1p(), x / y.bool().float().add(1), m.true_divide(x, 2), x.double(), x + 1.5, 2.5 - x],
    "bool": lambda m, x, y, b: [x.bool(), x.clone().zero_(), m.zeros_like(x), m.ones_like(x)],
}


def _assigned(x, where, value):
    x = x.clone()
    x[where] = value
    return x


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("name", NAMES)
def test_operators_as_in_torch(name, work):
    largest = fitting(name)[-1]
    values, others, mask = [[1, largest, 3], [0, largest // 2 + 1, 7]], [[1, 2, largest], [5, 0, 7]], [[True, False, True], [False, True, False]]
    (x, s), (y, t) = both(values, name), both(others, name)
    ours, theirs = WORK[work](tg, x, y, tg.tensor(mask)), WORK[work](torch, s, t, torch.tensor(mask))
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if b.dtype.is_floating_point:
            assert str(a.dtype).rpartition(".")[2] == str(b.dtype).rpartition(".")[2]
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)
        else:
            same(a, b)
    assert tg.equal(x, x.clone()) and not tg.equal(x, y)


@pytest.mark.parametrize("name", NAMES)
def test_moves_that_torch_lacks(name):
    """They cost nothing, as kernels move elements by their size."""
    x = tg.tensor([[1, 2, 3], [4, 5, 6]], dtype=getattr(tg, name))
    like, index = x.long(), tg.tensor([[2, 0], [1, 1]])
    mask = like > 2
    for a, b in ((x.flip(0), like.flip(0)), (x.gather(1, index), like.gather(1, index)), (x.index_select(1, index[0]), like.index_select(1, index[0])),
                 (x.masked_select(mask), like.masked_select(mask)), (x.masked_fill(mask, 9), like.masked_fill(mask, 9)), (x.take(index), like.take(index)),
                 (_assigned(x, mask, 9), _assigned(like, mask, 9)), (_assigned(x, ([0, 1], [1, 2]), x[:, 0]), _assigned(like, ([0, 1], [1, 2]), like[:, 0])),
                 (x.tril(), like.tril()), (x.triu(1), like.triu(1)),
                 (x.scatter(1, index, x), like.scatter(1, index, like)), (x.nonzero(), like.nonzero())):
        assert a.dtype in (x.dtype, tg.int64) and a.tolist() == b.tolist()


@pytest.mark.parametrize("name", NAMES)
def test_refusals(name):
    x, y = both([[1, 2], [3, 4]], name)
    refused = {
        "add": lambda m, x: x + 1, "sub": lambda m, x: x - x, "neg": lambda m, x: -x, "abs": lambda m, x: x.abs(),
        "lt": lambda m, x: x < 3, "ge": lambda m, x: x >= x, "clamp": lambda m, x: x.clamp(0, 5), "pow": lambda m, x: x**2, "maximum": lambda m, x: m.maximum(x, x),
        "amax": lambda m, x: x.amax(), "argmax": lambda m, x: x.argmax(), "topk": lambda m, x: x.topk(1), "randperm": lambda m, x: m.randperm(3, dtype=x.dtype),
        "index_add": lambda m, x: x.index_add(0, m.tensor([0]), x[:1]), "logical_and": lambda m, x: x.logical_and(x),
        "scatter_add": lambda m, x: x.scatter_add(0, m.tensor([[0, 0]]), x), "sum": lambda m, x: x.sum(dtype=x.dtype), "add_": lambda m, x: x.add_(1),
        "bitwise_not": lambda m, x: ~x, "cummax": lambda m, x: x.cummax(0), "median": lambda m, x: x.median(0), "mode": lambda m, x: x.mode(),
        "isin": lambda m, x: m.isin(x, x), "eye": lambda m, x: m.eye(3, dtype=x.dtype) + 1,
        "mm": lambda m, x: x @ x, "histc": lambda m, x: x.histc(), "floor_divide": lambda m, x: x // 2,
    }
    before = x.tolist()
    for what, call in refused.items():
        with pytest.raises((NotImplementedError, RuntimeError)):
            call(torch, y)
        with pytest.raises(RuntimeError, match=rf"^[a-z_.]+: .*(not implemented for (dtype )?{name}|{name})") as caught:
            call(tg, x)
        assert type(caught.value) in (NotImplementedError, RuntimeError), what
    assert x.tolist() == before
    for bad in (lambda: x + tg.tensor([1, 2]), lambda: x == tg.tensor([1, 2], dtype=tg.uint8), lambda: tg.cat([x, tg.zeros(2, 2, dtype=tg.int8)])):
        with pytest.raises(RuntimeError, match="promote with floating dtypes only"):
            bad()
    with pytest.raises(IndexError, match="tensors used as indices must be integer or bool"):
        tg.zeros(3, 3)[x]
    with pytest.raises(NotImplementedError, match=f"^add: not implemented for dtype {name}$"):
        x + 1
    with pytest.raises(NotImplementedError, match=f"^topk: not implemented for dtype {name}$"):
        x.topk(1)


def test_out_and_in_place():
    x, s = both([1, 65535], "uint16")
    y, t = both([3, 65534], "uint16")
    for dtype in ("uint16", "int64", "float32"):
        same(tg.bitwise_or(x, y, out=tg.empty(2, dtype=getattr(tg, dtype))), torch.bitwise_or(s, t, out=torch.empty(2, dtype=getattr(torch, dtype))))
    same(tg.eq(x, y, out=tg.empty(2, dtype=tg.uint32)), torch.eq(s, t, out=torch.empty(2, dtype=torch.uint32)))
    assert (x[::1].bitwise_and_(1)).tolist() == [1, 1]


def test_processes_share_them():
    x = tg.tensor([1, 2**64 - 1], dtype=tg.uint64).share_memory_()
    queue = tg.multiprocessing.get_context("fork").Queue()
    queue.put(x)
    back = queue.get()
    assert back.dtype == tg.uint64 and back.tolist() == [1, 2**64 - 1]


@pytest.mark.parametrize("name", NAMES)
def test_assert_close(name):
    largest = fitting(name)[-1]
    x = tg.tensor([1, largest], dtype=getattr(tg, name))
    tg.testing.assert_close(x, x.clone())
    tg.testing.assert_close(x, x - 0.0 if name == "uint16" else x, check_dtype=False)
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 2"):
        tg.testing.assert_close(x, x ^ tg.tensor([0, 1], dtype=x.dtype))
    tg.testing.assert_close(x[:1], x[:1] ^ 3, atol=1.5, rtol=0)


def test_vmap_and_meta():
    x = tg.tensor([[1, 2], [3, 65535]], dtype=tg.uint16)
    assert tg.vmap(lambda r: r & 1)(x).tolist() == [[1, 0], [1, 1]]
    assert tg.empty(2, 3, dtype=tg.uint32, device="meta").t().shape == (3, 2)


# hash_tensor

@pytest.mark.parametrize("dtype", OTHERS[:10])
def test_hash_tensor(dtype):
    values = np.random.default_rng(0).integers(0, 2, (3, 5)) if dtype == "bool" else np.random.default_rng(0).normal(size=(3, 5)) * 50
    theirs = torch.tensor(values).to(getattr(torch, dtype))
    ours = tg.tensor(values).to(getattr(tg, dtype))
    for kwargs in ({}, {"dim": 0}, {"dim": (0, 1)}, {"dim": ()}, {"dim": None}, {"dim": -1, "keepdim": True}, {"keepdim": True}, {"mode": 0}):
        same(tg.hash_tensor(ours, **kwargs), torch.hash_tensor(theirs, **kwargs))
    same(ours.t()[::2].hash_tensor(1), theirs.t()[::2].hash_tensor(1))
    out = tg.empty(5, dtype=tg.uint64)
    assert tg.hash_tensor(ours, 0, out=out) is out
    same(out, torch.hash_tensor(theirs, 0))


def test_hash_tensor_of_edges():
    for values in ([0.0, -0.0], [float("nan"), 1.0], [float("inf")], [1e-45, 3.0]):
        same(tg.hash_tensor(tg.tensor(values)), torch.hash_tensor(torch.tensor(values)))
    same(tg.hash_tensor(tg.zeros(2, 0), dim=0), torch.hash_tensor(torch.zeros(2, 0), dim=0))
    same(tg.hash_tensor(tg.tensor(5)), torch.hash_tensor(torch.tensor(5)))
    large = np.random.default_rng(1).integers(-2**62, 2**62, 300_000)
    assert tg.hash_tensor(tg.from_numpy(large)).item() == np.bitwise_xor.reduce(large.view(np.uint64))
    x = tg.ones(3, requires_grad=True)
    assert not tg.hash_tensor(x).requires_grad
    with pytest.raises(RuntimeError, match=r"^hash_tensor: mode must be 0 \(exclusive or\): got 1$"):
        tg.hash_tensor(x, mode=1)
    with pytest.raises(NotImplementedError, match="^hash_tensor: not implemented for dtype complex64$"):
        tg.hash_tensor(tg.ones(2) * 1j)
    with pytest.raises(RuntimeError, match="^hash_tensor: a tensor without elements has none"):
        tg.hash_tensor(tg.zeros(0))
    with pytest.raises(IndexError):
        tg.hash_tensor(tg.zeros(2, 0), dim=1)
    with pytest.raises(IndexError):
        tg.hash_tensor(tg.zeros(2), dim=3)
    with pytest.raises(TypeError):
        tg.hash_tensor(x, 0, True)
    with pytest.raises(RuntimeError, match="^hash_tensor: Expected out tensor to have dtype uint64"):
        tg.hash_tensor(x.detach(), out=tg.empty((), dtype=tg.int64))
