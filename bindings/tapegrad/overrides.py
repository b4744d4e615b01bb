"""`__torch_function__`: types that take the place of operators for their own objects, and modes that do so for all.

A subclass of Tensor, or any other type, that defines `__torch_function__(cls, func, types, args=(), kwargs=None)` as a class method is
asked wherever one of its objects is an argument of an operator, a method or a property of Tensor. Subclasses of Tensor that define none
inherit one that makes their results instances of the subclass.
"""

import contextlib
import functools
import types

from . import _C
from ._warn import warn

__all__ = ["BaseTorchFunctionMode", "TorchFunctionMode", "enable_reentrant_dispatch", "get_default_nowrap_functions", "get_ignored_functions",
           "get_overridable_functions", "get_testing_overrides", "handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic",
           "is_tensor_like", "is_tensor_method_or_property", "redispatch_function", "resolve_name", "wrap_torch_function"]

has_torch_function = _C._has_torch_function
has_torch_function_unary = _C._has_torch_function_unary
has_torch_function_variadic = _C._has_torch_function_variadic
handle_torch_function = _C._handle_torch_function
_disabled_torch_function_impl = _C._disabled_torch_function_impl
_get_overloaded_args = _C._overloaded_args


def wrap_torch_function(dispatcher):
    """A decorator: its function calls `__torch_function__` of the arguments that `dispatcher(*args, **kwargs)` returns before it runs."""

    def decorate(function):
        @functools.wraps(function)
        def asking(*args, **kwargs):
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(asking, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return asking

    return decorate


def redispatch_function(func, types, args=(), kwargs=None):
    """Calls an overridable function without its own override; functions that it calls stay overridable. `types` only keeps PyTorch's order of arguments."""
    return _C._call_unasked(func, tuple(args), kwargs or {})


def is_tensor_like(inp) -> bool:
    """Whether an object is a tensor or has `__torch_function__`."""
    return type(inp) is _C.Tensor or hasattr(inp, "__torch_function__")


# --- which functions ask ---


def _taking_tensors(module: str) -> set[str]:
    """The functions of a module that need a tensor or several, by the types that their stubs give (of the first form)."""
    import re
    from pathlib import Path

    text = (Path(__file__).parent / "_stubs" / f"{module.replace('.', '_') or 'root'}.pyi").read_text()
    first = dict(reversed(re.findall(r"^def (\w+)\((.*)\) -> ", text, re.M)))
    written = {"is_floating_point": "x: Tensor", "is_complex": "x: Tensor", "numel": "x: Tensor", "is_nonzero": "x: Tensor"}  # no rows
    return {name for name, parameters in {**first, **written}.items() if re.search(r": (Tensor|Sequence\[Tensor\])(?! \|)", parameters)}


@functools.cache
def _tables() -> tuple[dict, set, dict]:
    """(functions that ask by module, functions that do not, names)"""
    from importlib import import_module

    asking, silent, names = {}, set(), {}
    for module, table in _C._functions.items():
        if module.startswith("_C"):
            continue
        space = import_module(f"{__package__}.{module}" if module else __package__)
        listed, taking = [], _taking_tensors(module)
        for name in table:
            public = getattr(space, name, None)
            if name.startswith("_") or public is None:
                continue
            if name in taking:
                listed.append(public)
            else:
                silent.add(public)
            names.setdefault(public, f"{module}.{name}" if module else name)
        # Functions written in Python.
        written = {n: f for n, f in list(vars(space).items()) if getattr(getattr(f, "__code__", None), "co_name", "") == "overridable_function" and f not in names}
        listed += written.values()
        for name, function in written.items():
            names.setdefault(function, f"{module}.{name}" if module else name)
        asking[space] = listed
    methods = []
    for name, value in vars(_C.Tensor).items():
        if isinstance(value, types.GetSetDescriptorType):
            if name in ("__dict__", "__weakref__"):
                continue
            value, name = value.__get__, f"{name}.__get__"
        elif not callable(value) or isinstance(value, (staticmethod, classmethod)):
            continue
        if name in ("__init_subclass__", "__new__", "__dir__", "as_subclass", "__hash__", "__getattribute__", "__setattr__", "__delattr__"):
            silent.add(value)
            continue
        methods.append(value)
        names.setdefault(value, f"Tensor.{name}")
    asking[_C.Tensor] = methods
    return asking, silent, names


def get_overridable_functions() -> dict:
    """The overridable functions, by the module (or class) they are in."""
    return {space: list(functions) for space, functions in _tables()[0].items()}


def get_ignored_functions() -> set:
    """Public functions that no argument can take the place of: those that make tensors, settings. (Modes see the operators among them.)"""
    return set(_tables()[1])


def _signature_of(name: str, function):
    """A signature without types."""
    import inspect

    kinds = inspect.Parameter
    itself = kinds("self", kinds.POSITIONAL_OR_KEYWORD)
    method = name.startswith("Tensor.")
    if name.endswith(".__get__"):
        return inspect.Signature([itself])
    try:
        known = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        known = [itself] if method else [kinds("args", kinds.VAR_POSITIONAL), kinds("kwargs", kinds.VAR_KEYWORD)]
    if method and known and known[0].kind is kinds.VAR_POSITIONAL:
        known = [itself, *known] if any(p.name == "args" for p in known[1:]) else [itself]
    by_name = {kinds.POSITIONAL_ONLY: kinds.POSITIONAL_OR_KEYWORD}
    return inspect.Signature([p.replace(annotation=kinds.empty, kind=by_name.get(p.kind, p.kind)) for p in known])


@functools.cache
def get_testing_overrides() -> dict:
    """{overridable function: a stand-in with its signature that returns -1}, for tests of `__torch_function__`."""

    def stand_in(signature):
        def answer(*args, **kwargs):
            signature.bind(*args, **kwargs)
            return -1

        answer.__signature__ = signature
        return answer

    asking, _, names = _tables()
    return {f: stand_in(_signature_of(names[f], f)) for functions in asking.values() for f in functions}


def get_default_nowrap_functions() -> set:
    """Properties whose results the inherited `__torch_function__` leaves as they are: gradients and the base of a view."""
    return {_C.Tensor._base.__get__, _C.Tensor.grad.__get__}


def is_tensor_method_or_property(func) -> bool:
    """Whether a function is a method of Tensor or gets one of its properties."""
    return getattr(func, "__name__", None) == "__get__" or _tables()[2].get(func, "").startswith("Tensor.")


def resolve_name(f) -> str | None:
    """The full name of a function as the user writes it; None for other functions."""
    from . import _tensor

    name = _tables()[2].get(f)
    return f"{_tensor._root_name}.{name}" if name else None


# --- modes ---


class TorchFunctionMode:
    """Sees every operator that its thread calls within `with mode:`, those without tensors among their arguments, too.

    Subclasses define `__torch_function__(self, func, types, args=(), kwargs=None)`; while it runs the mode is off, so that
    `func(*args, **kwargs)` reaches the mode below it, or the operator. NotImplemented leaves the call to the types of the arguments.
    """

    def __init__(self) -> None:
        pass

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError(f"{type(self).__name__}: a TorchFunctionMode needs a __torch_function__")

    def __enter__(self):
        _C._push_function_mode(self)
        return self

    def __exit__(self, exc_type, exc_val, exc_tb) -> None:
        _C._pop_function_mode()

    @classmethod
    def push(cls, *args, **kwargs):
        """The former way to make a mode for `with`."""
        warn("`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`")
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """Lets everything through."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_function_mode():
    modes = _C._function_modes()
    return modes[-1] if modes else None


def _get_current_function_mode_stack() -> list:
    return _C._function_modes()


_push_mode = _C._push_function_mode
_pop_mode = _C._pop_function_mode


@contextlib.contextmanager
def _pop_mode_temporarily():
    mode = _pop_mode()
    try:
        yield mode
    finally:
        _push_mode(mode)


@contextlib.contextmanager
def _enable_torch_function():
    before = _C._set_override_state(0)
    try:
        yield
    finally:
        _C._set_override_state(before)


def enable_reentrant_dispatch():
    """A context in which `__torch_function__` may call operators that ask; it may everywhere."""
    return contextlib.nullcontext()
