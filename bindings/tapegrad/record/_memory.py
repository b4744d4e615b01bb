"""Memory budgets of recorded steps."""

from __future__ import annotations

import re

_UNITS = {unit: factor**power for factor, names in ((1024, "KiB MiB GiB TiB"), (1000, "kB MB GB TB")) for power, unit in enumerate(names.split(), 1)}
_UNITS.update({"": 1, "B": 1, "KB": 1000})

default_budget: list = [None]  # of functions that were given none


def parse_budget(budget) -> int | float | None:
    """Bytes as an integer, a share as a float, None for no budget. Raises TypeError and ValueError for what is neither."""
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, (int, float, str)):
        raise TypeError(f"record: a memory budget is a number of bytes, a share or a text: got {type(budget).__name__}")
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%|[a-zA-Z]*)\s*", budget)
        if found is None or found[2] != "%" and found[2] not in _UNITS:
            raise ValueError(f"record: a memory budget is written like '4 GiB', '500 MB' or '60 %': got {budget!r}")
        budget = float(found[1]) / 100 if found[2] == "%" else int(float(found[1]) * _UNITS[found[2]])
    if isinstance(budget, float) and not 0 < budget <= 1:
        raise ValueError(f"record: a memory budget that is a share lies between 0 and 1: got {budget}")
    if isinstance(budget, int) and not 0 < budget < 2**63:
        raise ValueError(f"record: a memory budget is a positive number of bytes: got {budget}")
    return budget


def in_bytes(budget: int | float | None) -> tuple[int, float]:
    """As the native side takes it: bytes and a share, one of them 0."""
    return (0, budget) if isinstance(budget, float) else (budget or 0, 0.0)


def memory(budget=None) -> int | float | None:
    """Sets the budget of all recorded functions that were given none, for plans that are made from now on; None: no budget.
    Returns the former one."""
    before, default_budget[0] = default_budget[0], parse_budget(budget)
    return before
