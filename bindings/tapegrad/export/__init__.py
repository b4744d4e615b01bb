"""Export of whole programs, which tapegrad does not do."""

from .._absent import missing_class, missing_function

__all__ = ["Dim", "ExportedProgram", "export", "load", "register_dataclass", "save"]

_WHY = "programs are not recorded as graphs: tapegrad runs eagerly\nsave and load the state_dict, and keep the code"
ExportedProgram = missing_class("export.ExportedProgram", _WHY)
Dim = missing_class("export.Dim", _WHY)
export = missing_function("export.export", _WHY)
export_for_training = missing_function("export.export_for_training", _WHY)
save = missing_function("export.save", _WHY)
load = missing_function("export.load", _WHY)


def register_dataclass(cls, *, serialized_type_name=None) -> None:
    """Accepted: nothing is exported."""
