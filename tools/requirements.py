"""Prints what pip must install for groups named on the command line: "build", or an extra of pyproject.toml.

With --all also what this machine would have already.

pyproject.toml is the only list of packages; this reads it without building the project.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10: pip carries the same parser
    from pip._vendor import tomli as tomllib

PYPROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())


# Packages that hold CUDA's compiler and its headers.
COMPILER = ("nvidia-cuda-", "nvidia-nvvm", "nvidia-nvtx")


def has_nvcc():
    """Whether nvcc of CUDA 13 is installed, where the build looks for it (cmake/TapegradCuda.cmake)."""
    places = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    return any(version_of(p)[0] == 13 for p in ["nvcc", *(f"{place}/bin/nvcc" for place in places if place)])


def version_of(tool):
    """The version of a program on the path as a tuple; (0, 0) where it is absent or does not start."""
    if not shutil.which(tool):
        return 0, 0
    run = subprocess.run([tool, "--version"], capture_output=True, text=True)
    found = re.search(r"release (\d+)\.(\d+)", run.stdout) or re.search(r"(\d+)\.(\d+)", run.stdout)
    return tuple(map(int, found.groups())) if run.returncode == 0 and found else (0, 0)


def build_requirements(everything=False):
    yield from PYPROJECT["build-system"]["requires"]
    yield from PYPROJECT["project"]["dependencies"]
    for tool, least in (("cmake", (3, 24)), ("ninja", (1, 10))):
        if everything or version_of(tool) < least:
            yield tool


def extra_requirements(extra, everything=False):
    for requirement in PYPROJECT["project"]["optional-dependencies"][extra]:
        own = re.fullmatch(r"tapegrad\[(.*)\]", requirement)
        if requirement.startswith(COMPILER) and has_nvcc() and not everything:
            continue
        if own:
            for other in own.group(1).split(","):
                yield from extra_requirements(other, everything)
        else:
            yield requirement


if __name__ == "__main__":
    everything = "--all" in sys.argv  # whatever is installed here: for another machine
    for group in sys.argv[1:]:
        if group != "--all":
            print("\n".join(build_requirements(everything) if group == "build" else extra_requirements(group, everything)))
