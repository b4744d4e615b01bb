"""PyTorch's values and functions as ours: tensors with their strides and aliases, dtypes, functions by their public name."""

import functools
import types

import numpy as np
import tapegrad
import torch


class Missing(Exception):
    """Something that tapegrad does not have."""


def _masked():
    import torch.masked

    return torch.masked


ROOTS = {
    "": lambda: torch,
    "nn.functional": lambda: torch.nn.functional,
    "linalg": lambda: torch.linalg,
    "fft": lambda: torch.fft,
    "special": lambda: torch.special,
    "signal.windows": lambda: torch.signal.windows,
    "masked": _masked,
    "nn.utils.rnn": lambda: torch.nn.utils.rnn,
    "Tensor": lambda: torch.Tensor,
}


@functools.cache
def public_names() -> dict:
    """Where PyTorch's public functions are, by identity. The first root that holds one names it."""
    found = {}
    for root, get in ROOTS.items():
        for name, value in vars(get()).items():
            if callable(value) and not isinstance(value, type) and not name.startswith("__"):
                found.setdefault(id(value), f"{root}.{name}".lstrip("."))
    for name in dir(torch.Tensor):  # methods that torch.Tensor inherits
        value = getattr(torch.Tensor, name)
        if callable(value) and not isinstance(value, type):
            found.setdefault(id(value), f"Tensor.{name}")
    return found


def lookup(path: str):
    """tapegrad's object of that path; Missing where there is none."""
    value = tapegrad
    for part in path.split("."):
        value = getattr(value, part, None)
        if value is None:
            raise Missing(path)
    return value


def resolve(root, path: str):
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


def plain_call(op, *args, **kwargs):
    """In place of the database's wrapper_set_seed, which would hide that results are random."""
    return op(*args, **kwargs)


def _rebuild(function: types.FunctionType, map_value):
    """The same code with its globals and closure mapped."""
    names = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes.extend(c for c in code.co_consts if isinstance(c, types.CodeType))
    scope = dict(function.__globals__)
    for name in names & scope.keys():
        scope[name] = map_value(scope[name])
    cells = tuple(types.CellType(map_value(c.cell_contents)) for c in function.__closure__ or ())
    new = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, cells)
    new.__kwdefaults__ = function.__kwdefaults__
    return new


def _in_database(value) -> bool:
    return isinstance(value, types.FunctionType) and str(value.__module__).startswith("torch.testing.")


def _unseeded_value(value):
    if _in_database(value):
        return plain_call if value.__name__ == "wrapper_set_seed" else unseeded(value)
    return value


@functools.cache
def unseeded(function):
    """PyTorch's function without the fixed seed that the database wraps around random operators."""
    return _rebuild(function, _unseeded_value) if _in_database(function) else function


def uses_seed(function) -> bool:
    return _in_database(function) and "wrapper_set_seed" in function.__code__.co_names


@functools.cache
def ours(function, name: str | None = None):
    """tapegrad's counterpart of a PyTorch function or of a function of the database. `name` is tried first."""
    if name and not name.startswith("_") and resolve(torch, name) is function:
        return lookup(name)
    path = public_names().get(id(function))
    if path:
        return lookup(path)
    if _in_database(function):
        if function.__name__ == "wrapper_set_seed":
            return plain_call
        return _rebuild(function, _our_value)
    if isinstance(function, functools.partial):
        return functools.partial(ours(function.func), *convert(function.args), **convert(function.keywords))
    raise Missing(name or getattr(function, "__qualname__", str(function)))


class Namespace:
    """tapegrad in the place of a torch module inside the database's functions: a missing name raises Missing."""

    def __init__(self, path=""):
        self._path = path

    def __getattr__(self, name):
        path = f"{self._path}.{name}".lstrip(".")
        value = lookup(path)
        return Namespace(path) if isinstance(value, types.ModuleType) else value


def _our_value(value):
    if value is torch:
        return Namespace()
    if isinstance(value, types.ModuleType) and value.__name__.startswith("torch."):
        return Namespace(value.__name__.removeprefix("torch."))
    if _in_database(value) or isinstance(value, functools.partial) or id(value) in public_names():
        return ours(value)
    if isinstance(value, torch.Tensor | torch.dtype | torch.layout | torch.memory_format):
        return convert(value)
    if isinstance(value, type) and value.__module__.startswith("torch.") and hasattr(tapegrad.nn, value.__name__):
        return getattr(tapegrad.nn, value.__name__)
    return value


