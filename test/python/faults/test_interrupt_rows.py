"""Ctrl-C ends every row of the op table, whatever grows: each size of each row's samples grows until the row runs so long that
it can be interrupted, or its operands have TAPEGRAD_INTERRUPT_ELEMENTS. An hour and more, so only where TAPEGRAD_INTERRUPT_ROWS
asks for it (1, or names of rows with commas)."""

import json
import os
import resource

import interrupts
import pytest
import rows

WANTED = os.environ.get("TAPEGRAD_INTERRUPT_ROWS", "")
RECORDS = [r for r in rows.load_records() if r.samples and (WANTED == "1" or r.name in WANTED.split(","))]
LIMIT = 0.2  # seconds, per thread at work
MEMORY = 6 << 30


def in_a_child(function):
    """function() in a forked process of limited memory, whose results are plain data."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            os.write(there, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(there)
    with open(here, "rb") as file:
        data = file.read()
    os.waitpid(child, 0)
    assert data, "the process has ended without an answer"
    return json.loads(data)


@pytest.mark.skipif(not WANTED, reason="takes an hour: TAPEGRAD_INTERRUPT_ROWS=1 asks for it")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.name)
def test_every_row(record):
    found = in_a_child(lambda: list(interrupts.latenesses(record)))
    late = [(what, seconds) for what, seconds in found if seconds is not None and seconds > LIMIT * rows.tapegrad.get_num_threads()]
    assert not late
