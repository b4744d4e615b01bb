"""Scripts written for PyTorch, as they are: `import torch` gives tapegrad.

`python -m tapegrad script.py ARGS` runs a script so; in a notebook or a program of one's own,

    import tapegrad.compat
    tapegrad.compat.install()

before the first `import torch`. What is imported under PyTorch's paths are tapegrad's own modules, not copies.
docs/compat.md lists the public programs that were run this way and what is missing.
"""

import sys

__all__ = ["install", "is_installed", "uninstall"]

_found = None  # the finder.TorchFinder that is active


def is_installed() -> bool:
    """Whether `import torch` gives tapegrad in this process."""
    return _found is not None


def install(vision: bool = True) -> None:
    """Lets `import torch` and the paths below it give tapegrad's modules, until `uninstall`.

    `torch.__version__` is then that of the PyTorch whose names tapegrad has, `torch.__name__` is "torch", and dtypes print as "torch.float32".
    `vision` says whether `torchvision` is `tapegrad.vision`, too. An installed torchvision needs PyTorch's own C++ library and cannot
    be imported without it, so that it is left alone only with vision=False, or where it has been imported already. Raises
    RuntimeError if PyTorch itself has been imported already.
    """
    global _found
    if _found is not None:
        return
    if "torch" in sys.modules:
        raise RuntimeError("compat.install: PyTorch itself has been imported already: call install() before `import torch`")
    from .. import _C, _lazy, _tensor, version
    from ..torch_version import TorchVersion, speaks
    from . import finder, native, places

    root = sys.modules[__package__.partition(".")[0]]
    _found = finder.TorchFinder(vision and "torchvision" not in sys.modules)
    root.__version__ = TorchVersion(f"{speaks}+tapegrad{_C.__version__}")
    version.__version__ = root.__version__
    _C.__getattr__ = native.name
    _C._functions = native.Functions(_C._functions)
    _C._set_root_name("torch")
    _tensor._root_name = "torch"
    root.torch = root  # some programs say torch.torch.x
    root.__name__ = "torch"
    sys.meta_path.insert(0, _found)
    places.rename()
    _lazy.after_loading = places.rename


def uninstall() -> None:
    """Undoes `install`: a later `import torch` looks for PyTorch again."""
    global _found
    if _found is None:
        return
    from .. import _C, _lazy, _tensor, version
    from . import places

    sys.meta_path.remove(_found)
    _found.forget()
    _found = None
    root = sys.modules[__package__.partition(".")[0]]
    root.__name__ = __package__.partition(".")[0]
    places.restore()
    _lazy.after_loading = None
    root.__version__ = version.__version__ = _C.__version__
    del _C.__getattr__, root.torch
    _C._set_root_name("tapegrad")
    _tensor._root_name = "tapegrad"
