"""swap_tensors: exchanges two tensors in place."""

import weakref

from .. import _C

__all__ = ["swap_tensors"]


def swap_tensors(t1, t2) -> None:
    """Exchanges what two tensors are: data, class, attributes, gradient. Whoever holds one of the objects has the other's tensor
    afterwards. Raises RuntimeError where weak references, the tape or C++ hold one of them, before anything is changed."""
    for name, t in (("t1", t1), ("t2", t2)):
        if weakref.getweakrefs(t):
            raise RuntimeError(f"Cannot swap {name} because it has weakref associated with it")
    _C._swap_tensor_impl(t1, t2)
    if type(t1) is not type(t2):
        try:
            t1.__class__, t2.__class__ = type(t2), type(t1)
        except TypeError:
            _C._swap_tensor_impl(t1, t2)
            raise RuntimeError("Cannot swap t1 and t2 if they have different slots") from None
    mine, theirs = dict(vars(t1)), dict(vars(t2))
    for t, attributes in ((t1, theirs), (t2, mine)):
        vars(t).clear()
        vars(t).update(attributes)
