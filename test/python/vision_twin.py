"""The sources of tapegrad.vision run on PyTorch's operators: a second opinion on every operator that they use.

The package `torch_twin` is PyTorch under another name, so that the relative imports of the sources find its names; only what the sources
take from tapegrad alone is ours.
"""

import importlib
import importlib.util
import sys
import types
from pathlib import Path

import tapegrad.vision

NAME = "torch_twin"


def vision(module: str):
    """The module tapegrad.vision.<module> on PyTorch."""
    import torch

    if NAME not in sys.modules:
        twin = types.ModuleType(NAME)
        twin.__dict__.update({k: v for k, v in vars(torch).items() if not k.startswith("__")})
        twin.__path__ = []
        twin.tensor = torch.tensor
        sys.modules[NAME] = twin
        for name in ("nn", "nn.functional", "hub", "utils", "utils.checkpoint", "utils.data"):
            sys.modules[f"{NAME}.{name}"] = importlib.import_module(f"torch.{name}")
        hints = types.ModuleType(f"{NAME}._hints")
        hints.no_attribute = lambda module, name, names: AttributeError(f"{module}: {name}")
        sys.modules[hints.__name__] = hints
        sys.modules[f"{NAME}._warn"] = importlib.import_module("tapegrad._warn")
        folder = Path(tapegrad.vision.__file__).resolve().parent
        spec = importlib.util.spec_from_file_location(f"{NAME}.vision", folder / "__init__.py", submodule_search_locations=[str(folder)])
        package = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = package
        spec.loader.exec_module(package)
    return importlib.import_module(f"{NAME}.vision.{module}")
