"""Matrices of blocks (BSR, BSC) and batches of compressed ones, against PyTorch."""

import copy
import pickle

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")
DENSE = np.array([[1.0, 0, 0, 0, 2, 3], [0, 0, 0, 0, 0, 4], [0, 0, 5, 0, 0, 0], [0, 0, 0, 6, 0, 0]], dtype=np.float32)
SQUARE = np.array([[1.0, 0, 0, 2], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 3]])
FORMS = ("csr", "csc", "bsr", "bsc")
BLOCKS = ("bsr", "bsc")


def layout(lib, form):
    return getattr(lib, f"sparse_{form}")


def compressed(lib, dense, form, blocksize=(2, 3), **kwargs):
    return lib.tensor(dense).to_sparse(layout=layout(lib, form), blocksize=blocksize if form in BLOCKS else None, **kwargs)


def parts(t):
    names = ("ccol_indices", "row_indices") if str(t.layout)[-1] == "c" else ("crow_indices", "col_indices")
    return [getattr(t, name)() for name in names] + [t.values()]


def same(mine, theirs):
    assert str(mine.layout).split(".")[1] == str(theirs.layout).split(".")[1]
    assert tuple(mine.shape) == tuple(theirs.shape) and mine._nnz() == theirs._nnz()
    assert (mine.sparse_dim(), mine.dense_dim(), mine.dim()) == (theirs.sparse_dim(), theirs.dense_dim(), theirs.dim())
    for a, b in zip(parts(mine), parts(theirs), strict=True):
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    np.testing.assert_array_equal(mine.detach().to_dense().numpy(), theirs.detach().to_dense().numpy())


@pytest.mark.parametrize("form", BLOCKS)
def test_conversions(form):
    mine, theirs = (compressed(lib, DENSE, form) for lib in (tg, torch))
    same(mine, theirs)
    assert repr(mine).replace("tapegrad", "torch") == repr(theirs)
    assert (mine.is_sparse, mine.is_sparse_csr) == (False, False)
    for other in BLOCKS:
        same(getattr(mine, f"to_sparse_{other}")((2, 3)), getattr(theirs, f"to_sparse_{other}")((2, 3)))
    for source in ("coo", "csr", "csc"):
        for blocksize in ((2, 3), (2, 2), (1, 1), (4, 6)):
            a, b = (lib.tensor(DENSE).to_sparse(layout=layout(lib, source)) for lib in (tg, torch))
            same(*(getattr(t, f"to_sparse_{form}")(blocksize) for t in (a, b)))
    np.testing.assert_array_equal(mine.to_sparse().to_dense().numpy(), DENSE)
    assert mine.to_sparse()._nnz() == theirs.to_sparse()._nnz() == 24 and not mine.to_sparse().is_coalesced()
    for kept in (mine.clone(), mine.detach(), copy.deepcopy(mine), pickle.loads(pickle.dumps(mine))):
        same(kept, theirs)
    for change in (lambda t: t.double(), lambda t: t.int(), lambda t: t.bool(), lambda t: t * 2, lambda t: -t, lambda t: t.t(), lambda t: t.t().t(), lambda t: t + t, lambda t: t.clone().mul_(3)):
        same(change(mine), change(theirs))
    for shape in ((0, 6), (4, 0), (4, 6)):
        same(*(compressed(lib, np.zeros(shape), form) for lib in (tg, torch)))
    assert mine.sum().item() == theirs.sum().item() == 21
    assert not (mine * 0).to_dense().any()
    same(*(lib.tensor(DENSE * 7).sparse_mask(t) for lib, t in ((tg, mine), (torch, theirs))))
    other = np.where(np.arange(24).reshape(4, 6) % 7 == 0, 2, 0).astype(np.float32)
    np.testing.assert_array_equal((mine + compressed(tg, other, form)).to_dense().numpy(), DENSE + other)
    np.testing.assert_array_equal((tg.tensor(other) + mine).numpy(), DENSE + other)
    np.testing.assert_array_equal((mine * tg.tensor(other)).to_dense().numpy(), DENSE * other)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("batches", [(2,), (2, 3)])
