"""What public test suites import of PyTorch's own test library: cases, parameters, devices, dtypes, switches.

PyTorch's databases (`common_nn`, `common_modules`, `common_optimizers`, `hypothesis_utils` ...) are large and are not here. Under
`python -m tapegrad`, where an installed PyTorch is on the path, those files are read from it and run on tapegrad; nothing else of it is loaded.
Its database of operators needs PyTorch's references and dispatcher, and stays empty: see common_methods_invocations.
"""

import importlib.machinery
import os
import sys

_ROOT = __package__.partition(".")[0]


def _installed() -> list[str]:
    """The folder of an installed PyTorch's test library, if any; found without importing anything of it."""
    spec = importlib.machinery.PathFinder.find_spec("torch")
    folders = [os.path.join(place, "testing", "_internal") for place in (spec.submodule_search_locations or ())] if spec else []
    return [folder for folder in folders if os.path.isdir(folder)]


if sys.modules.get("torch") is sys.modules[_ROOT]:  # its files import `torch`
    __path__ += _installed()


def __getattr__(name: str):
    from ..._hints import no_attribute

    raise no_attribute(__name__, name, ())
