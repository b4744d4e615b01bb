"""Kullback-Leibler divergences.

`kl_divergence(p, q)` looks for the pair of classes, or of their bases, that fits best; `register_kl` adds one. The
divergences of two classes are in _kl_pairs.
"""

from __future__ import annotations

import tapegrad

from .._lazy import more_names as _more_names
from .._warn import warn
from .distribution import Distribution

__all__ = ["kl_divergence", "register_kl"]

_registry: dict[tuple[type, type], object] = {}
_found: dict[tuple[type, type], object] = {}
__getattr__, __dir__ = _more_names(__name__)


def register_kl(type_p, type_q):
    """Decorator: the function gives kl_divergence(p, q) for these two classes and those derived from them. They need not be derived
    from Distribution: libraries have distributions of their own."""
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(given, type):
            raise TypeError(f"register_kl: Expected {name} to be a class but got {given}")

    def decorate(function):
        _registry[type_p, type_q] = function
        _found.clear()
        return function

    return decorate


def _distance(derived: type, base: type) -> int:
    return derived.__mro__.index(base)


def _dispatch_kl(type_p, type_q):
    """The function of the nearest pair of bases; where the nearest for p is not that for q, a warning and p's choice."""
    pairs = [(p, q) for p, q in _registry if issubclass(type_p, p) and issubclass(type_q, q)]
    if not pairs:
        return NotImplemented
    by_p = min(pairs, key=lambda pair: (_distance(type_p, pair[0]), _distance(type_q, pair[1])))
    by_q = min(pairs, key=lambda pair: (_distance(type_q, pair[1]), _distance(type_p, pair[0])))
    if _registry[by_p] is not _registry[by_q]:
        warn(f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({by_p[0].__name__}, {by_q[1].__name__})",
             RuntimeWarning)
    return _registry[by_p]


def kl_divergence(p: Distribution, q: Distribution) -> tapegrad.Tensor:
    """The mean under p of log p(x) - log q(x), of shape batch_shape; infinite where q has no mass at values of p.

    NotImplementedError where no function is registered for the two classes.
    """
    key = type(p), type(q)
    if key not in _found:
        _found[key] = _dispatch_kl(*key)
    if _found[key] is NotImplemented:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {type(p).__name__} and q type {type(q).__name__}")
    return _found[key](p, q)
