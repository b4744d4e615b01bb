"""Sparse tensors that are made by layout=, written to by out= and copy_, and what is done on their values, against PyTorch."""

import pytest
import tapegrad as tg
from pairs import same_as_torch

torch = pytest.importorskip("torch")
DENSE = [[0.0, 2, 0, -1], [0, 0, 0, 0], [3, 0, 0.25, 4]]
LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc"]
# Functions of one tensor that make zeros of zeros, as PyTorch lists them for CSR.
ZERO_PRESERVING = ["abs", "asin", "asinh", "atan", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor", "frac", "isinf", "isnan", "isneginf",
                   "isposinf", "log1p", "neg", "rad2deg", "relu", "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt", "tan", "tanh",
                   "trunc", "conj_physical", "angle", "nan_to_num"]  # fmt: skip


def described(t):
    if t.layout in (tg.strided, torch.strided):
        return "strided", t.tolist()
    return str(t.layout).split(".")[1], t._nnz(), str(t.dtype).split(".")[1], [[round(v, 5) if v == v else "nan" for v in row] for row in t.to_dense().tolist()]


def made(t, layout, dense=DENSE):
    return t.tensor(dense).to_sparse(layout=getattr(t, layout))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ZERO_PRESERVING)
@same_as_torch
def test_functions_that_make_zeros_of_zeros(t, name, layout):
    if name in {"sparse_coo": ("angle", "conj_physical"), "sparse_csc": ("nan_to_num", "round"), "sparse_csr": ("nan_to_num",)}[layout]:
        pytest.skip("PyTorch has not all of them for each layout")
    x = made(t, layout)
    results = [described(getattr(t, name)(x)), described(x)]
    if hasattr(x, name + "_") and not name.startswith(("is", "signbit", "angle")) and name != "nan_to_num":
        results += [described(getattr(x, name + "_")()), described(x)]
    return results


@pytest.mark.parametrize("layout", [*LAYOUTS, "sparse_bsr"])
@pytest.mark.parametrize("name", ["sin", "floor", "relu", "nan_to_num", "round", "angle", "square"])
def test_gradients_of_functions_on_values(name, layout):
    block = {"blocksize": (1, 2)} if layout == "sparse_bsr" else {}
    dense = tg.tensor(DENSE)
    leaf, whole = dense.to_sparse(layout=getattr(tg, layout), **block).requires_grad_(), dense.clone().requires_grad_()
    for x in (leaf, whole):
        y = getattr(tg, name)(x)
        (y.to_dense() * tg.arange(12.0).reshape(3, 4)).sum().backward()
    tg.testing.assert_close(leaf.grad.to_dense() * (dense != 0), whole.grad * (dense != 0))


@same_as_torch
def test_functions_of_entries_that_are_not_coalesced(t):
    x = t.sparse_coo_tensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0, -4.0], (2, 2))
    with pytest.raises(RuntimeError, match="coalesced"):
        x.abs_()
    return described(t.abs(x)), described(t.sin(x)), described(x**2), described(t.pow(x, 3))


@pytest.mark.parametrize("name", ["cos", "exp", "log", "sigmoid", "acos"])
def test_functions_that_make_others_of_zeros_are_refused(name):
    with pytest.raises(NotImplementedError):
        getattr(tg, name)(made(tg, "sparse_csr"))
    with pytest.raises(RuntimeError, match="numbers above 0"):
        made(tg, "sparse_coo") ** 0


@pytest.mark.parametrize("layout", LAYOUTS)
@same_as_torch
def test_made_by_layout(t, layout):
    chosen, x = getattr(t, layout), made(t, layout)
    all_of_them = [t.empty(2, 4, layout=chosen), t.zeros((2, 4), layout=chosen, dtype=t.float64), t.zeros(size=(0, 3), layout=chosen), t.zeros_like(x),
                   t.zeros_like(x, dtype=t.int32), t.zeros_like(t.ones(2, 3), layout=chosen), x.new_zeros(2, 2), x.new_empty((2, 2)), t.empty_like(x).mul_(0).coalesce() if layout == "sparse_coo" else t.zeros_like(x)]  # fmt: skip
    assert t.zeros(2, 2, layout=chosen, requires_grad=True).requires_grad
    assert t.empty_like(x)._nnz() == (0 if layout == "sparse_coo" else x._nnz()) and t.zeros(3, 2, layout=t.strided).layout == t.strided
    with pytest.raises(NotImplementedError):
        t.rand(2, 2, layout=chosen)
    if layout != "sparse_coo":
        with pytest.raises(RuntimeError, match="Only batched sparse compressed"):
            t.zeros(3, layout=chosen)
        with pytest.raises(RuntimeError, match="empty_like with different sparse layout is not supported"):
            t.empty_like(x, layout=t.sparse_coo)
        with pytest.raises(RuntimeError, match="compressed"):
            t.empty(4, 4, layout=t.sparse_bsr)
    return [described(made) for made in all_of_them]


