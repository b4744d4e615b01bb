"""The quick part of the conformance runs: PyTorch's first samples of every operator against the stored numbers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
def test_no_number_falls():
    pytest.importorskip("torch", reason="the samples are PyTorch's")
    run = run_python("-m", "conformance", "--quick", "--check")
    assert run.returncode == 0, run.stderr[-2000:] + run.stdout[-4000:]


def run_python(*arguments):
    packages = Path(tapegrad._C.__file__).parents[1]
    environment = dict(os.environ, PYTHONPATH=f"{packages}:{ROOT / 'test'}")
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)


CRASHES = """
import os, signal, time
from conformance import pool
from conformance.compare import Failure, Skip

class Subject:
    def __init__(self, name): self.name = name
    def checks(self, limit):
        def crash(): os.kill(os.getpid(), signal.SIGSEGV)
        def differs(): raise Failure("differs")
        def skipped(): raise Skip("no")
        yield "good", lambda: None
        if self.name == "crashes": yield "crash", crash
        if self.name == "hangs": yield "hang", lambda: time.sleep(60)
        yield "differs", differs
        yield "skipped", skipped
        yield "good again", lambda: None

pool.CHECK_SECONDS = 1
names = ["fine", "crashes", "hangs"]
for r in pool.run([("operator", n) for n in names], lambda kind, name: Subject(name), 2):
    print(r.name, r.passed, r.total, r.failures, r.crashes)
"""


def test_crashes_and_endless_calls_are_recorded():
    pytest.importorskip("torch", reason="the runner compares with it")
    run = run_python("-c", CRASHES)
    assert run.stdout.splitlines() == [
        "fine 2 3 [['differs', 'differs']] []",
        "crashes 2 4 [['differs', 'differs']] [['crash', 'crash: SIGSEGV']]",
        "hangs 2 4 [['differs', 'differs']] [['hang', 'no end within 1 s']]",
    ], run.stderr


COMPARISON = """
import tapegrad, torch
from conformance.compare import Failure, compare
from conformance.translate import convert

base = torch.arange(24.0)
view = base.as_strided((3, 2), (2, 5), 4)
mine, again = convert([view, base])
assert mine.stride() == (2, 5) and mine.storage_offset() == 4
assert mine.untyped_storage().data_ptr() == again.untyped_storage().data_ptr()
compare(mine, view)
for wrong in (mine + 1, mine.double(), mine[:2], [mine], mine.bfloat16() + 1):
    try:
        compare(wrong, view)
    except Failure as error:
        print(str(error).split(",")[0])
compare(convert(torch.tensor([1.5, 2.5]).bfloat16()), torch.tensor([1.5, 2.5]).bfloat16())
"""


def test_comparison_sees_values_dtypes_and_shapes():
    pytest.importorskip("torch", reason="the runner compares with it")
    run = run_python("-c", COMPARISON)
    assert run.stdout.splitlines() == [
        "6 of 6 values differ", "dtype float64", "shape (2", "a list instead of a tensor", "dtype bfloat16",
    ], run.stderr  # fmt: skip
