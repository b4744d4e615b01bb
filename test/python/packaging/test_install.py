"""An installed tree: find_package(tapegrad) builds the C++ example against it, and the example learns."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tapegrad as tg

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(tg._C.__file__).resolve().parents[2]


def run(*command, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    if shutil.which("cmake") is None or not (BUILD / "cmake_install.cmake").exists():
        pytest.skip("not a build tree of CMake's")
    prefix = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", BUILD, "--prefix", prefix, timeout=120)
    return prefix


def test_the_tree_holds_library_headers_and_digits(installed):
    library = next(installed.glob("lib*/**/libtapegrad.so"))
    assert library.exists()
    for header in ("tapegrad.h", "aten/tensor.h", "aten/functions.h", "nn/layers.h", "nn/optim/optimizers.h"):
        assert (installed / "include/tapegrad" / header).exists(), header
    assert (installed / "share/tapegrad/mnist/t10k-images-idx3-ubyte.gz").exists()
    assert not list((installed / "include").rglob("*.cpp"))


def test_the_example_builds_against_it_and_learns(installed, tmp_path):
    cache = (BUILD / "CMakeCache.txt").read_text()
    compiler = re.search(r"^CMAKE_CXX_COMPILER:\w+=(.*)$", cache, re.M)[1]
    options = [f"-DCMAKE_PREFIX_PATH={installed}", f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_CXX_FLAGS=-O1"]
    run("cmake", "-S", ROOT / "examples/cpp", "-B", tmp_path, *options, timeout=120)
    run("cmake", "--build", tmp_path, timeout=280)
    environment = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    printed = run(tmp_path / "mnist", "--epochs", "1", env=environment, timeout=120)
    accuracy = re.fullmatch(r"held-out accuracy: (0\.\d{4})", printed.splitlines()[-1])
    assert accuracy and float(accuracy[1]) > 0.9
    model = tg.nn.Sequential(tg.nn.Linear(8, 16), tg.nn.Tanh(), tg.nn.Linear(16, 4))
    tg.export.save(tg.export.export(model, (tg.randn(3, 8),)), tmp_path / "model.pt2")
    printed = run(tmp_path / "serve", tmp_path / "model.pt2", "4", "50", env=environment, timeout=60)
    assert float(printed.split()[-1]) == pytest.approx(model(tg.ones(3, 8)).sum().item(), rel=1e-5)
