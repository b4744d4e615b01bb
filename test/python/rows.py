"""The op table's records and samples, for the tests that run over every row."""

import importlib
import json
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tapegrad

try:
    import torch
except ImportError:
    torch = None

BUILD = Path(tapegrad.__file__).resolve().parent.parent.parent
RECORDS = None


def find_records() -> Path:
    """build/gen/test/op_records.json of the build that is imported."""
    package = Path(tapegrad._C.__file__).parent
    for folder in (package.parent.parent, package.parent.parent.parent, Path(__file__).resolve().parents[2] / "build"):
        path = folder / "gen" / "test" / "op_records.json"
        if path.exists():
            return path
    raise FileNotFoundError("op_records.json: build the project first (make build)")


class Make:
    """Makes the tensors of a sample: `make((3, 4), low=-1, high=1)`. Seeded, so every run sees the same numbers."""

    def __init__(self, dtype=None, seed=0):
        self.dtype = dtype if dtype is not None else tapegrad.float64
        self.random = np.random.default_rng(seed)

    def __call__(self, shape, dtype=None, low=-1.0, high=1.0, requires_grad=False):
        dtype = dtype if dtype is not None else self.dtype
        shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        if dtype.is_floating_point or dtype.is_complex:
            values = self.random.uniform(low, high, shape)
            if dtype.is_complex:
                values = values + 1j * self.random.uniform(low, high, shape)
        elif dtype == tapegrad.bool:
            values = self.random.integers(0, 2, shape).astype(bool)
        else:
            low, high = int(np.ceil(low)), int(np.floor(high))
            values = self.random.integers(low, high + 1 if high <= low else high, shape)
            if dtype == tapegrad.uint8:
                values = np.abs(values)
        return tapegrad.tensor(values).to(dtype).requires_grad_(requires_grad)


@dataclass
class Record:
    name: str
    public: str  # its name in its first module: `linalg_svd` is `linalg.svd`
    family: str
    where: str
    kind: str
    modules: list
    method: bool
    inplace: bool
    out: bool
    outputs: list
    args: list
    differentiable: bool
    dtypes: list
    result: str
    test: dict
    alias: list
    overloads: list
    promotion: str
    samples: object = field(default=None, repr=False)

    @property
    def writes(self) -> bool:
        """Only an in-place method: its function and PyTorch's write to a copy."""
        return self.name.endswith("_") and not self.name.startswith("_")

    @property
    def function(self):
        """The row as a function; of a row that is only a method, a call of the method."""
        if self.modules:
            function = tapegrad._C._functions[self.modules[0]][self.public]
        else:
            def function(first, *args, **kwargs):
                return getattr(first, self.name)(*args, **kwargs)
        return (lambda first, *args, **kwargs: function(first.clone(), *args, **kwargs)) if self.writes else function

    @property
    def torch_function(self):
        if torch is None or self.name.startswith("_"):
            return None
        if not self.modules:
            if not hasattr(torch.Tensor, self.name):
                return None
            if self.writes:
                return lambda first, *args, **kwargs: getattr(first.clone(), self.name)(*args, **kwargs)
            return lambda first, *args, **kwargs: getattr(first, self.name)(*args, **kwargs)
        return lookup(torch, self.modules[0], self.public)

    def make_samples(self, dtype=None, seed=0):
        return self.samples(Make(dtype, seed)) if self.samples else []


def lookup(root, module: str, name: str):
    for part in [p for p in module.split(".") if p]:
        root = getattr(root, part, None)
        if root is None:
            return None
    return getattr(root, name, None)


def sample_functions() -> dict:
    found = {}
    import samples

    for info in pkgutil.iter_modules(samples.__path__):
        module = importlib.import_module(f"samples.{info.name}")
        for name, value in vars(module).items():
            if callable(value) and getattr(value, "__module__", "") == module.__name__:
                found[name] = value
    return found


