"""No input ends the process: random calls with odd arguments, each batch in a child process (odd_arguments.py)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))

from child import run_child  # noqa: E402

PROGRAM = Path(__file__).with_name("odd_arguments.py")


@pytest.mark.parametrize("seed", range(6))
def test_random_calls(seed):
    child = run_child(PROGRAM, [seed, 2500], seconds=280, memory=8 << 30)
    assert child.status == 0, f"exit status {child.status} in {child.last}\n{child.output[-2000:]}\n{child.errors[-3000:]}"
    assert "no message" not in child.output, child.output[-2000:]
