"""What stood in the way of other people's programs and test suites (clauses.py), on PyTorch and here: the same results and classes of errors."""

import json
import pathlib
import re

import pytest
from programs import run

PROGRAM = pathlib.Path(__file__).with_name("clauses.py")
NAMES = re.findall(r"^@clause\ndef (\w+)", PROGRAM.read_text(), re.M)


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("torch")
    return [dict(map(json.loads, run(*how, str(PROGRAM)).splitlines())) for how in ((), ("-m", "tapegrad"))]


@pytest.mark.parametrize("name", NAMES)
def test_a_clause(found, name):
    theirs, mine = found
    assert mine[name] == theirs[name]
    assert not isinstance(theirs[name], str), theirs[name]  # it ran there
