"""The budgets of docs/architecture.md as a meter: measures this checkout and its build, prints a table and exits with 1
where a budget is passed.

usage: meter.py [--build DIR] [--full]     --full also counts instructions (valgrind) and times an incremental build and the smoke tests

Sizes are compared exactly. Times get the tolerance below, because machines differ and are shared: a passed budget has
to mean that something of ours grew, not that a neighbour was busy. Each time is the best of several.
"""

import argparse
import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import instructions
import new_row
import repeats

ROOT = Path(__file__).resolve().parent.parent
TIME_TOLERANCE = 3.0
CORES = 2  # the machine the build budgets are written for


class Row:
    """One line of the table. A value of None means that there was nothing to measure, a budget of None that there is none."""

    def __init__(self, what, value, budget, unit, note="", timed=False):
        self.what, self.value, self.budget, self.unit, self.note, self.timed = what, value, budget, unit, note, timed

    @property
    def ok(self):
        return None in (self.value, self.budget) or self.value <= self.budget * (TIME_TOLERANCE if self.timed else 1)

    @property
    def verdict(self):
        if None in (self.value, self.budget):
            return "-"
        if not self.ok:
            return "OVER"
        return "ok" if self.value <= self.budget else "ok (noise)"

    def cells(self):
        number = "-" if self.value is None else f"{self.value:.3g}" if self.timed else f"{self.value:,.0f}"
        budget = "" if self.budget is None else f"{self.budget:,} {self.unit}"
        return self.what, f"{number} {self.unit}", budget, self.verdict, self.note


def tracked_files(*suffixes):
    """Hand-written files: what git knows, and what it would add."""
    try:
        argv = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / line for line in listed.splitlines()]
    except (OSError, subprocess.CalledProcessError):  # no git, or an unpacked source distribution
        folders = [
            p for p in ROOT.iterdir() if p.is_dir() and not p.name.startswith((".", "build-")) and p.name != "build"
        ]
        paths = [p for folder in folders for p in folder.rglob("*")]
    return [p for p in paths if p.suffix in suffixes and p.is_file()]


def longest_file():
    lengths = {p: p.read_bytes().count(b"\n") for p in tracked_files(".h", ".cpp", ".cu", ".py", ".toml")}
    longest = max(lengths, key=lengths.get)
    return Row("longest hand-written file", lengths[longest], 800, "lines", str(longest.relative_to(ROOT)))


def fullest_folder():
    """bindings/tapegrad is left out: its files are modules by the names that PyTorch has given them."""
    counts = Counter(p.parent.relative_to(ROOT) for p in tracked_files(".h", ".cpp", ".cu", ".py", ".toml", ".md", ".sh"))
    del counts[Path("bindings/tapegrad")]
    (folder, files), = counts.most_common(1)
    return Row("files of the fullest folder", files, 24, "files", str(folder))


def line_rows():
    """Hand-written lines by language, and by folder in the note."""
    for language, suffixes in (("C++", (".h", ".cpp", ".cu")), ("Python", (".py",)), ("tables", (".toml",))):
        folders = Counter()
        for path in tracked_files(*suffixes):
            folders[path.relative_to(ROOT).parts[0]] += path.read_bytes().count(b"\n")
        note = ", ".join(f"{folder} {lines:,}" for folder, lines in folders.most_common(7))
        yield Row(f"hand-written lines of {language}", sum(folders.values()), None, "", note)


def repeated_places():
    found = repeats.pairs(tracked_files(*repeats.SUFFIXES))
    return Row("pairs of places that share six or more lines of one shape", len(found), 40, "", "tools/repeats.py lists them")


def generator_rows():
    files = [p for p in tracked_files(".py") if p.is_relative_to(ROOT / "aten/gen")]
    lines = sum(p.read_bytes().count(b"\n") for p in files)
    found = sorted(operator_names_in(files))
    yield Row("generator", lines, 2500, "lines")
    yield Row("operator names in the generator", len(found), 0, "", ", ".join(found))


