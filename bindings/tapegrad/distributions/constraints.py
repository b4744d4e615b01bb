"""Sets of values: what a distribution's parameters may be and where its samples lie.

A constraint is an object; `check(value)` gives a bool tensor, true where a value lies in the set, without the last
`event_dim` dimensions, which form one value together. `constraint_registry` leads from a set to a map onto it.
"""

import tapegrad

__all__ = ["Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
           "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than",
           "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive",
           "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack",
           "symmetric", "unit_interval"]


def _demand(condition, message: str) -> None:
    """PyTorch raises AssertionError for these; an assert statement would be gone under -O."""
    if not condition:
        raise AssertionError(message)


class Constraint:
    """A set of values. `is_discrete`: whether it is countable; `event_dim`: how many last dimensions make one value."""

    is_discrete = False
    event_dim = 0
    _bounds = ()  # names of the attributes that repr() shows

    def check(self, value):
        """A bool tensor of the shape of `value` without its last `event_dim` dimensions."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__[1:]}({', '.join(f'{name}={getattr(self, name)}' for name in self._bounds)})"


class _Bounded(Constraint):
    """Sets described by their bounds."""

    def __init__(self, *args, **kwargs):
        bounds = {**dict(zip(self._bounds, args)), **kwargs}
        if len(args) > len(self._bounds) or set(bounds) != set(self._bounds):
            raise TypeError(f"{type(self).__name__[1:]}: expected {', '.join(self._bounds)}: got {args} and {sorted(kwargs)}")
        for name, bound in bounds.items():
            setattr(self, name, bound)


class _Dependent(Constraint):
    """A set that depends on other values; what is known of it may be given beforehand."""

    def __init__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        if self._is_discrete is NotImplemented:
            raise NotImplementedError("constraints.dependent: is_discrete depends on the object")
        return self._is_discrete

    @property
    def event_dim(self) -> int:
        if self._event_dim is NotImplemented:
            raise NotImplementedError("constraints.dependent: event_dim depends on the object")
        return self._event_dim

    def __call__(self, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        """The same with more that is known."""
        return _Dependent(is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
                          event_dim=self._event_dim if event_dim is NotImplemented else event_dim)

    def check(self, x):
        raise ValueError("constraints.dependent: whether a value is valid depends on the object")


def is_dependent(constraint) -> bool:
    """Whether a set depends on other values, so that nothing can be checked."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """A property of objects that is a dependent constraint when asked of their class."""

    def __init__(self, fn=None, *, is_discrete=NotImplemented, event_dim=NotImplemented):
        super().__init__(fn)
        self._is_discrete, self._event_dim = is_discrete, event_dim

    def __call__(self, fn):
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """Values of another set, of which the last dimensions form one value."""

    def __init__(self, base_constraint, reinterpreted_batch_ndims):
        _demand(isinstance(base_constraint, Constraint), f"constraints.independent: expected a constraint: got {type(base_constraint).__name__}")
        _demand(isinstance(reinterpreted_batch_ndims, int) and reinterpreted_batch_ndims >= 0,
                f"constraints.independent: expected a number of dimensions: got {reinterpreted_batch_ndims!r}")
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim + self.reinterpreted_batch_ndims)

    def check(self, value):
        result = self.base_constraint.check(value)
        n = self.reinterpreted_batch_ndims
        if result.dim() < n:
            raise ValueError(f"constraints.independent: expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return result.reshape(result.shape[:result.dim() - n] + (-1,)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """Values that all components of a mixture may take."""

    def __init__(self, base_constraint):
        _demand(isinstance(base_constraint, Constraint), f"MixtureSameFamilyConstraint: expected a constraint: got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    is_discrete = property(lambda self: self.base_constraint.is_discrete)
    event_dim = property(lambda self: self.base_constraint.event_dim)

    def check(self, value):
        if value.dim() < self.event_dim:
            raise ValueError(f"MixtureSameFamilyConstraint: expected value.dim() >= {self.event_dim} but got {value.dim()}")
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return result.reshape(result.shape[:value.dim() - self.event_dim] + (-1,)).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value):
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value):
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _Real(Constraint):
    def check(self, value):
        return value == value


def _bounded(name: str, bounds: tuple, check, is_discrete: bool = False):
    """A class of sets with these bounds, of values that fulfil the condition."""
    return type(name, (_Bounded,), {"_bounds": bounds, "check": check, "is_discrete": is_discrete, "__module__": __name__})


_GreaterThan = _bounded("_GreaterThan", ("lower_bound",), lambda self, value: self.lower_bound < value)
_GreaterThanEq = _bounded("_GreaterThanEq", ("lower_bound",), lambda self, value: self.lower_bound <= value)
_LessThan = _bounded("_LessThan", ("upper_bound",), lambda self, value: value < self.upper_bound)
_Interval = _bounded("_Interval", ("lower_bound", "upper_bound"), lambda self, value: (self.lower_bound <= value) & (value <= self.upper_bound))
_HalfOpenInterval = _bounded("_HalfOpenInterval", ("lower_bound", "upper_bound"),
                             lambda self, value: (self.lower_bound <= value) & (value < self.upper_bound))
_IntegerGreaterThan = _bounded("_IntegerGreaterThan", ("lower_bound",), lambda self, value: (value % 1 == 0) & (value >= self.lower_bound), True)
_IntegerLessThan = _bounded("_IntegerLessThan", ("upper_bound",), lambda self, value: (value % 1 == 0) & (value <= self.upper_bound), True)
_IntegerInterval = _bounded("_IntegerInterval", ("lower_bound", "upper_bound"),
                            lambda self, value: (value % 1 == 0) & (self.lower_bound <= value) & (value <= self.upper_bound), True)


class _Simplex(Constraint):
    """Numbers that are not negative and sum to 1 (within 1e-6)."""

    event_dim = 1

    def check(self, value):
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(_Bounded):
    """Counts that sum to the bound at most."""

    is_discrete = True
    event_dim = 1
    _bounds = ("upper_bound",)

    def check(self, value):
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)

    def __repr__(self) -> str:
        return "Multinomial()"


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value):
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(_LowerTriangular):
    """Lower triangles with a positive diagonal."""

    def check(self, value):
        return super().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_LowerCholesky):
    """Lower triangles with a positive diagonal and rows of length 1: factors of correlation matrices."""

    def check(self, value):
        tolerance = tapegrad.finfo(value.dtype).eps * value.size(-1) * 10
        length = value.detach().square().sum(-1).sqrt()
        return super().check(value) & ((length - 1).abs() <= tolerance).all(-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value):
        return tapegrad.full(value.shape[:-2], value.shape[-2] == value.shape[-1], dtype=tapegrad.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value):
        square = super().check(value)
        return square if not square.all() else tapegrad.isclose(value, value.mT, atol=1e-6).all(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return symmetric if not symmetric.all() else tapegrad.linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value):
        symmetric = super().check(value)
        return symmetric if not symmetric.all() else tapegrad.linalg.cholesky_ex(value).info.eq(0)


class _Sequence(Constraint):
    """Parts of a tensor along `dim`, each with a set of its own."""

    def __init__(self, cseq, dim=0):
        self.cseq, self.dim = list(cseq), dim
        _demand(all(isinstance(c, Constraint) for c in self.cseq), "constraints: expected a sequence of constraints")

    is_discrete = property(lambda self: any(c.is_discrete for c in self.cseq))
    event_dim = property(lambda self: max(c.event_dim for c in self.cseq))

    def _check_dim(self, value) -> None:
        _demand(-value.dim() <= self.dim < value.dim(), f"constraints: dim {self.dim} is out of range for a value with {value.dim()} dimensions")


class _Cat(_Sequence):
    def __init__(self, cseq, dim=0, lengths=None):
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        _demand(len(self.lengths) == len(self.cseq), f"constraints.cat: got {len(self.lengths)} lengths for {len(self.cseq)} constraints")

    def check(self, value):
        self._check_dim(value)
        parts = value.split(self.lengths, self.dim) if sum(self.lengths) == value.size(self.dim) else \
            value.narrow(self.dim, 0, sum(self.lengths)).split(self.lengths, self.dim)
        return tapegrad.cat([c.check(part) for c, part in zip(self.cseq, parts)], self.dim)


class _Stack(_Sequence):
    @property
    def event_dim(self) -> int:
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value):
        self._check_dim(value)
        return tapegrad.stack([c.check(part) for c, part in zip(self.cseq, value.unbind(self.dim))], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
