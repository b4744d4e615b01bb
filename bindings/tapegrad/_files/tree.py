"""Plain data as JSON and back. Tensors stand in it by reference.

JSON's own types stand for themselves; everything else is an object with one key that begins with `$`. There is no
way to name a class: a file can hold data and nothing else.
"""

from __future__ import annotations

import base64
import math
from collections import Counter, OrderedDict

import numpy as np

from .. import Size, Tensor
from .. import device as device_type
from .. import dtype as dtype_type

_DEEPEST = 500


class Encoder:
    """Turns an object into JSON data; `tensor(value, path)` and `array(value, path)` give references."""

    def __init__(self, tensor, array) -> None:
        self.tensor = tensor
        self.array = array
        self.open: set[int] = set()  # containers that are being written: meeting one again is a cycle

    def refuse(self, value, path: str, hint: str = ""):
        kind = type(value)
        if hasattr(value, "state_dict"):
            hint = f"\nsave its state_dict() instead: save({{'{path or 'model'}': x.state_dict()}}, ...)"
        elif callable(value):
            hint = "\nfunctions and classes are not data: keep them in the program"
        raise TypeError(f"save: cannot save an object of class {kind.__module__}.{kind.__qualname__}"
                        f"{f' at {path!r}' if path else ''}: files hold tensors and plain data only{hint}")

    def encode(self, value, path: str = ""):
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, Tensor):
            return self.tensor(value, path)
        if type(value) is str:
            return value
        if type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$f": repr(value)}
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return self.encode(value.item(), path)
        if isinstance(value, np.ndarray):
            return {"$array": self.array(value, path)}
        if isinstance(value, complex):
            return {"$c": [repr(value.real), repr(value.imag)]}
        if isinstance(value, (bytes, bytearray)):
            return {"$b": base64.b64encode(value).decode()}
        if isinstance(value, dtype_type):
            return {"$dtype": str(value).rpartition(".")[2]}
        if isinstance(value, device_type):
            return {"$device": str(value)}
        return self.container(value, path)

    def container(self, value, path: str):
        if id(value) in self.open or len(self.open) > _DEEPEST:
            raise ValueError(f"save: a container holds itself at {path!r}")
        self.open.add(id(value))
        try:
            if type(value) is list:
                return self.items(value, path)
            if isinstance(value, Size):
                return {"$size": [int(n) for n in value]}
            if type(value) is tuple:
                return {"$t": self.items(value, path)}
            if type(value) is OrderedDict:
                result = {"$od": self.pairs(value, path)}
                attributes = {k: self.encode(v, f"{path}.{k}") for k, v in vars(value).items()}
                return {**result, "attributes": attributes} if attributes else result
            if type(value) is Counter:
                return {"$counter": self.pairs(value, path)}
            if type(value) is dict:
                if all(type(k) is str and not k.startswith("$") for k in value):
                    return {k: self.encode(v, self.join(path, k)) for k, v in value.items()}
                return {"$d": self.pairs(value, path)}
            if type(value) in (set, frozenset):
                return {"$s" if type(value) is set else "$fs": self.items(sorted(value, key=repr), path)}
        finally:
            self.open.discard(id(value))
        return self.refuse(value, path)

    @staticmethod
    def join(path: str, key) -> str:
        return f"{path}.{key}" if path else str(key)

    def items(self, values, path: str) -> list:
        return [self.encode(v, self.join(path, i)) for i, v in enumerate(values)]

    def pairs(self, mapping, path: str) -> list:
        return [[self.encode(k, path), self.encode(v, self.join(path, k))] for k, v in mapping.items()]


class Decoder:
    """The reverse; `tensor(reference)` and `array(name)` give the values of references."""

    def __init__(self, tensor, array) -> None:
        self.tensor = tensor
        self.array = array

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
            raise ValueError(f"load: the file holds data of an unknown kind {tag!r}: it was written by a newer version")
        return read(value, data)

    def pairs(self, value) -> list:
        return [(self.decode(k), self.decode(v)) for k, v in value]

    def read_tensor(self, value, data):
        return self.tensor(data)

    def read_array(self, value, data):
        return self.array(value)

    def read_f(self, value, data):
        return float(value)

    def read_c(self, value, data):
        return complex(float(value[0]), float(value[1]))

    def read_b(self, value, data):
        return base64.b64decode(value)

    def read_dtype(self, value, data):
        import tapegrad

        found = getattr(tapegrad, value, None)
        if not isinstance(found, dtype_type):
            raise ValueError(f"load: unknown dtype {value!r}")
        return found

    def read_device(self, value, data):
        return device_type(value)

    def read_size(self, value, data):
        return Size(value)

    def read_t(self, value, data):
        return tuple(self.decode(v) for v in value)

    def read_s(self, value, data):
        return {self.decode(v) for v in value}

    def read_fs(self, value, data):
        return frozenset(self.decode(v) for v in value)

    def read_d(self, value, data):
        return dict(self.pairs(value))

    def read_od(self, value, data):
        result = OrderedDict(self.pairs(value))
        for name, attribute in data.get("attributes", {}).items():
            setattr(result, name, self.decode(attribute))
        return result

    def read_counter(self, value, data):
        return Counter(dict(self.pairs(value)))
