"""Settings that a context manager sets and restores."""

import contextlib


@contextlib.contextmanager
def switched(module: dict, **values):
    """Sets names of a module for the length of a with block; None leaves one as it is."""
    before = {name: module[name] for name, value in values.items() if value is not None}
    module.update((name, values[name]) for name in before)
    try:
        yield
    finally:
        module.update(before)
