"""Calls every method of Tensor and every function with odd arguments, in a process of its own. Whatever is raised is
fine; the process must live, and each call must come back. Half of the calls are blind; the others give every argument
of a row of the op table an odd value of its own type. usage: odd_arguments.py SEED CALLS [NAME...], with test/fuzz
on PYTHONPATH."""

import gc
import json
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import tapegrad as tg
from child import Journal, describe

# What blocks, ends the process, talks to the outside, or changes global state that later calls lean on.
LEFT_OUT = {"breakpoint", "save", "load", "compile", "set_num_threads", "set_default_device", "set_default_dtype", "set_default_tensor_type",
            "set_printoptions", "manual_seed", "seed", "set_rng_state", "__init_subclass__", "__subclasshook__", "__class_getitem__",
            "set_grad_enabled", "__setattr__", "__delattr__", "__class__", "__getattribute__", "data", "_set_grad_enabled", "share_memory_"}


class Hostile:
    """Raises whatever it is asked."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __index__(self):
        raise ValueError("index")

    def __len__(self):
        raise ValueError("len")

    def __getitem__(self, i):
        raise ValueError("item")


def anything(rng: random.Random):
    t = [
        tg.ones(3), tg.ones(2, 3), tg.zeros(0), tg.zeros(0, 3), tg.tensor(2.0), tg.tensor(2), tg.tensor(True), tg.arange(6).reshape(2, 3), tg.ones(2, 3, 4, 4),
        tg.ones(3, dtype=tg.float16), tg.ones(3, dtype=tg.bfloat16), tg.ones(3, dtype=tg.complex64), tg.ones(2, 3).bool(), tg.ones(2, 3, dtype=tg.uint8),
        tg.ones(3, requires_grad=True), tg.ones(3, requires_grad=True) * 2, tg.ones(4, 3).t(), tg.ones(1, 3).expand(2, 3), tg.empty(2, 3, device="meta"),
        tg.tensor([float("nan"), float("inf"), -1.0]), tg.tensor([-1, 5, 2**40]), tg.tensor([2, 0, 1]), tg.ones(5, 5), tg.ones(2, 3, 3), tg.tensor([0, 1]),
    ]
    other = [
        None, True, False, 0, 1, -1, 2, 3, -5, 7, 2**31, 2**62, -(2**63), 2**64, 10**30, 0.0, 0.5, -1.5, float("nan"), float("inf"), 1e308, 1j, "", "a", "mean", "sum", "cpu",
        "cuda:5", "reflect", "i,j->ij", "ij,jk", "\x00", b"a", (), (1,), (0, 1), (1, 1), (2, 3), (-1,), (0, 0), (-1, -1), (2**40, 2**40), (0.5, 0.5), (None, None), [], [1, 2], [0], [[1]],
        [0.5], [None], {}, {"a": 1}, set(), object(), Hostile(), Ellipsis, slice(None), slice(0, 1), int, float, tg.float32, tg.int64, tg.bool, tg.complex64, tg.bfloat16,
        tg.device("cpu"), tg.device("meta"), tg.channels_last, tg.contiguous_format, tg.strided, tg.Size([2, 3]), tg.default_generator, tg.nn.Parameter(tg.ones(3)),
        np.ones(3), np.float32(2), np.int64(1), np.array("a"), np.bool_(True), range(3), lambda *a: a, tg.Tensor, tg, (1,) * 70, [1] * 5, (3, -1, 2), (1, 2, 3, 4),
    ]
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(t)
    if kind < 0.6:
        return [rng.choice(t) for _ in range(rng.randrange(4))]
    if kind < 0.65:
        return tuple(rng.choice(t + other) for _ in range(rng.randrange(4)))
    return rng.choice(other)


INTEGERS = [0, 1, -1, 2, 3, -2, 5, 100, -100, 2**31, 2**62, -(2**63), 2**63 - 1, True]
REALS = [0.0, 0.5, 1.0, -1.0, 2.5, 1e308, -1e-300, float("nan"), float("inf"), float("-inf"), 0, 1]


def tensors(rng: random.Random):
    """A tensor of odd shape, dtype and layout."""
    shape = rng.choice([(), (1,), (3,), (0,), (2, 3), (3, 2), (3, 3), (0, 3), (2, 0), (1, 3), (2, 3, 4), (2, 3, 4, 4), (1, 2, 5, 5), (2, 2, 3, 4, 5), (1,) * 6])
    dtype = rng.choice([tg.float32] * 6 + [tg.float64, tg.float16, tg.bfloat16, tg.int64, tg.int64, tg.int64, tg.int32, tg.uint8, tg.int8, tg.bool, tg.bool, tg.complex64])
    if rng.random() < 0.03:
        return tg.empty(shape, dtype=dtype, device="meta")
    numbers = np.random.default_rng(rng.randrange(2**32)).integers(rng.choice((0, -3)), rng.choice((1, 2, 4, 1000)), shape)
    tensor = tg.tensor(numbers).to(dtype)
    layout = rng.random()
    if layout < 0.15 and len(shape) > 1:
        tensor = tensor.transpose(0, -1)
    elif layout < 0.25 and shape:
        tensor = tg.stack([tensor, tensor], -1)[..., 1]
    elif layout < 0.35:
        tensor = tensor.expand(2, *shape)
    if rng.random() < 0.3 and dtype.is_floating_point:
        tensor = tensor.detach().requires_grad_(True)
        if rng.random() < 0.5:
            tensor = tensor * 1
    return tensor


def of_type(rng: random.Random, kind: str):
    """An odd value of an argument's type in the table."""
    base = kind.rstrip("?").partition("[")
    if kind.endswith("?") and rng.random() < 0.4:
        return None
    if "|" in kind:
        return of_type(rng, rng.choice(kind.rstrip("?").split("|")))
    if base[1]:
        count = int(base[2][:-1]) if base[2][:-1].isdigit() else rng.randrange(5)
        count = rng.randrange(6) if rng.random() < 0.2 else count
        values = [rng.choice((0, 1, -1, 2, 3)) if base[0] == "int" and rng.random() < 0.8 else of_type(rng, base[0]) for _ in range(count)]
        return rng.choice((list, tuple))(values)
    if base[0] == "Tensor":
        return tensors(rng)
    choices = {"int": INTEGERS[:7] if rng.random() < 0.8 else INTEGERS, "float": REALS, "Scalar": INTEGERS + REALS + [1j, tg.tensor(2)], "bool": [True, False],
               "str": ["", "mean", "sum", "none", "reflect", "constant", "replicate", "circular", "ij,jk->ik", "i->", "nearest", "bilinear", "same", "valid", "left", "xy", "x"],
               "DType": [tg.float32, tg.int64, tg.bool, tg.float16, tg.complex128], "Device": ["cpu", "meta", tg.device("cpu")], "Generator": [None, tg.default_generator],
               "MemoryFormat": [tg.contiguous_format, tg.preserve_format, tg.channels_last], "Layout": [tg.strided]}
    return rng.choice(choices[base[0]]) if base[0] in choices else anything(rng)


