"""The base of all distributions."""

import tapegrad

from .._warn import warn
from . import constraints
from .utils import broadcast_all, lazy_property

__all__ = ["Distribution"]


class Distribution:
    """A batch of distributions. A sample has the shape sample_shape + batch_shape + event_shape: several drawn, of several
    distributions with parameters of their own, each a value of event_shape.

    `validate_args`: whether parameters and the values given to log_prob, cdf and icdf are checked (default: unless Python
    runs with -O); ValueError where they do not fit.
    """

    has_rsample = False
    has_enumerate_support = False
    _validate_args = __debug__
    # How expand() makes a class with a constructor of its own larger. _batched: the attributes, tensors and distributions, that begin with the
    # batch's dimensions, of which absent ones are left out; _kept: those that stay as they are. A class that does not say it has no expand().
    _batched: tuple[str, ...]
    _kept: tuple[str, ...] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions made from now on check their arguments, where they are not told."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected a bool: got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape=None, event_shape=None, validate_args=None):
        self._batch_shape = tapegrad.Size() if batch_shape is None else batch_shape
        self._event_shape = tapegrad.Size() if event_shape is None else event_shape
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()

    def _check_parameters(self) -> None:
        try:
            wanted = self.arg_constraints
        except NotImplementedError:
            warn(f"{type(self)} does not define `arg_constraints`: its parameters are not checked")
            return
        for name, constraint in wanted.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name), lazy_property):
                continue  # computed from the other form of the parameter
            value = getattr(self, name)
            if not constraint.check(value).all():
                raise ValueError(
                    f"{type(self).__name__}: Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{value}")

    def _set_parameters(self, **given):
        """Takes parameters, numbers or tensors that broadcast against each other: the batch shape."""
        for name, value in zip(given, broadcast_all(*given.values())):
            setattr(self, name, value)
        return value.size()

    def expand(self, batch_shape, _instance=None):
        """The same with a larger batch, whose parameters are views: no memory is taken and nothing is checked again."""
        for owner in type(self).__mro__:
            if "_batched" in owner.__dict__:
                break
        else:
            raise NotImplementedError
        new = self._get_checked_instance(owner, _instance)
        batch_shape, state, dims = tapegrad.Size(batch_shape), self.__dict__, len(self._batch_shape)
        for name in owner._batched:
            if name in state:
                value = state[name]
                shape = value.shape if isinstance(value, tapegrad.Tensor) else value.batch_shape
                setattr(new, name, value.expand(batch_shape if len(shape) <= dims else (*batch_shape, *shape[dims:])))
        for name in owner._kept:
            setattr(new, name, state[name])
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @property
    def batch_shape(self):
        """The shape over which parameters differ."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one value."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict:
        """What each parameter may be, by its name."""
        raise NotImplementedError

    @property
    def support(self):
        """Where values lie: a constraint."""
        raise NotImplementedError

    @property
    def mean(self):
        raise NotImplementedError

    @property
    def mode(self):
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self):
        raise NotImplementedError

    @property
    def stddev(self):
        """The root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape=()):
        """Values without gradients, of shape sample_shape + batch_shape + event_shape."""
        with tapegrad.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """Values as a differentiable function of the parameters and of noise; has_rsample says whether there are such."""
        raise NotImplementedError

    def sample_n(self, n: int):
        """The old name of sample((n,))."""
        warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning)
        return self.sample(tapegrad.Size((n,)))

    def log_prob(self, value):
        """The logarithm of the density or probability at `value`."""
        raise NotImplementedError

    def cdf(self, value):
        """The probability of values up to `value`."""
        raise NotImplementedError

    def icdf(self, value):
        """The quantile of a probability."""
        raise NotImplementedError

    def enumerate_support(self, expand: bool = True):
        """All values of a discrete distribution along a new first dimension; expand=False leaves batch dimensions of size 1."""
        raise NotImplementedError

    def entropy(self):
        """The differential or Shannon entropy in nats, of shape batch_shape."""
        raise NotImplementedError

    def perplexity(self):
        """exp of the entropy."""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape=()):
        return tapegrad.Size((*tapegrad.Size(sample_shape), *self._batch_shape, *self._event_shape))

    def _enumerated(self, values, expand: bool):
        """The values of a discrete support of scalars with the batch's dimensions."""
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1,) + tuple(self._batch_shape)) if expand else values

    def _checked(self, value):
        """The value of log_prob or cdf, which fits if values are to be checked."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _validate_sample(self, value) -> None:
        """ValueError for a value whose shape does not fit or that lies outside the support."""
        name = type(self).__name__
        if not isinstance(value, tapegrad.Tensor):
            raise ValueError(f"{name}: The value argument to log_prob must be a Tensor: got {type(value).__name__}")
        n = len(self._event_shape)
        if tuple(value.shape[value.dim() - n:]) != tuple(self._event_shape):
            raise ValueError(f"{name}: The right-most size of value must match event_shape: {value.size()} vs {self._event_shape}.")
        expected = (*self._batch_shape, *self._event_shape)
        for i, j in zip(reversed(value.shape), reversed(expected)):
            if i != 1 and j != 1 and i != j:
                raise ValueError(f"{name}: Value is not broadcastable with batch_shape+event_shape: {value.size()} vs {tapegrad.Size(expected)}.")
        try:
            support = self.support
        except NotImplementedError:
            warn(f"{type(self)} does not define `support`: values are not checked")
            return
        if not support.check(value).all():
            raise ValueError(
                f"{name}: Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the support "
                f"({support!r}) of the distribution {self!r}, but found invalid values:\n{value}")

    def _get_checked_instance(self, cls, _instance=None):
        """The object that expand() fills: a subclass with a constructor of its own has to say how it is expanded."""
        if _instance is not None:
            return _instance
        if type(self).__init__ is not cls.__init__:
            raise NotImplementedError(f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                                      "define a custom .expand() method.")
        return type(self).__new__(type(self))

    def __repr__(self) -> str:
        shown = {name: self.__dict__[name] for name in self.arg_constraints if name in self.__dict__}
        return f"{type(self).__name__}({', '.join(f'{k}: {v if v.numel() == 1 else v.size()}' for k, v in shown.items())})"
