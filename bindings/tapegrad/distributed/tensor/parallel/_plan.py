"""parallelize_module: a plan of styles for the modules of a model, by name."""

from fnmatch import fnmatch

from ...._warn import warn
from ...device_mesh import _mesh_resources
from .style import ParallelStyle

__all__ = ["parallelize_module"]


def parallelize_module(module, device_mesh=None, parallelize_plan=None, *, src_data_rank: int | None = 0):
    """Applies a style to a module, or the styles of a plan to modules inside it; returns the module.

    Args:
        device_mesh: of one dimension; the mesh whose `with` block this is in.
        parallelize_plan: a ParallelStyle, or a dict of them by the modules' names. A part of a name may be a pattern such as `*`; the
            empty name is the module itself. Names that nothing matches warn.
        src_data_rank: the rank whose parameters count; None: each rank's own.

    Raises TypeError for another kind of plan, RuntimeError without a mesh, ValueError for a mesh of several dimensions.
    """
    mesh = device_mesh if device_mesh is not None else _mesh_resources.get_current_mesh()
    if parallelize_plan is None:
        warn("No parallelize_plan is provided and auto-parallel is not supported at the moment, so this parallelize_module call will "
             "do nothing.")
        return module
    if mesh.ndim != 1:
        raise ValueError(f"parallelize_module: expected a mesh of one dimension: got {mesh}\nuse a slice of it, such as mesh['tp']")
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(f"Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, {type(parallelize_plan)} found!")
    for path, style in parallelize_plan.items():
        if path == "":
            parallelize_module(module, mesh, style, src_data_rank=src_data_rank)
            continue
        token, _, rest = path.partition(".")
        matched = [child for name, child in module.named_children() if fnmatch(name, token)]
        if not matched:
            warn(f"Parallelize plan key '{path}' could not be resolved: no submodule matching token '{token}' in module {module}, "
                 "skipping this plan entry.")
        for child in matched:
            parallelize_module(child, mesh, {rest: style} if rest else style, src_data_rank=src_data_rank)
    return module
