"""Tables of events."""

from ._events import format_time

_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def format_memory(n: float) -> str:
    """Bytes with a unit: 1.50 Kb."""
    for unit, size in (("Gb", 1 << 30), ("Mb", 1 << 20), ("Kb", 1 << 10)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{int(n)} b"


def _format_flops(values):
    """A unit for all, and how to write one."""
    largest = max(values, default=0)
    for unit, size in (("TFLOPs", 1e12), ("GFLOPs", 1e9), ("MFLOPs", 1e6), ("KFLOPs", 1e3)):
        if largest >= size:
            return f"Total {unit}", lambda v, size=size: f"{v / size:.3f}" if v else "--"
    return "Total FLOPs", lambda v: str(int(v)) if v else "--"


def _cut(text: str, width) -> str:
    return text if width is None or len(text) <= width else text[:width - 3] + "..."


def _cut_source(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    return text if len(text) <= width else "..." + text[len(text) - width + 3:]


def build_table(events, sort_by, row_limit, source_width, name_width, shapes_width, header, top_level_only, time_unit) -> str:
    """See EventList.table."""
    if not events:
        return ""
    if time_unit is not None and time_unit not in _UNITS:
        raise ValueError(f"table: time_unit is one of {', '.join(_UNITS)}: got {time_unit!r}")
    events = [e for e in events if not top_level_only or e.cpu_parent is None]
    if sort_by is not None:
        if not all(hasattr(e, sort_by) for e in events):
            raise AttributeError(f"table: sort_by: events have no attribute {sort_by!r}")
        events = sorted(events, key=lambda e: getattr(e, sort_by) or 0, reverse=True)
    profile_memory = any(e.cpu_memory_usage or e.self_cpu_memory_usage for e in events)
    time = format_time if time_unit is None else lambda us: f"{us / _UNITS[time_unit]:.3f}{time_unit}"
    total = sum(e.self_cpu_time_total for e in events)
    share = lambda us: f"{100 * us / total:.2f}%" if total else "NaN"  # noqa: E731

    columns = [("Name", "<", lambda e: _cut(e.key, name_width)), ("Self CPU %", ">", lambda e: share(e.self_cpu_time_total)),
               ("Self CPU", ">", lambda e: time(e.self_cpu_time_total)), ("CPU total %", ">", lambda e: share(e.cpu_time_total)),
               ("CPU total", ">", lambda e: time(e.cpu_time_total)), ("CPU time avg", ">", lambda e: time(e.cpu_time))]
    if profile_memory:
        columns += [("CPU Mem", ">", lambda e: format_memory(e.cpu_memory_usage)), ("Self CPU Mem", ">", lambda e: format_memory(e.self_cpu_memory_usage))]
    columns.append(("# of Calls", ">", lambda e: str(e.count)))
    if any(e.input_shapes for e in events):
        columns.append(("Input Shapes", ">", lambda e: _cut(str(e.input_shapes), shapes_width)))
    stacks = any(e.stack for e in events)
    if stacks:
        columns.append(("Source Location", "<", lambda e: _cut_source(e.stack[0], source_width) if e.stack else ""))
    if any(e.flops for e in events):
        title, write = _format_flops([e.flops or 0 for e in events])
        columns.append((title, ">", lambda e: write(e.flops or 0)))

    rows = events if row_limit is None or row_limit < 0 else events[:row_limit]
    body = []
    for e in rows:
        body.append([write(e) for _, _, write in columns])
        for place in (e.stack or [])[1:] if stacks else []:  # further lines of the stack below the first
            body.append([_cut_source(place, source_width) if title == "Source Location" else "" for title, _, _ in columns])
    widths = [max(len(title), *(len(row[k]) for row in body)) for k, (title, _, _) in enumerate(columns)]
    rule = "  ".join("-" * w for w in widths)
    lines = [header] if header is not None else []
    lines += [rule, "  ".join(f"{title:>{w}}" for (title, _, _), w in zip(columns, widths)), rule]
    lines += ["  ".join(f"{cell:{side}{w}}" for cell, (_, side, _), w in zip(row, columns, widths)) for row in body]
    return "\n".join([*lines, rule, f"Self CPU time total: {time(total)}", ""])
