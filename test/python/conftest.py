"""What every test shares."""

import os
import sys
from pathlib import Path

import pytest
import tapegrad

# Programs that tests start find the package that the tests themselves import.
_package = str(Path(tapegrad._C.__file__).absolute().parent.parent)
os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (_package, os.environ.get("PYTHONPATH")) if p)


# Under TAPEGRAD_RECORD=1 modules are compiled: what compile() refuses or changes as PyTorch does is not asked for.
_NOT_COMPILED = {"test_edges.py::test_layers": "gradients of gradients through a compiled module are refused",
                 "freed_without_the_collector": "a compiled module and its forward hold each other"}


def pytest_collection_modifyitems(items):
    if os.environ.get("TAPEGRAD_RECORD") == "1":
        for item in items:
            for name, reason in _NOT_COMPILED.items():
                if name in item.nodeid:
                    item.add_marker(pytest.mark.skip(reason=reason))
    if os.environ.get("TAPEGRAD_LONG_TESTS"):
        return
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker(pytest.mark.skip(reason="long: make test-distributed, or TAPEGRAD_LONG_TESTS=1"))


@pytest.fixture(autouse=True)
def _seeded():
    """Each test draws the same numbers whatever ran before it and on whichever worker, and leaves the number of threads as it was."""
    tapegrad.manual_seed(0)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(0)
    threads = tapegrad.get_num_threads()
    yield
    if tapegrad.get_num_threads() != threads:
        tapegrad.set_num_threads(threads)
