"""Serialisation of calls: plain data and tensors as in the library's files, functions and classes by name, RRefs by number.

Nothing is unpickled unless `distributed.allow_pickle` says so. A name is looked up by the receiver, which imports its module: remote calls
run what the caller names, so workers have to trust each other.
"""

import base64
import contextlib
import enum
import functools
import importlib
import pickle
import sys
import types

from ... import Tensor, empty_strided, from_numpy, frombuffer, uint8
from ..._files import objects, tree
from ..._files.container import _describe
from ..._files.container_reader import checked_sparse, described
from ..._files.errors import FileError
from ..distributed_c10d import _objects

__all__ = ["Reader", "Writer", "find", "name_of"]

_CALLABLE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, functools._lru_cache_wrapper)
_PLAIN = (int, str, bool, type(None))
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_EMPTY = (list, tuple, dict)
_ROOT = __package__.partition(".")[0]
_MAINS = ("__main__", "__mp_main__")  # the second is the main program in processes that multiprocessing starts afresh
_names: dict = {}  # functions and classes whose names were looked up
_found: dict = {}  # and what names mean


def find(module: str, name: str):
    """The function, class or value of a module; AttributeError or ImportError where there is none."""
    if (module, name) in _found:
        return _found[module, name]
    candidates = [m for m in _MAINS if m in sys.modules] if module in _MAINS else [module]
    for i, candidate in enumerate(candidates):
        found = _module(candidate)
        try:
            for part in name.split("."):
                found = getattr(found, part)
        except AttributeError as error:
            if i + 1 < len(candidates):
                continue
            raise AttributeError(f"rpc: {candidate} has no {name}: {error}\nfunctions travel by name: they have to be there on caller and callee") from None
        if module not in _MAINS and isinstance(found, _CALLABLE):
            _found[module, name] = found
        return found
    raise AttributeError(f"rpc: this process has no main program with a {name}")


def _module(name: str):
    if name not in sys.modules and name.startswith(f"{_ROOT}."):  # some of ours are written in C++ and no modules of their own
        place = sys.modules[_ROOT]
        for part in name.split(".")[1:]:
            place = getattr(place, part, None)
        if isinstance(place, types.ModuleType):
            return place
    return importlib.import_module(name)  # and not sys.modules, where another thread's import may be half done


def _leads_back(module: str, name: str, value) -> bool:
    try:
        found = find(module, name)
    except (AttributeError, ImportError, ValueError):
        return False
    return found is value or found == value


def name_of(value) -> list:
    """Where a function or class is found again: [module, qualified name]. TypeError for those that have no place in a module."""
    known = _names.get(value)
    if known is not None:
        return known
    owner = getattr(value, "__objclass__", None)  # of methods that are not written in Python
    module, name = getattr(owner or value, "__module__", None), getattr(value, "__qualname__", None) or getattr(value, "__name__", "")
    if module in _MAINS:
        module = "__main__"
    if not (isinstance(module, str) and "<" not in name and _leads_back(module, name, value)):
        own = objects.function_named(value)
        if own is None:
            raise TypeError(f"rpc: cannot send {value!r}: functions and classes travel by name, and there is no {name or 'such'} in "
                            f"{module or 'a module'}\ndefine it at the top of a module that the other worker has, too")
        place, _, name = own.rpartition(".")
        module = f"{_ROOT}.{place}" if place else _ROOT
    if module != "__main__":
        _names[value] = [module, name]
    return [module, name]


