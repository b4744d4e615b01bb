"""Compare: measurements side by side."""

import enum

from .common import Measurement, select_unit, trim_sigfig, unit_to_english

__all__ = ["Colorize", "Compare"]

_GOOD, _BEST, _BAD, _VERY_BAD, _BOLD, _END = "\033[92m", "\033[92m\033[1m", "\033[2m\033[91m", "\033[31m", "\033[1m", "\033[0m"


class Colorize(enum.Enum):
    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class Compare:
    """Tables of measurements: one per label, a row per sub-label (grouped by threads), a column per description."""

    def __init__(self, results):
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim, self._colorize, self._warn = False, Colorize.NONE, False

    def extend_results(self, results) -> None:
        """Adds measurements."""
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Shows only digits that the spread supports."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colours by the best of a column, or of a row."""
        self._colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Marks measurements with a wide spread with the percentage."""
        self._warn = True

    def print(self) -> None:
        print(str(self))

    def __str__(self) -> str:
        groups: dict = {}
        for m in Measurement.merge(self._results):
            groups.setdefault(m.task_spec.label if m.task_spec.label is not None else m.task_spec.stmt, []).append(m)
        return "\n".join(self._table(label, group) for label, group in groups.items())

    def _cell(self, m, unit_size: float) -> str:
        value = m.median / unit_size
        if self._trim:
            value = trim_sigfig(value, m.significant_figures)
            text = f"{value:g}" if value < 1e6 else f"{value:.0f}"
        else:
            text = f"{value:.1f}"
        return text + (f" (! {m.iqr / m.median * 100:.0f}%)" if self._warn and m.has_warnings else "")

    def _colour(self, m, others) -> str:
        best = min(o.median for o in others)
        ratio = m.median / best
        return _BEST if ratio == 1 else _GOOD if ratio <= 1.1 else "" if ratio <= 1.25 else _BAD if ratio <= 2 else _VERY_BAD

    def _table(self, label: str, measurements) -> str:
        unit, size = select_unit(min(m.median for m in measurements))
        columns = list(dict.fromkeys(m.task_spec.description or "" for m in measurements))
        rows = list(dict.fromkeys((m.task_spec.num_threads, m.task_spec.env or "", m.as_row_name) for m in measurements))
        rows.sort(key=lambda r: r[0])
        at = {((m.task_spec.num_threads, m.task_spec.env or "", m.as_row_name), m.task_spec.description or ""): m for m in measurements}
        text = {key: self._cell(m, size) for key, m in at.items()}
        first = max(len(name) + (len(env) + 3 if env else 0) for _, env, name in rows) + 6
        widths = [max(len(c), *(len(text.get((r, c), "")) for r in rows)) for c in columns]
        head = " " * first + "  |  " + "  |  ".join(f"{c:^{w}}" for c, w in zip(columns, widths))
        lines = [f"[{f' {label} ':-^{len(head) - 2}}]", head]
        threads = None
        for r in rows:
            if r[0] != threads:
                threads = r[0]
                lines.append(f"{threads} threads: " + "-" * max(0, len(head) - len(f"{threads} threads: ")))
            cells = []
            for c, w in zip(columns, widths):
                m = at.get((r, c))
                cell = f"{text.get((r, c), ''):^{w}}"
                if m is not None and self._colorize is not Colorize.NONE:
                    others = [o for (row, column), o in at.items() if (row == r if self._colorize is Colorize.ROWWISE else column == c)]
                    colour = self._colour(m, others)
                    cell = f"{colour}{cell}{_END}" if colour else cell
                cells.append(cell)
            name = (f"({r[1]}) " if r[1] else "") + r[2]
            lines.append(f"{'      ' + name:<{first}}  |  " + "  |  ".join(cells))
        return "\n".join([*lines, "", f"Times are in {unit_to_english(unit)}s ({unit}).", ""])
