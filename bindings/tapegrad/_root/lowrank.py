"""Decompositions that are put together from operators: random projections, and the old names of LU."""

from .. import _C
from .._C import Tensor
from .overloads import overridable

# N. Halko, P. G. Martinsson and J. A. Tropp, Finding structure with randomness: probabilistic algorithms for constructing
# approximate matrix decompositions, SIAM Review 53 (2011).

_randn = _C._functions[""]["randn"]
_lu_factor_ex, _qr, _svd = (_C._functions["linalg"][name] for name in ("lu_factor_ex", "qr", "svd"))


def _range_of(A, q, niter):
    """Orthonormal columns that span most of A's range (algorithm 4.4)."""
    X = _qr(A @ _randn(A.shape[-1], q, dtype=A.dtype, device=A.device)).Q
    for _ in range(niter):
        X = _qr(A.mH @ X).Q
        X = _qr(A @ X).Q
    return X


@overridable
def svd_lowrank(A, q=6, niter=2, M=None):
    """The q largest singular values of A - M and their vectors: (U, S, V), approximately (Halko et al., algorithm 5.1).

    A: (*, m, n), q at most min(m, n); niter steps of subspace iteration. Uses the default generator.
    """
    q = 6 if q is None else q
    m, n = A.shape[-2:]
    if not 0 <= q <= min(m, n):
        raise ValueError(f"svd_lowrank: q must be between 0 and {min(m, n)}: got {q}")
    if niter < 0:
        raise ValueError(f"svd_lowrank: niter must not be negative: got {niter}")
    if M is not None:
        A = A - M
    if m < n:  # the projection onto the smaller side
        Q = _range_of(A.mH, q, niter)
        U, S, Vh = _svd(A @ Q, full_matrices=False)
        return U, S, Q @ Vh.mH
    Q = _range_of(A, q, niter)
    U, S, Vh = _svd(Q.mH @ A, full_matrices=False)
    return Q @ U, S, Vh.mH


@overridable
def pca_lowrank(A, q=None, center=True, niter=2):
    """The q principal components of A's rows: (U, S, V) of A with its columns' means taken off, approximately."""
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"pca_lowrank: q must be between 0 and {min(m, n)}: got {q}")
    if A.is_sparse and center:  # the means are not sparse: what is centred is dense
        A = A.to_dense()
    return svd_lowrank(A, q, niter, M=A.mean(-2, keepdim=True) if center else None)


@overridable
def lu(A, pivot=True, get_infos=False, out=None):
    """The factors of A = P L U in one tensor and the rows' exchanges, and with get_infos an info per matrix."""
    results = _lu_factor_ex(A, pivot=pivot)  # with names, as PyTorch's are where there are three
    if not get_infos:
        results = tuple(results)[:2]
    if out is None:
        return results
    if not isinstance(out, (tuple, list)) or len(out) != len(results):
        raise TypeError(f"lu: out must be {len(results)} tensors: got {len(out) if isinstance(out, (tuple, list)) else type(out).__name__}")
    for target, result in zip(out, results):
        target.resize_as_(result).copy_(result)
    return tuple(out)


def _lu_method(self, pivot=True, get_infos=False):
    """As tapegrad.lu."""
    return lu(self, pivot=pivot, get_infos=get_infos)


Tensor.lu = _lu_method