def operator_names_in(files):
    """Operators that the generator treats specially, which takes their names.

    A name with an underscore or a digit counts wherever a string holds it. A name of one ordinary word ("add", "where")
    may be a key of rows or of the generator's own vocabulary: it counts where a name is compared with it.
    """
    names = {op.name.strip("_") for op in new_row.load_table(ROOT / "aten/ops")}
    distinctive = {n for n in names if re.search(r"[_\d]", n)}
    for path in files:
        tree = ast.parse(path.read_text())
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
                for word in set(re.findall(r"\w+", node.value)) & distinctive:
                    yield f"{path.name}:{node.lineno} {word}"
            if isinstance(node, ast.Compare) and re.search(r"\b(op|row|target|o|t|r)\.name\b", ast.unparse(node)):
                for part in ast.walk(node):
                    if isinstance(part, ast.Constant) and part.value in names - distinctive:
                        yield f"{path.name}:{node.lineno} {part.value}"


def new_row_rows(build):
    changed = new_row.rewritten()
    yield Row("generated files that a new row rewrites", len(changed), 6, "files")
    again = new_row.compiled_again(build, changed) if (build / ".ninja_deps").exists() else None
    yield Row("files that are compiled again for it", again and len(again), 60, "files")


def best_of(count, function):
    best = float("inf")
    for _ in range(count):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def parse_time(build):
    """Seconds that the compiler needs for the header that everything includes."""
    commands = json.loads((build / "compile_commands.json").read_text())
    command = next((c for c in commands if c["file"].endswith("/aten/tensor.cpp")), None)
    if command is None:
        return Row("parse time of aten/tensor.h", None, 1, "s")
    words = shlex.split(command["command"])
    compiler = next(i for i, w in enumerate(words) if re.search(r"(\+\+|cc|clang)(-\d+)?$", w) and "ccache" not in w)
    flags = [w for w in words[compiler + 1 :] if w.startswith(("-D", "-I", "-std", "-march", "-isystem", "/"))]
    flags = [w for w in flags if not w.endswith((".cpp", ".hxx"))]  # nor the precompiled header
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as source:
        source.write('#include "tapegrad/aten/tensor.h"\n')
        source.flush()
        argv = [words[compiler], *flags, "-fsyntax-only", source.name]
        seconds = best_of(3, lambda: subprocess.run(argv, cwd=command["directory"], check=True))
    return Row("parse time of aten/tensor.h", seconds, 1, "s", timed=True)


def build_rows(build):
    """From ninja's log: how long the last compilation of each file took (next to nothing where ccache had it)."""
    seconds = {}
    log = build / ".ninja_log"
    for line in log.read_text().splitlines() if log.exists() else []:
        fields = line.split("\t")
        if len(fields) == 5:
            seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    for suffix, budget in ((".cpp", 20), (".cu", 60)):
        compiled = {name: s for name, s in seconds.items() if name.endswith(suffix + ".o")}
        slowest = max(compiled, key=compiled.get, default=None)
        if slowest or suffix == ".cpp":
            note = re.sub(r"CMakeFiles/(\w+)\.dir/(.*)\.o", r"\2 (\1)", slowest or "")
            yield Row(
                f"slowest {suffix}", compiled.get(slowest), budget, "s", note.replace(str(build) + "/", ""), timed=True
            )
    # The simulated device is for tests; no package holds it. The CUDA library is a target of its own.
    def cold(title, budget, *left_out):
        minutes = sum(s for name, s in seconds.items() if not any(f"{t}.dir" in name for t in left_out)) / 60 / CORES
        return Row(f"{title} on {CORES} cores", minutes or None, budget, "min", "sum of the steps / cores", timed=True)

    yield cold("cold build", 6, "tapegrad_cuda_sim", "tapegrad_cuda")
    if any("tapegrad_cuda.dir" in name for name in seconds):
        yield cold("cold build with CUDA", 20, "tapegrad_cuda_sim")


def python(build, code):
    environment = dict(os.environ, PYTHONPATH=str(build / "python"))
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(run.stderr.strip().splitlines()[-1])
    return float(run.stdout)


def import_time(build):
    code = "import time, numpy; t = time.perf_counter(); import tapegrad; print((time.perf_counter() - t) * 1e3)"
    return Row("import tapegrad beyond import numpy", min(python(build, code) for _ in range(7)), 60, "ms", timed=True)


def size_of(paths):
    return sum(p.stat().st_size for p in {p.resolve() for p in paths if p.is_file()})


def stripped(path, folder):
    """A copy without symbols, as scikit-build-core installs it."""
    copy = Path(folder) / path.name
    subprocess.run(["strip", "-o", copy, path.resolve()], check=True)
    return copy


