"""What must hold before a release: one version, a changelog for it, documents whose links lead somewhere, examples that start, and in dist/
what `make wheel` left: a source distribution and a wheel for every Python of the classifiers, with licences and types, of known size. What
`make wheel-cuda` and `make wheel-aarch64` left is looked at where it is there.

usage: release_check.py [--documents]     --documents leaves out dist/ and the state of the checkout

Prints a line for each check and exits with 1 when one of them fails.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from requirements import PYPROJECT

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
MEGABYTES = 101.0  # of an installed wheel and OpenBLAS: the budget of tools/meter.py, and half a megabyte for libgomp, licences and metadata
OPENBLAS = 25.1


def version():
    """The one place of the version."""
    return re.search(r"^project\(tapegrad VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]


def wrong_versions():
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if newest is None or newest[1] != version():
        yield f"CHANGELOG.md begins with {newest and newest[1]}, CMakeLists.txt says {version()}"
    if "version" in PYPROJECT["project"] or "version" not in PYPROJECT["project"]["dynamic"]:
        yield "pyproject.toml names a version of its own"


def documents():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    return [ROOT / name for name in listed]


def dead_links(pages=None):
    """Links to files that are not there, and to headings that a page does not have."""
    def headings(page):
        return {re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).strip().replace(" ", "-") for line in page.read_text().splitlines() if line.startswith("#")}

    for page in pages or documents():
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, heading = target.partition("#")
            file = (page.parent / path) if path else page
            if not file.exists():
                yield f"{page.relative_to(ROOT)}: {target} is not there"
            elif heading and file.suffix == ".md" and heading not in headings(file):
                yield f"{page.relative_to(ROOT)}: {target}: no such heading"


def unstarted_examples(python, environment=None):
    """Examples that cannot say what they do."""
    for example in sorted((ROOT / "examples").glob("*.py")):
        if example.name != "common.py":
            run = subprocess.run([python, example, "--help"], capture_output=True, text=True, env=environment)
            if run.returncode or "--checkpoint" not in run.stdout:
                yield f"examples/{example.name} --help: {(run.stderr.strip().splitlines() or ['says nothing of --checkpoint'])[-1]}"


def wanted_tags():
    for classifier in PYPROJECT["project"]["classifiers"]:
        if found := re.fullmatch(r"Programming Language :: Python :: (3)\.(\d+)", classifier):
            yield "cp" + found[1] + found[2]


def wrong_wheel(wheel):
    """What is wrong with one wheel. Those for aarch64 are without oneDNN and its libgomp."""
    onednn = not wheel.name.endswith("aarch64.whl")
    with zipfile.ZipFile(wheel) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        (metadata,) = (archive.read(name).decode() for name in sizes if name.endswith(".dist-info/METADATA"))
    if "manylinux" not in wheel.name:
        yield "no manylinux tag: auditwheel has not seen it"
    if (total := sum(sizes.values()) / 1e6 + OPENBLAS) > MEGABYTES:
        yield f"{total:.1f} MB with OpenBLAS, over {MEGABYTES}"
    for line in (f"Version: {version()}", "License-Expression: ", "Author: tapegrad developers", "Requires-Python: "):
        if line not in metadata:
            yield f"METADATA lacks '{line}'"
    for part in ("tapegrad/py.typed", "tapegrad/__init__.pyi", "tapegrad/_stubs/root.pyi", "tapegrad/lib/libtapegrad.so", "tapegrad/include/tapegrad/tapegrad.h",
                 "tapegrad/lib/cmake/tapegrad/tapegradConfig.cmake", "tapegrad/datasets/data/mnist/t10k-images-idx3-ubyte.gz",
                 *(f"tapegrad-{version()}.dist-info/licenses/{name}" for name in ("LICENSE", "libsleef.txt", "libfmt.txt", "nlohmann-json.txt",
                                                                                 *(("libgomp.txt", "onednn-LICENSE", "xbyak.txt") if onednn else ())))):
        if part not in sizes:
            yield f"{part} is not in it"
    if len([name for name in sizes if "dnnl" in name and ".so" in name]) != onednn:
        yield f"oneDNN is not in it {'once' if onednn else 'zero times'}"
    tag = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True).stdout
    proved = re.search(r'"(manylinux_\w+)"', tag.replace("\n", " "))
    if proved is None or proved[1] not in wheel.name:
        yield f"auditwheel proves {proved and proved[1]}"


def wrong_cuda_wheel(wheel):
    """What is wrong with the wheel of tapegrad-cuda, which need not be there."""
    with zipfile.ZipFile(wheel) as archive:
        files = {info.filename: info.file_size for info in archive.infolist()}
        (metadata,) = (archive.read(name).decode() for name in files if name.endswith(".dist-info/METADATA"))
    if "-py3-none-manylinux" not in wheel.name:
        yield "its tag is not py3-none-manylinux"
    for line in (f"Requires-Dist: tapegrad=={version()}", *(f"Requires-Dist: {n}" for n in PYPROJECT["project"]["optional-dependencies"]["cuda"])):
        if line not in metadata:
            yield f"METADATA lacks '{line}'"
    outside = [name for name in files if ".dist-info/" not in name]
    if outside != ["tapegrad/lib/libtapegrad_cuda.so"]:
        yield f"it should hold libtapegrad_cuda.so alone: got {outside}"


def wrong_dist():
    wheels = list(DIST.glob("tapegrad-*.whl"))
    found = {wheel.name.split("-")[2] for wheel in wheels if not wheel.name.endswith("aarch64.whl")}
    for tag in wanted_tags():
        if tag not in found:
            yield f"dist/ has no wheel for {tag}: make wheel, with PYTHONS= where an interpreter is not found"
    for wheel in wheels:
        yield from (f"{wheel.name}: {text}" for text in wrong_wheel(wheel))
    for wheel in DIST.glob("tapegrad_cuda-*.whl"):
        yield from (f"{wheel.name}: {text}" for text in wrong_cuda_wheel(wheel))
    if not (DIST / f"tapegrad-{version()}.tar.gz").exists():
        yield "dist/ has no source distribution"
    elif (checked := subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *DIST.iterdir()], capture_output=True, text=True)).returncode:
        yield checked.stdout.strip()


def unclean():
    changed = subprocess.run(["git", "status", "--short"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    return [f"not committed: {line}" for line in changed]


def main():
    checks = {"version": wrong_versions, "links of documents": dead_links}
    if "--documents" not in sys.argv:
        tries = sorted((ROOT / "build-wheel/venvs").glob("*-try/bin/python"))
        examples = (lambda: unstarted_examples(tries[0])) if tries else (lambda: ["make wheel has not run"])
        checks |= {"examples start": examples, "dist/": wrong_dist, "checkout": unclean}
    failed = False
    for name, check in checks.items():
        found = list(check())
        failed |= bool(found)
        print(f"{name}: {'ok' if not found else ''}", *found, sep="\n  " if found else "")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
