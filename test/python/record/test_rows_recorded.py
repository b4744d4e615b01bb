"""Every row of the op table, recorded with the numbers of two seeds and replayed with those of others, over memory that was
overwritten: the bits are eager's."""

import pytest
from recorded import FORMS, ROWS, replays_of_row


@pytest.mark.parametrize("record", ROWS, ids=lambda r: r.name)
def test_replay_has_the_bits_of_eager(record):
    record_counts[record.name], _ = replays_of_row(record)


@pytest.mark.parametrize(("record", "form"), [pytest.param(r, form, id=f"{r.name}-{form}") for form, (has, _) in FORMS.items() for r in ROWS if has(r)])
def test_other_forms(record, form):
    record_counts[record.name, form], _ = replays_of_row(record, form=form)


record_counts: dict = {}


def test_most_rows_are_replayed():
    """Runs last: of the rows that this process has seen, nearly all were replayed."""
    if len(record_counts) < 100:
        pytest.skip("only some of the rows ran here")
    never = sorted(str(name) for name, count in record_counts.items() if count == 0)
    assert len(never) < 0.2 * len(record_counts), never
