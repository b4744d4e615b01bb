"""`tapegrad.compile`: PyTorch's name for recording a function or the forward of a module."""

from __future__ import annotations

import functools

from ._step import RecordedStep

_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


def compile(model=None, *, fullgraph: bool = False, dynamic: bool | None = None, backend="inductor", mode: str | None = None,
            options: dict | None = None, disable: bool = False):
    """Records the function, or the module's forward, and replays it with the same bits.

    A module comes back itself, with its forward replaced: no wrapper, the same names in its state. Nothing is generated, so every
    `backend`, `mode` and `options` does the same, but {"memory": budget, "graphs": False} (see RecordedStep), {"triton.cudagraphs": False} and
    "max-autotune-no-cudagraphs", without CUDA graphs. `dynamic` decides nothing: other sizes get plans of their own. `fullgraph` raises nothing: what PyTorch takes as
    one graph may be what runs eagerly here, with a warning (record(fullgraph=True) raises then). Raises RuntimeError for a mode that PyTorch
    does not have."""
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable)
    if mode not in _MODES:
        raise RuntimeError(f"compile: Unrecognized mode={mode}, should be one of: {', '.join(repr(m) for m in _MODES[1:])}")
    if mode is not None and options is not None:
        raise RuntimeError("compile: Either mode or options can be specified, but both can't be specified at the same time.")
    if not callable(model):
        raise TypeError(f"compile: expected a function or a module: got {type(model).__name__}")
    if disable or isinstance(model, (type, RecordedStep)):
        return model
    options = options or {}
    how = {"memory": options.get("memory"),
           "graphs": bool(options.get("graphs", options.get("triton.cudagraphs", mode != "max-autotune-no-cudagraphs")))}
    if hasattr(model, "_parameters") and hasattr(model, "_modules"):
        if not isinstance(model.forward, RecordedStep):
            model.__dict__["forward"] = _said_to_be_compiled(RecordedStep(model.forward, name=type(model).__name__, **how), fullgraph)
        return model
    return _said_to_be_compiled(RecordedStep(model, **how), fullgraph)


def _said_to_be_compiled(step: RecordedStep, at_once: bool) -> RecordedStep:
    """compiler.is_compiling() is True in the first recording already, and not only where one without that read values."""
    step._compiling = at_once
    return step
