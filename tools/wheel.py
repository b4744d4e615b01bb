"""Builds wheels of tapegrad for every CPython on this machine, and the source distribution that they are built from, into dist/.

usage: wheel.py [PYTHON...]     default: $PYTHONS, else each CPython from 3.10 on that is found (the newest of each minor version)

libtapegrad is compiled once and the bindings once per interpreter, in one build folder. What a system may lack (SLEEF, fmt, libgomp) goes
into the wheel, and auditwheel gives it the oldest tag that the symbols allow. Each wheel is then tried in an empty virtual
environment, without a compiler and away from this checkout. The engines of gloo and MPI are left out: what they link to asks for a
newer C++ library, and an MPI must be the machine's own.

With TG_SYSROOT, a folder of tools/sysroot.sh: one wheel for aarch64 and for the Python in that folder, by the cross compiler. What is of
aarch64 runs under qemu, pip and the tests included.
"""

import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from requirements import PYPROJECT

ROOT = Path(__file__).resolve().parent.parent
SYSROOT = Path(os.environ["TG_SYSROOT"]).resolve() if os.environ.get("TG_SYSROOT") else None
WORK = SYSROOT.parent / "wheel" if SYSROOT else ROOT / "build-wheel"
DIST = ROOT / "dist"
OLDEST = (3, 10)
# What every Linux of the tag has; auditwheel would refuse a newer symbol of these.
EVERYWHERE = ("ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libgcc_s.so", "libstdc++.so", "libz.so")
ASK = "import sys, sysconfig, os; v = sys.version_info; print(sys.implementation.name, v[0], v[1], v[2], int(os.path.exists(" \
      "os.path.join(sysconfig.get_path('include'), 'Python.h'))))"


def run(*command, **options):
    """Runs a program quietly; what it printed is shown where it fails."""
    finished = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if finished.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{finished.stdout[-6000:]}{finished.stderr[-6000:]}\nfailed with {finished.returncode}")
    return finished.stdout


