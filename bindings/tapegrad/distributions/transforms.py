"""Differentiable maps with the logarithm of their Jacobian's determinant."""

from __future__ import annotations

import math
import weakref
from numbers import Number

import tapegrad

from . import constraints
from .utils import _softplus, _sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix

__all__ = ["AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
           "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
           "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform",
           "Transform", "identity_transform"]



class Transform:
    """A map from `domain` to `codomain` (constraints). `bijective`: whether inv is its inverse; `sign`: +1 or -1 for a map
    of numbers that rises or falls. With cache_size=1 the last pair is kept, so that inv(t(x)) is x itself.

    Subclasses write _call, _inverse and log_abs_det_jacobian.
    """

    bijective = False
    domain: constraints.Constraint
    codomain: constraints.Constraint
    _arguments: tuple[str, ...]  # the attributes that with_cache gives to the constructor of a class that has one of its own

    def __init__(self, cache_size: int = 0):
        if cache_size not in (0, 1):
            raise ValueError(f"Transform: cache_size must be 0 or 1: got {cache_size}")
        self._cache_size = cache_size
        self._inv = None
        self._cached_x_y = (None, None)

    def __getstate__(self):
        state = self.__dict__.copy()
        state["_inv"] = None
        return state

    @property
    def event_dim(self) -> int:
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self):
        """The inverse; its own inverse is this object."""
        inverse = self._inv() if self._inv is not None else None
        if inverse is None:
            inverse = _InverseTransform(self)
            self._inv = weakref.ref(inverse)
        return inverse

    @property
    def sign(self):
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1):
        if self._cache_size == cache_size:
            return self
        owner = next((cls for cls in type(self).__mro__ if "_arguments" in vars(cls)), None)
        if owner is not None:
            return owner(*(getattr(self, name) for name in owner._arguments), cache_size=cache_size)
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other):
        return self is other

    def __ne__(self, other):
        return not self.__eq__(other)

    __hash__ = object.__hash__

    def __call__(self, x):
        return self._cached(self._call, x, 0)

    def _inv_call(self, y):
        return self._cached(self._inverse, y, 1)

    def _cached(self, function, value, place: int):
        """function(value), kept if asked for; `place` is that of the value in the pair (x, y)."""
        if self._cache_size == 0:
            return function(value)
        if value is self._cached_x_y[place]:
            return self._cached_x_y[1 - place]
        result = function(value)
        self._cached_x_y = (result, value) if place else (value, result)
        return result

    def _call(self, x):
        raise NotImplementedError

    def _inverse(self, y):
        raise NotImplementedError

    def log_abs_det_jacobian(self, x, y):
        """log |det dy/dx| for y = self(x), without the event dimensions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__ + "()"

    def forward_shape(self, shape):
        """The shape of the result for one of the argument."""
        return shape

    def inverse_shape(self, shape):
        """The shape of the argument for one of the result."""
        return shape


class _InverseTransform(Transform):
    """The other direction of a transform."""

    def __init__(self, transform):
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform  # a strong reference here, a weak one there

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self):
        return self._inv.domain

    @property
    def bijective(self) -> bool:
        return self._inv.bijective

    @property
    def sign(self):
        return self._inv.sign

    @property
    def inv(self):
        return self._inv

    def __getstate__(self):
        return self.__dict__.copy()

    def with_cache(self, cache_size: int = 1):
        return self.inv.with_cache(cache_size).inv

    def __eq__(self, other):
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inv!r})"

    def __call__(self, x):
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x, y):
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape):
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._inv.forward_shape(shape)


def _with_event_dim(constraint, event_dim: int):
    """The set with as many event dimensions."""
    extra = event_dim - constraint.event_dim
    return constraints.independent(constraint, extra) if extra > 0 else constraint


class ComposeTransform(Transform):
    """Transforms one after the other."""
    _arguments = ("parts",)

    def __init__(self, parts, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        if not self.parts:
            return constraints.real
        event_dim = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            event_dim = max(event_dim + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return _with_event_dim(self.parts[0].domain, event_dim)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self):
        if not self.parts:
            return constraints.real
        event_dim = self.parts[0].domain.event_dim
        for part in self.parts:
            event_dim = max(event_dim + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return _with_event_dim(self.parts[-1].codomain, event_dim)

    @property
    def bijective(self) -> bool:
        return all(p.bijective for p in self.parts)

    @property
    def sign(self):
        sign = 1
        for p in self.parts:
            sign = sign * p.sign
        return sign

    @property
    def inv(self):
        inverse = self._inv() if self._inv is not None else None
        if inverse is None:
            inverse = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv = weakref.ref(inverse)
            inverse._inv = weakref.ref(self)
        return inverse

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x, y):
        if not self.parts:
            return tapegrad.zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        total, event_dim = None, self.domain.event_dim
        for part, before, after in zip(self.parts, values[:-1], values[1:]):
            term = _sum_rightmost(part.log_abs_det_jacobian(before, after), event_dim - part.domain.event_dim)
            total = term if total is None else total + term
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape):
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}(\n    " + ",\n    ".join(repr(p) for p in self.parts) + "\n)"


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Another transform whose last batch dimensions belong to the event."""
    _arguments = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(self, base_transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self):
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        return self.base_transform.bijective

    @property
    def sign(self):
        return self.base_transform.sign

    def _call(self, x):
        if x.dim() < self.domain.event_dim:
            raise ValueError(f"IndependentTransform: Too few dimensions on input: got {x.dim()}, expected {self.domain.event_dim}")
        return self.base_transform(x)

    def _inverse(self, y):
        if y.dim() < self.codomain.event_dim:
            raise ValueError(f"IndependentTransform: Too few dimensions on input: got {y.dim()}, expected {self.codomain.event_dim}")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x, y):
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape):
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape):
        return self.base_transform.inverse_shape(shape)


