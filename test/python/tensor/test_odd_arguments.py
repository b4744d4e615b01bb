"""No input ends the process: random calls with odd arguments, each batch in a child process (odd_arguments.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad as tg

PROGRAM = Path(__file__).with_name("odd_arguments.py")


@pytest.mark.parametrize("seed", range(6))
def test_random_calls(seed, tmp_path):
    last = tmp_path / "last"
    last.write_bytes(b" " * 2000)
    search = os.pathsep.join([str(Path(tg.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    limit = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)); sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    child = subprocess.run([sys.executable, "-X", "faulthandler", "-c", limit, str(PROGRAM), str(seed), "2500"], capture_output=True, text=True, timeout=280,
                           env={**os.environ, "TG_LAST_CALL": str(last), "PYTHONPATH": search}, cwd=tmp_path)
    where = last.read_text(errors="replace").strip()
    assert child.returncode == 0, f"exit status {child.returncode} in {where}\n{child.stdout[-2000:]}\n{child.stderr[-3000:]}"
    assert "no message" not in child.stdout, child.stdout[-2000:]
