"""Sparse tensors against PyTorch, and that what was not written for them refuses them."""

import copy
import pickle

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")
INDICES, VALUES = [[0, 1, 1, 0], [2, 0, 2, 2]], [3.0, 4.0, 5.0, 1.5]


def pair(indices=INDICES, values=VALUES, size=(2, 3), **kwargs):
    return tg.sparse_coo_tensor(indices, values, size, **kwargs), torch.sparse_coo_tensor(indices, values, size, **kwargs)


def same(mine, theirs):
    assert mine.is_sparse == theirs.is_sparse
    assert tuple(mine.shape) == tuple(theirs.shape)
    if mine.is_sparse:
        mine, theirs = mine.coalesce(), theirs.coalesce()
        np.testing.assert_array_equal(mine.indices().numpy(), theirs.indices().numpy())
        mine, theirs = mine.values(), theirs.values()
    assert str(mine.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)


def test_construction():
    mine, theirs = pair()
    same(mine, theirs)
    assert repr(mine).replace("tapegrad", "torch") == repr(theirs)
    assert mine.is_sparse and mine.layout == tg.sparse_coo and not mine.is_coalesced() and mine._nnz() == 4
    assert (mine.sparse_dim(), mine.dense_dim(), mine.dim(), str(mine.device), mine.dtype) == (2, 0, 2, "cpu", tg.float32)
    assert mine.coalesce().is_coalesced() and mine.coalesce()._nnz() == 3
    with pytest.raises(RuntimeError, match="Cannot get indices on an uncoalesced tensor, please call .coalesce\\(\\) first"):
        mine.indices()
    same(mine.to_dense(), theirs.to_dense())
    same(tg.sparse_coo_tensor(INDICES, VALUES), torch.sparse_coo_tensor(INDICES, VALUES))
    same(*pair([[0, 2, 0]], [[1, 2], [3, 4], [5, 6]], (3, 2)))
    same(*pair([[0, 2, 0]], [[1.0, 2], [3, 4], [5, 6]], (3, 2), dtype=None))
    same(tg.sparse_coo_tensor((2, 3)), torch.sparse_coo_tensor((2, 3)))
    assert repr(tg.sparse_coo_tensor((2, 3))).replace("tapegrad", "torch") == repr(torch.sparse_coo_tensor((2, 3)))
    for dtype in ("float64", "int32", "int64"):
        assert repr(tg.sparse_coo_tensor(INDICES, VALUES, (2, 3), dtype=getattr(tg, dtype))).replace(
            "tapegrad", "torch") == repr(torch.sparse_coo_tensor(INDICES, VALUES, (2, 3), dtype=getattr(torch, dtype)))
    for other in (copy.deepcopy(mine), pickle.loads(pickle.dumps(mine)), mine.clone(), mine.detach()):
        same(other, theirs)


def test_forms_of_construction():
    for args, options in [((), {"size": (2, 3)}), ((tg.Size([2, 3]),), {}), (([2, 3],), {"dtype": "int64"}),
                          ((), {"indices": INDICES, "values": VALUES, "size": (2, 3)})]:  # fmt: skip
        dtypes = [{**options, "dtype": getattr(library, options["dtype"])} if "dtype" in options else options for library in (tg, torch)]
        same(tg.sparse_coo_tensor(*args, **dtypes[0]), torch.sparse_coo_tensor(*(tuple(a) for a in args), **dtypes[1]))
    for args, options, message in [((), {}, "expected indices and values, or a size alone: got neither"),
                                   ((INDICES,), {"size": (2, 3)}, "expected indices and values, or a size alone: got indices and a size without values"),
                                   ((tg.tensor(INDICES),), {}, "size must be a tuple of ints: got Tensor"),
                                   ((), {"values": VALUES}, "values need indices")]:
        with pytest.raises(TypeError, match=f"^sparse_coo_tensor: {message}$"):
            tg.sparse_coo_tensor(*args, **options)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_old_classes():
    def plain(t):
        return t.is_sparse, str(t.dtype).split(".")[1], tuple(t.shape), t._indices().tolist(), t._values().tolist()

    for name in [name for name in dir(torch.sparse) if name.endswith("Tensor") and name not in ("SparseSemiStructuredTensor", "Tensor")]:
        kinds, found = [getattr(library.sparse, name) for library in (tg, torch)], []
        assert repr(kinds[0]).replace("tapegrad", "torch") == repr(kinds[1]) and str(kinds[0].layout).endswith("sparse_coo")
        for library, kind in zip((tg, torch), kinds):
            places, values = library.tensor(INDICES), library.tensor(VALUES).to(kind.dtype)
            made = kind(places, values)
            found.append([plain(t) for t in (kind(), kind(2, 3), kind(library.Size([2, 3])), made, kind(places, values, library.Size([3, 4])))])
            assert isinstance(made, kind) and not isinstance(made.to_dense(), kind) and isinstance(made, library.sparse.LongTensor) == (name == "LongTensor")
            found[-1].append(made.type().partition(".")[2])
        assert found[0] == found[1]
    assert tg.sparse_coo_tensor(INDICES, VALUES).type(tg.sparse.DoubleTensor).dtype == tg.float64
    for wrong in ([2, 3], [[1.0]], tg.sparse_coo_tensor((2, 3))):
        with pytest.raises(TypeError, match="^LongTensor: expected sizes, or indices and values as tensors: got "):
            tg.sparse.LongTensor(wrong)


