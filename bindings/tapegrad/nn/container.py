"""Modules that hold modules or parameters: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

import operator
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import islice

from .. import Tensor
from .module import Module, _addindent, _typename
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


def _position(index, length: int) -> int:
    """An index from either end, checked."""
    index = operator.index(index)
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range")
    return index % length if length else 0


class _Container(Module):
    """What the containers share."""

    def __len__(self) -> int:
        return len(self._modules)

    def pop(self, key):
        """Takes an entry out and returns it."""
        entry = self[key]
        del self[key]
        return entry


class _Modules(_Container):
    """What the two lists of modules share."""

    def __dir__(self):
        return [name for name in super().__dir__() if not name.isdigit()]

    def __iter__(self):
        return iter(self._modules.values())

    def _renumber(self, modules) -> None:
        self._modules = {str(i): module for i, module in enumerate(modules)}

    def append(self, module):
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self


class Sequential(_Modules):
    """Modules that run one after the other, each on the result of the one before."""

    def __init__(self, *args) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def _get_item_by_idx(self, iterator, idx):
        return next(islice(iterator, _position(idx, len(self)), None))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._get_item_by_idx(self._modules.values(), index)

    def __setitem__(self, index, module) -> None:
        setattr(self, self._get_item_by_idx(self._modules, index), module)

    def __delitem__(self, index) -> None:
        if isinstance(index, slice):
            for name in list(self._modules)[index]:
                delattr(self, name)
        else:
            delattr(self, self._get_item_by_idx(self._modules, index))
        self._renumber(list(self._modules.values()))

    def __add__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return Sequential(*self, *other)

    def __iadd__(self, other):
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(other)

    def _times(self, other) -> int:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")
        return other

    def __mul__(self, other):
        return Sequential(*list(self) * self._times(other))

    __rmul__ = __mul__

    def __imul__(self, other):
        modules = list(self)
        for _ in range(self._times(other) - 1):
            self.extend(modules)
        return self

    def insert(self, index: int, module):
        """Adds a module before the given position."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        n = len(self)
        if not -n <= index <= n:
            raise IndexError(f"Index out of range: {index}")
        modules = list(self)
        modules.insert(index if index >= 0 else index + n, module)
        self._renumber(modules)
        return self

    def extend(self, sequential):
        """Adds several modules at the end."""
        for module in list(sequential):
            self.append(module)
        return self

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Modules):
    """A list of modules; it has no forward."""

    def __init__(self, modules=None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _get_abs_string_index(self, idx) -> str:
        return str(_position(idx, len(self)))

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return self._modules[self._get_abs_string_index(index)]

    def __setitem__(self, index, module) -> None:
        setattr(self, self._get_abs_string_index(index), module)

    def __delitem__(self, index) -> None:
        modules = list(self)
        if isinstance(index, slice):
            del modules[index]
        else:
            del modules[_position(index, len(self))]
        self._renumber(modules)

    def __iadd__(self, modules):
        return self.extend(modules)

    def __add__(self, other):
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Runs of equal modules are shown once: `(0-3): 4 x Linear(...)`."""
        if len(self) == 0:
            return self._get_name() + "()"
        runs: list[list] = []  # [first, last, text]
        for i, module in enumerate(self):
            text = repr(module)
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        lines = []
        for first, last, text in runs:
            label = f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            lines.append(_addindent(label, 2))
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def insert(self, index: int, module) -> None:
        """Adds a module before the given position."""
        modules = list(self)
        modules.insert(index, module)
        self._renumber(modules)

    def extend(self, modules):
        """Adds several modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self


def _check_pairs(name: str, given) -> None:
    if not isinstance(given, Iterable):
        raise TypeError(f"{name}.update should be called with an iterable of key/value pairs, but got " + type(given).__name__)


class ModuleDict(_Container):
    """A dictionary of modules; it has no forward."""

    def __init__(self, modules=None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str):
        return self._modules[key]

    def __setitem__(self, key: str, module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Takes all modules out."""
        self._modules.clear()

    def keys(self):
        """The names."""
        return self._modules.keys()

    def items(self):
        """(name, module) pairs."""
        return self._modules.items()

    def values(self):
        """The modules."""
        return self._modules.values()

    def update(self, modules) -> None:
        """Adds modules from a mapping or from (name, module) pairs."""
        _check_pairs("ModuleDict", modules)
        if isinstance(modules, (Mapping, ModuleDict)):
            modules = modules.items()
        for i, pair in enumerate(modules):
            if not isinstance(pair, Iterable):
                raise TypeError(f"ModuleDict update sequence element #{i} should be Iterable; is {type(pair).__name__}")
            pair = list(pair)
            if len(pair) != 2:
                raise ValueError(f"ModuleDict update sequence element #{i} has length {len(pair)}; 2 is required")
            self[pair[0]] = pair[1]


def _describe(value) -> str:
    if not isinstance(value, Tensor):
        return f"Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    place = "" if value.device.type == "cpu" else f" ({value.device})"
    size = "x".join(str(n) for n in value.size())
    return f"{kind} containing: [{_typename(value.dtype)} of size {size}{place}]".replace(
        _typename(value.dtype), str(value.dtype))


class ParameterList(Module):
    """A list of parameters (tensors that are put in become parameters) and other objects."""

    def __init__(self, values=None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, index):
        if isinstance(index, slice):
            out = type(self)()
            for i in range(*index.indices(len(self))):
                out.append(self[i])
            return out
        return getattr(self, str(_position(index, len(self))))

    def __setitem__(self, index, value) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(_position(index, len(self))), value)

    def __len__(self) -> int:
        return self._size

    def __iter__(self):
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, values):
        return self.extend(values)

    def __dir__(self):
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value):
        """Adds a value at the end."""
        self._size += 1
        self[len(self) - 1] = value
        return self

    def extend(self, values):
        """Adds several values at the end."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"  ({i}): {_describe(value)}" for i, value in enumerate(self))

    def __call__(self, *args, **kwargs):
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(_Container):
    """A dictionary of parameters (tensors that are put in become parameters) and other objects."""

    def __init__(self, parameters=None) -> None:
        super().__init__()
        self._keys: dict = {}
        if parameters is not None:
            self.update(parameters)

    def _attribute(self, key) -> str:
        if not isinstance(key, str):
            raise TypeError("Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                            f"'{type(key).__name__}'). Open an issue on github if you need non-string keys.")
        return key

    def __getitem__(self, key):
        return getattr(self, self._attribute(key))

    def __setitem__(self, key, value) -> None:
        self._keys[key] = None
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, self._attribute(key), value)

    def __delitem__(self, key) -> None:
        del self._keys[key]
        delattr(self, self._attribute(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self):
        return iter(self._keys)

    def __reversed__(self):
        return reversed(list(self._keys))

    def __contains__(self, key) -> bool:
        return key in self._keys

    def copy(self):
        """A dictionary with the same parameters."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key, default=None):
        """The value of the key; default is put in when there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Takes all out."""
        for key in list(self._keys):
            del self[key]

    def popitem(self):
        """Takes the last pair out and returns it."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key, default=None):
        """The value of the key, or default."""
        return self[key] if key in self else default

    def fromkeys(self, keys, default=None):
        """A new dictionary of these keys, all with one value."""
        return ParameterDict((key, default) for key in keys)

    def keys(self):
        """The names."""
        return self._keys.keys()

    def items(self):
        """(name, value) pairs."""
        return ((key, self[key]) for key in self._keys)

    def values(self):
        """The values."""
        return (self[key] for key in self._keys)

    def update(self, parameters) -> None:
        """Adds values from a mapping or from (name, value) pairs."""
        _check_pairs("ParametersDict", parameters)
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs = parameters.items()
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items())
        else:
            pairs = parameters
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(f"  ({key}): {_describe(value)}" for key, value in self.items())

    def __call__(self, input):
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other):
        copy = self.copy()
        copy.update(other)
        return copy

    def __ror__(self, other):
        copy = ParameterDict(other)
        copy.update(self)
        return copy

    def __ior__(self, other):
        self.update(other)
        return self


