"""What a new row of the op table costs: the generated files that it rewrites and the files that are then compiled again. For tools/meter.py and
the generator's tests.

usage: new_row.py [--build DIR]     prints both
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from aten.gen.__main__ import outputs  # noqa: E402
from aten.gen.model import load_table  # noqa: E402

SUFFIXES = (".h", ".inc", ".cpp", ".cu")
FAMILY = "activation"
ROW = """
[[op]]
name = "a_new_row"
args = "Tensor input, float alpha=1.0"
module = ["nn.functional"]
kind = "kernel"
grad.input = "grad * alpha"
test = [["(3, 4)"]]
doc = "A row that is added to see what that costs."
"""


def _generated(tables: Path) -> dict[str, str]:
    """Path and text of the C++ that comes of tables."""
    return {path: text for path, text in outputs(load_table(tables), ROOT / "aten" / "ops") if path.endswith(SUFFIXES)}


def rewritten(at_end: bool = True) -> set[str]:
    """The generated files that change, come or go with a kernel's row at the end of a table, or in its middle."""
    with tempfile.TemporaryDirectory() as folder:
        for table in (ROOT / "aten" / "ops").rglob("*.toml"):
            (Path(folder) / table.name).write_text(table.read_text())
        before = _generated(Path(folder))
        table = Path(folder) / f"{FAMILY}.toml"
        rows = table.read_text().split("\n[[op]]\n")
        at = len(rows) if at_end else len(rows) // 2
        table.write_text("\n[[op]]\n".join(rows[:at]) + ROW + ("\n[[op]]\n" + "\n[[op]]\n".join(rows[at:]) if rows[at:] else ""))
        after = _generated(Path(folder))
    return {path for path in before | after if before.get(path) != after.get(path)}


def compiled_again(build: Path, changed: set[str]) -> set[str]:
    """The objects of a build that has been done which depend on generated files, by what the compiler said it read. Without ninja or a build by it: OSError, CalledProcessError."""
    names = {str(build / "gen" / path) for path in changed} | {f"gen/{path}" for path in changed}
    ninja = re.search(r"^CMAKE_MAKE_PROGRAM:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)[1]
    def said(*tool):
        return subprocess.run([ninja, "-C", build, "-t", *tool], capture_output=True, text=True, check=True).stdout

    targets = {line.split(":")[0] for line in said("targets", "all").splitlines()}  # the log keeps those that have gone, too
    objects, headers_of = set(), {}
    for block in said("deps").split("\n\n"):
        target, *read = block.split("\n")
        if (target := target.split(":")[0]) in targets:
            headers_of[target] = {line.strip() for line in read}
    precompiled = {re.match(r"CMakeFiles/\w+\.dir/", target)[0] for target, read in headers_of.items()
                   if target.endswith(".gch") and read & names}
    for target, read in headers_of.items():
        if read & names or target.startswith(tuple(precompiled)):
            objects.add(target)
    return objects


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--build", type=Path, default=ROOT / "build", help="a build folder that is up to date")
    build = arguments.parse_args().build.resolve()
    changed = rewritten()
    again = compiled_again(build, changed)
    for path in sorted(changed):
        print("written", path)
    for target in sorted(again):
        print("compiled", target)
    print(f"{len(changed)} generated files are written, {len(again)} files compiled")


if __name__ == "__main__":
    main()
