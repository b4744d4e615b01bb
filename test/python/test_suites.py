"""The comparison of other people's test suites (test/suites): a small suite, run as the real ones are."""

import argparse
import sys

import pytest
from suites import compare, page, run

TESTS = """
import torch

def test_both():
    assert torch.ones(3).sum() == 3

def test_here_alone():
    assert "tapegrad" in torch.__version__

class TestOf:
    def test_torch_alone(self):
        assert torch.__version__ == "2.13.0+cpu", f"it is {torch.__version__}"

    def test_apart(self):
        assert "tapegrad" not in torch.__version__
"""


SEEDED = """
import pathlib
import torch

HERE = pathlib.Path(__file__).parent

def test_passes():
    with open(HERE / "runs", "a") as runs:
        runs.write("+")

def test_numbers():
    torch.manual_seed(3)
    assert abs(torch.rand(1).item() - 0.0043) < 1e-4, "other numbers"

def test_mended():
    assert "tapegrad" not in torch.__version__ or (HERE / "mended").exists()
"""


def test_rows_take_what_another_says(tmp_path, monkeypatch):
    table = tmp_path / "suites.toml"
    table.write_text('''
[first]
source = "somewhere"
commit = "abc"
tests = ["one"]
seconds = 7
[first.apart]
one = "a reason"
[second]
like = "first"
tests = ["two"]
[third]
like = "second"
seconds = 8
''')
    monkeypatch.setattr(run, "_TABLE", table)
    first, second, third = run.suites().values()
    assert (first.seconds, first.apart, first.tests) == (7, {"one": "a reason"}, ["one"])
    assert (second.source, second.seconds, second.apart, second.tests) == ("somewhere", 7, {}, ["two"])
    assert (third.commit, third.seconds, third.tests, third.name) == ("abc", 8, ["two"], "third")


@pytest.fixture
def small(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "test_small.py").write_text(TESTS)
    (tmp_path / "small" / "test_stopped.py").write_text("import torch\nassert not hasattr(torch, 'tapegrad') and '+cpu' in torch.__version__\ndef test_it(): pass\n")
    suite = run.Suite("small", "nowhere", "0" * 40, ["."], apart={"test_apart": "a reason"})
    options = argparse.Namespace(folder=tmp_path, python=sys.executable, package=None, results=tmp_path / "results", jobs=1, fresh=False, select=None, again=False)
    return suite, options


def test_what_passes_on_torch_alone_is_found_by_cause(small, tmp_path):
    suite, options = small
    result = compare.difference(suite, *(run.outcomes(suite, library, options) for library in run.LIBRARIES))
    assert (result.counted, result.apart, result.lost, result.gained) == (3, 1, 2, 1)
    assert {cause.split(":")[0]: tests for cause, tests in result.causes.items()} == {
        "AssertionError": ["test_small.TestOf::test_torch_alone"], "not collected": ["test_stopped::test_it"]}  # fmt: skip
    assert "1 of 3 that pass on torch pass here" in compare.text(result, 5)

    document = tmp_path / "page.md"
    document.write_text("before\n<!-- suites: begin -->\n| suite |\n| --- |\n| other | kept |\n<!-- suites: end -->\nafter\n")
    page.write(document, options.results, {"small": suite, "other": suite})
    assert "| other | kept |" in document.read_text() and "| small | nowhere | 0000000000 | 3 (1 apart) | 1 | 33.3 |" in document.read_text()
    assert document.read_text().startswith("before\n") and document.read_text().endswith("\nafter\n")


def test_what_was_lost_runs_again_alone_and_with_other_seeds(small, tmp_path):
    suite, options = small
    (tmp_path / "small" / "test_small.py").write_text(SEEDED)
    (tmp_path / "small" / "test_stopped.py").unlink()
    torch = run.outcomes(suite, "torch", options)
    lost = compare.difference(suite, torch, run.outcomes(suite, "tapegrad", options))
    assert (lost.counted, lost.lost) == (3, 2) and (tmp_path / "small" / "runs").read_text() == "++"
    options.seeds = 2
    assert compare.seeds(suite, lost, options).splitlines() == ["  1 of these fail on torch with other seeds:", "    2 of 2: test_small::test_numbers"]

    (tmp_path / "small" / "mended").touch()
    options.again = True
    assert compare.difference(suite, torch, run.outcomes(suite, "tapegrad", options)).causes == {"AssertionError: other numbers": ["test_small::test_numbers"]}
    assert (tmp_path / "small" / "runs").read_text() == "++"  # what had passed did not run again


def test_a_suite_that_cannot_be_started_says_why(small):
    suite, options = small
    suite.arguments = ["--no-such-option"]
    assert "no-such-option" in run.outcomes(suite, "tapegrad", options).ended


def test_the_table_names_each_suite_once():
    suites = run.suites()
    assert all(len(s.commit) == 40 and s.tests and s.source.startswith("https://") for s in suites.values())


ASKS_ITSELF = """
import unittest

class Base(unittest.TestCase):
    def setUp(self):
        super(self.__class__, self).setUp()

class TestOfDevice(Base):
    def test_it(self):
        pass

del Base
"""


def test_set_up_that_asks_the_class_of_self(small, tmp_path):
    suite, options = small
    for file in (tmp_path / "small").iterdir():
        file.unlink()
    (tmp_path / "small" / "test_itself.py").write_text(ASKS_ITSELF)
    assert "RecursionError" in run.outcomes(suite, "tapegrad", options).others["test_itself.TestOfDevice::test_it"][1]
    suite.arguments = ["-p", "suites.class_of_self"]
    for library in run.LIBRARIES:
        assert run.outcomes(suite, library, options).passed == ["test_itself.TestOfDevice::test_it"]
