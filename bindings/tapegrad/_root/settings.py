"""Settings that PyTorch has and that tapegrad accepts: most of them are how it works anyway."""

from .. import _C
from .._warn import warn
from ..storage import TypedStorage, UntypedStorage


def typename(obj) -> str:
    """The full name of an object's type; of a tensor that of its old class."""
    if isinstance(obj, _C.Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    module = getattr(obj, "__module__", None) or kind.__module__
    name = getattr(obj, "__qualname__", None) or kind.__qualname__
    return name if module in ("builtins", "__builtin__", None) else f"{module}.{name}"


def is_storage(obj) -> bool:
    """Whether an object is a storage."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


def set_default_tensor_type(t) -> None:
    """Sets the default dtype by an old class or its name ("tapegrad.DoubleTensor"). Warns: use set_default_dtype."""
    warn("set_default_tensor_type() is deprecated, please use set_default_dtype() and set_default_device() as alternatives.")
    if isinstance(t, str):
        from . import legacy

        name = t.rpartition(".")[2]
        if name not in legacy.__all__:
            raise TypeError(f"set_default_tensor_type: unknown type: {t!r}")
        t = getattr(legacy, name)
    _C._functions[""]["set_default_dtype"](getattr(t, "dtype", t))


# What the program asked of deterministic algorithms, and whether memory without values is filled then.
_deterministic = {"mode": False, "warn_only": False, "fill": True}


def _set_deterministic(**given) -> None:
    for name, value in given.items():
        if type(value) is not bool:
            place = " (position 1)" if name == "mode" else ""
            raise TypeError(f"_set_deterministic_algorithms(): argument '{name}'{place} must be bool, not {type(value).__name__}")
    _deterministic.update(given)
    _C._cuda_cudnn_switch(4, _deterministic["mode"])
    _C._set_fills_unset(_deterministic["mode"] and _deterministic["fill"])


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Results have the same bits from run to run, and on the CPU for any number of threads, anyway, but for convolutions of
    devices with backends.cudnn.benchmark: these keep to deterministic algorithms while `mode` is set. Memory without values
    (`empty`, `resize_`) is filled with NaN or the largest integer then: see utils.deterministic. There is nothing to warn of."""
    _set_deterministic(mode=mode, warn_only=warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether the program asked for them."""
    return _deterministic["mode"]


# What the program asked of products of float32 matrices, by its two names.
_float32 = {"matmul": "highest", "cuda": "none"}


def set_float32_matmul_precision(precision: str) -> None:
    """With "high" or "medium" GPUs may round the operands of float32 matrix products to TF32; the CPU never does."""
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"set_float32_matmul_precision: expected highest, high or medium: got {precision!r}")
    _float32.update(matmul=precision, cuda="ieee" if precision == "highest" else "tf32")
    _C._cuda_allow_tf32(precision != "highest")


def get_float32_matmul_precision() -> str:
    """What set_float32_matmul_precision was given; after backends.cuda.matmul.allow_tf32 what that comes to."""
    return _float32["matmul"]


def set_flush_denormal(mode: bool) -> bool:
    """Refused (False): denormal numbers are kept."""
    return not mode


def get_num_interop_threads() -> int:
    """One: operators run one after the other."""
    return 1


def set_num_interop_threads(num: int) -> None:
    """Accepted for 1 and more; operators run one after the other."""
    if not isinstance(num, int) or num < 1:
        raise RuntimeError(f"set_num_interop_threads: expected a positive number: got {num}")


def compile(model=None, **options):
    """Records the function, or the module's forward, and replays it with the same bits: see `tapegrad.record`."""
    from ..record._compile import compile

    return compile(model, **options)


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What use_deterministic_algorithms was given as warn_only."""
    return _deterministic["warn_only"]


def set_deterministic_debug_mode(debug_mode) -> None:
    """use_deterministic_algorithms by another name: 0 or "default", 1 or "warn", 2 or "error"."""
    words = {"default": 0, "warn": 1, "error": 2}
    mode = words.get(debug_mode, debug_mode)
    if mode not in (0, 1, 2):
        raise RuntimeError(f"set_deterministic_debug_mode: expected 0, 1, 2, 'default', 'warn' or 'error': got {debug_mode!r}")
    _set_deterministic(mode=mode != 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """0 without deterministic algorithms, 1 where they only warn, else 2."""
    return 0 if not _deterministic["mode"] else 1 if _deterministic["warn_only"] else 2


_warn_always = False


def set_warn_always(b: bool) -> None:
    """Whether warnings that are given once, as from_numpy's of a read-only array, come every time."""
    global _warn_always
    _C._set_warn_always(b)
    _warn_always = b


def is_warn_always_enabled() -> bool:
    """What set_warn_always was given."""
    return _warn_always
