"""The table of docs/compat.md, from the results that are kept."""

from __future__ import annotations

import json
from pathlib import Path

from . import compare
from .run import LIBRARIES, Outcomes

_BEGIN, _END = "<!-- suites: begin -->", "<!-- suites: end -->"


def write(document: Path, results: Path, suites: dict) -> None:
    """Replaces what stands between the two marks; a suite without results keeps its row."""
    before, rest = document.read_text().split(_BEGIN)
    old, after = rest.split(_END)
    rows = {line.split("|")[1].strip(): line for line in old.strip().splitlines()[2:]}
    for name, suite in suites.items():
        files = [results / f"{name}-{library}.json" for library in LIBRARIES]
        if all(f.is_file() for f in files):
            rows[name] = row(compare.difference(suite, *(Outcomes(**json.loads(f.read_text())) for f in files)))
    head = ["| suite | from | commit | pass on torch | of these here | per cent | causes of most of the rest |", "| --- | --- | --- | --- | --- | --- | --- |"]
    lines = [*head, *(rows[name] for name in suites if name in rows)]
    document.write_text(f"{before}{_BEGIN}\n" + "\n".join(lines) + f"\n{_END}{after}")


def row(result: compare.Difference) -> str:
    s = result.suite
    causes = "; ".join(f"{len(t)}: `{c[:80].replace('|', '/').replace('`', '')}`" for c, t in list(result.causes.items())[:3])
    apart = f" ({result.apart} apart)" if result.apart else ""
    return f"| {s.name} | {s.source} | {s.commit[:10]} | {result.counted}{apart} | {result.counted - result.lost} | {result.share:.1f} | {causes} |"