@pytest.mark.parametrize("layout", LAYOUTS)
@same_as_torch
def test_copy_(t, layout):
    x, y = made(t, layout), made(t, layout, [[5.0, 0, 0, 6], [0, 7, 0, 0], [0, 0, 8, 9]])
    assert x.copy_(y) is x
    results = [described(x)]
    if layout == "sparse_coo":
        results.append(described(x.copy_(t.ones(4, 5).to_sparse())))
    else:
        x.copy_(y * 2)
        results.append(described(x))
        for other, text in ((made(t, layout, [[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]), "same number of specified elements"),
                            (t.tensor(DENSE), "different layouts"), (made(t, layout, [[5.0, 1, 2, 3, 4]]), "expected shapes")):  # fmt: skip
            with pytest.raises(RuntimeError, match=text):
                x.copy_(other)
    with pytest.raises(RuntimeError):
        t.tensor(DENSE).copy_(x)
    return [*results, described(x)]


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_copy_leaves_others_of_the_same_places_alone(layout):
    x = made(tg, layout)
    twice, turned, kept = x * 2, x.t(), x.detach().clone()
    x.copy_(made(tg, layout, [[5.0, 0, 0, 6], [0, 7, 0, 0], [0, 0, 8, 9]]))
    assert twice.to_dense().tolist() == (kept * 2).to_dense().tolist() and turned.to_dense().tolist() == kept.t().to_dense().tolist()
    assert (twice @ twice.t()).to_dense().tolist() == (4 * kept.to_dense() @ kept.to_dense().t()).tolist()
    seen = x.detach()
    x.copy_(x * 3)  # of the same places: the memory is the same
    assert seen.to_dense().tolist() == [[15.0, 0, 0, 18], [0, 21, 0, 0], [0, 0, 24, 27]]


def test_copy_to_a_leaf_is_refused_and_elsewhere_recorded():
    for layout in LAYOUTS:
        leaf, y = made(tg, layout).requires_grad_(), made(tg, layout)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            leaf.copy_(y)
        target = (leaf * 1).copy_(made(tg, layout).requires_grad_() * 3)
        target.to_dense().sum().backward()
        assert leaf.grad is None or not leaf.grad.to_dense().any()


@pytest.mark.parametrize("result", [*LAYOUTS, "strided"])
@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc"])
def test_products_with_out(layout, result):
    dense = tg.tensor(DENSE)
    a, b = dense.to_sparse(layout=getattr(tg, layout)), dense.t().to_sparse(layout=getattr(tg, layout))
    as_asked = (lambda x: x) if result == "strided" else lambda x: x.to_sparse(layout=getattr(tg, result))
    for call, expected in ((lambda out: tg.mm(a, b, out=out), dense @ dense.t()),
                           (lambda out: tg.addmm(as_asked(tg.ones(3, 3)), a, b, beta=0.5, alpha=2, out=out), 0.5 + 2 * dense @ dense.t())):  # fmt: skip
        out = as_asked(tg.zeros(3, 3))
        assert call(out) is out and out.layout == as_asked(expected).layout
        tg.testing.assert_close(out if result == "strided" else out.to_dense(), expected)
    vector = tg.arange(4.0)
    tg.testing.assert_close(tg.addmv(tg.ones(3), a, vector, beta=2, alpha=3), 2 + 3 * dense @ vector)
    out = tg.empty(3)
    assert tg.addmv(tg.ones(3), a, vector, out=out) is out
    tg.testing.assert_close(out, 1 + dense @ vector)
    with pytest.raises(NotImplementedError, match="the result is dense"):
        tg.mm(a, tg.ones(4, 3), out=made(tg, "sparse_csr", [[1.0]]))
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        tg.mm(a.clone().requires_grad_(), b, out=tg.zeros(3, 3))
    with pytest.raises(RuntimeError, match="can't be cast"):
        tg.mm(a, b, out=tg.zeros(3, 3, dtype=tg.int64))


@pytest.mark.parametrize("layout", [*LAYOUTS, "sparse_bsr"])
@pytest.mark.parametrize("options", [(True, False, False), (False, False, False), (True, True, False), (False, True, True), (True, False, True)])
def test_triangular_solve(layout, options):
    tg.manual_seed(0)
    dense = tg.where(tg.rand(6, 6) > 0.4, tg.rand(6, 6), tg.zeros(())) + tg.eye(6) * 2
    block = {"blocksize": (2, 3)} if layout == "sparse_bsr" else {}
    a, B = dense.to_sparse(layout=getattr(tg, layout), **block).double().requires_grad_(), tg.rand(6, 3, dtype=tg.float64, requires_grad=True)
    expected = torch.triangular_solve(torch.tensor(B.tolist(), dtype=torch.float64), torch.tensor(dense.double().tolist(), dtype=torch.float64), *options)[0]
    X, coefficient = tg.triangular_solve(B, a, *options)
    tg.testing.assert_close(X.detach(), tg.tensor(expected.tolist(), dtype=tg.float64))
    assert coefficient.numel() == 0  # as in PyTorch
    weights = tg.arange(18.0, dtype=tg.float64).reshape(6, 3)
    (X * weights).sum().backward()
    whole, other = dense.double().requires_grad_(), B.detach().clone().requires_grad_()
    (tg.triangular_solve(other, whole, *options)[0] * weights).sum().backward()
    tg.testing.assert_close(B.grad, other.grad)
    tg.testing.assert_close(a.grad.to_dense() * (dense != 0), whole.grad * (dense != 0))
    with pytest.raises(RuntimeError, match="a square sparse one of its height"):
        tg.triangular_solve(tg.ones(5, 2, dtype=tg.float64), a)


def test_triangular_solve_reads_its_triangle_alone():
    a = tg.tensor([[2.0, float("nan")], [1.0, 4.0]]).to_sparse_csr()
    tg.testing.assert_close(tg.triangular_solve(tg.ones(2, 1), a, upper=False)[0], tg.tensor([[0.5], [0.125]]))
    empty = tg.zeros(0, 0).to_sparse_csr()
    assert tg.triangular_solve(tg.ones(0, 2), empty)[0].shape == (0, 2)
    nothing = tg.zeros(2, 2).to_sparse_csr()
    assert tg.triangular_solve(tg.ones(2, 1), nothing)[0].isnan().all()  # as in PyTorch
    assert tg.triangular_solve(tg.ones(2, 1), nothing, unitriangular=True)[0].tolist() == [[1.0], [1.0]]
    assert tg.triangular_solve(tg.ones(2, 1), tg.tensor([[1.0, 0], [0, 0]]).to_sparse_csr())[0].tolist() == [[1.0], [float("inf")]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64"])
@pytest.mark.parametrize("columns", [0, 1, 3, 16, 70, 200])
@pytest.mark.parametrize("rows", [1, 7, 150])
def test_products_of_any_width_and_order(dtype, columns, rows):
    kind = getattr(tg, dtype)
    tg.manual_seed(1)
    dense = tg.where(tg.rand(rows, 40) > 0.7, tg.rand(rows, 40), tg.zeros(())).to(kind)
    other = tg.randn(40, columns).to(kind)
    expected = (dense.to(tg.complex128 if kind.is_complex else tg.float64) @ other.to(tg.complex128 if kind.is_complex else tg.float64)).to(kind)
    places = dense.to_sparse()
    order = tg.randperm(places._nnz())
    mixed = tg.sparse_coo_tensor(places.indices()[:, order], places.values()[order], dense.shape)
    for t in (places, dense.to_sparse_csr(), dense.to_sparse_csc(), mixed):
        tg.testing.assert_close(t @ other, expected)
    threads = tg.get_num_threads()
    try:
        bits = []
        for n in (1, 2, 5):
            tg.set_num_threads(n)
            bits.append(mixed @ other)
    finally:
        tg.set_num_threads(threads)
    assert all(tg.equal(bits[0], b) for b in bits[1:])


@pytest.mark.parametrize("layout", LAYOUTS[:2])
@same_as_torch
def test_products_element_by_element(t, layout):
    x, y = made(t, layout), made(t, layout, [[5.0, 2, 0, 6], [0, 7, 0, 0], [0, 0, 8, 9]])
    with pytest.raises(RuntimeError):
        x * made(t, layout, [[1.0, 2]])
    return described(x * y), described(x * x), described(x * (y * 0 if layout == "sparse_coo" else y))


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_products_of_sparse_matrices_are_compressed_by_rows(form):
    a = made(tg, f"sparse_{form}")
    assert (a @ a.t()).layout == tg.sparse_csr
    with pytest.raises(RuntimeError, match=r"mm: shapes \[3, 4\] and \[3, 4\] cannot be multiplied: inner sizes are 4 and 3 \(3x4 and 3x4\)"):
        a @ a
    with pytest.raises(RuntimeError, match=r"mv: size mismatch, got mat \(3x4\), vec \(3\)"):
        a @ tg.ones(3)


@same_as_torch
def test_what_is_transposed_is_a_view(t):
    results = []
    for layout in LAYOUTS[1:]:
        x = made(t, layout)
        y = x.t()
        results.append((y._is_view(), y._base is x, y.transpose(0, 1)._base is x, x.transpose(1, 1)._base is x, x._is_view(), y.values()._is_view()))
        y.values().mul_(2)
        results.append(described(x))
    return results


@same_as_torch
def test_indices_of_int32_stay(t):
    x = t.sparse_csr_tensor(t.tensor([0, 1, 2], dtype=t.int32), t.tensor([1, 0], dtype=t.int32), t.tensor([1.0, 2.0]), (2, 2))
    forms = [x.to_sparse_csc(), x.to_sparse_bsr((2, 2)), x.to_sparse_bsc((1, 1))]
    return [str((f.crow_indices() if "sr" in str(f.layout) else f.ccol_indices()).dtype).split(".")[1] for f in forms]


@same_as_torch
def test_old_names_of_products(t):
    sparse, dense = t.tensor([[0.0, 2], [3, 0], [0, 0], [1, 1]]).to_sparse(), t.arange(8.0).reshape(2, 4)
    rows = t.hspmm(sparse, dense)
    with pytest.raises((RuntimeError, NotImplementedError)):
        t.hspmm(dense, dense)
    results = [rows, t.hsmm(sparse, dense), t.smm(sparse, dense), t.sspaddmm(t.eye(4).to_sparse(), sparse, dense, beta=2, alpha=3), t.saddmm(t.eye(4).to_sparse(), sparse, dense)]
    return [(r.layout == t.sparse_coo, r.sparse_dim(), r.to_dense().tolist()) for r in results], rows._nnz(), rows._indices().tolist()


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, 2])  # PyTorch's gradient for -1 is not that for 2
@same_as_torch
def test_softmax_over_entries(t, name, dim):
    results = []
    for count in (3, 2):
        x = t.tensor([[[0.0, 2, 1], [3, 0, 0]], [[0, 0, 0], [1, 1, -5]]]).to_sparse(count).requires_grad_()
        y = getattr(t.sparse, name)(x, dim)
        assert t.equal(y.to_dense(), getattr(t.sparse, name)(x, dim - 3).to_dense())
        (y.to_dense() * t.arange(12.0).reshape(2, 2, 3)).sum().backward()
        results += [[round(v, 4) for v in part.detach().to_dense().flatten().tolist()] for part in (y, x.grad)]
    return results


