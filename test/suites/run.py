"""Runs one suite with one library: pytest in a process of its own, outcomes from its JUnit file."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

LIBRARIES = ("torch", "tapegrad")
_TABLE = Path(__file__).with_name("suites.toml")


@dataclasses.dataclass
class Suite:
    """A row of suites.toml."""

    name: str
    source: str
    commit: str
    tests: list[str]
    folder: str = ""  # the checkout's, where it is not the name
    within: str = ""  # the folder in the checkout where pytest is started
    arguments: list[str] = dataclasses.field(default_factory=list)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    path: list[str] = dataclasses.field(default_factory=list)  # folders of the checkout for PYTHONPATH
    needs: list[str] = dataclasses.field(default_factory=list)  # packages
    seconds: int = 120  # that one test may take
    goal: float = 98.0  # per cent
    apart: dict[str, str] = dataclasses.field(default_factory=dict)  # part of a test's name -> why it is not counted

    def root(self, folder: Path) -> Path:
        return (folder / (self.folder or self.name)).resolve()


def suites() -> dict[str, Suite]:
    """All rows, by name; one with `like` takes from that row what it does not say itself, but for its reasons."""
    rows = tomllib.loads(_TABLE.read_text())

    def whole(row):
        shared = whole(rows[row.pop("like")]) if "like" in row else {}
        return {**{key: value for key, value in shared.items() if key != "apart"}, **row}

    return {name: Suite(name, **whole(dict(row))) for name, row in rows.items()}


@dataclasses.dataclass
class Outcomes:
    """`passed`: names; `others`: name -> (kind, message) of what failed, could not be set up or was skipped."""

    passed: list[str]
    others: dict[str, tuple[str, str]]
    seconds: float
    ended: str = ""  # why pytest itself ended badly


def outcomes(suite: Suite, library: str, options) -> Outcomes:
    """What came of every test, from the kept file where PyTorch's side has run before."""
    kept = options.results / f"{suite.name}-{library}.json"
    if library == "torch" and kept.is_file() and not options.fresh and not options.select:
        return Outcomes(**json.loads(kept.read_text()))
    if library == "tapegrad" and options.again and kept.is_file():
        before, torch = Outcomes(**json.loads(kept.read_text())), outcomes(suite, "torch", options)
        result = _merged(before, chosen(suite, library, options, set(torch.passed) - set(before.passed)))
    else:
        result = _run(suite, library, options)
    if not options.select:
        options.results.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(dataclasses.asdict(result)))
    return result


def chosen(suite: Suite, library: str, options, tests, seed: int = 0) -> Outcomes:
    """What comes of these tests alone; `seed` is added to every seed that the suite gives to the library."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(sorted(tests)))
        names.flush()
        return _run(suite, library, options, ["-p", "suites.chosen"], {"SUITES_CHOSEN": names.name, "SUITES_SEED": str(seed)})


def _merged(before: Outcomes, again: Outcomes) -> Outcomes:
    passed = sorted({*before.passed, *again.passed} - set(again.others))
    others = {test: what for test, what in {**before.others, **again.others}.items() if test not in again.passed}
    return Outcomes(passed, others, before.seconds, again.ended)


def package() -> Path:
    """The folder in which this process finds tapegrad."""
    import tapegrad

    return Path(tapegrad.__file__).parent.parent


def _run(suite: Suite, library: str, options, plugin=(), variables=()) -> Outcomes:
    root = suite.root(options.folder)
    paths = [str(root / p) for p in suite.path or [suite.within or "."]]
    if library == "tapegrad":
        paths.append(str((options.package or package()).resolve()))
    if plugin or "-p" in suite.arguments:
        paths.append(str(_TABLE.parent.parent))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **suite.environment, "PYTHONPATH": os.pathsep.join(paths),
                   **dict(variables)}  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch, "report.xml")
        command = [options.python, *(["-m", "tapegrad"] if library == "tapegrad" else []), "-m", "pytest", "-q", "--no-header", "--tb=native",
                   "-p", "no:cacheprovider", "--continue-on-collection-errors", f"--junitxml={report}", f"--basetemp={scratch}/tests", f"--timeout={suite.seconds}"]  # fmt: skip
        # native: the other forms of tracebacks parse the test's file anew for each frame, seconds for one of 13,000 lines.
        if options.jobs > 1:
            command += ["-n", str(options.jobs), "--dist", "worksteal"]
        if options.select:
            command += ["-k", options.select]
        done = subprocess.run([*command, *plugin, *suite.arguments, *suite.tests], cwd=root / suite.within, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)  # fmt: skip
        if not report.is_file():
            return Outcomes([], {}, 0.0, f"exit code {done.returncode}: {done.stdout[-2000:]}")
        return _read(report, "" if done.returncode in (0, 1) else f"exit code {done.returncode}: {done.stdout[-2000:]}")


def _read(report: Path, ended: str) -> Outcomes:
    passed, others, seconds = [], {}, 0.0
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}".strip(":")
        seconds += float(case.get("time") or 0)
        bad = [(child.tag, child) for child in case if child.tag in ("failure", "error", "skipped")]
        if bad:
            tag, child = bad[0]
            others[name] = (tag, f"{(child.get('message') or '')[:1000]}\n{(child.text or '')[-3000:]}" if tag != "skipped" else child.get("message") or "")
        else:
            passed.append(name)
    return Outcomes(passed, others, round(seconds, 1), ended)
