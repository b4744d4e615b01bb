"""Broken calls of every operator of the table: no crash, typed refusals, memory given back (test/fuzz does the work)."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fuzz"))

import pool  # noqa: E402

CALLS = 200
GROUPS = 12


@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", range(GROUPS))
def test_broken_calls(group):
    names = pool.operators()[group::GROUPS]
    outcome = pool.run_worker(seed=20, calls=CALLS, names=names, seconds=600)
    assert not outcome.findings, "\n".join(outcome.findings)
    assert outcome.calls == CALLS * len(names)
