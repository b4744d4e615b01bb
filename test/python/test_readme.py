"""The README as a new user takes it: its program runs, and what it names is there."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text()


def test_program_learns(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    script = tmp_path / "readme.py"
    script.write_text(code)
    finished = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert finished.returncode == 0, finished.stderr
    accuracy = float(re.search(r"accuracy ([\d.]+)", finished.stdout).group(1))
    assert accuracy > 0.95, finished.stdout


def test_files_and_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"\bmake ([\w-]+)", TEXT):
        assert re.search(rf"^{target}:", makefile, re.M) or target in ("and",), target
    named = re.findall(r"\]\(([\w./-]+)\)", TEXT) + re.findall(r"`((?:examples|docs)/[\w./-]+)`", TEXT)
    assert named
    for name in named:
        assert (ROOT / name).exists(), name
