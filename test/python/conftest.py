"""What every test shares."""

import os
import sys
from pathlib import Path

import pytest
import tapegrad

# Programs that tests start find the package that the tests themselves import.
_package = str(Path(tapegrad._C.__file__).absolute().parent.parent)
os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (_package, os.environ.get("PYTHONPATH")) if p)


@pytest.fixture(autouse=True)
def _seeded():
    """Each test draws the same numbers whatever ran before it and on whichever worker."""
    tapegrad.manual_seed(0)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        torch.manual_seed(0)
