"""A pytest plugin (-p suites.chosen): runs only the tests that a file names, and with other seeds where that is asked.

The file SUITES_CHOSEN names one test a line, as the JUnit report does. SUITES_SEED is added to every seed that the suite gives to torch, and
torch starts from it: what passes with PyTorch's own numbers alone fails on PyTorch then, too.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from _pytest.junitxml import mangle_test_address


def pytest_configure(config):
    shift = int(os.environ.get("SUITES_SEED", "0"))
    if not shift:
        return
    import torch

    seed_with = torch.manual_seed

    @functools.wraps(seed_with)
    def shifted(seed):
        return seed_with(int(seed) + shift)

    torch.manual_seed = torch.random.manual_seed = shifted
    shifted(0)


def pytest_collection_modifyitems(config, items):
    chosen = set(Path(os.environ["SUITES_CHOSEN"]).read_text().splitlines())

    def name(item) -> str:
        *classes, test = mangle_test_address(item.nodeid)
        return f"{'.'.join(classes)}::{test}".strip(":")

    other = [item for item in items if name(item) not in chosen]
    items[:] = [item for item in items if name(item) in chosen]
    config.hook.pytest_deselected(items=other)
