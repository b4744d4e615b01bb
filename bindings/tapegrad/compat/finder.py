"""The import finder behind `import torch`: every path below `torch` is answered with the module of that path in tapegrad.

The module objects are the same under both names, so that nothing is run twice and classes are one.
"""

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import sys

from .._hints import no_module
from .._lazy import is_import
from . import importer, native_modules, places, reexports

_ROOT = __package__.partition(".")[0]
# Packages of PyTorch, and which are theirs here.
_PLACES = {"torch": _ROOT, "torchvision": f"{_ROOT}.vision", "functorch": f"{_ROOT}.func", "torchdata.stateful_dataloader": f"{_ROOT}.utils.data._stateful"}

# What a package asks whether its libraries are there, which were compiled for PyTorch. It computes in Python without them.
_ASKED = {"torchaudio._extension.utils": "_load_lib", "torchaudio._internal.module_utils": "is_module_available"}
_LIBRARIES = ("lib", "_torchaudio", "torchaudio.lib.")


class _WithoutLibraries(importlib.machinery.SourceFileLoader):
    """A loader of a module of _ASKED, whose question gets the answer no."""

    def exec_module(self, module) -> None:
        super().exec_module(module)
        asked = getattr(module, _ASKED[module.__name__])
        setattr(module, asked.__name__, lambda *names: not any(name.startswith(_LIBRARIES) for name in names) and asked(*names))


class _SameModule:
    """A loader that gives a module that is there already. It takes the new module's place in sys.modules, which the import system allows:
    one that came from create_module would have its __spec__ written over, if only until exec_module."""

    def __init__(self, ours: str):
        self._ours = ours

    def create_module(self, spec):
        return None

    def exec_module(self, module) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._ours)


class TorchFinder(importlib.metadata.DistributionFinder):
    """Finds `torch` and, if wanted, `torchvision`, and everything below them."""

    def __init__(self, vision: bool):
        self._vision = vision
        self._answers: set[str] = set()
        self._given: dict = {}  # __getattr__ -> (module, its own one)

    def _ours(self, name: str) -> str | None:
        """What a path is called here; None if it is not below one of PyTorch's packages."""
        for place, ours in _PLACES.items():
            if name == place or name.startswith(place + "."):
                return None if place == "torchvision" and not self._vision else ours + name[len(place):]
        return None

    def find_spec(self, name, path=None, target=None):
        if name in _ASKED:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                spec.loader = _WithoutLibraries(name, spec.loader.path)
            return spec
        ours = self._ours(name)
        if ours is None:
            return None
        if ours not in sys.modules:
            try:
                found = importlib.util.find_spec(ours)
            except ModuleNotFoundError:
                found = None
            if found is None:
                if is_import():
                    raise no_module(ours, name)
                return None
        module = importlib.import_module(ours)
        places.rename()
        self._answer_for_names(module)
        self._answers.add(name)
        self._leave_functions(module, name)
        if name == "torch._C":
            self._answers |= native_modules.put()
        is_package = hasattr(module, "__path__")
        return importlib.machinery.ModuleSpec(name, _SameModule(ours), origin=getattr(module, "__file__", None),
                                              is_package=is_package)

    def _answer_for_names(self, module) -> None:
        """Gives a module a `__getattr__` that has what PyTorch's file has by importing it, and else does what its own one does, or says what is missing."""
        path = module.__name__.partition(".")[2]
        own = vars(module).get("__getattr__")
        if own is not None and (path not in reexports.NAMES or own in self._given):
            return

        def __getattr__(attribute: str):
            if (found := reexports.find(path, attribute)) is not None:
                return found
            return own(attribute) if own else importer.get(module.__name__, attribute)

        module.__getattr__ = __getattr__
        self._given[__getattr__] = module, own

    def _leave_functions(self, module, name: str) -> None:
        """Puts modules in place whose name their package has given to a function of theirs (autograd.gradcheck): an import of them later would
        set the module over it."""
        below = f"{module.__name__}."
        for path, part in list(sys.modules.items()):
            last = path.removeprefix(below)
            if path.startswith(below) and "." not in last and vars(module).get(last, part) is not part:
                sys.modules.setdefault(f"{name}.{last}", part)
                self._answers.add(f"{name}.{last}")

    def forget(self) -> None:
        """Takes out of sys.modules what was put there."""
        for name in self._answers:
            sys.modules.pop(name, None)
        for module, own in self._given.values():
            del module.__getattr__
            if own:
                module.__getattr__ = own

    def find_distributions(self, context=None):
        """`importlib.metadata.version("torch")`, by which libraries ask whether PyTorch is there."""
        from ..torch_version import speaks

        name = getattr(context, "name", None)
        if name == "torch" or (name == "torchvision" and self._vision):
            yield _Distribution(name, speaks if name == "torch" else getattr(importlib.import_module(f"{_ROOT}.vision"), "__version__", "0"))


class _Distribution(importlib.metadata.Distribution):
    """What package metadata says of a package that tapegrad stands for."""

    def __init__(self, name: str, version: str):
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: tapegrad under PyTorch's name\n"

    def read_text(self, filename):
        return self._text if filename in ("METADATA", "PKG-INFO") else None

    def locate_file(self, path):
        raise FileNotFoundError(f"metadata: tapegrad stands for this package and has no file {path}")