def test_conversions():
    mine, theirs = pair()
    for dtype in ("float64", "float16", "int32"):
        same(mine.to(getattr(tg, dtype)), theirs.to(getattr(torch, dtype)))
    same(mine.double(), theirs.double())
    same(mine.to(mine.double()), theirs.double())
    assert mine.float() is mine and mine.to("cpu") is mine and mine.to(copy=True, device="cpu") is not mine
    values = tg.tensor(VALUES, requires_grad=True)
    tg.sparse_coo_tensor(INDICES, values, (2, 3)).double().to_dense().sum().backward()
    assert values.grad.dtype is tg.float32 and values.grad.tolist() == [1.0] * 4
    net = tg.nn.Embedding(3, 2, sparse=True)
    net(tg.tensor([2])).sum().backward()
    net.double()
    assert net.weight.dtype is tg.float64 and net.weight.grad.dtype is tg.float64 and net.weight.grad._indices().tolist() == [[2]]


def test_repr_wraps_as_in_pytorch():
    for indices, values, size in ([[list(range(40))], [k / 7 for k in range(40)], (40,)], [[[0, 1]], [[1.0] * 30] * 2, (2, 30)],
                                  [[[0] * 9] * 9, [1e-9 * k for k in range(9)], (123456,) * 2 + (1,) * 7]):
        mine, theirs = pair(indices, values, size, dtype=None)
        assert repr(mine).replace("tapegrad", "torch") == repr(theirs)


def test_to_sparse():
    x = torch.tensor([[0.0, 2, 0], [3, 0, 4]])
    mine = tg.tensor(x.numpy())
    same(mine.to_sparse(), x.to_sparse())
    same(mine.to_sparse(1), x.to_sparse(1))
    same(mine.sparse_mask(pair()[0]), x.sparse_mask(pair()[1].coalesce()))
    with pytest.raises(RuntimeError, match="sparse_mask: expected a mask of the tensor's shape \\(3, 2\\): got \\(2, 3\\)"):
        mine.t().sparse_mask(pair()[0])


def test_arithmetic():
    (a, x), (b, y) = pair(), pair([[1, 0], [1, 2]], [7.0, -1.0])
    dense, other = tg.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3)
    for f in (lambda a, b, d: a + b, lambda a, b, d: a - b, lambda a, b, d: d + a, lambda a, b, d: d - a, lambda a, b, d: a * 3, lambda a, b, d: 3 * a,
              lambda a, b, d: a / 2, lambda a, b, d: -a, lambda a, b, d: a.t(), lambda a, b, d: a.transpose(0, 1), lambda a, b, d: a.coalesce() * d,
              lambda a, b, d: a.sum()):
        same(f(a, b, dense), f(x, y, other))
    same(tg.add(dense, a, alpha=2), torch.add(other, x, alpha=2))


