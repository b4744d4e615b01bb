"""Parameters, buffers and modules of a module by dotted name, as libraries use PyTorch's file of this name."""

from ... import Tensor
from ..module import Module

__all__ = ["NamedMemberAccessor", "set_tensor", "swap_submodule", "swap_tensor"]

_MISSING = object()


def _checked(module, name: str, value=None, kind: type = Tensor, what: str = "tensor"):
    """Raises TypeError or KeyError for what is no module, no value of the kind, or no name in one module."""
    if not isinstance(module, Module):
        raise TypeError(f"swap_{what}: expected a Module: got {type(module).__name__}")
    if value is not None and value is not _MISSING and not isinstance(value, kind):
        raise TypeError(f"swap_{what}: expected a {kind.__name__} for '{name}': got {type(value).__name__}")
    if not name or "." in name:
        raise KeyError(f"{what} name can't contain \".\": '{name}'" if name else f"{what} name can't be empty string \"\"")


def swap_tensor(module: Module, name: str, tensor, allow_missing: bool = False):
    """Puts a tensor in the place of a parameter, a buffer or an attribute, and gives the former one. None is a value. Raises AttributeError where
    there was none, but with `allow_missing`."""
    _checked(module, name, tensor)
    for table in (module._parameters, module._buffers):
        if name in table:
            former = table[name]
            if tensor is _MISSING:
                del table[name]
            else:
                table[name] = tensor
            return former
    former = getattr(module, name, _MISSING)
    if former is _MISSING and not allow_missing:
        raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
    if former is not None and former is not _MISSING and not isinstance(former, Tensor):
        raise TypeError(f"attribute `{name}`: a {type(former).__name__} is not an instance of Tensor")
    if tensor is not _MISSING:
        setattr(module, name, tensor)
    elif former is not _MISSING:
        delattr(module, name)
    return former


def set_tensor(module: Module, name: str, tensor) -> None:
    """Puts a tensor in the place of a parameter or a buffer; without one it becomes an attribute."""
    swap_tensor(module, name, tensor, allow_missing=True)


def swap_submodule(module: Module, name: str, submodule: Module) -> Module:
    """Puts a module in the place of another one, which is given back."""
    _checked(module, name, submodule, Module, "submodule")
    if name not in module._modules:
        raise KeyError(f"submodule {name} does not exist")
    former, module._modules[name] = module._modules[name], submodule
    return former


class NamedMemberAccessor:
    """Gives and takes members of a module by dotted name, and remembers the modules that it has looked up."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.memo: dict[str, Module] = {"": module}

    def get_submodule(self, name: str) -> Module:
        """The module of a name. Raises AttributeError or TypeError."""
        if name not in self.memo:
            self.memo[name] = self.module.get_submodule(name)
        return self.memo[name]

    def _place(self, name: str):
        owner, _, last = name.rpartition(".")
        return self.get_submodule(owner), last

    def swap_submodule(self, path: str, value: Module) -> Module:
        """Another module in the place of one, which is given back."""
        former = swap_submodule(*self._place(path), value)
        self.memo = {"": self.module}
        return former

    def get_tensor(self, name: str):
        """A tensor. Raises AttributeError or TypeError."""
        owner, last = self._place(name)
        tensor = getattr(owner, last)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"attribute `{name}`: a {type(tensor).__name__} is not an instance of Tensor")
        return tensor

    def swap_tensor(self, name: str, value, allow_missing: bool = False):
        """A tensor in the place of another one, which is given back."""
        return swap_tensor(*self._place(name), value, allow_missing)

    def set_tensor(self, name: str, value) -> None:
        """A tensor in the place of another one."""
        self.swap_tensor(name, value, allow_missing=True)

    def del_tensor(self, name: str) -> None:
        """Takes a tensor away. Raises AttributeError where there is none."""
        self.swap_tensor(name, _MISSING)

    def get_tensors(self, names) -> list:
        return [self.get_tensor(name) for name in names]

    def set_tensors(self, names, values) -> None:
        self.set_tensors_dict(dict(zip(names, values, strict=True)))

    def set_tensors_dict(self, named_tensors: dict) -> None:
        for name, value in named_tensors.items():
            self.set_tensor(name, value)

    def del_tensors(self, names) -> None:
        for name in names:
            self.del_tensor(name)

    def swap_tensors(self, names, values, allow_missing: bool = False) -> list:
        return [self.swap_tensor(name, value, allow_missing) for name, value in zip(names, values, strict=True)]

    def swap_tensors_dict(self, named_tensors: dict, allow_missing: bool = False):
        """(the former tensors by name, the names of those that were missing). Raises RuntimeError, with all put back, where some are."""
        former: dict = {}
        try:
            for name, value in named_tensors.items():
                former[name] = self.swap_tensor(name, value, allow_missing=True)
            missing = [name for name, value in former.items() if value is _MISSING]
            if missing and not allow_missing:
                raise RuntimeError(f"Missing key(s): {', '.join(map(repr, missing))}.")
        except Exception:
            for name, value in former.items():
                self.swap_tensor(name, value, allow_missing=True)
            raise
        return former, missing

    def check_keys(self, keys) -> tuple[list[str], list[str]]:
        """(names of tensors that are not among the keys, keys that no tensor has), sorted."""
        keys, own = set(keys), {name for name, _ in self.named_tensors(remove_duplicate=False)}
        return sorted(own - keys), sorted(keys - own)

    def named_parameters(self, remove_duplicate: bool = True):
        yield from self.module.named_parameters(remove_duplicate=remove_duplicate)

    def named_buffers(self, remove_duplicate: bool = True):
        yield from self.module.named_buffers(remove_duplicate=remove_duplicate)

    def named_tensors(self, remove_duplicate: bool = True):
        yield from self.named_parameters(remove_duplicate)
        yield from self.named_buffers(remove_duplicate)

    def named_modules(self, remove_duplicate: bool = True):
        yield from self.module.named_modules(remove_duplicate=remove_duplicate)