def test_batches_and_dense_dimensions(form, batches):
    for tail in ((), (2,)):
        dense = np.zeros((*batches, 4, 4, *tail))
        for i, at in enumerate(np.ndindex(*batches)):
            dense[at] = (np.roll(SQUARE, i % 4, 0) if form[0] == "c" else SQUARE[::-1] if i % 2 else SQUARE).reshape(4, 4, *(1 for _ in tail)) + np.zeros(tail)
        mine, theirs = (compressed(lib, dense, form, (2, 2), dense_dim=len(tail)) for lib in (tg, torch))
        same(mine, theirs)
        for change in (lambda t: t * 2, lambda t: t + t, lambda t: t.clone(), lambda t: t.float()):
            same(change(mine), change(theirs))
        same(pickle.loads(pickle.dumps(mine)), theirs)
        np.testing.assert_array_equal(mine.to_sparse().to_dense().numpy(), dense)
        for other in (("csr", "csc") if form[0] == "c" else BLOCKS):
            args = ((2, 2),) if other in BLOCKS else ()
            same(*(getattr(t, f"to_sparse_{other}")(*args) for t in (mine, theirs)))
        if tail:
            same(mine.select(-1, 1), theirs.select(-1, 1))
            continue
        same(mine.mT, theirs.mT)
        if len(batches) == 2:
            same(mine.transpose(0, 1), theirs.transpose(0, 1))
        same(mine[1], theirs[1])
        assert repr(mine).replace("tapegrad", "torch") == repr(theirs)
    with pytest.raises(RuntimeError, match="same number of specified elements per batch"):
        compressed(tg, np.stack([SQUARE, SQUARE * 0]), form, (2, 2))
    with pytest.raises(RuntimeError, match="not supported for batched"):
        compressed(tg, np.stack([SQUARE, SQUARE]), form, (2, 2)).select(1, 0)


PARTS = ([0, 2, 3], [0, 1, 1], np.arange(12.0).reshape(3, 2, 2).tolist())


@pytest.mark.parametrize("form", BLOCKS)
def test_made_of_parts(form):
    make = f"sparse_{form}_tensor"
    for args, kwargs in (((*PARTS, (4, 4)), {}), (PARTS, {}), ((*PARTS, (4, 4)), {"dtype": "float64"})):
        kept = [{k: getattr(lib, v) for k, v in kwargs.items()} for lib in (tg, torch)]
        same(*(getattr(lib, make)(*args, **k) for lib, k in zip((tg, torch), kept, strict=True)))
        same(*(lib.sparse_compressed_tensor(*args, layout=layout(lib, form), **k) for lib, k in zip((tg, torch), kept, strict=True)))
    same(*(getattr(lib, make)(*(lib.tensor(p, dtype=lib.int32) for p in PARTS[:2]), lib.tensor(PARTS[2]), (4, 4)) for lib in (tg, torch)))
    with pytest.raises(RuntimeError, match="layout"):
        getattr(tg, make)(*PARTS, layout=tg.sparse_csr)
    with pytest.raises(RuntimeError, match="expected sparse compressed tensor layout"):
        tg.sparse_compressed_tensor(*PARTS, layout=tg.sparse_coo)


WRONG = {
    "size": ((*PARTS, (4,)), False), "first": (([1, 2, 3], *PARTS[1:], (4, 4)), False), "last": (([0, 2, 4], *PARTS[1:], (4, 4)), False),
    "fall": (([0, 2, 1, 3], *PARTS[1:], (6, 4)), False), "unsorted": ((PARTS[0], [1, 0, 1], PARTS[2], (4, 4)), True), "twice": ((PARTS[0], [0, 0, 1], PARTS[2], (4, 4)), True),
    "outside": ((PARTS[0], [0, 2, 1], PARTS[2], (4, 4)), False), "negative": ((PARTS[0], [-1, 1, 1], PARTS[2], (4, 4)), False), "nnz": ((*PARTS[:2], [*PARTS[2], PARTS[2][0]], (4, 4)), False),
    "starts": ((*PARTS, (6, 6)), False), "blocks": ((*PARTS[:2], np.ones((3, 3, 2)).tolist(), (4, 4)), False), "values": ((*PARTS[:2], [[1.0, 2]] * 3, (4, 4)), False),
    "batch": (([PARTS[0]] * 2, *PARTS[1:], (2, 4, 4)), False), "many": (([0, 3, 3], [0, 1, 1], PARTS[2], (4, 4)), True),
}  # fmt: skip


@pytest.mark.parametrize("form", BLOCKS)
@pytest.mark.parametrize("case", WRONG)
def test_parts_that_do_not_go_together(form, case):
    """PyTorch's sentences; what can be kept without harm is refused only where invariants are asked for."""
    args, whole_only = WRONG[case]
    with pytest.raises(RuntimeError) as theirs:
        torch.sparse_compressed_tensor(*args, layout=layout(torch, form), check_invariants=True)
    with pytest.raises(RuntimeError) as mine:
        tg.sparse_compressed_tensor(*args, layout=layout(tg, form), check_invariants=True)
    assert str(theirs.value).rstrip(".").replace(" ", "") in str(mine.value).replace(" ", "")
    with pytest.raises(RuntimeError):
        tg._validate_sparse_compressed_tensor_args(*args, layout(tg, form))
    with tg.sparse.check_sparse_tensor_invariants(), pytest.raises(RuntimeError):
        tg.sparse_compressed_tensor(*args, layout=layout(tg, form))
    if whole_only:
        assert not tg.sparse.check_sparse_tensor_invariants.is_enabled()
        tg.sparse_compressed_tensor(*args, layout=layout(tg, form))
    else:
        with pytest.raises(RuntimeError):
            tg.sparse_compressed_tensor(*args, layout=layout(tg, form))