def test_products_and_their_gradients():
    indices, size = tg.tensor(INDICES), (2, 3)
    values = tg.tensor(VALUES, dtype=tg.float64, requires_grad=True)
    dense = tg.randn(3, 4, dtype=tg.float64, requires_grad=True)
    mine = tg.sparse_coo_tensor(indices, values, size)
    theirs = torch.sparse_coo_tensor(INDICES, VALUES, size, dtype=torch.float64)
    other = torch.tensor(dense.detach().numpy())
    for product in (tg.mm, tg.sparse.mm, tg.matmul, lambda a, b: a @ b):
        same(product(mine, dense), theirs @ other)
    same(tg.mm(dense.detach().t(), mine.t()), other.t() @ theirs.t())
    same(tg.sparse.addmm(tg.ones(2, 4, dtype=tg.float64), mine, dense), torch.sparse.addmm(torch.ones(2, 4, dtype=torch.float64), theirs, other))

    def f(values, dense):
        return tg.sparse.mm(tg.sparse_coo_tensor(indices, values, size), dense)

    assert tg.autograd.gradcheck(f, (values, dense))
    assert tg.autograd.gradgradcheck(f, (values, dense))
    assert tg.autograd.gradcheck(lambda v: tg.sparse_coo_tensor(indices, v, size).to_dense(), (values,))
    assert tg.autograd.gradcheck(lambda v: tg.sparse_coo_tensor(indices, v, size).coalesce().values(), (values,))


def test_sums():
    mine, theirs = pair()
    for dim in (None, 0, 1, (0, 1)):
        same(tg.sparse.sum(mine, dim), torch.sparse.sum(theirs, dim))


@pytest.mark.parametrize(("args", "text"), [
    (([[0, 5]], [1.0, 2.0], (3,)), "size is inconsistent with indices"), (([[0, -1]], [1.0, 2.0], (3,)), "size is inconsistent with indices"),
    (([[0, 1]], [1.0], (3,)), "must have same nnz"), (([[0, 1]], [1.0, 2.0], (3, 3)), "number of dimensions must be sparse_dim"),
    (([[0.5, 1]], [1.0, 2.0], (3,)), "indices must be an integral matrix"), (([[0, 1]], [[1.0], [2.0]], (3, 2)), "values has incorrect size"),
    (([[0]], [1.0], (2**62, 4)), "")])
def test_mistakes(args, text):
    with pytest.raises((RuntimeError, ValueError), match=text):
        tg.sparse_coo_tensor(*args)


REFUSED = [lambda s: s.numpy(), lambda s: s.tolist(), lambda s: s.exp(), lambda s: s[0:1], lambda s: s.view(-1), lambda s: s.reshape(6), lambda s: tg.cat([s, s]),
           lambda s: s.add_(1), lambda s: s.add_(s), lambda s: s.mul_(tg.ones(2, 3)), lambda s: tg.zeros(2, 3).mul_(s), lambda s: s.copy_(tg.zeros(2, 3)), lambda s: tg.zeros(2, 3).copy_(s), lambda s: tg.zeros(3, 2).add_(s), lambda s: tg.zeros(2, 3).long().add_(s),
           lambda s: tg.zeros(2, 3, requires_grad=True).add_(s), lambda s: (tg.zeros(2, 3, requires_grad=True) * 1).sub_(s),
           lambda s: s.to("meta"), lambda s: tg.rand_like(s), lambda s: s + tg.ones(2, 3), lambda s: s @ s, lambda s: s.item(),
           lambda s: list(s), lambda s: s.max(), lambda s: s == s, lambda s: s.sort(), lambda s: s.nonzero(), lambda s: tg.from_dlpack(s), lambda s: s.resize_(9),
           lambda s: s.unsqueeze(0), lambda s: s.contiguous().exp(), lambda s: s.expand(2, 2, 3),
           lambda s: tg.nn.functional.linear(tg.tensor(1.0), s), lambda s: tg.where(s, 1.0, 2.0), lambda s: tg.zeros(2, 3).masked_fill_(s, 1), lambda s: s.fill_(2),
           lambda s: tg.add(tg.ones(2, 3), tg.ones(2, 3), out=s), lambda s: s.set_(tg.ones(3)), lambda s: s.mean(),
           lambda s: tg.equal(s, s), lambda s: tg.nn.functional.embedding(tg.tensor([0]), s), lambda s: setattr(tg.zeros(2, 3), "data", s), lambda s: bool(s),
           lambda s: s.untyped_storage(), lambda s: memoryview(s), lambda s: np.asarray(s), lambda s: s.as_strided((2,), (1,)), lambda s: tg.save(s, "/nonexistent/x")]


