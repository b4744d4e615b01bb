"""Few eigenvalues of a large symmetric matrix, of which only products are needed."""

from types import SimpleNamespace

from .. import _C
from ..autograd import no_grad
from .overloads import overridable
from .type_info import finfo

# A. V. Knyazev, Toward the optimal preconditioned eigensolver: locally optimal block preconditioned conjugate gradient method, SIAM Journal on
# Scientific Computing 23 (2001). The basis of each step is made orthonormal from its Gram matrix, as in A. Stathopoulos and K. Wu, A block
# orthogonalization procedure with constant synchronization requirements, the same journal 23 (2002), and what is dependent in it is left out.

_root, _linalg = _C._functions[""], _C._functions["linalg"]
_MOST_STEPS = 1000


def _product(matrix, x):
    return x if matrix is None else matrix @ x


def _basis(S, B):
    """B-orthonormal columns that span those of S, but for directions that are lost in rounding."""
    S = S / S.norm(dim=0).clamp_min(finfo(S.dtype).tiny)
    for _ in range(2):  # the second time for what the first one left in rounding
        e, V = _linalg["eigh"](S.mT @ _product(B, S))
        kept = e > e[-1] * finfo(S.dtype).eps * S.shape[1]
        S = S @ (V[:, kept] * e[kept].rsqrt())
    return S


def _iterate(A, B, X, iK, niter, tol, largest, state):
    X = _basis(X, B)
    k, P = X.shape[1], None
    norm_a, norm_b = ((_product(M, X).norm() / X.norm()) for M in (A, B))
    for step in range(niter + 1):
        S = X if P is None else _basis(_root["cat"]([X, *P], 1), B)
        e, Y = _linalg["eigh"](S.mT @ (A @ S))
        chosen = slice(-k, None) if largest else slice(0, k)
        E, new = e[chosen], S @ Y[:, chosen]
        if largest:
            E, new = E.flip(0), new.flip(1)
        before, X = X, new
        R = A @ X - _product(B, X) * E
        error = R.norm(dim=0) / (X.norm(dim=0) * (norm_a + E.abs() * norm_b))
        done = int((error < tol).sum())
        state.E, state.X, state.R = E, X, R
        state.ivars.update(istep=step, converged_count=done, iterations_left=niter - step)
        state.tvars["rerr"] = error
        if state.tracker is not None:
            state.tracker(state)
        if done == k or step == niter:
            return E, X
        W = _product(iK, R)
        P = (W,) if step == 0 else (W, before - X @ (X.mT @ _product(B, before)))


def _whole(A, B, k, largest):
    """By all eigenvalues, which have gradients."""
    if A.is_sparse or B is not None and B.is_sparse:
        raise NotImplementedError("lobpcg: gradients of sparse matrices are not supported: give their to_dense()")
    if B is not None:
        L = _linalg["cholesky"](B)
        half = _linalg["solve_triangular"](L, A, upper=False)
        A = _linalg["solve_triangular"](L, half.mT, upper=False)
    E, X = _linalg["eigh"](A)
    if B is not None:
        X = _linalg["solve_triangular"](L.mT, X, upper=True)
    return (E[..., -k:].flip(-1), X[..., -k:].flip(-1)) if largest else (E[..., :k], X[..., :k])


@overridable
def lobpcg(A, k=None, B=None, X=None, n=None, iK=None, niter=None, tol=None, largest=None, method=None, tracker=None, ortho_iparams=None,
           ortho_fparams=None, ortho_bparams=None):
    """The k (1) largest or smallest eigenvalues of A x = lambda B x and their vectors: (E, X), by the locally optimal block method.

    A: symmetric, (*, m, m) with m >= 3k, dense or sparse; B: the same and positive definite (None: the identity); X: (*, m, k), where to begin
    (random); iK: an approximate inverse of A; niter steps at most (1,000); tol: the relative residual that is enough (the root of eps). `method`
    and `ortho_*` are accepted: there is one method. tracker(state) is called after each step. Where A or B wants a gradient, all
    eigenvalues are computed.
    """
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg: method must be 'basic' or 'ortho': got {method!r}")
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"lobpcg: A must be square: got shape {list(A.shape)}")
    if not A.dtype.is_floating_point:
        raise RuntimeError(f"lobpcg: expected a floating dtype: got {A.dtype}")
    m, largest = A.shape[-1], largest is None or largest
    k = (1 if X is None else X.shape[-1]) if k is None else k
    columns = (X.shape[-1] if X is not None else n if n is not None else k)
    if m < 3 * columns:
        raise ValueError(f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3 x the number of requested eigenpairs (={columns})")
    if not 1 <= k <= columns:
        raise ValueError(f"lobpcg: k must be between 1 and {columns}: got {k}")
    if _C._autograd.is_grad_enabled() and (A.requires_grad or B is not None and B.requires_grad):
        return _whole(A, B, k, largest)
    tol = finfo(A.dtype).eps ** 0.5 if tol is None else tol
    niter = _MOST_STEPS if niter is None or niter < 0 else niter
    with no_grad():
        if X is None:
            X = _root["randn"](*A.shape[:-1], columns, dtype=A.dtype, device=A.device)
        if A.dim() > 2:
            flat = [M if M is None else M.reshape(-1, *M.shape[-2:]) for M in (A, B, X, iK)]
            parts = [lobpcg(*(None if M is None else M[i] for M in (flat[0],)), k, *(None if M is None else M[i] for M in flat[1:3]), None,
                            None if iK is None else flat[3][i], niter, tol, largest, method, tracker) for i in range(flat[0].shape[0])]
            E, V = (_root["stack"](list(results)) for results in zip(*parts))
            return E.reshape(*A.shape[:-2], k), V.reshape(*A.shape[:-1], k)
        state = SimpleNamespace(A=A, B=B, iK=iK, tracker=tracker, iparams={"m": m, "n": columns, "k": k, "niter": niter}, fparams={"tol": tol},
                                bparams={"largest": largest}, ivars={}, fvars={}, bvars={}, tvars={}, method=method or "ortho")
        E, V = _iterate(A, B, X, iK, niter, tol, largest, state)
        return E[:k], V[:, :k]