@pytest.mark.parametrize("form", BLOCKS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "complex128"])
@pytest.mark.parametrize("blocksize", [(2, 3), (1, 1), (4, 6), (2, 6)])
def test_products_and_their_gradients(form, dtype, blocksize):
    """With a matrix and a vector on either side, and as a layer's weight: as the dense matrix gives them."""
    gen = np.random.default_rng(0)

    def numbers(*shape):
        return gen.standard_normal(shape) + (1j * gen.standard_normal(shape) if dtype == "complex128" else 0)

    base, given = DENSE * numbers(4, 6), [numbers(6, 5), numbers(3, 4), numbers(6), numbers(2, 6), numbers(4)]

    def run(sparse):
        weight = tg.tensor(base).to(getattr(tg, dtype)).requires_grad_()
        right, left, vector, x, bias = (tg.tensor(g).to(getattr(tg, dtype)).requires_grad_() for g in given)
        a = getattr(weight, f"to_sparse_{form}")(blocksize) if sparse else weight
        results = [a @ right, left @ a, a.mv(vector), tg.nn.functional.linear(x, a, bias), tg.addmm(tg.ones(4, 5, dtype=right.dtype), a, right, beta=0.5, alpha=2), a.t() @ left.t()]
        total = sum((r * (i + 1)).sum() for i, r in enumerate(results))
        (total.abs() if total.is_complex() else total).backward()
        return [r.detach() for r in results], [t.grad for t in (right, left, vector, x, bias)], weight.grad

    (mine, grads, own), (expected, expected_grads, whole) = run(True), run(False)
    tolerance = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 1e-4}.get(dtype, 1e-9)
    for a, b in zip(mine + grads, expected + expected_grads, strict=True):
        assert a.dtype == b.dtype
        tg.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    kept = compressed(tg, DENSE, form, blocksize)
    mask = tg.sparse_compressed_tensor(*parts(kept)[:2], kept.values() * 0 + 1, (4, 6), layout=layout(tg, form)).to_dense()
    tg.testing.assert_close(own, whole * mask.to(whole.dtype), rtol=tolerance, atol=tolerance * 4)


def test_products_as_torch_gives_them():
    gen = np.random.default_rng(1)
    dense, x, bias = np.kron(gen.random((8, 8)) < 0.3, np.ones((4, 4))) * gen.standard_normal((32, 32)), gen.standard_normal((32, 5)), gen.standard_normal(32)
    mine, theirs = ((lib.tensor(dense).to_sparse_bsr((4, 4)), lib.tensor(x), lib.tensor(bias), lib.nn.functional.linear, lib.addmm) for lib in (tg, torch))
    for product in (lambda a, x, b, linear, addmm: a @ x, lambda a, x, b, linear, addmm: linear(x.t(), a, b), lambda a, x, b, linear, addmm: addmm(x, a, x, beta=0.5, alpha=2), lambda a, x, b, linear, addmm: a.mv(b)):
        np.testing.assert_allclose(product(*mine).numpy(), product(*theirs).numpy(), rtol=1e-10)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        mine[0] @ tg.ones(5, 2, dtype=tg.float64)
    empty = tg.zeros(4, 6).to_sparse_bsr((2, 3)).requires_grad_()
    y = empty @ tg.ones(6, 2)
    y.sum().backward()
    assert not y.any() and empty.grad._nnz() == 0
    with pytest.raises(NotImplementedError, match="in blocks"):
        mine[0] @ mine[0]


def test_a_product_without_columns_has_a_gradient():
    values, x = tg.randn(3, 2, 2, requires_grad=True), tg.zeros(4, 0, requires_grad=True)
    (tg.sparse_bsr_tensor(*PARTS[:2], values, (4, 4)) @ x).sum().backward()
    assert not values.grad.any() and x.grad.shape == (4, 0)


