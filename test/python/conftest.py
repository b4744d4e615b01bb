"""What every test shares."""

import os
from pathlib import Path

import tapegrad

# Programs that tests start find the package that the tests themselves import.
_package = str(Path(tapegrad._C.__file__).absolute().parent.parent)
os.environ["PYTHONPATH"] = os.pathsep.join(p for p in (_package, os.environ.get("PYTHONPATH")) if p)
