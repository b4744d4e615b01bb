"""A run that is killed with SIGKILL at random moments and resumed ends with the bits of the run that was not."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("killed_run.py")
EPOCHS = 6


def script():
    spec = importlib.util.spec_from_file_location("killed_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The hash of the whole run, and the seconds that it took."""
    begin = time.monotonic()
    return script().main(str(tmp_path_factory.mktemp("whole")), EPOCHS, lambda text: None), time.monotonic() - begin


def start(folder):
    child = subprocess.Popen([sys.executable, str(SCRIPT), str(folder), str(EPOCHS)], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert child.stdout.readline().startswith("at ")
    return child


def test_a_process_is_killed_and_resumed(tmp_path, uninterrupted):
    rng = np.random.default_rng(1)
    for _ in range(2):
        child = start(tmp_path)
        time.sleep(0.05 + 0.1 * rng.random())
        child.kill()
        child.wait()
        child.stdout.close()
    child = start(tmp_path)
    # Not communicate(timeout=...): it reads the descriptor, past what readline has left in the buffer of the stream.
    with child.stdout:
        out = child.stdout.read()
    assert (child.wait(), out.split()) == (0, ["done", uninterrupted[0]])


def test_forty_kills(tmp_path, uninterrupted):
    """Forked copies of this process make many kills cheap."""
    module, rng, steps = script(), np.random.default_rng(2), set()
    for _ in range(40):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                module.main(str(tmp_path), EPOCHS, lambda text: os.write(write, text.encode() + b"\n"))
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as answers:
            steps.add(int(answers.readline().split()[1]))
            time.sleep(0.2 * uninterrupted[1] * rng.random())
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert len(steps) > 3, f"the kills came at the same steps: {steps}"
    assert module.main(str(tmp_path), EPOCHS, lambda text: None) == uninterrupted[0]
    assert len([f for f in os.listdir(tmp_path) if f.endswith(".tape")]) == 3
