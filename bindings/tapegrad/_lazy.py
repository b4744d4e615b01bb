"""Imports of the parts that are loaded when they are first used."""

import importlib
import os
import sys

_ROOT = __name__.partition(".")[0]
_COMPAT = f"{_ROOT}.compat"
_FOLDER = os.path.dirname(__file__) + os.sep
_NO_MEMORY = ("Cannot allocate memory", "failed to map segment", "cannot map", "cannot allocate")  # what the dynamic linker says
# Bytes that must be free for an import to begin: without memory Python 3.11 itself dies of SIGSEGV or calls functions with arguments of
# others. The largest part takes 24 MB; beyond 32 MB glibc does not raise its threshold for mmap when a block is given back.
_NEEDED = 40 << 20
after_loading = None  # compat.places.rename while that is installed


def _lacks_memory(error, outer) -> bool:
    """Whether an import failed for want of memory; `outer` was raised before it. Where Python cannot read a compiled file, it compiles
    the source, and takes what it cannot read of that for bad syntax."""
    while error is not None and error is not outer:
        if isinstance(error, SyntaxError) and (error.filename or "").startswith(_FOLDER):
            return True
        if isinstance(error, MemoryError) or isinstance(error, ImportError) and any(text in str(error) for text in _NO_MEMORY):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_compat() -> bool:
    """Whether the program runs under PyTorch's name."""
    compat = sys.modules.get(_COMPAT)
    return compat is not None and compat.is_installed()


def load(name: str):
    """The module. One that fails leaves nothing behind which would make the next attempt another one; a library for which there is no memory
    is OutOfMemoryError, and not an ImportError, which would say that it is missing."""
    outer = sys.exc_info()[1]
    observer = sys.getprofile()  # what is called for it is no effect of the program that is observed
    if rest := getattr(observer, "_rest_while_loading", None):
        rest()
    try:
        if name not in sys.modules:
            bytes(_NEEDED)  # addresses only, no page is touched
        module = importlib.import_module(name)
        if after_loading:
            after_loading()
        return module
    except BaseException as error:
        # The parts of a package that failed: a later import of it would find them without their package.
        for module in sorted(m for m in list(sys.modules) if m.startswith(f"{_ROOT}.")):
            if module.rpartition(".")[0] not in sys.modules:
                del sys.modules[module]
        if isinstance(error, (ImportError, SyntaxError, MemoryError)) and _lacks_memory(error, outer):
            raise sys.modules[_ROOT].OutOfMemoryError(f"{name}: there is no memory for it: {error}") from error
        raise
    finally:
        if rest:
            observer._go_on_after_loading()


def more_names(module: str, parts=()):
    """`__getattr__` and `__dir__` of a module: `parts` are modules below it, loaded when they are asked for; compat/names.py has the others."""

    def __getattr__(name: str):
        if name in parts:
            return load(f"{module}.{name}")
        if name.startswith("__") and name != "__all__":
            raise load(f"{_ROOT}._hints").no_attribute(module, name, ())
        return load(f"{_COMPAT}.importer").get(module, name)

    def __dir__():
        return sorted({*vars(sys.modules[module]), *parts, *load(f"{_COMPAT}.importer").names_of(module)})

    return __getattr__, __dir__


def is_import() -> bool:
    """Whether a finder, which asks, was asked by an import: others (importlib.util.find_spec) want to know whether there is such a module."""
    frame = sys._getframe(2)  # of importlib's loop over finders
    return frame.f_back is not None and frame.f_back.f_code.co_name == "_find_and_load_unlocked"


class _TableFinder:
    """Finds the modules of compat/names.py, last of all: an import that finds a file does not come here."""

    @staticmethod
    def find_spec(name: str, path=None, target=None):
        if not name.startswith(f"{_ROOT}.") or name.startswith(_COMPAT):
            return None
        found = load(f"{_COMPAT}.importer").spec(name)
        if found is None and is_import():
            raise load(f"{_ROOT}._hints").no_module(name, name)
        return found


sys.meta_path.append(_TableFinder)
