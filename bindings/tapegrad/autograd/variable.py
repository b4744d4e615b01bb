"""Variable, as scripts from before tensors had gradients call it."""

from .._C import Tensor, _autograd
from .._warn import warn

__all__ = ["Variable"]


class _VariableMeta(type):
    def __instancecheck__(cls, instance) -> bool:
        return isinstance(instance, Tensor)


class Variable(metaclass=_VariableMeta):
    """Variable(data, requires_grad=False): the tensor itself."""

    class _execution_engine:
        queue_callback = staticmethod(_autograd.queue_callback)

    def __new__(cls, data, requires_grad: bool = False, volatile: bool = False):
        if volatile:
            warn("volatile was removed and now has no effect. Use `with no_grad():` instead.")
        result = data.detach() if isinstance(data, Tensor) else Tensor(data)
        return result.requires_grad_(requires_grad)