def test_in_place():
    mine, theirs = pair()
    for dense, expected in ((tg.ones(2, 3), torch.ones(2, 3)), (tg.ones(3, 2).t(), torch.ones(3, 2).t())):
        version = dense._version
        assert dense.add_(mine) is dense and dense._version > version
        dense.add_(mine, alpha=-0.5).sub_(mine).sub_(mine, alpha=2)
        expected.add_(theirs).add_(theirs, alpha=-0.5).sub_(theirs).sub_(theirs, alpha=2)
        np.testing.assert_allclose(dense.numpy(), expected.numpy(), rtol=1e-6)
    assert mine.mul_(3) is mine
    mine.div_(2).neg_()
    theirs.mul_(3).div_(2).neg_()
    np.testing.assert_allclose(mine.to_dense().numpy(), theirs.to_dense().numpy(), rtol=1e-6)
    assert mine.zero_().to_dense().count_nonzero() == 0
    weight = tg.nn.Parameter(tg.ones(2, 3))  # what optimizers of public scripts do
    with tg.no_grad():
        weight.add_(pair()[0], alpha=-0.1)
    np.testing.assert_allclose(weight.detach().numpy(), (torch.ones(2, 3) - 0.1 * pair()[1].to_dense()).numpy(), rtol=1e-6)


@pytest.mark.parametrize("use", REFUSED, ids=range(len(REFUSED)))
def test_everything_else_refuses_them(use):
    with pytest.raises((NotImplementedError, RuntimeError, TypeError, ValueError, IndexError, OSError, BufferError)):
        use(pair()[0])


def table(rows=10, width=3, **kwargs):
    torch.manual_seed(0)
    theirs = torch.nn.Embedding(rows, width, sparse=True, **kwargs)
    mine = tg.nn.Embedding(rows, width, sparse=True, **kwargs)
    mine.load_state_dict({"weight": tg.tensor(theirs.weight.detach().numpy().copy())})
    return mine, theirs


@pytest.mark.parametrize("padding", [None, 2])
def test_embedding_gradient(padding):
    mine, theirs = table(padding_idx=padding)
    batches = ([[1, 2], [2, 7]], [[9, 2], [1, 1]])
    for batch in batches:  # gradients add up
        (mine(tg.tensor(batch)) * tg.arange(3.0)).sum().backward()
        (theirs(torch.tensor(batch)) * torch.arange(3.0)).sum().backward()
    assert mine.weight.grad.is_sparse
    same(mine.weight.grad, theirs.weight.grad)
    # Together with a dense gradient it becomes dense.
    mine.weight.sum().backward()
    theirs.weight.sum().backward()
    same(mine.weight.grad, theirs.weight.grad)
    # Used twice in one pass, and grad().
    got, = tg.autograd.grad(mine(tg.tensor([1, 1])).sum() + mine(tg.tensor([3])).sum(), mine.weight)
    want, = torch.autograd.grad(theirs(torch.tensor([1, 1])).sum() + theirs(torch.tensor([3])).sum(), theirs.weight)
    same(got, want)


