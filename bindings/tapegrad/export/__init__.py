"""Programs: what a model's forward does, as operators by name and weights, without the code. They run here, from C++ without Python
(tapegrad::Record), and in part: any value may be given or asked for. See docs/recorded.md.

    program = tapegrad.export.export(model.eval(), (x,), dynamic_shapes={"x": {0: "batch"}})
    tapegrad.export.save(program, "model.pt2")
    tapegrad.export.load("model.pt2").module()(x)
"""

from __future__ import annotations

from .._lazy import more_names as _more_names
from ._dims import Dim
from ._files import load, save
from ._program import ExportedProgram, ExportGraphSignature
from ._trace import export, export_for_training, name

__all__ = ["Dim", "ExportGraphSignature", "ExportedProgram", "export", "export_for_training", "load", "name", "register_dataclass", "save"]
__getattr__, __dir__ = _more_names(__name__)


def register_dataclass(cls, *, serialized_type_name: str | None = None) -> None:
    """Lets arguments and results of exported models be dataclasses of this class. Raises TypeError where it is none."""
    import dataclasses

    from ..utils import _pytree

    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"register_dataclass: expected a dataclass: got {cls!r}")
    names = [field.name for field in dataclasses.fields(cls) if field.init]
    _pytree.register_pytree_node(cls, lambda x: ([getattr(x, n) for n in names], names), lambda values, keys: cls(**dict(zip(keys, values, strict=True))))