def installed_size(build):
    """What `pip install` lays down: the package, libtapegrad, its headers, oneDNN and OpenBLAS."""
    import scipy_openblas32

    package = [p for p in (build / "python/tapegrad").rglob("*") if "__pycache__" not in p.parts and p.suffix != ".so"]
    libraries = [*Path(scipy_openblas32.get_lib_dir()).glob("*.so*")]
    linked = subprocess.run(["ldd", str(build / "lib/libtapegrad.so")], capture_output=True, text=True).stdout
    libraries += [Path(p) for p in re.findall(r"=> (\S+(?:sleef|fmt)\S*)", linked)]
    carried = [Path(p) for p in re.findall(r"=> (\S+dnnl\S*)", linked)]  # TapegradInstall.cmake strips it
    listing = ["g++", "-std=c++20", "-x", "c++", "-MM", *(f"-I{p}" for p in (build / "include", build / "gen", ROOT / "include"))]
    rule = subprocess.run([*listing, ROOT / "include/tapegrad/tapegrad.h"], capture_output=True, text=True, check=True).stdout
    headers = [Path(word) for word in rule.split() if word.endswith((".h", ".inc"))]  # as cmake/InstallHeaders.cmake
    ours = [build / "lib/libtapegrad.so", *(build / "python/tapegrad").glob("*.so")]
    with tempfile.TemporaryDirectory() as folder:
        megabytes = size_of(package + libraries + headers + [stripped(p, folder) for p in ours + carried]) / 1e6
    return Row("installed CPU package with its maths libraries", megabytes, 100.5, "MB")


ADD = """
import time, tapegrad
a = tapegrad.ones(4){tape}
b = tapegrad.ones(4)
best = 1.0
for _ in range(15):
    start = time.perf_counter()
    for _ in range(20000):
        a + b
    best = min(best, time.perf_counter() - start)
print(best / 20000 * 1e6)
"""


def overhead_rows(build):
    for what, tape, budget in (("without the tape", "", 0.17), ("with the tape", ".requires_grad_()", 0.30)):
        microseconds = min(python(build, ADD.replace("{tape}", tape)) for _ in range(3))
        yield Row(f"adding two 4-element tensors {what}", microseconds, budget, "us", timed=True)


def instruction_rows(build):
    """Of calls of small tensors, with budgets for those that all others stand on, and for recording (CPython 3.11, AVX2)."""
    budgets = {"a + b": 1950, "a + b, recorded": 3000, "a + b on a simulated device": 6600, "training step, two recorded calls": 1_500_000,
               "reshapes by sizes, two recorded calls": 6_000_000}
    for call, number in instructions.count(build).items() if shutil.which("valgrind") else ():
        yield Row(f"instructions of {call}", number, budgets.get(call), "")


def full_rows(build):
    yield from instruction_rows(build)
    kernels = sorted((ROOT / "aten").rglob("*_cpu.cpp"), key=lambda p: p.stat().st_size)
    if kernels:
        kernels[-1].touch()
        command = ["cmake", "--build", str(build)]
        environment = dict(os.environ, CCACHE_DISABLE="1")
        seconds = best_of(1, lambda: subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL))
        note = f"after a change of {kernels[-1].relative_to(ROOT)}"
        yield Row("incremental build", seconds, 30, "s", note, timed=True)
    command = [sys.executable, "-m", "pytest", "-q", "-m", "smoke"]
    seconds = best_of(1, lambda: subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL))
    yield Row("smoke tests", seconds, 5, "s", timed=True)


def measure(build, full):
    yield longest_file()
    yield fullest_folder()
    yield from line_rows()
    yield repeated_places()
    yield from generator_rows()
    yield parse_time(build)
    yield from build_rows(build)
    yield from new_row_rows(build)
    yield import_time(build)
    yield installed_size(build)
    yield from overhead_rows(build)
    if full:
        yield from full_rows(build)


def main():
    arguments = argparse.ArgumentParser(description="measures the budgets of docs/architecture.md")
    arguments.add_argument("--build", type=Path, default=ROOT / "build", help="the build folder to measure")
    arguments.add_argument("--full", action="store_true", help="also count instructions, time an incremental build and the smoke tests")
    options = arguments.parse_args()

    rows = list(measure(options.build.resolve(), options.full))
    table = [("what", "value", "budget", "", ""), *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(4)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip((*line[:4],), widths)), line[4], sep="  ")
    print(f"times may pass their budget by {TIME_TOLERANCE - 1:.0%} before the meter fails")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
