"""Weight normalisation by a hook before forward (Salimans and Kingma, 2016). parametrizations.weight_norm is the better form."""

from ... import no_grad
from ..._warn import warn
from ..parameter import Parameter, is_lazy

__all__ = ["WeightNorm", "remove_weight_norm", "weight_norm"]


def norm_except_dim(v, dim: int):
    """The Euclidean norm over all dimensions but one, which are kept with size 1; over all of them for dim -1."""
    if dim == -1:
        return v.norm()
    return v.square().sum([d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True).sqrt()


def normalised(v, g, dim: int):
    """g v / |v|."""
    return v * (g / norm_except_dim(v, dim))


def remove_hook(module, fits) -> bool:
    """Ends the first forward pre-hook for which fits(hook), through its own remove(module); whether there was one."""
    for key, hook in module._forward_pre_hooks.items():
        if fits(hook):
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return True
    return False


class WeightNorm:
    """The hook: sets the weight from its length `NAME_g` and its direction `NAME_v`."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module):
        return normalised(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module, name: str, dim: int | None):
        warn("`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
             FutureWarning)
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        hook = WeightNorm(name, dim)
        weight = getattr(module, name)
        if is_lazy(weight):
            raise ValueError("The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run the dummy "
                             "forward before applying weight normalization")
        del module._parameters[name]
        with no_grad():
            module.register_parameter(name + "_g", Parameter(norm_except_dim(weight.detach(), hook.dim)))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, hook.compute_weight(module))
        module.register_forward_pre_hook(hook)
        return hook

    def remove(self, module) -> None:
        weight = self.compute_weight(module).detach()
        delattr(module, self.name)
        del module._parameters[self.name + "_g"]
        del module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight))

    def __call__(self, module, inputs) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module, name: str = "weight", dim: int | None = 0):
    """Replaces a parameter by its length (NAME_g, one number per index of dim) and direction (NAME_v)."""
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module, name: str = "weight"):
    """The reverse of weight_norm; the weight keeps its value."""
    if not remove_hook(module, lambda hook: isinstance(hook, WeightNorm) and hook.name == name):
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    return module
