"""test_operators.py and test_device_*.py on the simulated device, in processes of their own: the CUDA library is loaded once per process."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad

LIBRARIES = [Path(tapegrad._C.__file__).parent / "lib", Path(tapegrad._C.__file__).parents[2] / "lib"]


@pytest.mark.skipif(not any((folder / "libtapegrad_cuda_sim.so").exists() for folder in LIBRARIES), reason="the simulated device was not built")
@pytest.mark.timeout(650)  # two minutes on an idle machine
@pytest.mark.parametrize("part, devices", [("test_values", 2), ("not test_values", 2), ("not test_values", 1)])
def test_operators_on_the_simulated_device(part, devices):
    """On two devices and on one, as machines have one or several."""
    here = Path(__file__).parent
    files = [here / "test_operators.py", *(sorted(here.glob("test_device_*.py")) if part != "test_values" else [])]
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(Path(__file__).parents[1])])
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", part,
                           *map(str, files)],
                          env={**os.environ, "TAPEGRAD_CUDA_SIMULATE": str(devices), "TAPEGRAD_CUDA_SIMULATE_MEMORY": "512", "PYTHONPATH": path}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 5


def test_a_process_whose_device_has_failed_is_replaced(tmp_path):
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text("""
import os
import tapegrad

def broken():
    raise RuntimeError("an illegal address was encountered")

def test_a_breaks():
    tapegrad.cuda.synchronize = broken
    assert os.getpid() == 0

def test_b_goes_on():
    assert tapegrad.cuda.synchronize is not broken
""")
    run = subprocess.run([sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-rA", str(tmp_path)], capture_output=True, text=True,
                         env={**os.environ, "TAPEGRAD_GPU": "1", "COLUMNS": "200", "PYTHONPATH": str(Path(tapegrad.__file__).parent.parent)}, timeout=120, cwd=tmp_path)
    assert "PASSED test_it.py::test_b_goes_on" in run.stdout and "FAILED test_it.py::test_a_breaks - assert" in run.stdout, run.stdout + run.stderr
    assert "crashed while running" in run.stdout and "2 failed, 1 passed" in run.stdout