def rows():
    """The public operators of the table, each with its functions and its arguments."""
    build = Path(tg._C.__file__).resolve().parents[2]
    for row in json.loads((build / "gen" / "test" / "op_records.json").read_text()):
        functions = [tg._C._functions[m].get(row["name"]) for m in row["modules"] if not m.startswith("_")]
        functions += [getattr(tg.Tensor, n, None) for n in (row["name"], row["name"] + "_")]
        for function in functions:
            if function is not None and row["name"] not in LEFT_OUT:
                yield row["name"], function, [(a[0], a[1], a[2] is not None, a[3]) for a in row["args"]]


def typed_call(rng: random.Random, row):
    name, function, arguments = row
    args, keywords = [], {}
    for argument, kind, optional, keyword_only in arguments:
        if optional and rng.random() < 0.4:
            continue
        value = of_type(rng, kind) if rng.random() < 0.95 else anything(rng)
        if keyword_only or keywords or len(args) < arguments.index((argument, kind, optional, keyword_only)):
            keywords[argument] = value
        else:
            args.append(value)
    return name, function, args, keywords


def blind_call(rng: random.Random, target):
    name, function = target
    args = [anything(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 8)))]
    if name.startswith("Tensor.") and rng.random() < 0.9:
        args.insert(0, tensors(rng))
    return name, function, args, {rng.choice(KEYWORDS): anything(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))}


KEYWORDS = ["dim", "keepdim", "out", "dtype", "device", "other", "input", "index", "size", "value", "alpha", "p", "axis", "requires_grad", "weight", "reduction", "memory_format",
            "generator", "end", "step", "start", "correction", "k", "src", "mask", "tensors", "nonsense", "self", "copy", "stride", "padding", "eps", "n", "bins", "dims"]


def targets():
    found = []
    for name in sorted(set(dir(tg.Tensor))):
        if name not in LEFT_OUT and hasattr(tg.Tensor, name):  # some say in a sentence that they are not there
            found.append(("Tensor." + name, getattr(tg.Tensor, name)))
    modules = [("", tg), ("nn.functional.", tg.nn.functional)]
    for name in ("linalg", "special", "fft"):
        modules.append((name + ".", getattr(tg, name)))
    for prefix, module in modules:
        for name in sorted(dir(module)):
            value = getattr(module, name, None)
            if callable(value) and name not in LEFT_OUT and not name.startswith("_") and not isinstance(value, type):
                found.append((prefix + name, value))
    found += [(n, getattr(tg, n)) for n in ("Size", "device", "Tensor", "Generator", "finfo", "iinfo")]
    found += [("Parameter", tg.nn.Parameter), ("_make_subclass", tg.Tensor._make_subclass), ("_tensor_over", tg._C._tensor_over)]
    return found


def small(result) -> bool:
    return isinstance(result, tg.Tensor) and not result.is_meta and result.numel() < 10000


def main():
    seed, calls = int(sys.argv[1]), int(sys.argv[2])
    wanted = set(sys.argv[3:])
    rng = random.Random(seed)
    warnings.simplefilter("ignore")
    everything = [t for t in targets() if not wanted or t[0] in wanted]
    table = [r for r in rows() if not wanted or r[0] in wanted]
    raised, journal = 0, Journal()
    for number in range(calls):
        typed = table and (number % 2 or not everything)
        name, function, args, keywords = typed_call(rng, rng.choice(table)) if typed else blind_call(rng, rng.choice(everything))
        text = f"{name} {[describe(a) for a in args]} { {k: describe(v) for k, v in keywords.items()} }"
        journal.write(text)
        try:
            result = function(*args, **keywords) if callable(function) else function.__get__(args[0]) if args else None
            if small(result):
                repr(result)
                if result.requires_grad and rng.random() < 0.5:
                    result.sum().backward()
        except SystemError as error:
            print(f"SystemError in {text}: {error}")
            sys.exit(3)
        except Exception as error:  # noqa: BLE001 - any exception will do
            raised += 1
            if not str(error) and type(error) not in (KeyError, StopIteration, MemoryError):
                print(f"no message: {type(error).__name__} in {text}")
    gc.collect()
    print(f"{calls} calls, {raised} exceptions")


if __name__ == "__main__":
    main()