def test_embedding_bag_gradient():
    for mode in ("sum", "mean"):
        mine = tg.nn.EmbeddingBag(6, 2, mode=mode, sparse=True)
        theirs = torch.nn.EmbeddingBag(6, 2, mode=mode, sparse=True)
        mine(tg.tensor([1, 2, 1]), tg.tensor([0, 2])).sum().backward()
        theirs(torch.tensor([1, 2, 1]), torch.tensor([0, 2])).sum().backward()
        same(mine.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize(("name", "kwargs"), [("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "maximize": True}), ("Adagrad", {"lr": 0.1, "lr_decay": 0.01}),
                                              ("SparseAdam", {"lr": 0.1}), ("SparseAdam", {"lr": 0.1, "maximize": True})], ids=str)
def test_optimizers(name, kwargs):
    mine, theirs = table()
    a, b = getattr(tg.optim, name)(mine.parameters(), **kwargs), getattr(torch.optim, name)(theirs.parameters(), **kwargs)
    for batch in ([1, 2, 2], [7, 1, 0], [2, 2, 9]):
        for library, net, optimizer in ((tg, mine, a), (torch, theirs, b)):
            optimizer.zero_grad()
            (net(library.tensor(batch)) ** 2).sum().backward()
            optimizer.step()
        np.testing.assert_allclose(mine.weight.detach().numpy(), theirs.weight.detach().numpy(), rtol=1e-5, atol=1e-6)
    assert {k: sorted(v) for k, v in a.state_dict()["state"].items()} == {k: sorted(v) for k, v in b.state_dict()["state"].items()}
    other = getattr(tg.optim, name)(mine.parameters(), **kwargs)
    other.load_state_dict(copy.deepcopy(a.state_dict()))


def test_dense_adagrad():
    torch.manual_seed(0)
    net = torch.nn.Linear(3, 2)
    mine = tg.nn.Linear(3, 2)
    mine.load_state_dict({k: tg.tensor(v.detach().numpy().copy()) for k, v in net.state_dict().items()})
    kwargs = {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.05, "initial_accumulator_value": 0.2}
    a, b = tg.optim.Adagrad(mine.parameters(), **kwargs), torch.optim.Adagrad(net.parameters(), **kwargs)
    for _ in range(4):
        for library, module, optimizer in ((tg, mine, a), (torch, net, b)):
            optimizer.zero_grad()
            module(library.ones(2, 3)).square().sum().backward()
            optimizer.step()
    np.testing.assert_allclose(mine.weight.detach().numpy(), net.weight.detach().numpy(), rtol=1e-6)
    with pytest.raises(ValueError, match="Invalid lr_decay value: -1"):
        tg.optim.Adagrad(mine.parameters(), lr_decay=-1)


def test_optimizers_that_do_not_take_them():
    mine, _ = table()
    mine(tg.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam instead"):
        tg.optim.Adam(mine.parameters()).step()
    with pytest.raises(RuntimeError, match="SGD: weight_decay does not go with sparse gradients: got 0.9"):
        tg.optim.SGD(mine.parameters(), lr=0.1, weight_decay=0.9).step()
    dense = tg.nn.Linear(2, 2)
    dense(tg.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients, please consider Adam instead"):
        tg.optim.SparseAdam(dense.parameters()).step()
    tg.optim.SGD(mine.parameters(), lr=0.1).zero_grad(set_to_none=False)
    assert mine.weight.grad.is_sparse and mine.weight.grad._nnz() == 0


def peak_of(f) -> int:
    """Bytes that the process's memory grew by while f ran."""
    from resource import RUSAGE_SELF, getrusage
    before = getrusage(RUSAGE_SELF).ru_maxrss
    f()
    return (getrusage(RUSAGE_SELF).ru_maxrss - before) * 1024


def test_work_and_memory_are_in_proportion_to_the_rows_used():
    """A table of 128 MB: a step of SGD must not make anything near its size."""
    rows, width = 500_000, 64
    net = tg.nn.Embedding(rows, width, sparse=True, _weight=tg.zeros(rows, width))
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
    batch = tg.arange(0, rows, rows // 100)

    def step():
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()

    step()
    assert net.weight.grad._values().numel() == batch.numel() * width
    assert peak_of(step) < 4 << 20
    assert float(net.weight[batch].sum()) == pytest.approx(-0.2 * batch.numel() * width)
    assert float(net.weight.sum()) == pytest.approx(float(net.weight[batch].sum()))


@pytest.mark.parametrize("optimizer", [None, "SGD", "Adagrad", "SparseAdam"])
def test_index_select_gradient(optimizer):
    """index_select with sparse_grad: the gradient that embedding(sparse=True) gives, and what optimizers make of it."""
    index = tg.tensor([1, 3, 1], dtype=tg.int32)
    one, other = (tg.nn.Parameter(tg.arange(15.0).reshape(5, 3).clone()) for _ in range(2))
    picked = (one.index_select(0, index, sparse_grad=True), tg.nn.functional.embedding(index, other, sparse=True))
    for p in picked:
        (p * tg.arange(1.0, 10.0).reshape(3, 3)).sum().backward()
    assert one.grad.is_sparse and one.grad._nnz() == 3 and one.grad._indices().tolist() == [[1, 3, 1]]
    assert tg.equal(one.grad.to_dense(), other.grad.to_dense()) and tg.equal(picked[0], picked[1])
    if optimizer:
        for p in (one, other):
            getattr(tg.optim, optimizer)([p], lr=0.1).step()
        assert tg.equal(one, other) and one[0].tolist() == [0.0, 1.0, 2.0] and one[1].tolist() != [3.0, 4.0, 5.0]


def test_a_number_has_no_place_to_choose():
    number = tg.sparse_coo_tensor(tg.zeros((0, 1), dtype=tg.int64), tg.tensor([1.0]), ())
    for choose in (lambda: number.select(0, 0), lambda: number.index_select(0, tg.tensor([0])), lambda: number[0]):
        with pytest.raises(IndexError):
            choose()


def test_index_select_gradients_have_rows_or_are_refused():
    w = tg.nn.Parameter(tg.ones(4, 3))
    w.index_select(-2, tg.tensor([2]), sparse_grad=True).sum().backward()
    assert w.grad.is_sparse and w.grad.to_dense()[2].tolist() == [1.0] * 3
    for wrong in (lambda: w.index_select(1, tg.tensor([2]), sparse_grad=True), lambda: tg.index_select(tg.tensor(1.0), 0, tg.tensor([0]), sparse_grad=True)):
        with pytest.raises(RuntimeError, match="a sparse gradient consists of rows: expected dim 0"):
            wrong()


@pytest.mark.parametrize(("size", "dim", "index"), [((4, 3), 0, [[1, 3, 0], [0, 0, 2]]), ((4, 3), 1, [[1], [0]]), ((2, 3, 2), -1, [[[1], [0]]]), ((5,), 0, [4, 4, 1]), ((), 0, 0)])
def test_gather_gradient(size, dim, index):
    mine, theirs = tg.ones(size, requires_grad=True), torch.ones(size, requires_grad=True)
    (mine.gather(dim, tg.tensor(index), sparse_grad=True) * 2).sum().backward()
    (theirs.gather(dim, torch.tensor(index), sparse_grad=True) * 2).sum().backward()
    assert mine.grad.is_sparse == (mine.ndim > 0)
    dense = theirs.grad.to_dense() if theirs.grad.is_sparse else theirs.grad
    np.testing.assert_array_equal((mine.grad.to_dense() if mine.grad.is_sparse else mine.grad).numpy(), dense.numpy())


@pytest.mark.parametrize("padding_idx", [None, 2])
@pytest.mark.parametrize("how", ["embedding", "bag", "index_select", "gather"])
def test_a_sparse_gradient_has_memory_of_its_own(how, padding_idx):
    F = tg.nn.functional
    weight, index = tg.ones(5, 2, requires_grad=True), tg.tensor([1, 2, 4])

    def result():
        if how == "embedding":
            return F.embedding(index, weight, sparse=True, padding_idx=padding_idx)
        if how == "bag":
            return F.embedding_bag(index, weight, tg.tensor([0, 1, 2]), mode="sum", sparse=True, padding_idx=padding_idx)
        if how == "index_select":
            return tg.index_select(weight, 0, index)
        return tg.gather(weight, 0, index[:, None], sparse_grad=True)

    given = tg.ones_like(result())
    result().backward(given)
    expected = weight.grad.to_dense().tolist()
    (other,) = tg.autograd.grad(result(), weight, given)
    index.fill_(0)
    assert weight.grad.to_dense().tolist() == expected
    assert (other.to_dense() if other.is_sparse else other).tolist() == expected
    given.fill_(7)
    assert weight.grad.to_dense().tolist() == expected
    if weight.grad.is_sparse:
        weight.grad._values().mul_(2)  # no two entries share memory
        assert (weight.grad.to_dense() == 2 * tg.tensor(expected)).all()


def test_indices_of_other_dtypes_become_integers():
    made = tg.sparse_coo_tensor(tg.tensor([[0.0, 2.0]]), tg.ones(2), (3,))
    assert made._indices().dtype == tg.int64 and made.to_dense().tolist() == [1, 0, 1]
    assert tg.sparse_coo_tensor(tg.empty(1, 0), tg.empty(0, 1), (5, 1)).to_dense().abs().sum() == 0


@pytest.mark.parametrize("layout", [tg.sparse_coo, tg.sparse_csr, tg.sparse_csc])
def test_sparse_leaves(layout):
    s = tg.tensor([[1.0, 0.0], [2.0, 3.0]]).to_sparse(layout=layout)
    assert not s.requires_grad and s.requires_grad_() is s and s.requires_grad and s.is_leaf and s.grad is None
    w = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (s @ w).sum().backward()
    dense = s.detach().to_dense().requires_grad_()
    (dense @ w).sum().backward()
    assert s.grad.layout is layout and s.grad.to_dense().tolist() == (dense.grad * (dense != 0)).tolist()
    (grad,) = tg.autograd.grad((s.to_dense() ** 2).sum(), s)
    assert grad.layout is layout and grad.to_dense().tolist() == [[2, 0], [4, 6]]
    s.grad = None
    assert s.grad is None and not s.requires_grad_(False).requires_grad


def test_sparse_results_know_the_tape():
    x = tg.tensor([[1.0, 0.0], [2.0, 3.0]], requires_grad=True)
    s = x.to_sparse()
    assert s.requires_grad and not s.is_leaf and s.grad_fn is not None
    (grad,) = tg.autograd.grad(s, x, tg.tensor([[5.0, 6.0], [7.0, 8.0]]).to_sparse())
    assert grad.tolist() == [[5, 0], [7, 8]]


def test_a_sparse_leaf_of_given_parts_leaves_them_alone():
    values = tg.ones(2)
    s = tg.sparse_coo_tensor([[0, 2]], values, (3,), requires_grad=True)
    s.to_dense().sum().backward()
    assert s.grad.to_dense().tolist() == [1, 0, 1] and not values.requires_grad and values.grad is None
    c = copy.deepcopy(s)
    assert c.requires_grad and c.grad.to_dense().tolist() == [1, 0, 1] and c.grad is not s.grad


def test_no_sparse_dimension():
    """All entries are at the one place there is."""
    values = np.random.default_rng(0).normal(size=(5, 1, 2))
    for nnz in (5, 0):
        mine, theirs = (lib.sparse_coo_tensor(lib.zeros((0, nnz), dtype=lib.int64), lib.tensor(values[:nnz]), (1, 2)) for lib in (tg, torch))
        assert (mine.sparse_dim(), mine.dense_dim()) == (0, 2)
        same(mine.to_dense(), theirs.to_dense())
        same((mine + mine).to_dense(), (theirs + theirs).to_dense())
        assert mine.coalesce().indices().shape == theirs.coalesce().indices().shape
        same(mine.coalesce().to_dense(), theirs.coalesce().to_dense())
    x = tg.tensor(values, requires_grad=True)
    tg.sparse_coo_tensor(tg.zeros((0, 5), dtype=tg.int64), x, (1, 2)).coalesce().values().sum().backward()
    assert (x.grad == 1).all()


@pytest.mark.parametrize("index", [[1, 0, 1], [-1, 0], [2, 2, 2, 2], [], [1]])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("values", [VALUES, [1, 2, 3, -4], [True, False, True, True], [[1.0, 2], [3, 4], [5, 6], [7, 8]]])
@pytest.mark.parametrize("coalesced", [False, True])
def test_index_select(index, dim, values, coalesced):
    for mine, theirs in [pair([[0, 1, 1, 0], [2, 0, 2, 2]], values, (3, 3, 2) if isinstance(values[0], list) else (3, 3))]:
        if coalesced:
            mine, theirs = mine.coalesce(), theirs.coalesce()
        if dim == -1 and isinstance(values[0], list):
            index = [i % 2 for i in index]  # a dense dimension, which does not count from the end
        result = mine.index_select(dim, tg.tensor(index, dtype=tg.int64))
        same(result, theirs.index_select(dim, torch.tensor(index, dtype=torch.int64)))
        np.testing.assert_array_equal(result.to_dense().numpy(), mine.to_dense().numpy().take(index, dim) if index else result.to_dense().numpy())
        if result.is_coalesced():
            places = result._indices().numpy()
            assert np.array_equal(np.unique(places, axis=1), places)


@pytest.mark.parametrize("values", [VALUES, [1, 2, 3, -4], [True, False, True, True], [[1.0, 2], [3, 4], [5, 6], [7, 8]]])
@pytest.mark.parametrize("dtype", [None, "int8", "float64"])
def test_select(values, dtype):
    mine, theirs = pair([[0, 1, 1, 0], [2, 0, 2, 2]], values, (3, 3, 2) if isinstance(values[0], list) else (3, 3))
    if dtype and not isinstance(values[0], bool):
        mine, theirs = mine.to(getattr(tg, dtype)), theirs.to(getattr(torch, dtype))
    for d in range(-1, mine.dim()):
        for k in (-1, 0, 1, *([2] if mine.shape[d] == 3 else [])):
            same(mine.select(d, k), theirs.select(d, k))
            if d >= 0:
                key = (*[slice(None)] * d, k)
                same(mine[key], theirs[key])
                last = min(k, mine.shape[-1] - 1)
                same(mine[..., last], theirs[..., last])
    same(mine[1], theirs[1])
    same(mine[0, 2], theirs[0, 2])  # of one sparse dimension: dense
    same(tg.select(mine.to_sparse_csr(), 0, 1) if mine.dim() == 2 else mine[1], theirs[1])


def test_selected_entries_have_gradients():
    values = tg.tensor([3.0, 4.0, 5.0], requires_grad=True)
    sparse = tg.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values, (2, 3))
    for use, wanted in ((lambda: tg.sparse.sum(sparse.index_select(0, tg.tensor([1, 1, 0]))), [1, 2, 2]),
                        (lambda: tg.sparse.sum(sparse[1]), [0, 1, 1]), (lambda: sparse[1, 2], [0, 0, 1]),
                        (lambda: (sparse.index_select(1, tg.tensor([2, 0, 2])).to_dense() ** 2).sum(), [12, 8, 20])):  # fmt: skip
        values.grad = None
        use().backward()
        assert values.grad.tolist() == wanted


@pytest.mark.parametrize("use, error, text", [
    (lambda s: s.index_select(1, tg.tensor([0, 3])), IndexError, "index 3 is out of bounds for dimension 1 with size 3"),
    (lambda s: s.index_select(0, tg.tensor([-3])), IndexError, "index -3 is out of bounds for dimension 0 with size 2"),
    (lambda s: s.index_select(2, tg.tensor([0])), IndexError, "expected to be in range of \\[-2, 1\\], but got 2"),
    (lambda s: s.index_select(0, tg.tensor([0.0])), IndexError, "expected a dense index of int64 or int32 with one dimension: got float32 \\[1\\]"),
    (lambda s: s.index_select(0, tg.tensor(0)), IndexError, "with one dimension: got int64 \\[\\]"),
    (lambda s: s.to_sparse_csr().index_select(0, tg.tensor([0])), NotImplementedError, "compressed by rows or columns"),
    (lambda s: s.select(0, 2), IndexError, "select: index 2 is out of bounds for dimension 0 with size 2"),
    (lambda s: s[2], IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
    (lambda s: s[0, 0, 0], IndexError, "too many indices for a tensor with 2 dimensions: got 3"),
    (lambda s: s[..., 0, ...], IndexError, "at most one Ellipsis"),
    (lambda s: s[0:1], NotImplementedError, "a sparse tensor takes integers, `:` and `...`"),
    (lambda s: s[tg.tensor([0])], NotImplementedError, "use index_select"),
    (lambda s: s.__setitem__(0, 1.0), NotImplementedError, "cannot be assigned to"),
    (lambda s: s[None], NotImplementedError, "a sparse tensor takes integers"),
])  # fmt: skip
def test_mistakes_of_selection(use, error, text):
    with pytest.raises(error, match=text):
        use(pair()[0].coalesce())


def test_selection_of_nothing():
    empty = tg.sparse_coo_tensor(tg.zeros(2, 0, dtype=tg.int64), tg.zeros(0), (0, 3))
    assert tuple(empty.index_select(0, tg.zeros(0, dtype=tg.int64)).shape) == (0, 3)
    assert tuple(empty.index_select(1, tg.tensor([0, 0])).shape) == (0, 2) and tuple(empty[:, 2].shape) == (0,)
    places = tg.sparse_coo_tensor(tg.zeros(0, 2, dtype=tg.int64), tg.ones(2, 3), (3,))  # no sparse dimension
    assert places[1].to_dense().item() == 2.0 and places.index_select(0, tg.tensor([1, 1])).to_dense().tolist() == [2, 2]


def test_the_caller_may_say_that_entries_are_sorted():
    sparse = tg.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    assert not sparse.is_coalesced() and sparse._coalesced_(True) is sparse and sparse.is_coalesced()
    assert sparse.indices().tolist() == [[0, 1], [2, 0]] and not sparse._coalesced_(False).is_coalesced()
    with pytest.raises(RuntimeError, match="_coalesced_: expected a sparse tensor: got a dense one"):
        tg.ones(2)._coalesced_(True)
