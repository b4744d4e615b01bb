"""save and load of traced modules, as programs of tapegrad.export."""

from __future__ import annotations

import os

from .. import export as _export
from ..export._program import ExportedModule
from ..utils._pytree import tree_leaves


class _LoadedModule(ExportedModule):
    """A module that was traced, saved and loaded: a program, whatever mode it is in."""

    def train(self, mode: bool = True):
        self.training = mode
        return self

    def eval(self):
        return self.train(False)

    def save(self, f, **kwargs) -> None:
        save(self, f, **kwargs)


def _exported(m) -> _export.ExportedProgram:
    if isinstance(m, ExportedModule):
        return m._exported
    example = getattr(m, "_traced_example", None)
    if example is None:
        raise NotImplementedError("jit.save: a program is what a model does with an example: use jit.trace(model, example), or "
                                  "export.export(model, (example,))\nwithout one, keep the code, and save and load the state_dict")
    args, kwargs = ((), example) if isinstance(example, dict) else (tuple(example) if isinstance(example, (tuple, list)) else (example,), {})
    if any(t.ndim == 0 or t.shape[0] == 0 for t in tree_leaves((args, kwargs)) if hasattr(t, "ndim")):
        return _export.export(m, args, kwargs)
    try:
        named = _export._trace._Run(m, args, kwargs).named
        return _export.export(m, args, kwargs, dynamic_shapes={n: _first_sizes(v) for n, v in named.items()})
    except (ValueError, RuntimeError):  # it depends on the number of samples in some other way: for that of the example alone
        return _export.export(m, args, kwargs)


def _first_sizes(value):
    """The first size of each tensor may change."""
    if isinstance(value, dict):
        return {k: _first_sizes(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_first_sizes(v) for v in value)
    return {0: _export.Dim.AUTO} if hasattr(value, "ndim") else None


def save(m, f, _extra_files: dict | None = None) -> None:
    """Writes what a traced module does with its example as a program (`tapegrad.export`) to a path or a binary file. The first size of the
    inputs may be another one afterwards where nothing else depends on it.

    Raises NotImplementedError for a module that was not traced, and what `export` raises for what no program can repeat."""
    _export.save(_exported(m), f, extra_files=_extra_files)


def load(f, map_location=None, _extra_files: dict | None = None, _restore_shapes: bool = False):
    """The module that `save` has written. Raises RuntimeError for another file: archives of PyTorch hold code, which is not run."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as opened:
            start = opened.read(4)
        if start == b"PK\x03\x04":
            raise RuntimeError(f"jit.load: {os.fspath(f)} is an archive of code for PyTorch: export the model there again, or load its state_dict")
    return _LoadedModule(_export.load(f, extra_files=_extra_files))