class Nested:
    """Makes other values of nested ones: `tensor` of each tensor, once, `other` of what is no container."""

    def __init__(self):
        self.storages = {}
        self.tensors = {}

    def __call__(self, value):
        if isinstance(value, torch.Tensor):
            if id(value) not in self.tensors:  # kept with its copy: the number of a dead one is given to another
                self.tensors[id(value)] = (self.tensor(value), value)
            return self.tensors[id(value)][0]
        if isinstance(value, torch.Size | torch.nn.utils.rnn.PackedSequence):
            return self.other(value)
        if isinstance(value, list | tuple):
            return (list if isinstance(value, list) else tuple)(self(v) for v in value)
        if isinstance(value, dict):
            return {k: self(v) for k, v in value.items()}
        return self.other(value)

    def other(self, value):
        return value


class Converter(Nested):
    """Turns nested values into tapegrad's; tensors that share a storage share one afterwards, too."""

    def other(self, value):
        if isinstance(value, torch.Size):
            return tapegrad.Size(value)
        if isinstance(value, torch.nn.utils.rnn.PackedSequence):
            return tapegrad.nn.utils.rnn.PackedSequence(*map(self, value))
        if isinstance(value, slice):
            return slice(self(value.start), self(value.stop), self(value.step))
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return lookup(str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return tapegrad.device(str(value))
        if isinstance(value, torch.Generator):
            return tapegrad.Generator().manual_seed(value.initial_seed())
        if isinstance(value, torch.nn.Module):
            return self.module(value)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | functools.partial):
            return _our_value(value)
        return value

    def module(self, value):
        if list(value.parameters()) or list(value.children()):
            raise Missing(f"a {type(value).__name__} as argument")
        return lookup(f"nn.{type(value).__name__}")()

    def tensor(self, t):
        if t.layout is not torch.strided:
            if t.layout is torch.sparse_coo and hasattr(tapegrad, "sparse_coo_tensor"):
                new = tapegrad.sparse_coo_tensor(self(t._indices()), self(t._values()), tuple(t.shape))
                return new.requires_grad_(t.requires_grad)
            raise Missing(f"layout {t.layout}")
        if t.device.type == "meta":
            new = tapegrad.empty(tuple(t.shape), dtype=self(t.dtype), device="meta")
        else:
            wants_grad = t.requires_grad
            t = t.detach().resolve_conj().resolve_neg()
            dtype = self(t.dtype)
            new = self.storage(t).view(dtype) if t.untyped_storage().nbytes() >= t.element_size() else None
            new = tapegrad.empty(tuple(t.shape), dtype=dtype) if new is None else new
            if tuple(new.shape) != tuple(t.shape) or new.stride() != t.stride() or t.storage_offset():
                new = new.as_strided(tuple(t.shape), t.stride(), t.storage_offset())
            new = new.detach()
            return new.requires_grad_(True) if wants_grad else new
        return new.requires_grad_(t.requires_grad)

    def storage(self, t):
        """All of the tensor's memory as bytes of ours: a copy, cut to whole elements."""
        storage = t.untyped_storage()
        size = storage.nbytes() // t.element_size() * t.element_size()
        key = (storage.data_ptr(), size)
        if key not in self.storages:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (size,), (1,))
            buffer = tapegrad.empty(size, dtype=tapegrad.uint8)
            buffer.numpy()[...] = flat.numpy()
            self.storages[key] = (buffer, t)
        return self.storages[key][0]


def convert(value):
    return Converter()(value)


class Copier(Nested):
    """A deep copy of nested values on PyTorch's side, strides and aliases kept; leaves stay leaves."""

    def tensor(self, t):
        wants_grad = t.requires_grad
        t = t.detach()
        if t.layout is not torch.strided or t.device.type == "meta" or t.is_conj() or t.is_neg():
            return t.clone().requires_grad_(wants_grad)
        storage = t.untyped_storage()
        key = storage.data_ptr()
        if key not in self.storages:
            self.storages[key] = (storage.clone(), t)
        new = torch.empty(0, dtype=t.dtype).set_(self.storages[key][0], t.storage_offset(), t.shape, t.stride())
        return new.requires_grad_(wants_grad)


def tensors_of(value, kind=torch.Tensor) -> list:
    """The tensors of nested lists, tuples and dictionaries, in order."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, list | tuple):
        return [t for v in value for t in tensors_of(v, kind)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors_of(v, kind)]
    return []


def dtype_name(value) -> str:
    return str(getattr(value, "dtype", value)).rpartition(".")[2]


def as_numpy(t) -> np.ndarray:
    """The values of either library's tensor, bfloat16 as float32."""
    t = t.detach()
    if getattr(t, "is_sparse", False):
        t = t.to_dense()
    if isinstance(t, torch.Tensor):
        t = t.resolve_conj().resolve_neg()
        if t.dtype in (torch.bfloat16, torch.complex32):
            t = t.to(torch.float32 if t.dtype == torch.bfloat16 else torch.complex64)
    elif dtype_name(t) == "bfloat16":
        t = t.float()
    return t.numpy()


def first_by_name(entries) -> dict:
    """What each name is given first."""
    found: dict = {}
    for name, entry in entries:
        found.setdefault(name, entry)
    return found