@same_as_torch
def test_spdiags(t):
    results = [t.sparse.spdiags(t.arange(1.0, 10).reshape(3, 3), t.tensor([0, -1, 2]), (4, 3)), t.sparse.spdiags(t.arange(1.0, 4), t.tensor([1]), (4, 5), layout=t.sparse_csr)]
    for given in ((t.ones(2, 3), t.tensor([0, 0]), (3, 3)), (t.ones(2, 3), t.tensor([0]), (3, 3)), (t.ones(1, 3), t.tensor([0.0]), (3, 3)), (t.ones(3), t.tensor([0]), (3,))):
        with pytest.raises(RuntimeError, match="Offset|match|shape"):
            t.sparse.spdiags(*given)
    return [described(r) for r in results]


def test_names_of_sparse_tensors_on_a_gpu():
    assert not isinstance(made(tg, "sparse_coo"), tg.cuda.sparse.FloatTensor) and tg.cuda.sparse.DoubleTensor.dtype == tg.float64
    if not tg.cuda.is_available():
        with pytest.raises(TypeError, match="cuda.sparse.FloatTensor not available"):
            tg.cuda.sparse.FloatTensor(2, 3)


def test_sampled_addmm_with_out():
    places, a, b = made(tg, "sparse_csr"), tg.rand(3, 2), tg.rand(2, 4)
    out = tg.zeros(3, 4, layout=tg.sparse_csr)
    assert tg.sparse.sampled_addmm(places, a, b, alpha=2, out=out) is out
    tg.testing.assert_close(out.to_dense(), (places.to_dense() + 2 * a @ b) * (places.to_dense() != 0))
