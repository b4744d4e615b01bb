"""Functions and classes of the modules in names.py that take more than a row."""

from __future__ import annotations

import contextlib
import importlib
import os

_ROOT = __package__.partition(".")[0]


class set_stance:
    """Accepted as a call, a context and a decorator."""

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe=False, force_backend=None):
        self.stance = stance

    def __call__(self, fn):
        return fn

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


@contextlib.contextmanager
def patch(arg1=None, arg2=None, **changes):
    """Other values of _dynamo.config within a context: patch(name=value), patch({name: value}) or patch("name", value)."""
    changes = {**(arg1 if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}), **changes}
    config = vars(importlib.import_module(f"{_ROOT}._dynamo.config"))
    before = {name: config[name] for name in changes if name in config}
    config.update(changes)
    try:
        yield
    finally:
        for name in changes:
            config.pop(name)
        config.update(before)


def include_paths(device_type: str = "cpu", torch_include_dirs: bool = True) -> list:
    """The folder with tapegrad's headers, where it is installed with them."""
    folder = os.path.join(os.path.dirname(os.path.dirname(__file__)), "include")
    return [folder] if os.path.isdir(folder) else []


def is_ninja_available() -> bool:
    """Whether the program ninja is there."""
    import shutil

    return shutil.which("ninja") is not None


def amp_definitely_not_available() -> bool:
    """True without a GPU."""
    return not importlib.import_module(f"{_ROOT}.cuda").is_available()
