"""The table and the plot of a run."""

import platform
from pathlib import Path

from . import harness
from .harness import Case, duration, geometric_mean


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _shown(case: Case, library: str) -> str:
    if library not in case.seconds:
        return ""
    return f"{case.median(library):.0f} MB" if "memory (MB)" in case.name else duration(case.median(library))


def groups(cases: list[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.group, []).append(case)
    return found


def table(cases: list[Case], versions: dict[str, str], threads: int) -> str:
    """Markdown: a summary per group, then every case."""
    peers = [n for n in versions if n != "tapegrad"]
    lines = [f"Processor: {processor()}, {threads} threads. " + ", ".join(f"{n} {v}" for n, v in versions.items()) + ".", "",
             f"{'The least times' if harness.BEST else 'Medians'} of alternating rounds; a ratio above 1 means that tapegrad is faster.", "", "| group | " + " | ".join(f"against {p} (geometric mean)" for p in peers) + " |",
             "| --- |" + " --- |" * len(peers)]
    for group, members in groups(cases).items():
        cells = []
        for p in peers:
            ratios = [r for r in (c.ratio(p) for c in members) if r is not None]
            cells.append(f"{geometric_mean(ratios):.2f}" if ratios else "")
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    for group, members in groups(cases).items():
        lines += ["", f"## {group}", "", "| case | tapegrad | " + " | ".join(f"{p} | ratio" for p in peers) + " |", "| --- | --- |" + " --- | --- |" * len(peers)]
        for c in members:
            cells = [_shown(c, "tapegrad")]
            for p in peers:
                ratio = c.ratio(p)
                cells += [_shown(c, p), f"{ratio:.2f}" if ratio is not None else ""]
            lines.append(f"| {c.name} | " + " | ".join(cells) + " |")
    slow = [(c, p, c.ratio(p)) for c in cases for p in peers if c.ratio(p) is not None and c.ratio(p) < 1]
    lines += ["", "## Below 1", ""] + ([f"- {c.group}: {c.name}: {r:.2f} of {p}" for c, p, r in slow] or ["None."])
    return "\n".join(lines) + "\n"


def plot(cases: list[Case], peer: str, path: Path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator

    rows = [(f"{c.group}: {c.name}", c.ratio(peer)) for c in cases if c.ratio(peer) is not None][::-1]
    figure, axes = plt.subplots(figsize=(9, 0.22 * len(rows) + 1))
    axes.barh([r[0] for r in rows], [r[1] - 1 for r in rows], left=1, color=["tab:green" if r[1] >= 1 else "tab:red" for r in rows])
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")  # 2, not 2 x 10^0
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel(f"times faster than {peer}")
    axes.tick_params(axis="y", labelsize=6)
    axes.set_ylim(-0.8, len(rows) - 0.2)  # no empty strips above and below
    figure.savefig(path, dpi=110, bbox_inches="tight")  # the longest names, too
    plt.close(figure)
