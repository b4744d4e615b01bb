"""Random matrices for tests, dense and sparse, with the properties that their names say."""

import math
import random
import sys

__all__ = ["is_coalesced_indices", "make_fullrank_matrices_with_distinct_singular_values", "random_hermitian_matrix", "random_hermitian_pd_matrix",
           "random_hermitian_psd_matrix", "random_lowrank_matrix", "random_matrix", "random_sparse_matrix", "random_sparse_pd_matrix",
           "random_square_matrix_of_rank", "random_symmetric_matrix", "random_symmetric_pd_matrix", "random_symmetric_psd_matrix",
           "random_well_conditioned_matrix"]  # fmt: skip

_tg = sys.modules[__package__.partition(".")[0]]


def _normal(sizes, dtype=None, device="cpu", **_):
    return _tg.randn(sizes, dtype=dtype or _tg.float64, device=device)


def _with_singular_values(a, change):
    """A matrix, or a batch, with the singular vectors of `a` and the values that `change` makes of its own."""
    u, values, vh = _tg.linalg.svd(a, full_matrices=False)
    return (u * change(values).to(u.dtype).unsqueeze(-2)) @ vh


def random_matrix(rows, columns, *batch_dims, singular=False, silent=False, **kwargs):
    """Singular values from 1 / (k + 1) to 1; of a singular one the smallest and the largest are 0."""

    def spread(values):
        k = values.shape[-1]
        values = _tg.linspace(1 / (k + 1), 1, k, dtype=values.dtype, device=values.device).expand_as(values).clone()
        if singular:
            values[..., [0, -1]] = 0
        return values

    a = _normal((*batch_dims, rows, columns), **kwargs)
    return _with_singular_values(a, spread) if a.numel() else a


def random_lowrank_matrix(rank, rows, columns, *batch_dims, **kwargs):
    return random_matrix(rows, rank, *batch_dims, **kwargs) @ random_matrix(rank, columns, *batch_dims, **kwargs)


def random_square_matrix_of_rank(l, rank, dtype=None, device="cpu"):
    if rank > l:
        raise AssertionError(f"random_square_matrix_of_rank: a matrix of {l} rows has no rank of {rank}")
    first = _tg.arange(l, device=device) < rank
    return _with_singular_values(_normal((l, l), dtype, device), lambda values: _tg.where(values == 0, 1, values) * first)


def random_well_conditioned_matrix(*shape, dtype, device, mean=1.0, sigma=0.001):
    """Singular values near `mean`."""
    return _with_singular_values(_normal(shape, dtype, device), lambda values: (_tg.randn_like(values) * sigma + mean).sort(descending=True).values)


def make_fullrank_matrices_with_distinct_singular_values(*shape, device, dtype, requires_grad=False):
    """Singular values of 2 / 3 to 3 / 2, on both sides of 1 in turn."""

    def distinct(values):
        steps = _tg.arange(2, values.shape[-1] + 2, dtype=values.dtype, device=values.device)
        return (1 + 1 / _tg.where(steps % 2 == 0, steps, -steps)).expand_as(values)

    return _with_singular_values(_normal(shape, dtype, device), distinct).requires_grad_(requires_grad)


def random_symmetric_matrix(l, *batches, **kwargs):
    a = _normal((*batches, l, l), **kwargs)
    return (a + a.mT) / 2


def random_hermitian_matrix(l, *batches, **kwargs):
    a = _normal((*batches, l, l), **kwargs)
    return (a + a.mH) / 2


def random_symmetric_psd_matrix(l, *batches, **kwargs):
    a = _normal((*batches, l, l), **kwargs)
    return a @ a.mT


def random_hermitian_psd_matrix(matrix_size, *batch_dims, dtype=None, device="cpu"):
    a = _normal((*batch_dims, matrix_size, matrix_size), dtype, device)
    return a @ a.mH


def random_hermitian_pd_matrix(matrix_size, *batch_dims, dtype, device):
    """Eigenvalues of at least 1."""
    return random_hermitian_psd_matrix(matrix_size, *batch_dims, dtype=dtype, device=device) + _tg.eye(matrix_size, dtype=dtype, device=device)


def random_symmetric_pd_matrix(matrix_size, *batch_dims, **kwargs):
    a = random_symmetric_psd_matrix(matrix_size, *batch_dims, **kwargs)
    return a + _tg.eye(matrix_size, dtype=a.dtype, device=a.device)


def random_sparse_matrix(rows, columns, density=0.01, **kwargs):
    """Coordinates with at least one element in each row where that many are asked for; the nearer to the diagonal, the larger."""
    count = max(min(rows, columns), int(rows * columns * density))
    row = _tg.arange(count) % rows
    column = _tg.randint(0, columns, (count,))
    values = _normal((count,), **kwargs)
    values *= (-((row - column) ** 2).double()).exp().to(values.device, values.real.dtype)
    return _tg.sparse_coo_tensor(_tg.stack([row, column]), values, (rows, columns), device=values.device).coalesce()


def random_sparse_pd_matrix(matrix_size, density=0.01, **kwargs):
    """Coordinates with the eigenvalues (1 .. n) / n: a diagonal, turned in random planes until it is dense enough."""
    dtype, device = kwargs.get("dtype", _tg.float64), kwargs.get("device", "cpu")
    dense = _tg.diag(_tg.arange(1, matrix_size + 1, dtype=_tg.float64) / matrix_size)
    while matrix_size > 1 and dense.count_nonzero() < density * matrix_size**2:
        plane = random.sample(range(matrix_size), 2)
        angle = random.uniform(0, 2 * math.pi)
        c, s = math.cos(angle), math.sin(angle)
        turn = _tg.tensor([[c, s], [-s, c]], dtype=_tg.float64)
        dense[plane] = turn @ dense[plane]
        dense[:, plane] = dense[:, plane] @ turn.T
    return ((dense + dense.T) / 2).to(dtype=dtype, device=device).to_sparse()


def is_coalesced_indices(s):
    """Whether the places of a sparse tensor are in order and each is there once."""
    places = list(map(tuple, s._indices().T.tolist()))
    return places == sorted(set(places))