def test_gradients_of_second_order():
    values = tg.randn(3, 2, 2, dtype=tg.float64, requires_grad=True)
    x = tg.randn(4, 3, dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradcheck(lambda v, x: tg.sparse_bsr_tensor(*PARTS[:2], v, (4, 4)) @ x, (values, x))
    assert tg.autograd.gradgradcheck(lambda v, x: tg.sparse_bsr_tensor(*PARTS[:2], v, (4, 4)) @ x, (values, x))
    assert tg.autograd.gradcheck(lambda v: tg.sparse_bsc_tensor(*PARTS[:2], v, (4, 4)).to_dense(), (values,))
    assert tg.autograd.gradcheck(lambda v: tg.sparse_bsr_tensor(*PARTS[:2], v, (4, 4)).to_sparse_bsc((2, 2)).to_dense(), (values,))
    leaf = tg.sparse_bsr_tensor(*PARTS, (4, 4), requires_grad=True)
    (leaf * 2).sum().backward()
    assert leaf.grad.layout == tg.sparse_bsr and bool((leaf.grad.values() == 2).all())


def test_scipy_both_ways():
    scipy = pytest.importorskip("scipy.sparse")
    theirs = scipy.bsr_matrix(DENSE, blocksize=(2, 3))
    mine = tg.sparse_bsr_tensor(theirs.indptr, theirs.indices, theirs.data, theirs.shape)
    assert mine.crow_indices().dtype == tg.int32
    np.testing.assert_array_equal(mine.to_dense().numpy(), DENSE)
    back = scipy.bsr_matrix((mine.values().numpy(), mine.col_indices().numpy(), mine.crow_indices().numpy()), shape=mine.shape)
    np.testing.assert_array_equal(back.toarray(), DENSE)


@pytest.mark.parametrize("form", FORMS)
def test_files(form, tmp_path):
    """Both formats, and PyTorch's files both ways, with batches."""
    for dense in (SQUARE, np.stack([SQUARE, SQUARE])):
        mine, theirs = (compressed(lib, dense, form, (2, 2)) for lib in (tg, torch))
        for name in ("x.tg", "x.pt"):
            tg.save({"a": mine}, tmp_path / name)
            same(tg.load(tmp_path / name)["a"], theirs)
        same(mine, torch.load(tmp_path / "x.pt")["a"])
        torch.save({"a": theirs}, tmp_path / "y.pt")
        same(tg.load(tmp_path / "y.pt")["a"], theirs)


@pytest.mark.parametrize("form", BLOCKS)
def test_what_is_refused(form):
    mine, square = compressed(tg, DENSE, form), tg.tensor(SQUARE)
    for refused in (lambda: mine.to_sparse_csr(), lambda: mine.to_sparse_csc(), lambda: mine.to_sparse_bsr((2, 2)), lambda: mine.to_sparse_bsc((2, 2)),
                    lambda: square.to_sparse(layout=layout(tg, form)), lambda: square.to_sparse(layout=tg.sparse_csr, blocksize=(2, 2)), lambda: square.to_sparse_bsr((3, 2)),
                    lambda: square.to_sparse_bsr((0, 2)), lambda: square.to_sparse_bsr((2,)), lambda: square.to_sparse_bsr((2, 2), dense_dim=-1),
                    lambda: square.to_sparse().to_sparse_bsr((3, 3)), lambda: square.to_sparse().to_sparse_bsr((2, 2), 0), lambda: mine.indices(), lambda: mine.numpy(), lambda: mine.exp(),
                    lambda: tg.sparse.mm(mine, tg.ones(6, 2), "amax"), lambda: tg.zeros(0, 4, 4).to_sparse(layout=layout(tg, form), blocksize=(2, 2))):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            refused()
    with pytest.raises(IndexError):
        tg.ones(3).to_sparse_bsr((1, 1))


def test_sampled_products():
    def run(lib):
        gen = np.random.default_rng(0)
        a, b = (lib.tensor(gen.standard_normal(s), requires_grad=True) for s in ((4, 3), (3, 4)))
        given = lib.tensor(SQUARE).to_sparse_csr().requires_grad_()
        out = lib.sparse.sampled_addmm(given, a, b, beta=0.5, alpha=2)
        out.to_dense().square().sum().backward()
        return out.detach().to_dense().numpy(), a.grad.numpy(), b.grad.numpy(), given.grad.to_dense().numpy()

    for mine, theirs in zip(run(tg), run(torch), strict=True):
        np.testing.assert_allclose(mine, theirs * (SQUARE != 0) if theirs.shape == (4, 4) else theirs, rtol=1e-9)
    with pytest.raises(RuntimeError, match="sparse csr layout"):
        tg.sparse.sampled_addmm(tg.tensor(SQUARE).to_sparse_bsr((2, 2)), tg.ones(4, 3), tg.ones(3, 4))
