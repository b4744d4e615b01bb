"""Matrices compressed by rows and by columns, against PyTorch."""

import copy
import pickle

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")
DENSE = [[0.0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0, 4]]
FORMS = {"csr": ("sparse_csr_tensor", "crow_indices", "col_indices"), "csc": ("sparse_csc_tensor", "ccol_indices", "row_indices")}


def array(t):
    return t.detach().to_dense().numpy()


def parts(t, form):
    return [getattr(t, name)() for name in FORMS[form][1:]] + [t.values()]


def same(mine, theirs, form):
    assert str(mine.layout).split(".")[1] == str(theirs.layout).split(".")[1] == f"sparse_{form}"
    assert tuple(mine.shape) == tuple(theirs.shape) and mine._nnz() == theirs._nnz()
    for a, b in zip(parts(mine, form), parts(theirs, form), strict=True):
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


def both(form, dense=DENSE):
    return [getattr(lib.tensor(dense), f"to_sparse_{form}")() for lib in (tg, torch)]


@pytest.mark.parametrize("form", FORMS)
def test_conversions(form):
    mine, theirs = both(form)
    same(mine, theirs, form)
    assert (mine.is_sparse, mine.is_sparse_csr) == (theirs.is_sparse, theirs.is_sparse_csr) == (False, form == "csr")
    assert (mine.sparse_dim(), mine.dense_dim(), mine.dim(), mine.dtype, str(mine.device)) == (2, 0, 2, tg.float32, "cpu")
    assert repr(mine).replace("tapegrad", "torch") == repr(theirs)
    np.testing.assert_array_equal(array(mine), DENSE)
    coordinates = mine.to_sparse()
    assert coordinates.layout == tg.sparse_coo and array(coordinates).tolist() == DENSE
    for other in FORMS:
        same(getattr(mine, f"to_sparse_{other}")(), getattr(theirs, f"to_sparse_{other}")(), other)
        same(coordinates.to_sparse(layout=getattr(tg, f"sparse_{other}")), getattr(theirs.to_sparse(), f"to_sparse_{other}")(), other)
    assert getattr(mine, f"to_sparse_{form}")() is mine
    for kept in (mine.clone(), mine.detach(), copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        same(kept, theirs, form)
    same(mine.double(), theirs.double(), form)
    same(mine * 2, theirs * 2, form)
    same(mine.t(), theirs.t(), "csc" if form == "csr" else "csr")
    same(mine.t().t(), theirs, form)
    twice = [lib.sparse_coo_tensor([[1, 0, 1], [2, 0, 2]], [1.0, 2, 3], (2, 3)) for lib in (tg, torch)]  # one place twice
    same(*(getattr(t, f"to_sparse_{form}")() for t in twice), form)
    for shape in ((0, 3), (3, 0), (0, 0), (2, 3)):
        same(*(getattr(lib.zeros(shape), f"to_sparse_{form}")() for lib in (tg, torch)), form)
    with pytest.raises(RuntimeError, match="expected a matrix with two sparse dimensions"):
        getattr(tg.ones(3).to_sparse(), f"to_sparse_{form}")()


@pytest.mark.parametrize("form", FORMS)
def test_made_of_parts(form):
    make, *names = FORMS[form]
    starts, others, values, size = [0, 2, 2, 4], [1, 3, 0, 3], [2.0, 1, 3, 4], (3, 4) if form == "csr" else (4, 3)
    for kwargs in ({}, {"size": size}, {"dtype": "float64"}):
        made = [getattr(lib, make)(starts, others, values, **{k: getattr(lib, v) if k == "dtype" else v for k, v in kwargs.items()}) for lib in (tg, torch)]
        same(*made, form)
        np.testing.assert_array_equal(array(made[0]), made[1].to_dense().numpy())
    narrow = [getattr(lib, make)(*(lib.tensor(p, dtype=lib.int32) for p in (starts, others)), lib.tensor(values), size) for lib in (tg, torch)]
    same(*narrow, form)
    assert getattr(narrow[0], names[1])().dtype == tg.int32
    same(tg.sparse_compressed_tensor(starts, others, values, size, layout=getattr(tg, f"sparse_{form}")), made[1].float(), form)
    unsorted = getattr(tg, make)([0, 2, 2, 4], [3, 1, 0, 0], values, size)  # not in order, and one place twice
    expected = getattr(torch, make)([0, 2, 2, 4], [3, 1, 0, 0], values, size)
    same(unsorted, expected, form)
    np.testing.assert_array_equal(array(unsorted), expected.to_dense().numpy())
    np.testing.assert_array_equal(unsorted.to_sparse().coalesce().to_dense().numpy(), expected.to_dense().numpy())
    for bad in (([0, 2, 2], others, values, size), ([1, 2, 2, 4], others, values, size), ([0, 2, 1, 4], others, values, size), ([0, 2, 2, 3], others, values, size),
                (starts, [1, 3, 0, 9], values, size), (starts, [1, -1, 0, 3], values, size), (starts, others, values[:3], size), (starts, others, values, (3,))):
        with pytest.raises(RuntimeError):
            getattr(tg, make)(*bad)
    with pytest.raises(RuntimeError, match="expected sparse"):
        getattr(tg.eye(2).to_sparse(), names[0])()
    with pytest.raises(RuntimeError, match="layout"):
        tg.sparse_compressed_tensor(starts, others, values, size, layout=tg.sparse_coo)


def test_scipy_both_ways():
    scipy = pytest.importorskip("scipy.sparse")
    theirs = scipy.csr_matrix(np.array(DENSE))
    mine = tg.sparse_csr_tensor(theirs.indptr, theirs.indices, theirs.data, theirs.shape)
    assert mine.dtype == tg.float64 and mine.crow_indices().dtype == tg.int32 and array(mine).tolist() == DENSE
    theirs.data[:] = 0  # the tensor has values of its own
    assert array(mine).tolist() == DENSE
    back = scipy.csr_matrix((mine.values().numpy(), mine.col_indices().numpy(), mine.crow_indices().numpy()), shape=mine.shape)
    np.testing.assert_array_equal(back.toarray(), DENSE)
    columns = mine.to_sparse_csc()
    back = scipy.csc_matrix((columns.values().numpy(), columns.row_indices().numpy(), columns.ccol_indices().numpy()), shape=columns.shape)
    np.testing.assert_array_equal(back.toarray(), DENSE)


@pytest.mark.parametrize("form", ("coo", *FORMS))
def test_products_and_their_gradients(form):
    """With a matrix and a vector on either side, a layer, and another sparse matrix; gradients of the entries and of what is dense."""
    def run(lib, sparse: bool):
        dense, values = lib.tensor(DENSE, dtype=lib.float64), lib.tensor([1.5, -2, 0.5, 3], dtype=lib.float64, requires_grad=True)
        places = dense.nonzero().t() if lib is torch else dense.nonzero().t().contiguous()
        if sparse:
            a = lib.sparse_coo_tensor(places, values, dense.shape)
            a = a if form == "coo" else getattr(a, f"to_sparse_{form}")()
        else:
            a = lib.zeros_like(dense).index_put(tuple(places), values)
        gen = np.random.default_rng(0)
        right, left, vector, weight, bias = (lib.tensor(gen.standard_normal(s), requires_grad=True) for s in ((4, 2), (5, 3), (4,), (2, 4), (2,)))
        results = [a @ right, left @ a, a.mv(vector), lib.nn.functional.linear(a, weight, bias), lib.nn.functional.linear(a, weight),
                   lib.addmm(bias, a, right, beta=0.5, alpha=2), (a.t() @ left.t())]
        if sparse:
            results += [(a @ a.t()).to_dense(), (a @ a.t().to_sparse() @ a).to_dense(), lib.dsmm(a, right), lib.sparse.addmm(bias, a, right)]
        else:
            results += [a @ a.t(), a @ a.t() @ a, a @ right, bias + a @ right]
        sum((r * (i + 1)).square().sum() for i, r in enumerate(results)).backward()
        return [r.detach().numpy() for r in results] + [t.grad.numpy() for t in (values, right, left, vector, weight, bias)]

    for mine, theirs in zip(run(tg, True), run(torch, False), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    kept = tg.tensor(DENSE).to_sparse(layout=tg.sparse_coo if form == "coo" else getattr(tg, f"sparse_{form}"))
    assert (kept @ kept.t()).layout == (tg.sparse_coo if form == "coo" else tg.sparse_csr) and (kept + kept).layout == kept.layout
    assert (kept + kept).to_dense().tolist() == (2 * tg.tensor(DENSE)).tolist()
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        kept @ kept


@pytest.mark.parametrize("reduce", ("sum", "mean", "amax", "amin"))
def test_reduced_products(reduce):
    def run(lib):
        values = lib.tensor([1.5, -2, 0.5, 3], requires_grad=True)
        a = lib.sparse_csr_tensor([0, 2, 2, 4], [1, 3, 0, 3], values, (3, 4)) if lib is tg else torch.sparse_csr_tensor(
            torch.tensor([0, 2, 2, 4]), torch.tensor([1, 3, 0, 3]), values.detach(), (3, 4), requires_grad=True)
        x = lib.tensor(np.random.default_rng(0).standard_normal((4, 3)).astype("float32"), requires_grad=True)
        y = lib.sparse.mm(a, x, reduce)
        y.square().sum().backward()
        return y.detach().numpy(), x.grad.numpy(), (values.grad if lib is tg else a.grad.values()).numpy()

    for mine, theirs in zip(run(tg), run(torch), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    with pytest.raises(ValueError, match="reduce must be one of sum, mean, amax, amin: got prod"):
        tg.sparse.mm(tg.eye(2).to_sparse_csr(), tg.eye(2), "prod")
    with pytest.raises(NotImplementedError, match="reduce needs a sparse matrix and a dense one"):
        tg.sparse.mm(tg.eye(2), tg.eye(2), "amax")


def test_gradients_pass_through_conversions():
    dense = tg.tensor(DENSE, dtype=tg.float64, requires_grad=True)
    weights = tg.tensor([[1.0], [2], [3], [4]], dtype=tg.float64)
    (dense.to_sparse_csr() @ weights).square().sum().backward()
    other = torch.tensor(DENSE, dtype=torch.float64, requires_grad=True)
    (other @ torch.tensor(weights.numpy())).square().sum().backward()
    np.testing.assert_allclose(dense.grad.numpy(), other.grad.numpy() * (np.array(DENSE) != 0))


@pytest.mark.parametrize("form", FORMS)
def test_files(form, tmp_path):
    """Both formats, and PyTorch's files both ways."""
    mine, theirs = both(form)
    for name in ("x.tg", "x.pt"):
        tg.save({"a": mine}, tmp_path / name)
        same(tg.load(tmp_path / name)["a"], theirs, form)
    same(mine, torch.load(tmp_path / "x.pt")["a"], form)
    torch.save({"a": theirs}, tmp_path / "y.pt")
    same(tg.load(tmp_path / "y.pt")["a"], theirs, form)
    with pytest.raises(ValueError, match="expected a dictionary of dense tensors"):
        tg.serialization.save_file({"a": mine}, tmp_path / "z")


def test_what_it_cannot_do_is_refused():
    mine = tg.eye(3).to_sparse_csr()
    for refused in (lambda: mine[0:1], lambda: mine.exp(), lambda: mine.numpy(), lambda: mine.view(9), lambda: mine.untyped_storage(), lambda: tg.from_dlpack(mine),
                    lambda: mine.to("meta"), lambda: mine + 1, lambda: list(mine), lambda: mine.tolist()):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            refused()


@pytest.mark.parametrize(("rows", "size"), [([0, 1, 1, 3], 5), ([], 3), ([], 0), ([2, 2], 3)])
def test_rows_and_where_they_begin(rows, size):
    for narrow in (False, True):
        starts = [lib._convert_indices_from_coo_to_csr(lib.tensor(rows, dtype=lib.int64), size, out_int32=narrow) for lib in (tg, torch)]
        assert starts[0].tolist() == starts[1].tolist() and str(starts[0].dtype)[-5:] == str(starts[1].dtype)[-5:]
    for transpose in (False, True):
        both = [lib._convert_indices_from_csr_to_coo(t.long(), lib.arange(len(rows)), transpose=transpose) for lib, t in zip((tg, torch), starts, strict=True)]
        assert both[0].tolist() == both[1].tolist() and both[0].dtype == tg.int64


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_products_with_few_columns(dtype):
    """Rows without entries, of very many, and of none at the ends; entries of a row in several pieces of the work."""
    rng = np.random.default_rng(0)
    counts = np.concatenate([[0, 0, 70000, 1, 0, 3], rng.integers(0, 9, 9000), [40000, 0]])
    rows, n = np.repeat(np.arange(len(counts)), counts), 500
    columns, values = rng.integers(0, n, len(rows)), rng.integers(-3, 4, len(rows)).astype(np.float64)
    starts = np.concatenate([[0], counts.cumsum()])
    kind, before = getattr(tg, dtype), tg.get_num_threads()
    s = tg.sparse_csr_tensor(tg.from_numpy(starts), tg.from_numpy(columns), tg.tensor(values, dtype=kind), (len(counts), n))
    for k in (0, 1, 2, 3, 5, 8, 15, 16, 17):
        dense = rng.integers(-2, 3, (n, k)).astype(np.float64)
        want = np.zeros((len(counts), k))
        np.add.at(want, rows, values[:, None] * dense[columns])
        x, results = tg.tensor(dense, dtype=kind), []
        for threads in (1, 2, 3):
            tg.set_num_threads(threads)
            results.append((s @ x).double().numpy())
        tg.set_num_threads(before)
        assert all(np.array_equal(results[0], other) for other in results[1:])
        np.testing.assert_allclose(results[0], want, 1e-2 if dtype == "bfloat16" else 0, 1e-6)
    order = rng.permutation(len(rows))  # not sorted by rows
    shuffled = tg.sparse_coo_tensor(np.stack([rows, columns])[:, order], tg.tensor(values[order], dtype=kind), (len(counts), n))
    np.testing.assert_allclose((shuffled @ x).double().numpy(), want, 1e-2 if dtype == "bfloat16" else 0, 1e-6)


def test_places_that_were_changed_outside_of_the_matrix_are_found():
    for wrong in (-1, 3, 2**62):
        indices = tg.tensor([[0, 1, 2], [0, 1, 2]])
        s = tg.sparse_coo_tensor(indices, tg.ones(3), (3, 3))
        indices[1, 2] = wrong
        with pytest.raises(IndexError, match=r"sparse mm: entry 2 at"):
            s @ tg.ones(3, 1)
