"""Classes of compiled libraries for PyTorch, of which none can be loaded."""

from ._absent import missing_function

load_library = missing_function("classes.load_library", "libraries that were compiled for PyTorch cannot be loaded", OSError)
loaded_libraries: set = set()


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    raise RuntimeError(f"classes: class '{name}' is not there: libraries that were compiled for PyTorch cannot be loaded")
