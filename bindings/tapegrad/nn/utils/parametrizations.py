"""Parametrisations that many networks use: weight and spectral normalisation, orthogonal matrices."""

from ... import Tensor, allclose, cat, eye, finfo, linalg, mv, no_grad, randn, vdot, zeros_like
from .. import functional as F
from ..module import Module
from . import parametrize
from .spectral_norm import as_matrix, default_dim
from .weight_norm import norm_except_dim, normalised

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    """Length (original0) and direction (original1)."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return normalised(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module, name: str = "weight", dim: int | None = 0):
    """The parameter as the product of its length and its direction (Salimans and Kingma, 2016)."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def take_old_names(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs) -> None:
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(take_old_names)
    return module


class _SpectralNorm(Module):
    """Division by the largest singular value, found by power iterations."""

    def __init__(self, weight, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        n = weight.dim()
        if not -n <= dim < n:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{n}, {n - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim = dim % n
        self.eps = eps
        if n > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad():
                matrix = as_matrix(weight.detach(), self.dim)
                rows, columns = matrix.shape
                self.register_buffer("_u", F.normalize(matrix.new_empty(rows).normal_(0, 1), dim=0, eps=eps))
                self.register_buffer("_v", F.normalize(matrix.new_empty(columns).normal_(0, 1), dim=0, eps=eps))
            self._power_method(matrix, 15)

    @no_grad()
    def _power_method(self, matrix, n_power_iterations: int) -> None:
        for _ in range(n_power_iterations):
            self._u.copy_(F.normalize(mv(matrix, self._v), dim=0, eps=self.eps))
            self._v.copy_(F.normalize(mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight):
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the buffers change before the backward pass of this step may have run
        return weight / vdot(u, mv(matrix, v))

    def right_inverse(self, value):
        return value


def _tensor_of(module, name: str):
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def spectral_norm(module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None):
    """The parameter divided by its largest singular value (Miyato et al., 2018)."""
    weight = _tensor_of(module, name)
    dim = default_dim(module) if dim is None else dim
    parametrize.register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module


def _orthonormal(matrix):
    """The orthogonal factor with the signs that make the decomposition unique."""
    q, r = linalg.qr(matrix)
    return q * r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """Q = base exp(A), base Cayley(A), A skew-symmetric, or base times a product of reflections (Lezcano-Casado, 2019)."""

    def __init__(self, weight, orthogonal_map: str, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.matrix_shape = tuple(weight.shape)
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x):
        transposed = x.size(-2) < x.size(-1)
        if transposed:
            x = x.mT
        n, k = x.size(-2), x.size(-1)
        q = self._reflections(x) if self.orthogonal_map == "householder" else self._rotation(x, n, k)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if transposed else q

    def _rotation(self, x, n: int, k: int):
        x = x.tril()
        if n != k:
            x = cat([x, x.new_zeros((*x.shape[:-2], n, n - k))], -1)
        a = x - x.mH
        if self.orthogonal_map == "matrix_exp":
            q = linalg.matrix_exp(a)
        else:
            one = eye(n, dtype=a.dtype, device=a.device)
            q = linalg.solve(one - a / 2, one + a / 2)
        return q if n == k else q[..., :k]

    def _reflections(self, x):
        a = x.tril(-1)
        tau = 2.0 / (1.0 + (a * a).sum(-2))
        return linalg.householder_product(a, tau) * x.diagonal(dim1=-2, dim2=-1).sgn().detach().unsqueeze(-2)

    @no_grad()
    def right_inverse(self, q):
        if tuple(q.shape) != self.matrix_shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.matrix_shape}. Got a tensor of shape {q.shape}.")
        if not hasattr(self, "base"):
            if self.orthogonal_map == "householder":
                return self._decomposed(q)
            raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                                      "use_trivialization=False.")
        start = zeros_like(q)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        if q.size(-2) < q.size(-1):
            q = q.mT
        n, k = q.size(-2), q.size(-1)
        if n == k:
            one = eye(k, dtype=q.dtype, device=q.device)
            near = allclose(q.mH @ q, one.expand_as(q), atol=10.0 * n * finfo(q.dtype).eps)
            self.base = q.clone() if near else _orthonormal(q)
        else:
            self.base = _orthonormal(cat([q, randn((*q.shape[:-2], n, n - k), dtype=q.dtype, device=q.device)], -1))
        return start


    @staticmethod
    def _decomposed(q):
        """The reflections of a matrix; their signs are on the diagonal."""
        from ... import geqrf
        transposed = q.size(-2) < q.size(-1)
        a, tau = geqrf(q.mT if transposed else q)
        signs = a.diagonal(dim1=-2, dim2=-1).sgn()
        a.diagonal(dim1=-2, dim2=-1).copy_(signs * (1 - 2 * (tau == 0).to(signs.dtype)))
        return a.mT if transposed else a


def orthogonal(module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True):
    """The parameter as a matrix with orthonormal columns, or rows, where it has fewer of them. orthogonal_map: 'matrix_exp' (default of
    square and complex matrices), 'cayley' or 'householder' (default of others)."""
    weight = _tensor_of(module, name)
    if weight.dim() < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.size(-2) == weight.size(-1) or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    parametrize.register_parametrization(module, name, made, unsafe=True)
    return module
