"""The wheel of tapegrad-cuda: libtapegrad_cuda.so beside the libraries of tapegrad, and NVIDIA's packages as what it needs.

usage: wheel_cuda.py     after make wheel (tools/wheel.py), whose sources and interpreter it takes

One wheel is for every interpreter: the library knows nothing of Python. It goes into tapegrad's own folder, where the first call that
needs a device looks for it (c10/device/device_interface.cpp), and is for that version of tapegrad alone. It is then tried in an empty
virtual environment without NVIDIA's packages, of which each is opened when an operator first needs it: on a machine without a card the
package must import, and say that there is no device.
"""

import os
import re
import shutil
import sys
import time

from release_check import version
from requirements import PYPROJECT
from wheel import DIST, ROOT, WORK, build, environment, interpreters, run

LIBRARY = "tapegrad/lib/libtapegrad_cuda.so"
# What libtapegrad has loaded, and NVIDIA's driver.
LOADED = ("libtapegrad.so", "libfmt.so.9", "libgomp.so.1", "libcuda.so.1")
TRY = """
import tapegrad as tg
from tapegrad import _C
assert "libtapegrad_cuda" not in open("/proc/self/maps").read()
assert not tg.cuda.is_available() and tg.cuda.device_count() == 0
try:
    tg.zeros(1).cuda()
except RuntimeError as error:
    print(error)
assert "libtapegrad_cuda" in open("/proc/self/maps").read()
"""


def metadata():
    project = PYPROJECT["project"]
    needed = [f"tapegrad=={version()}", *project["optional-dependencies"]["cuda"]]
    return "\n".join(["Metadata-Version: 2.4", "Name: tapegrad-cuda", f"Version: {version()}", "Summary: The CUDA library of tapegrad",
                      f"Author: {project['authors'][0]['name']}", f"License-Expression: {project['license']}", "License-File: LICENSE",
                      f"Requires-Python: {project['requires-python']}", *(f"Requires-Dist: {n}" for n in needed),
                      "Description-Content-Type: text/markdown", "",
                      "Tensors on NVIDIA's GPUs for [tapegrad](https://pypi.org/project/tapegrad/): install it beside that package, of the same version.", ""])


def packed(raw):
    """The CUDA wheel out of a whole one."""
    shutil.rmtree(WORK / "unpacked", ignore_errors=True)
    run(sys.executable, "-m", "wheel", "unpack", "-d", WORK / "unpacked", raw)
    (whole,) = (WORK / "unpacked").iterdir()
    tree = WORK / "cuda" / f"tapegrad_cuda-{version()}"
    shutil.rmtree(tree.parent, ignore_errors=True)
    info = tree / f"tapegrad_cuda-{version()}.dist-info"
    (info / "licenses").mkdir(parents=True)
    (tree / LIBRARY).parent.mkdir(parents=True)
    shutil.copy(whole / LIBRARY, tree / LIBRARY)
    shutil.copy(ROOT / "LICENSE", info / "licenses/LICENSE")
    (info / "METADATA").write_text(metadata())
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nGenerator: tapegrad\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n")
    run(sys.executable, "-m", "wheel", "pack", "-d", tree.parent, tree)
    return next(tree.parent.glob("*.whl"))


def tried(python, wheel):
    """What it says in an empty environment on a machine without a card."""
    name = "cuda-try"
    inside = environment(python, name)
    run(inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--find-links", DIST, "tapegrad")
    run(inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", wheel)
    alone = {"PATH": str(inside.parent), "HOME": str(WORK), "LANG": "C.UTF-8"}
    said = run(inside, "-c", TRY, cwd=WORK, env=alone).strip().splitlines()
    run(inside, "-m", "pip", "uninstall", "-q", "-y", "tapegrad-cuda")  # takes its own file and leaves tapegrad whole
    run(inside, "-c", "import tapegrad as tg; assert tg.ones(2).sum().item() == 2", cwd=WORK, env=alone)
    return said[0] if said else "a device is there"


def main():
    tree = WORK / f"tapegrad-{version()}"
    if not tree.exists() or not list(DIST.glob("tapegrad-*.whl")):
        raise SystemExit("make wheel comes first")
    _, python = interpreters(os.environ.get("PYTHONS", "").split())[-1]
    start = time.perf_counter()
    raw = build(python, tree, "cuda", CUDA="ON", TG_WARNINGS_AS_ERRORS="ON")
    wheel = packed(raw)
    for old in DIST.glob("tapegrad_cuda-*.whl"):
        old.unlink()
    run(sys.executable, "-m", "auditwheel", "repair", "-w", DIST, wheel, *(f"--exclude={library}" for library in LOADED))
    (wheel,) = DIST.glob("tapegrad_cuda-*.whl")
    paths = re.search(r"\[(.*)\]", run("readelf", "-d", WORK / "cuda" / f"tapegrad_cuda-{version()}" / LIBRARY).split("RUNPATH", 1)[1])[1]
    if any(not path.startswith("$ORIGIN") for path in paths.split(":")):
        raise SystemExit(f"{wheel.name}: the run path names folders of this machine: {paths}")
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB, built in {time.perf_counter() - start:.0f} s", flush=True)
    print(f"  without a card: {tried(python, wheel)}", flush=True)


if __name__ == "__main__":
    main()