class ReshapeTransform(Transform):
    """The last dimensions in another shape with as many elements."""

    bijective = True
    _arguments = ("in_shape", "out_shape")

    def __init__(self, in_shape, out_shape, cache_size: int = 0):
        self.in_shape, self.out_shape = tapegrad.Size(in_shape), tapegrad.Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError(f"ReshapeTransform: in_shape, out_shape have different numbers of elements: {in_shape} and {out_shape}")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property(is_discrete=False)
    def codomain(self):
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x):
        return x.reshape(x.shape[:x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y):
        return y.reshape(y.shape[:y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x, y):
        return x.new_zeros(x.shape[:x.dim() - len(self.in_shape)])

    @staticmethod
    def _other(shape, this, other):
        cut = len(shape) - len(this)
        if cut < 0:
            raise ValueError("ReshapeTransform: Too few dimensions on input")
        if tuple(shape[cut:]) != tuple(this):
            raise ValueError(f"ReshapeTransform: Shape mismatch: expected {tuple(shape[cut:])} but got {tuple(this)}")
        return tapegrad.Size(shape[:cut]) + other

    def forward_shape(self, shape):
        return self._other(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape):
        return self._other(shape, self.out_shape, self.in_shape)


class _Stateless(Transform):
    """Transforms without parameters: all of one class are equal."""

    def __eq__(self, other):
        return type(self) is type(other)

    __hash__ = object.__hash__


class ExpTransform(_Stateless):
    """y = exp(x)."""

    domain, codomain, bijective, sign = constraints.real, constraints.positive, True, 1

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """y = x^exponent for x > 0."""

    domain, codomain, bijective = constraints.positive, constraints.positive, True
    _arguments = ("exponent",)

    def __init__(self, exponent, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.exponent = exponent if isinstance(exponent, tapegrad.Tensor) else tapegrad.tensor(exponent)

    @property
    def sign(self):
        return self.exponent.sign()

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return tapegrad.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


class SigmoidTransform(_Stateless):
    """y = 1 / (1 + exp(-x))."""

    domain, codomain, bijective, sign = constraints.real, constraints.unit_interval, True, 1

    def _call(self, x):
        info = tapegrad.finfo(x.dtype)
        return x.sigmoid().clamp(min=info.tiny, max=1.0 - info.eps)

    def _inverse(self, y):
        info = tapegrad.finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1.0 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -_softplus(-x) - _softplus(x)


class SoftplusTransform(_Stateless):
    """y = log(1 + exp(x)), and x itself above 20."""

    domain, codomain, bijective, sign = constraints.real, constraints.positive, True, 1

    def _call(self, x):
        return _softplus(x)

    def _inverse(self, y):
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x, y):
        return -_softplus(-x)


class TanhTransform(_Stateless):
    """y = tanh(x); caching keeps x from being lost where y is 1."""

    domain, codomain, bijective, sign = constraints.real, constraints.interval(-1.0, 1.0), True, 1

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        # log(1 - tanh(x)^2), stable for large |x|
        return 2.0 * (math.log(2.0) - x - _softplus(-2.0 * x))


class AbsTransform(_Stateless):
    """y = |x|; inv gives x >= 0."""

    domain, codomain = constraints.real, constraints.positive

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """y = loc + scale x; event_dim of the last dimensions belong to the event."""

    bijective = True
    _arguments = ("loc", "scale", "event_dim")

    def __init__(self, loc, scale, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self):
        return constraints.real if self.event_dim == 0 else constraints.independent(constraints.real, self.event_dim)

    codomain = domain

    def __eq__(self, other):
        def same(a, b):
            if isinstance(a, Number) and isinstance(b, Number):
                return a == b
            return bool((tapegrad.as_tensor(a) == b).all())

        return isinstance(other, AffineTransform) and same(self.loc, other.loc) and same(self.scale, other.scale)

    __hash__ = object.__hash__

    @property
    def sign(self):
        if isinstance(self.scale, Number):
            return 1 if self.scale > 0 else -1 if self.scale < 0 else 0
        return self.scale.sign()

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        scale = self.scale
        result = tapegrad.full_like(x, math.log(abs(scale))) if isinstance(scale, Number) else scale.abs().log()
        if self.event_dim:
            result = result.expand(tapegrad.broadcast_shapes(result.shape, x.shape)) if result.dim() < self.event_dim else result
            result = result.reshape(result.shape[:-self.event_dim] + (-1,)).sum(-1)
        return result.expand(x.shape[:x.dim() - self.event_dim])

    def forward_shape(self, shape):
        return tapegrad.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


class SoftmaxTransform(_Stateless):
    """Vectors to the simplex by softmax; inv gives the logarithms, so this is not bijective."""

    domain, codomain = constraints.real_vector, constraints.simplex

    def _call(self, x):
        return x.softmax(-1)

    def _inverse(self, y):
        return y.log()

    def forward_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("SoftmaxTransform: Too few dimensions on input")
        return shape

    inverse_shape = forward_shape


def _resized(name: str, shape, n: int, by: int):
    if len(shape) < n:
        raise ValueError(f"{name}: Too few dimensions on input")
    return tapegrad.Size((*shape[:-1], shape[-1] + by))


class StickBreakingTransform(_Stateless):
    """Vectors of n - 1 numbers to points of the simplex with n parts: the sigmoid of each number, shifted so that zeros
    become equal parts, is the share that is broken off the rest of the stick."""

    domain, codomain, bijective = constraints.real_vector, constraints.simplex, True

    @staticmethod
    def _offset(x):
        n = x.shape[-1]
        return tapegrad.arange(n, 0, -1, dtype=x.dtype, device=x.device).log()  # of x.shape[-1] ... 1 further parts

    def _call(self, x):
        z = (x - self._offset(x)).sigmoid()
        rest = (1 - z).cumprod(-1)
        one = x.new_ones(x.shape[:-1] + (1,))
        return tapegrad.cat([z, one], -1) * tapegrad.cat([one, rest], -1)

    def _inverse(self, y):
        parts = y[..., :-1]
        rest = (1 - parts.cumsum(-1)).clamp(min=tapegrad.finfo(y.dtype).tiny)
        return parts.log() - rest.log() + self._offset(parts)

    def log_abs_det_jacobian(self, x, y):
        x = x - self._offset(x)
        return (-x + tapegrad.nn.functional.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        return _resized("StickBreakingTransform", shape, 1, 1)

    def inverse_shape(self, shape):
        return _resized("StickBreakingTransform", shape, 1, -1)


class CorrCholeskyTransform(Transform):
    """Vectors of n (n - 1) / 2 numbers to Cholesky factors of n x n correlation matrices: row by row the hyperbolic tangents
    are partial correlations, each of which takes its share of the row's length 1 (Lewandowski et al., 2009)."""

    domain, codomain, bijective = constraints.real_vector, constraints.corr_cholesky, True

    @staticmethod
    def _before(lengths):
        """What stands left of each entry of a row; 1 at its beginning."""
        return tapegrad.nn.functional.pad(lengths[..., :-1], [1, 0], value=1)

    def _call(self, x):
        limit = 1 - tapegrad.finfo(x.dtype).eps
        partial = vec_to_tril_matrix(x.tanh().clamp(min=-limit, max=limit), diag=-1)
        left = (1 - partial.square()).sqrt().cumprod(-1)
        identity = tapegrad.eye(partial.shape[-1], dtype=x.dtype, device=x.device)
        return (partial + identity) * self._before(left)

    def _inverse(self, y):
        left = self._before(1 - y.square().cumsum(-1)).sqrt()
        return (tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1)).atanh()

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        # Of the entries below the diagonal: each is its tangent times the root of what the squares before it leave of 1.
        left = tril_matrix_to_vec(1 - y.square().cumsum(-1), diag=-2)
        return 0.5 * left.log().sum(-1) - 2 * (x + _softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape):
        if len(shape) < 1:
            raise ValueError("CorrCholeskyTransform: Too few dimensions on input")
        count = shape[-1]
        n = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != count:
            raise ValueError("CorrCholeskyTransform: Input is not a flattened lower-diagonal number")
        return tapegrad.Size((*shape[:-1], n, n))

    def inverse_shape(self, shape):
        if len(shape) < 2:
            raise ValueError("CorrCholeskyTransform: Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("CorrCholeskyTransform: Input is not square")
        n = shape[-1]
        return tapegrad.Size((*shape[:-2], n * (n - 1) // 2))


class LowerCholeskyTransform(_Stateless):
    """Square matrices to lower triangles with a positive diagonal, by exp of the diagonal."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.lower_cholesky

    def _call(self, x):
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y):
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Stateless):
    """Square matrices to positive definite ones, through LowerCholeskyTransform."""

    domain, codomain = constraints.independent(constraints.real, 2), constraints.positive_definite

    def _call(self, x):
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(tapegrad.linalg.cholesky(y))


class CumulativeDistributionTransform(Transform):
    """y = the distribution function of a distribution of numbers at x; inv gives its quantiles."""

    bijective, codomain, sign = True, constraints.unit_interval, +1
    _arguments = ("distribution",)

    def __init__(self, distribution, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self):
        return self.distribution.support

    def _call(self, x):
        return self.distribution.cdf(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)

from ._part_transforms import CatTransform, StackTransform  # noqa: E402, I001
