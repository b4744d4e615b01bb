"""Runs at the start of each Python that a program under `python -m tapegrad` starts: `import torch` gives tapegrad there, too.

The folder of this file stands first in that program's $PYTHONPATH. tapegrad is imported when torch is asked for and not before, so that
other programs start as fast as ever; a Python that has no tapegrad, or where $TAPEGRAD_MAIN was taken out, is left as it is. Another
sitecustomize, which this one hides, runs first.
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys


class _Until(importlib.metadata.DistributionFinder):
    """Installs the finder of tapegrad.compat when torch, or the metadata of its installation, is looked up."""

    _NAMES = ("torch", "torchvision", "functorch")

    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root == "tapegrad" or root not in self._NAMES or not self._install():
            return None
        return sys.meta_path[0].find_spec(name, path, target)

    def find_distributions(self, context=importlib.metadata.DistributionFinder.Context()):  # noqa: B008 - Python's own form
        if context.name not in self._NAMES or not self._install():
            return iter(())
        return sys.meta_path[0].find_distributions(context)

    def _install(self) -> bool:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            try:
                from tapegrad.compat import install
            except ModuleNotFoundError as missing:
                if missing.name != "tapegrad":
                    raise
                return False
            install()
            return True
        return False


def _run_the_hidden() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("TAPEGRAD_MAIN"):
    sys.meta_path.insert(0, _Until())
_run_the_hidden()
