"""Calls every method of Tensor and every function with odd arguments, in a process of its own. Whatever is raised is
fine; the process must live, and each call must come back. usage: odd_arguments.py SEED CALLS [NAME...]"""

from __future__ import annotations

import gc
import random
import sys
import warnings

import numpy as np

import tapegrad as tg

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


def values(rng: random.Random):
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


KEYWORDS = ["dim", "keepdim", "out", "dtype", "device", "other", "input", "index", "size", "value", "alpha", "p", "axis", "requires_grad", "weight", "reduction", "memory_format",
            "generator", "end", "step", "start", "correction", "k", "src", "mask", "tensors", "nonsense", "self", "copy", "stride", "padding", "eps", "n", "bins", "dims"]


def targets():
    found = []
    for name in sorted(set(dir(tg.Tensor))):
        if name not in LEFT_OUT:
            found.append(("Tensor." + name, getattr(tg.Tensor, name)))
    modules = [("", tg), ("nn.functional.", tg.nn.functional)]
    for name in ("linalg", "special", "fft"):
        modules.append((name + ".", getattr(tg, name)))
    for prefix, module in modules:
        for name in sorted(dir(module)):
            value = getattr(module, name)
            if callable(value) and name not in LEFT_OUT and not name.startswith("_") and not isinstance(value, type):
                found.append((prefix + name, value))
    found += [(n, getattr(tg, n)) for n in ("Size", "device", "Tensor", "Generator", "finfo", "iinfo")]
    found += [("Parameter", tg.nn.Parameter), ("_make_subclass", tg.Tensor._make_subclass), ("_tensor_over", tg._C._tensor_over)]
    return found


def main():
    seed, calls = int(sys.argv[1]), int(sys.argv[2])
    wanted = set(sys.argv[3:])
    rng = random.Random(seed)
    warnings.simplefilter("ignore")
    log = open(sys.argv[0] + f".{seed}.log", "w") if "--log" in wanted else None
    wanted.discard("--log")
    everything = [t for t in targets() if not wanted or t[0] in wanted]
    done = raised = 0
    for _ in range(calls):
        name, function = rng.choice(everything)
        args = [values(rng) for _ in range(rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 8)))]
        if name.startswith("Tensor.") and rng.random() < 0.9:
            first = values(rng)
            while not isinstance(first, tg.Tensor):
                first = values(rng)
            args.insert(0, first)
        keywords = {rng.choice(KEYWORDS): values(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))}
        text = f"{name} {[describe(a) for a in args]} { {k: describe(v) for k, v in keywords.items()} }"
        if log:
            log.seek(0)
            log.truncate()
            log.write(text)
            log.flush()
        else:
            LAST[:] = (text + " " * 2000)[:2000].encode("ascii", "replace")
        done += 1
        try:
            if callable(function):
                result = function(*args, **keywords)
            else:
                result = function.__get__(args[0]) if args else None
            if isinstance(result, tg.Tensor) and result.numel() < 10000:
                repr(result)
        except (SystemError, tg.OutOfMemoryError) as error:
            if isinstance(error, SystemError):
                print(f"SystemError in {text}: {error}")
                sys.exit(3)
            raised += 1
        except Exception as error:  # noqa: BLE001
            raised += 1
            if not str(error) and type(error) not in (KeyError, StopIteration):
                print(f"no message: {type(error).__name__} in {text}")
            if "assert" in str(error).lower() and "internal" in str(error).lower():
                print(f"a bug of our own: {text}: {error}")
                sys.exit(4)
    gc.collect()
    print(f"{done} calls, {raised} exceptions")


def describe(value) -> str:
    if isinstance(value, tg.Tensor):
        return f"{value.dtype}{list(value.shape)}{'g' if value.requires_grad else ''}{'' if value.is_contiguous() else 's'}"
    try:
        if isinstance(value, (list, tuple)):
            return str([describe(v) for v in value])[:200]
        return repr(value)[:60]
    except Exception:  # noqa: BLE001
        return type(value).__name__


def last_call():
    """Memory of the file that keeps the last call, so that the parent can read it when this process dies."""
    import mmap
    import os

    path = os.environ.get("TG_LAST_CALL")
    if not path:
        return bytearray(2000)
    file = open(path, "r+b")
    return mmap.mmap(file.fileno(), 2000)


LAST = last_call()

if __name__ == "__main__":
    main()
