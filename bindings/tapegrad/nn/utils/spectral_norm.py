"""Spectral normalisation by a hook before forward (Miyato et al., 2018). parametrizations.spectral_norm is the better form."""

from ... import dot, mv, no_grad
from .. import functional as F
from ..parameter import Parameter, is_lazy
from .weight_norm import remove_hook

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


def as_matrix(weight, dim: int):
    """The weight as a matrix with the given dimension as rows."""
    if dim != 0:
        weight = weight.permute(dim, *(d for d in range(weight.dim()) if d != dim))
    return weight.reshape(weight.size(0), -1)


def default_dim(module) -> int:
    """The dimension of the outputs: the second one of a transposed convolution's weight."""
    return 1 if type(module).__name__.replace("Parametrized", "").startswith("ConvTranspose") else 0


class SpectralNorm:
    """The hook: divides `NAME_orig` by its largest singular value, which power iterations with `NAME_u` and `NAME_v` find."""

    _version = 1

    def __init__(self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.name = name
        self.dim = dim
        self.n_power_iterations = n_power_iterations
        self.eps = eps

    def reshape_weight_to_matrix(self, weight):
        return as_matrix(weight, self.dim)

    def compute_weight(self, module, do_power_iteration: bool):
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = as_matrix(weight, self.dim)
        if do_power_iteration:
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(mv(matrix, v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()  # the buffers change before the backward pass of this step may have run
        return weight / dot(u, mv(matrix, v))

    @staticmethod
    def apply(module, name: str, n_power_iterations: int, dim: int, eps: float):
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, SpectralNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
        hook = SpectralNorm(name, n_power_iterations, dim, eps)
        weight = module._parameters[name]
        if weight is None:
            raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
        if is_lazy(weight):
            raise ValueError("The module passed to `SpectralNorm` can't have uninitialized parameters. Make sure to run the dummy "
                             "forward before applying spectral normalization")
        with no_grad():
            rows, columns = as_matrix(weight, dim).shape
            u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
            v = F.normalize(weight.new_empty(columns).normal_(0, 1), dim=0, eps=eps)
        delattr(module, name)
        module.register_parameter(name + "_orig", weight)
        setattr(module, name, weight.data)
        module.register_buffer(name + "_u", u)
        module.register_buffer(name + "_v", v)
        module.register_forward_pre_hook(hook)
        module._register_state_dict_hook(_VersionHook(hook))
        return hook

    def remove(self, module) -> None:
        with no_grad():
            weight = self.compute_weight(module, do_power_iteration=False)
        for suffix in ("", "_u", "_v", "_orig"):
            delattr(module, self.name + suffix)
        module.register_parameter(self.name, Parameter(weight.detach()))

    def __call__(self, module, inputs) -> None:
        setattr(module, self.name, self.compute_weight(module, do_power_iteration=module.training))


class _VersionHook:
    """Writes the version of the state's form next to it, as PyTorch does."""

    def __init__(self, hook) -> None:
        self.fn = hook

    def __call__(self, module, state_dict, prefix, local_metadata) -> None:
        local_metadata.setdefault("spectral_norm", {})[self.fn.name + ".version"] = self.fn._version


def spectral_norm(module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None):
    """Divides a parameter by its largest singular value before every forward; in training an iteration improves the estimate."""
    SpectralNorm.apply(module, name, n_power_iterations, default_dim(module) if dim is None else dim, eps)
    return module


def remove_spectral_norm(module, name: str = "weight"):
    """The reverse of spectral_norm; the weight keeps its normalised value."""
    if not remove_hook(module, lambda hook: isinstance(hook, SpectralNorm) and hook.name == name):
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    for key, hook in list(module._state_dict_hooks.items()):
        if isinstance(hook, _VersionHook) and hook.fn.name == name:
            del module._state_dict_hooks[key]
    return module
