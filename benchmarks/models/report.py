"""The table and the pictures of a run."""

import json
from pathlib import Path
from statistics import median

from .. import report
from ..harness import Case, duration, geometric_mean
from . import profiles

NEIGHBOUR_LIMIT = 2.2  # times the idle step
TITLES = {"training": "Training", "inference": "Inference", "host": "Outside kernels", "compile": "Compiled training steps", "jax": "Training steps in JAX",
          "starts": "First step and memory", "neighbour": "Beside a busy process", "profile": "Where the time goes"}
TEXTS = {
    "training": "A step: forward pass, backward pass, optimizer.",
    "inference": "The forward pass under inference_mode.",
    "host": "The same training step, on one thread, of the same layers with next to nothing to compute: what Python, the tape, operators' calls and the optimizer's loop cost.",
    "compile": "Beside the eager step: `tapegrad.compile` of the whole step, `torch.compile` of the model. Below 1 `tapegrad-compile` is faster than the eager step.",
    "jax": "JAX's step is compiled as a whole, tapegrad's is eager.",
    "starts": "A fresh process: import, model, first training step, together; and the most memory it held (the whole process) in two steps.",
    "neighbour": f"Another process keeps one processor busy. At most {NEIGHBOUR_LIMIT} times the idle time is allowed.",
    "profile": "Of a training step in tapegrad, by its profiler: the operators that take most, and what is outside of operators and of the tape's nodes.",
}


def first_step(start: dict) -> float:
    return start["import"] + start["build"] + start["first"]


def _case(row: dict) -> Case:
    return Case(row["part"], row["model"], {}, seconds=row["seconds"])


def _timed(rows: list[dict]) -> list[str]:
    lines = []
    for row in rows:
        case = _case(row)
        for library in [name for name in row["seconds"] if name != "tapegrad"]:
            ratios = [other / own for other, own in zip(row["seconds"][library], row["seconds"]["tapegrad"])]
            lines.append(f"| {row['model']} | {row['items']} {row['unit']} | {duration(case.median('tapegrad'))} | {row['items'] / case.median('tapegrad'):.4g} {row['unit']}/s | {library} {duration(case.median(library))} | "
                         f"{median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |")
    return ["| model | batch | tapegrad | | other | times faster | in single rounds |", "| --- | --- | --- | --- | --- | --- | --- |", *lines]


def _host(rows: list[dict]) -> list[str]:
    return ["| model | tapegrad | torch | times less |", "| --- | --- | --- | --- |",
            *[f"| {r['model']} | {duration(_case(r).median('tapegrad'))} | {duration(_case(r).median('torch'))} | {_case(r).ratio('torch'):.2f} |" for r in rows]]


def _starts(rows: list[dict]) -> list[str]:
    lines = []
    for row in rows:
        seconds = [median(first_step(s) for s in found) for found in row["starts"].values()]
        peaks = [median(s["peak"] for s in found) for found in row["starts"].values()]
        lines.append(f"| {row['model']} | {' | '.join(map(duration, seconds))} | {seconds[1] / seconds[0]:.1f} | {' | '.join(f'{p / 1e6:.0f} MB' for p in peaks)} | {peaks[1] / peaks[0]:.2f} |")
    return ["| model | tapegrad | torch | times sooner | tapegrad's memory | torch's | times less |", "| --- | --- | --- | --- | --- | --- | --- |", *lines]


def _neighbour(rows: list[dict]) -> list[str]:
    lines, over = ["| model | idle | busy | times as long | in single rounds |", "| --- | --- | --- | --- | --- |"], []
    for row in rows:
        idle, busy = row["neighbour"]["idle"], row["neighbour"]["busy"]
        ratios = [b / i for b, i in zip(busy, idle)]
        lines.append(f"| {row['model']} | {duration(median(idle))} | {duration(median(busy))} | {median(ratios):.2f} | {min(ratios):.2f} to {max(ratios):.2f} |")
        if median(ratios) > NEIGHBOUR_LIMIT:
            over.append(row["model"])
    return [*lines, "", f"Above the limit: {', '.join(over) or 'none'}."]


def _profiles(rows: list[dict], picture: str) -> list[str]:
    lines = [f"![shares of a step]({picture})", "", "| model | operators that take most | outside of operators |", "| --- | --- | --- |"]
    for row in rows:
        own = row["profile"]
        top = ", ".join(f"{name.removeprefix('aten::')} {100 * s / own['seconds']:.0f} %" for name, s in list(own["operators"].items())[:5])
        lines.append(f"| {row['model']} | {top} | {100 * own['outside'] / own['seconds']:.1f} % |")
    return lines


def _summary(rows: list[dict]) -> list[str]:
    lines = ["| | geometric mean of times faster than torch | slowest |", "| --- | --- | --- |"]
    for part in ("training", "inference", "host"):
        ratios = {r["model"]: _case(r).ratio("torch") for r in rows if r["part"] == part}
        if ratios:
            worst = min(ratios, key=ratios.get)
            lines.append(f"| {TITLES[part].lower()} | {geometric_mean(list(ratios.values())):.2f} | {worst} {ratios[worst]:.2f} |")
    slow = [f"{r['model']} ({TITLES[r['part']].lower()}, {name}) {_case(r).ratio(name):.2f}" for r in rows if "seconds" in r for name in r["seconds"]
            if not name.startswith("tapegrad") and _case(r).ratio(name) < 1]
    return [*lines, "", f"Below 1: {', '.join(slow) or 'none'}."]


def table(found: dict, picture: str) -> str:
    lines = [f"# Models on {found['machine']}", "", f"`{found['command']}`", "",
             f"{found['processor']}; torch {found['torch']}; {found['dtype']}{' under autocast' if found['dtype'] != 'float32' else ''}; medians of {found['rounds']} paired rounds, "
             "each library in a process of its own, in turns; a ratio above 1 is in tapegrad's favour. Before a model is timed its losses and the length of its first gradient "
             "are compared between the libraries.", ""]
    for threads in sorted({r["threads"] for r in found["rows"]}, reverse=True):
        rows = [r for r in found["rows"] if r["threads"] == threads]
        lines += [f"## {threads} thread{'s' if threads > 1 else ''}", "", *_summary(rows), ""]
        for part, title in TITLES.items():
            members = [r for r in rows if r["part"] == part]
            if members:
                made = {"host": _host, "starts": _starts, "neighbour": _neighbour}.get(part, _timed)
                lines += [f"### {title}", "", TEXTS[part], "", *(_profiles(members, picture) if part == "profile" else made(members)), ""]
    return "\n".join(lines)


def write(found: dict, stem: Path) -> None:
    """STEM.json, .md, -times.png with the ratios and -profile.png with the shares."""
    part = stem.with_name(f".{stem.name}.part")  # a run that is killed leaves the file before whole
    part.write_text(json.dumps(found, indent=1))
    part.replace(stem.with_name(stem.name + ".json"))
    picture = f"{stem.name}-profile.png"
    stem.with_name(stem.name + ".md").write_text(table(found, picture))
    rows = [r for r in found["rows"] if r["part"] in ("training", "inference")]
    if rows:
        report.plot([Case(f"{r['part']}, {r['threads']} threads", r["model"], {}, seconds=r["seconds"]) for r in rows], "torch", stem.with_name(stem.name + "-times.png"))
    profiled = {r["model"]: r["profile"] for r in found["rows"] if r["part"] == "profile"}
    if profiled:
        profiles.draw(profiled, stem.with_name(picture))