def load_records() -> list[Record]:
    functions = sample_functions()
    records = [Record(**r) for r in json.loads(find_records().read_text())]
    for r in records:
        name = r.test.get("samples", "" if r.overloads else r.name)
        # Samples named after an internal row serve the public rows around it, where its own rules (writing, places within
        # bounds) do not bind.
        if not (name.startswith("_") and r.name.startswith("_")):
            r.samples = functions.get(name)
    by_name = {r.name: r for r in records}
    for r in records:
        if r.samples is None and r.overloads:  # what its overloads are called with
            names = dict.fromkeys(by_name[o].test.get("samples", o) for o in r.overloads)
            parts = [functions[n] for n in names if n in functions]
            if parts:
                r.samples = lambda make, parts=parts: [sample for part in parts for sample in part(make)]
            for rule in ("meta", "layout"):
                r.test[rule] = all(by_name[o].test.get(rule, True) for o in r.overloads)
        r.args = r.args or [a for o in r.overloads for a in by_name[o].args]
    return records


def map_tree(f, value):
    """Applies f to each tensor of nested lists, tuples and dictionaries."""
    if isinstance(value, tapegrad.Tensor) or (torch is not None and isinstance(value, torch.Tensor)):
        return f(value)
    if isinstance(value, (list, tuple)) and not isinstance(value, tapegrad.Size):
        mapped = [map_tree(f, v) for v in value]
        return mapped if isinstance(value, list) else tuple(mapped)
    if isinstance(value, dict):
        return {k: map_tree(f, v) for k, v in value.items()}
    return value


def tensors_of(value) -> list:
    found = []
    map_tree(lambda t: found.append(t) or t, value)
    return found


def fixed_tensors(record, args, kwargs) -> set:
    """The identities of the tensors that have no gradient by definition: the arguments that the row names in `fixed`."""
    names = record.test.get("fixed", ())
    values = [v for a, v in zip(record.args, args) if a[0] in names] + [kwargs[n] for n in names if n in kwargs]
    return {id(t) for t in tensors_of(values)}


def to_torch(value):
    """The same nested value for PyTorch, strides included."""
    if isinstance(value, tapegrad.Tensor):
        wide = value.detach()
        if value.dtype == tapegrad.bfloat16:
            t = torch.from_numpy(np.array(wide.float().numpy())).to(torch.bfloat16)
        else:
            t = torch.from_numpy(np.array(wide.numpy(), copy=True, order="K"))
        if tuple(t.stride()) != tuple(value.stride()) and 0 not in value.stride():
            base = torch.empty_strided(tuple(value.shape), tuple(value.stride()), dtype=t.dtype)
            t = base.copy_(t)
        return t.requires_grad_(value.requires_grad)
    if isinstance(value, tapegrad.dtype):
        return getattr(torch, str(value).rsplit(".", 1)[-1])
    if isinstance(value, tapegrad.memory_format):
        return getattr(torch, str(value).rsplit(".", 1)[-1])
    if isinstance(value, (list, tuple)):
        mapped = [to_torch(v) for v in value]
        return mapped if isinstance(value, list) else tuple(mapped)
    if isinstance(value, dict):
        return {k: to_torch(v) for k, v in value.items()}
    return value


def as_numpy(t):
    if isinstance(t, tapegrad.Tensor):
        t = t.detach()
        return t.float().numpy() if t.dtype == tapegrad.bfloat16 else t.numpy()
    t = t.detach().resolve_conj().resolve_neg()
    return t.float().numpy() if t.dtype == torch.bfloat16 else t.numpy()


def dtype_name(t) -> str:
    return str(t.dtype).rsplit(".", 1)[-1]


TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 2e-5, "complex64": 5e-5, "float16": 4e-3, "bfloat16": 3e-2}


def assert_equal(got, expected, where: str, rtol=None):
    """Value, dtype and shape of nested results agree."""
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected), f"{where}: {len(got)} results, expected {len(expected)}"
        for i, (g, e) in enumerate(zip(got, expected)):
            assert_equal(g, e, f"{where}[{i}]", rtol)
        return
    if not hasattr(expected, "dtype"):
        assert got == expected or (got != got and expected != expected), f"{where}: {got} != {expected}"
        return
    assert dtype_name(got) == dtype_name(expected), f"{where}: dtype {got.dtype}, expected {expected.dtype}"
    assert tuple(got.shape) == tuple(expected.shape), f"{where}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    tolerance = rtol or TOLERANCE.get(dtype_name(expected), 0)
    np.testing.assert_allclose(as_numpy(got), as_numpy(expected), rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=where)
