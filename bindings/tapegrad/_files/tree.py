"""Plain data as JSON and back. Tensors stand in it by reference.

JSON's own types stand for themselves; everything else is an object with one key that begins with `$`. A class can be named only
for objects whose class the program has allowed (`objects.py`); nothing in a file can run code.
"""

from __future__ import annotations

import base64
import datetime
import math
from argparse import Namespace
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import PurePath
from types import SimpleNamespace

import numpy as np

from .. import Size, Tensor
from .. import device as device_type
from .. import dtype as dtype_type
from ..storage import TypedStorage, UntypedStorage
from . import objects
from .errors import FileError

DEEPEST = 100  # each level takes some frames of Python's stack
FACTORIES = {"list": list, "dict": dict, "int": int, "float": float, "set": set, "str": str, "bool": bool, "tuple": tuple}


def enter(open_containers: set[int], value, path: str) -> None:
    """Adds a container to those that are being written. Raises ValueError where it is one of them or they lie too deep in each other."""
    if id(value) in open_containers:
        raise ValueError(f"save: a container holds itself at {path!r}")
    if len(open_containers) > DEEPEST:
        raise ValueError(f"save: containers lie more than {DEEPEST} deep in each other at {path[:100]!r}")
    open_containers.add(id(value))


class Encoder:
    """Turns an object into JSON data; `tensor(value, path)`, `array(value, path)` and `storage(value, path)` give references."""

    def __init__(self, tensor, array, storage) -> None:
        self.tensor, self.array, self.storage = tensor, array, storage
        self.open: set[int] = set()  # containers that are being written: meeting one again is a cycle

    def encode(self, value, path: str = ""):
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Tensor):
            if hasattr(value, "_plain_data"):  # a DTensor
                return {"$dtensor": self.encode(list(value._plain_data()), path)}
            return self.tensor(value, path)
        if type(value) in (str, int):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$f": repr(value)}
        if isinstance(value, (np.ndarray, np.generic)) and not (isinstance(value, np.ndarray) and type(value) is not np.ndarray):
            return self.numpy(value, path)
        if isinstance(value, complex):
            return {"$c": [repr(value.real), repr(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            return {"$b" if isinstance(value, bytes) else "$ba": base64.b64encode(value).decode()}
        if isinstance(value, dtype_type):
            return {"$dtype": str(value).rpartition(".")[2]}
        if isinstance(value, device_type):
            return {"$device": str(value)}
        if type(value) in _SCALARS:
            return _SCALARS[type(value)](value)
        if type(value) is slice:
            return {"$slice": [self.encode(part, path) for part in (value.start, value.stop, value.step)]}
        if isinstance(value, PurePath):
            return {"$path": str(value)}
        if isinstance(value, (TypedStorage, UntypedStorage)):
            return self.storage(value, path)
        if isinstance(value, np.dtype) and not value.hasobject and not value.names:
            return {"$npdtype": value.str}
        return self.container(value, path)

    def numpy(self, value, path: str):
        if isinstance(value, np.ndarray):
            return self.array(value, path)
        if value.dtype.kind in "biufcSUmM" and value.dtype.itemsize <= 4096:
            return {"$np": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
        raise objects.refusal(value, path)

    def container(self, value, path: str):
        enter(self.open, value, path)
        try:
            kind = type(value)
            if kind is list:
                return self.items(value, path)
            if isinstance(value, Size):
                return {"$size": [int(n) for n in value]}
            if kind is tuple:
                return {"$t": self.items(value, path)}
            if kind is OrderedDict:
                result = {"$od": self.pairs(value, path)}
                attributes = {k: self.encode(v, f"{path}.{k}") for k, v in vars(value).items()}
                return {**result, "attributes": attributes} if attributes else result
            if kind is dict:
                if all(type(k) is str and not k.startswith("$") for k in value):
                    return {k: self.encode(v, self.join(path, k)) for k, v in value.items()}
                return {"$d": self.pairs(value, path)}
            if kind in (set, frozenset):
                return {"$s" if kind is set else "$fs": self.items(sorted(value, key=repr), path)}
            return self.rarer(kind, value, path)
        finally:
            self.open.discard(id(value))

    def rarer(self, kind, value, path: str):
        if kind is Counter:
            return {"$counter": self.pairs(value, path)}
        if kind is deque:
            return {"$deque": self.items(value, path), "most": value.maxlen}
        if kind is defaultdict:
            factory = value.default_factory
            if factory is not None and FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
                raise TypeError(f"save: cannot save a defaultdict whose factory is {factory!r}{f' at {path!r}' if path else ''}\n"
                                f"factories that are kept: {', '.join(FACTORIES)}; save dict(x) instead")
            return {"$dd": self.pairs(value, path), "factory": factory and factory.__name__}
        if kind in (Namespace, SimpleNamespace):
            return {"$ns" if kind is Namespace else "$sns": self.pairs(vars(value), path)}
        function = objects.function_named(value)
        if function is not None:
            return {"$function": function}
        if (named := objects.class_named(value)) is not None:
            return {"$class": named}
        named, state = objects.take_apart(value, path)
        return {"$object": named, "state": self.encode(state, path)}

    @staticmethod
    def join(path: str, key) -> str:
        return f"{path}.{key}" if path else str(key)

    def items(self, values, path: str) -> list:
        return [self.encode(v, self.join(path, i)) for i, v in enumerate(values)]

    def pairs(self, mapping, path: str) -> list:
        return [[self.encode(k, path), self.encode(v, self.join(path, k))] for k, v in mapping.items()]


_SCALARS = {
    range: lambda v: {"$range": [v.start, v.stop, v.step]},
    datetime.datetime: lambda v: {"$datetime": v.isoformat()},
    datetime.date: lambda v: {"$date": v.isoformat()},
    datetime.timedelta: lambda v: {"$delta": [v.days, v.seconds, v.microseconds]},
    type(Ellipsis): lambda v: {"$ellipsis": 0},
}


class Decoder:
    """The reverse; a subclass has read_tensor(reference number, data), read_array and the like."""

    def __init__(self, policy: objects.Policy | None = None) -> None:
        self.policy = policy or objects.Policy()

    def decode(self, data):
        if isinstance(data, list):
            return [self.decode(v) for v in data]
        if not isinstance(data, dict):
            return data
        tag = next(iter(data), "")
        if not tag.startswith("$"):
            return {k: self.decode(v) for k, v in data.items()}
        value = data[tag]
        read = getattr(self, "read_" + tag[1:], None)
        if read is None:
            raise FileError(f"load: the file holds data of an unknown kind {tag[:30]!r}: it was written by a newer version")
        return read(value, data)

    def key(self, data):
        """What a dictionary or set can hold without its hash running away."""
        key = self.decode(data)
        objects.check_key(key)
        return key

    def pairs(self, value) -> list:
        return [(self.key(k), self.decode(v)) for k, v in value]

    def read_tensor(self, value, data):
        raise NotImplementedError

    read_array = read_meta = read_sparse = read_storage = read_uninitialized = read_tensor

    def read_dtensor(self, value, data):
        from ..distributed.distributed_c10d import is_initialized
        from ..distributed.tensor._dtensor import rebuild

        if not is_initialized():
            raise FileError("load: the file holds tensors that lie over several ranks\ncall distributed.init_process_group() before, or save "
                            "what full_tensor() gives")
        return objects.guarded(rebuild, *self.decode(value))

    def read_f(self, value, data):
        return float(value)

    def read_c(self, value, data):
        return complex(float(value[0]), float(value[1]))

    def read_b(self, value, data):
        return base64.b64decode(value)

    def read_ba(self, value, data):
        return bytearray(base64.b64decode(value))

    def read_np(self, value, data):
        return objects.numpy_scalar(objects.numpy_dtype(value[0]), base64.b64decode(value[1]))

    def read_npdtype(self, value, data):
        return objects.numpy_dtype(value)

    def read_dtype(self, value, data):
        return objects.dtype_named(value)

    def read_device(self, value, data):
        return device_type(value)

    def read_size(self, value, data):
        return Size(value)

    def read_path(self, value, data):
        return objects.path(value)

    def read_range(self, value, data):
        return range(*value)

    def read_slice(self, value, data):
        return slice(*map(self.decode, value))

    def read_datetime(self, value, data):
        return datetime.datetime.fromisoformat(value)

    def read_date(self, value, data):
        return datetime.date.fromisoformat(value)

    def read_delta(self, value, data):
        return datetime.timedelta(*value)

    def read_ellipsis(self, value, data):
        return ...

    def read_t(self, value, data):
        return tuple(self.decode(v) for v in value)

    def read_s(self, value, data):
        return {self.key(v) for v in value}

    def read_fs(self, value, data):
        return frozenset(self.key(v) for v in value)

    def read_d(self, value, data):
        return dict(self.pairs(value))

    def read_od(self, value, data):
        result = OrderedDict(self.pairs(value))
        for name, attribute in data.get("attributes", {}).items():
            objects.check_attribute(name)
            result.__dict__[name] = self.decode(attribute)
        return result

    def read_counter(self, value, data):
        return Counter(dict(self.pairs(value)))

    def read_deque(self, value, data):
        return deque([self.decode(v) for v in value], data["most"])

    def read_dd(self, value, data):
        return defaultdict(None if data["factory"] is None else FACTORIES[data["factory"]], self.pairs(value))

    def _namespace(self, kind, value):
        result = kind()
        for name, attribute in self.pairs(value):
            objects.check_attribute(name)
            result.__dict__[name] = attribute
        return result

    def read_ns(self, value, data):
        return self._namespace(Namespace, value)

    def read_sns(self, value, data):
        return self._namespace(SimpleNamespace, value)

    def read_function(self, value, data):
        return self.policy.function(value)

    def read_class(self, value, data):
        return self.policy.named_class(value)

    def read_object(self, value, data):
        return self.policy.put_together(value, self.decode(data["state"]))
