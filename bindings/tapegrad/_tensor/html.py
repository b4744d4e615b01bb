"""The HTML form of a tensor in notebooks: dtype, shape and device, and statistics of its values."""

import html

_MOST = 1_000_000  # numbers that statistics look at


def _statistics(tensor) -> list[tuple[str, str]]:
    import numpy as np

    data = tensor.detach().cpu()
    if str(data.dtype).endswith("bfloat16"):
        data = data.float()
    values = data.numpy().reshape(-1)
    rows = []
    if values.size > _MOST:
        values = values[:: values.size // _MOST]
        rows.append(("sample", f"{values.size:,} numbers"))
    if values.dtype.kind == "b":
        return [*rows, ("true", f"{int(values.sum()):,}")]
    if values.dtype.kind == "c":
        return rows
    missing = int(np.isnan(values).sum()) if values.dtype.kind == "f" else 0
    kept = values[~np.isnan(values)] if missing else values
    if kept.size:
        rows += [("min", f"{kept.min():.6g}"), ("mean", f"{kept.mean(dtype='float64'):.6g}"), ("max", f"{kept.max():.6g}")]
    if missing:
        rows.append(("NaN", f"{missing:,}"))
    return rows


def tensor_html(tensor) -> str:
    """A small table above the printed numbers."""
    rows = [("shape", " × ".join(map(str, tensor.shape)) or "scalar"), ("dtype", str(tensor.dtype)), ("device", str(tensor.device))]
    if tensor.requires_grad:
        rows.append(("requires_grad", "True"))
    if not tensor.is_meta and tensor.numel():
        rows += _statistics(tensor)
    cells = "".join(f"<tr><th style='text-align:left'>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in rows)
    return f"<table>{cells}</table><pre>{html.escape(repr(tensor))}</pre>"
