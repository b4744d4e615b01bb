"""PyTorch's compiler of Python code. Operators here are compiled already: functions and modules come back as they are.

`script` and `trace` say so once. What was traced can be saved as a program (`tapegrad.export`), and loaded without its code.
"""

import contextlib
from typing import Final

from .. import futures
from .._lazy import more_names as _more_names
from .._warn import warn
from ..nn.module import Module
from . import annotations

__all__ = ["Attribute", "CompilationUnit", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule",
           "ScriptWarning", "TracedModule", "TracerWarning", "annotate", "annotations", "enable_onednn_fusion", "export", "fork", "freeze", "fuser",
           "ignore", "interface", "is_scripting", "is_tracing", "isinstance", "load", "onednn_fusion_enabled",
           "optimize_for_inference", "optimized_execution", "save", "script", "script_if_tracing", "script_method",
           "set_fusion_strategy", "strict_fusion", "trace", "trace_module", "unused", "wait"]
__getattr__, __dir__ = _more_names(__name__)

_said = False


def _say(what: str) -> None:
    global _said
    if not _said:
        _said = True
        warn(f"jit.{what}: tapegrad runs eagerly, functions and modules come back as they are")


class ScriptModule(Module):
    """A module; subclasses of it run eagerly, as any module."""

    @property
    def code(self) -> str:
        raise NotImplementedError("jit.ScriptModule.code: modules are not compiled")

    graph = code

    def save(self, f, **kwargs):
        """See jit.save."""
        save(self, f, **kwargs)


class TracedModule(ScriptModule):
    """A name to ask isinstance with."""


RecursiveScriptModule, TopLevelTracedModule = ScriptModule, TracedModule


class TracerWarning(Warning):
    """PyTorch's warning of its tracer; never given."""

    @staticmethod
    def ignore_lib_warnings():
        """Nothing to ignore."""


class CompilationUnit:
    """A set of functions from source text; refused."""

    def __init__(self, lang=None, _frames_up=0):
        if lang is not None:
            raise NotImplementedError("jit.CompilationUnit: source texts are not compiled")


def save(m, f, _extra_files=None) -> None:
    """Writes what a traced module does with its example as a program, see `tapegrad.export`. Raises NotImplementedError for one that was not traced."""
    from ._files import save as write

    write(m, f, _extra_files)


def load(f, map_location=None, _extra_files=None, _restore_shapes=False):
    """The module that `save` has written. Raises RuntimeError for another file."""
    from ._files import load as read

    return read(f, map_location, _extra_files, _restore_shapes)


def _as_scripted(obj, example=None):
    """The object itself; it knows its example from now on, and can be saved."""
    if isinstance(obj, Module):
        obj.__dict__["_traced_example"] = example
        if not hasattr(obj, "save"):
            obj.__dict__["save"] = _Save(obj)
    elif hasattr(obj, "__dict__") and not hasattr(obj, "save"):
        obj._traced_example, obj.save = example, _Save(obj)
    return obj


class _Save:
    """What `save` of a module that went through script or trace is."""

    def __init__(self, owner):
        self.owner = owner

    def __call__(self, f, **kwargs):
        save(self.owner, f, **kwargs)

    def __deepcopy__(self, memo):
        return _Save(memo.get(id(self.owner), self.owner))

    def __reduce__(self):
        return _Save, (self.owner,)


def script(obj=None, optimize=None, _frames_up=0, _rcb=None, example_inputs=None, **options):
    """The function, class or module itself."""
    if obj is None:
        return script
    if not callable(obj) and not hasattr(obj, "forward"):
        raise RuntimeError(f"jit.script: expected a function, a class or a module: got {type(obj).__name__}")
    _say("script")
    return _as_scripted(obj)


def trace(func=None, example_inputs=None, *args, **options):
    """The function or module itself; it is called once with the example, as PyTorch does, so that mistakes show now."""
    if func is None:
        return trace
    _say("trace")
    if example_inputs is not None:
        from ..autograd import no_grad

        values = example_inputs if type(example_inputs) in (tuple, list) else (example_inputs,)
        with no_grad():
            func(**example_inputs) if type(example_inputs) is dict else func(*values)
    return _as_scripted(func, example_inputs)


def trace_module(mod, inputs, *args, **options):
    """The module itself; each method is called once with its example."""
    _say("trace_module")
    from ..autograd import no_grad

    with no_grad():
        for name, values in inputs.items():
            getattr(mod, name)(*(values if type(values) is tuple else (values,)))
    return mod


def _same(fn):
    """The function itself."""
    return fn


def ignore(drop=False, **kwargs):
    """As decorator, with or without arguments: the function itself."""
    return drop if callable(drop) else _same


def isinstance(obj, target_type) -> bool:
    """Whether an object is of a type, List[int] and the like taken by their container."""
    import builtins
    import typing

    kinds = target_type if builtins.isinstance(target_type, tuple) else (target_type,)
    return builtins.isinstance(obj, tuple(typing.get_origin(kind) or kind for kind in kinds))


def freeze(mod, preserved_attrs=None, optimize_numerics=True):
    """The module itself."""
    if mod.training:
        raise RuntimeError("jit.freeze: expected a module in evaluation mode: call eval() first")
    return mod


def optimize_for_inference(mod, other_methods=None):
    """The module itself, in evaluation mode."""
    return mod.eval() if mod.training else mod


@contextlib.contextmanager
def optimized_execution(should_optimize):
    """Accepted."""
    yield


@contextlib.contextmanager
def fuser(name):
    """Accepted."""
    yield


Future = futures.Future


def fork(func, *args, **kwargs) -> Future:
    """A future that is done: the function is called at once."""
    result = Future()
    result.set_result(func(*args, **kwargs))
    return result


def wait(future):
    """What a future of fork holds."""
    if future is None:
        raise RuntimeError("Future can't be None")
    return future.wait()


def _flatten(nested):
    """The tensors of nested tuples and lists, and a description of the nesting (here: the value itself)."""
    from .._C import Tensor

    found, todo = [], [nested]
    while todo:
        value = todo.pop(0)
        if type(value) in (tuple, list):
            todo[:0] = value
        elif type(value) is Tensor or hasattr(value, "grad_fn"):
            found.append(value)
    return tuple(found), nested
