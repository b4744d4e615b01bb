"""The hidden Catch2 tests of test/cpp/nn/python_peer_test.cpp, run in a folder of files that both sides read and write."""

import os
import subprocess
from pathlib import Path

import pytest
import tapegrad as tg

PROGRAM = Path(tg._C.__file__).resolve().parents[2] / "tapegrad_tests"


def run_cpp(name: str, folder: Path) -> None:
    """Runs one hidden test case; it must pass."""
    if not PROGRAM.exists():
        pytest.skip("the C++ tests are not built")
    environment = {**os.environ, "TG_PEER_DIR": str(folder), "LD_LIBRARY_PATH": str(PROGRAM.parent / "lib")}  # it may have moved
    result = subprocess.run([str(PROGRAM), name], capture_output=True, text=True, timeout=120, env=environment)
    assert result.returncode == 0 and "All tests passed" in result.stdout, result.stdout[-3000:] + result.stderr[-2000:]


def equal(a, b) -> bool:
    """Equal bits, shape and dtype."""
    return a.dtype == b.dtype and a.shape == b.shape and tg.equal(a, b)