def describe(python):
    """(name, major, minor, micro, has headers) of an interpreter; None where it does not start."""
    try:
        answer = subprocess.run([python, "-c", ASK], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    name, *numbers = answer.stdout.split() or [""]
    return (name, *map(int, numbers)) if len(numbers) == 4 else None


def interpreters(named):
    """(version, path) of what is to be built for."""
    places = named or [*(shutil.which(f"python3.{minor}") or "" for minor in range(OLDEST[1], OLDEST[1] + 10)), "/usr/bin/python3",
                       *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3")), *glob.glob("/opt/python/cp*/bin/python")]
    found = {}
    for place in filter(None, places):
        about = describe(place)
        if about is None or about[0] != "cpython" or about[1:3] < OLDEST or not about[4]:
            if named:
                raise SystemExit(f"{place}: not a CPython of {OLDEST[0]}.{OLDEST[1]} or newer with its headers")
            continue
        if named or f"Programming Language :: Python :: {about[1]}.{about[2]}" in PYPROJECT["project"]["classifiers"]:
            found[about[1:3]] = max(found.get(about[1:3], ((), "")), (about[1:4], place))
    return sorted(found.values())


def environment(python, name, *packages):
    """An empty virtual environment with packages in it; its interpreter."""
    folder = WORK / "venvs" / name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    if packages:
        run(folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
    return folder / "bin/python"


def source():
    """The source distribution in dist/, unpacked where wheels are built from it."""
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", DIST, ROOT)
    (archive,) = DIST.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(WORK, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return archive, WORK / archive.name.removesuffix(".tar.gz")


def build(python, tree, name, **more):
    """The wheel as scikit-build-core makes it. NumPy is the interpreter's, OpenBLAS and oneDNN are this one's for all. more: defines."""
    ours = [r for r in PYPROJECT["build-system"]["requires"] if re.match("scikit|numpy|tomli|scipy" if SYSROOT else "scikit|numpy|tomli", r)]
    inside = environment(python, name, "pip>=23.1", *ours)  # the first pip with -C
    shutil.rmtree(WORK / "raw", ignore_errors=True)
    defines = {"TG_LIBRARIES_PYTHON": inside if SYSROOT else sys.executable, "CMAKE_DISABLE_FIND_PACKAGE_MPI": "ON",
               "CMAKE_DISABLE_FIND_PACKAGE_Gloo": "ON", **more}
    if SYSROOT:
        defines |= {"CMAKE_TOOLCHAIN_FILE": ROOT / "cmake/aarch64-linux-gnu.cmake", "TG_SYSROOT": SYSROOT}
    run(inside, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "-w", WORK / "raw", tree,
        *(f"-Ccmake.define.{key}={value}" for key, value in defines.items()))
    return next((WORK / "raw").glob("*.whl"))


def loaded_by(library):
    """(name, path) of what the dynamic linker finds for a library."""
    ldd = ("qemu-aarch64-static", "-L", SYSROOT, SYSROOT / "lib/ld-linux-aarch64.so.1", "--list") if SYSROOT else ("ldd",)
    return re.findall(r"(\S+) => (/\S+) ", run(*ldd, library))


def licence_of(library):
    """Debian's copyright file of the package that a library came from."""
    if SYSROOT:
        of = dict(reversed(line.split(": ", 1)) for line in (SYSROOT.parent / "packages").read_text().splitlines())
        return SYSROOT / "usr/share/doc" / of[f"/{Path(f'{SYSROOT}{library}').resolve().relative_to(SYSROOT)}"] / "copyright"
    for path in {str(library), str(library).removeprefix("/usr"), f"/usr{library}", str(Path(library).resolve())}:
        answer = subprocess.run(["dpkg", "-S", path], capture_output=True, text=True).stdout
        if answer:
            return Path("/usr/share/doc") / answer.split(":")[0] / "copyright"
    raise SystemExit(f"{library}: no licence found for it: dpkg -S knows no package")


def completed(wheel):
    """The wheel with the libraries that a system may lack and their licences, and the names of these libraries.

    They keep their names: auditwheel gives others, and patchelf then makes libtapegrad and oneDNN 5 MB larger (measured 2026-11-26).
    libtapegrad finds them beside itself, and oneDNN finds libgomp loaded.
    """
    folder = WORK / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "wheel", "unpack", "-d", folder, wheel)
    (tree,) = folder.iterdir()
    (licences,), place = tree.glob("*.dist-info/licenses"), tree / "tapegrad/lib"
    loaded = loaded_by(place / "libtapegrad.so")
    names = [name for name, path in loaded if not name.startswith(EVERYWHERE) and not Path(path).is_relative_to(tree)]
    for name, path in loaded:
        if name in names:
            shutil.copy(f"{SYSROOT or ''}{path}", place / name)
            shutil.copy(licence_of(path), licences / f"{name.split('.so')[0]}.txt")
    for header, name in (("nlohmann/json.hpp", "nlohmann-json"), *((("xbyak/xbyak.h", "xbyak"),) if not SYSROOT else ())):  # compiled into libtapegrad
        shutil.copy(licence_of(f"/usr/include/{header}"), licences / f"{name}.txt")
    for text in (place / "onednn").glob("*"):
        text.rename(licences / f"onednn-{text.name}")
    wheel.unlink()
    run(sys.executable, "-m", "wheel", "pack", "-d", wheel.parent, tree)
    return names


def tried(python, wheel, name, types):
    """The wheel in an empty environment: no compiler on the path, nothing of this checkout in sight. types: with the type checkers."""
    more = [r for r in PYPROJECT["project"]["optional-dependencies"]["test"] if re.match("mypy|pyright|nodejs", r)] + ["jedi"] if types else []
    inside = environment(python, f"{name}-try", f"{wheel}[demo]", "pytest", "pytest-timeout", "hypothesis", *more)
    place = WORK / "try"
    shutil.rmtree(place, ignore_errors=True)
    for folder in ("examples", "test"):
        shutil.copytree(ROOT / folder, place / folder, ignore=shutil.ignore_patterns("__pycache__", "cpp"))
    alone = {"PATH": str(inside.parent), "HOME": str(place), "LANG": "C.UTF-8"}
    printed = run(inside, "-c", "import tapegrad as tg; print(tg.__version__, tg.__file__)", cwd=place, env=alone)
    assert str(inside.parent.parent) in printed, printed
    chosen = [place / "test/python/packaging/test_types.py"] if types else []
    chosen += sorted({p for p in (place / "test/python").rglob("test_*.py") if "mark.smoke" in p.read_text()})
    (place / "pytest.ini").write_text("[pytest]\npythonpath = test/python test\nmarkers = smoke\n    long\n    types\n")
    tests = run(inside, "-m", "pytest", "-q", "-m", "smoke or types", "--import-mode=importlib", *chosen, cwd=place, env=alone)
    (example,) = re.findall(r"## Thirty lines\n\n```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    lines = run(inside, "-c", example, cwd=place, env=alone)
    if float(lines.split()[-1]) < 0.9:
        raise SystemExit(f"{wheel.name}: the thirty lines of README.md do not learn: {lines.strip()}")
    said = f"{tests.strip().splitlines()[-1]}; the thirty lines of README.md: {lines.strip()}"
    if SYSROOT:  # under qemu the demo takes too long
        return said
    demo = run(inside, "examples/mnist.py", "--epochs", "1", "--quiet", cwd=place, env=alone)
    return f"{said}; the demo after one epoch: {demo.strip().splitlines()[-1]}"


def main():
    pythons = interpreters([SYSROOT / "usr/bin/python3.11"] if SYSROOT else sys.argv[1:] or os.environ.get("PYTHONS", "").split())
    if not pythons:
        raise SystemExit("no CPython of 3.10 or newer with its headers was found; name some with PYTHONS=")
    shutil.rmtree(WORK, ignore_errors=True)
    for old in DIST.glob("*aarch64.whl" if SYSROOT else "*"):
        old.unlink()
    for folder in (WORK, DIST):
        folder.mkdir(exist_ok=True)
    archive, tree = source()
    print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size / 1e6:.1f} MB", flush=True)
    for version, python in pythons:  # the type checkers look at the last one
        start, name = time.perf_counter(), f"cp{version[0]}{version[1]}"
        raw = build(python, tree, name)
        libraries = completed(raw)
        run(sys.executable, "-m", "auditwheel", "repair", "-w", DIST, raw, *(f"--exclude={library}" for library in libraries))
        (wheel,) = DIST.glob(f"*-{name}-*{'aarch64' if SYSROOT else platform.machine()}.whl")
        built = time.perf_counter() - start
        print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB, built in {built:.0f} s", flush=True)
        print(f"  {tried(python, wheel, name, version == pythons[-1][0] and not SYSROOT)}", flush=True)


if __name__ == "__main__":
    main()