class Writer(tree.Encoder):
    """Turns values into JSON data, for one worker. `tensors` collects tensors; `attachable` says of which gradients may pass: not of the
    parameters of modules that travel whole. `kept`: what has to live until the message has been answered; `forks`: RRefs that were passed."""

    def __init__(self, agent, to: int, answered: bool) -> None:
        self.agent, self.to, self.answered = agent, to, answered
        self.open: set = set()
        self.tensors: list = []
        self._numbers: dict = {}  # by id: a tensor that is met twice travels once
        self.attachable: list = []
        self.kept: list = []
        self.forks: list = []
        self.inside = 0  # how many objects of classes this value is a part of

    def encode(self, value, path: str = ""):
        kind = type(value)  # what most calls consist of comes first
        if kind in _PLAIN:
            return value
        if kind is Tensor:
            return self.tensor(value, path)
        if kind in _FUNCTIONS and value in _names:
            return {"$named": _names[value]}
        if kind in _EMPTY and not value:
            return {"$t": []} if kind is tuple else [] if kind is list else {}
        if kind in (bytes, bytearray) and len(value) > 4096:
            return {"$raw": self._add(frombuffer(bytearray(value), dtype=uint8), False), "kind": kind.__name__}
        return super().encode(value, path)

    def tensor(self, t, path: str) -> dict:
        data = _describe(t, self.encode, path)
        if t.requires_grad:
            data["requires_grad"] = True
        if "device" in data:
            data["device"] = self.agent.device_for(self.to, t.device)
        if t.is_meta:
            return {"$meta": [str(t.dtype).rpartition(".")[2], list(t.shape), list(t.stride())], **data}
        if t._is_any_sparse:
            layout = str(t.layout)[-3:]
            t = t.coalesce()
            return {"$sparse": [self._add(t._indices().detach(), False), self._add(t._values(), False), list(t.shape), layout], **data}
        number = self._add(t, t.requires_grad and not self.inside)
        return {"$tensor": number, **data} if data else {"$tensor": number}

    def _add(self, t, attachable: bool) -> int:
        number = self._numbers.get(id(t))
        if number is None:
            number = self._numbers[id(t)] = len(self.tensors)
            self.tensors.append(t)
            if attachable:
                self.attachable.append(number)
        return number

    def array(self, a, path: str) -> dict:
        if a.dtype.hasobject or a.dtype.kind not in "biufcSUmMV" or a.dtype.names:
            raise TypeError(f"rpc: cannot send a NumPy array of dtype {a.dtype}")
        return {"$array": [a.dtype.str, list(a.shape), base64.b64encode(a.tobytes()).decode()]} if a.nbytes < 256 or a.dtype.kind not in "iuf" \
            or not a.dtype.isnative else self._large_array(a)

    def _large_array(self, a) -> dict:
        a = a.copy(order="C") if not (a.flags.c_contiguous and a.flags.writeable) else a
        return {"$bytes": self._add(from_numpy(a.reshape(-1).view("u1")), False), "dtype": a.dtype.str, "shape": list(a.shape)}

    def rarer(self, kind, value, path: str):
        special = getattr(kind, "_rpc_reduced", None)  # RRef, WorkerInfo, RemoteModule
        if special is not None:
            return special(value, self)
        if isinstance(value, _CALLABLE) and getattr(value, "__self__", None) in (None, sys.modules.get(getattr(value, "__module__", None))):
            return {"$named": name_of(value)}
        if isinstance(value, (types.MethodType, types.BuiltinMethodType)):
            if isinstance(value.__self__, types.ModuleType):
                return {"$named": [value.__self__.__name__, value.__name__]}
            return {"$method": [self.encode(value.__self__, path), value.__name__]}
        if isinstance(value, enum.Enum):
            return {"$named": [name_of(kind)[0], f"{name_of(kind)[1]}.{value.name}"]}
        if kind is functools.partial:
            return {"$partial": [self.encode(v, path) for v in (value.func, value.args, value.keywords)]}
        if isinstance(value, tuple):
            return {"$tuple": [name_of(kind), self.items(value, path)]}
        tensors, attachable, self.inside = len(self.tensors), len(self.attachable), self.inside + 1
        try:
            return super().rarer(kind, value, path)
        except (TypeError, ValueError) as error:
            if not _objects._allowed:
                raise _objects.refused("rpc", value, error) from None
            for t in self.tensors[tensors:]:
                del self._numbers[id(t)]
            del self.tensors[tensors:], self.attachable[attachable:]
            return {"$pickle": base64.b64encode(pickle.dumps(value)).decode()}
        finally:
            self.inside -= 1


class Reader(tree.Decoder):
    """The reverse. `tensors`: those of the message, the first of which gradients pass through already."""

    def __init__(self, agent, source: int, tensors: list) -> None:
        self.agent, self.source, self.tensors = agent, source, tensors

    def decode(self, data):
        return data if type(data) in _PLAIN else super().decode(data)

    @functools.cached_property
    def policy(self):
        return objects.Policy(weights_only=False)  # modules that the program has imported

    def _at(self, number) -> Tensor:
        if type(number) is not int or not 0 <= number < len(self.tensors):
            raise FileError("rpc: the message has no such tensor")
        return self.tensors[number]

    def _finish(self, t, data):
        if "device" in data:
            t = t.to(data["device"])
        # Where it has come from the tape, what it was on the other side does not matter here.
        return t if t.grad_fn is not None else described(t, data, self.decode)

    def read_tensor(self, value, data):
        t = self._at(value)
        return self._finish(t, data) if len(data) > 1 else t

    def read_sparse(self, value, data):
        indices, values, shape, layout = value
        return self._finish(checked_sparse(self._at(indices), self._at(values), shape, True, layout), data)

    def read_meta(self, value, data):
        dtype, shape, stride = value
        return self._finish(empty_strided(tuple(shape), tuple(stride), dtype=objects.dtype_named(dtype), device="meta"), data)

    def read_array(self, value, data):
        kind, shape, text = value
        return objects.numpy_array(objects.numpy_dtype(kind), shape, base64.b64decode(text))

    def read_raw(self, value, data):
        return (bytearray if data["kind"] == "bytearray" else bytes)(memoryview(self._at(value).numpy()))

    def read_bytes(self, value, data):
        return self._at(value).numpy().view(objects.numpy_dtype(data["dtype"])).reshape(data["shape"])

    def read_named(self, value, data):
        module, name = value
        return find(module, name)

    def read_method(self, value, data):
        return getattr(self.decode(value[0]), value[1])

    def read_partial(self, value, data):
        function, args, keywords = map(self.decode, value)
        return functools.partial(function, *args, **keywords)

    def read_tuple(self, value, data):
        kind, items = find(*value[0]), [self.decode(v) for v in value[1]]
        if not (isinstance(kind, type) and issubclass(kind, tuple)):
            raise FileError(f"rpc: {value[0]} is no kind of tuple")
        return kind._make(items) if hasattr(kind, "_make") else kind(items)

    def read_object(self, value, data):
        if type(value) is list and len(value) == 2 and type(value[0]) is str and type(value[1]) is str:
            if value[0] in _MAINS:
                value = [next((m for m in _MAINS if m in sys.modules), value[0]), value[1]]
            elif value[0] not in sys.modules:  # the policy knows classes that were imported
                with contextlib.suppress(ImportError):
                    _module(value[0])
        return super().read_object(value, data)

    def read_pickle(self, value, data):
        if not _objects._allowed:
            raise TypeError(f"rpc: a worker sent an object that is pickled, and this one does not read pickles\n{_objects._SWITCH}")
        return pickle.loads(base64.b64decode(value))

    def read_rref(self, value, data):
        return self.agent.rrefs.receive(self.source, value)

    def read_worker(self, value, data):
        return self.agent.worker(value)

    def read_remotemodule(self, value, data):
        from ..nn.api.remote_module import _received

        return _received(*self.decode(value))
