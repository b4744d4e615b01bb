"""Runs a script, a module or a line of code as Python itself does, with `import torch` giving tapegrad."""

import importlib.machinery
import importlib.util
import io
import os
import sys
import types

from . import install

_VARIABLE = "TAPEGRAD_MAIN"  # tells processes that are started afresh what their main program is


class _MainSpec(importlib.machinery.ModuleSpec):
    """The spec of `__main__`: a fresh process of multiprocessing imports the module of that name in its place."""

    def __init__(self, package: str):
        super().__init__(f"{__package__}.main_again", None)
        self._package = package

    @property
    def parent(self):
        return self._package


def _fresh_main(path: str | None, package: str | None, name: str = "__main__") -> types.ModuleType:
    main = types.ModuleType(name)
    main.__builtins__ = __builtins__
    main.__spec__ = _MainSpec(package or "")
    main.__package__ = package
    if path is not None:
        main.__file__ = path
    return main


def _script_code(path: str):
    with io.open_code(path) as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


def _module_code(name: str):
    """The code of `python -m name`, its path and its package."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None and spec.loader is not None:
        name += ".__main__"
        spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(f"No module named {name}")
    code = spec.loader.get_code(spec.name)
    if code is None:
        raise ImportError(f"No code object available for {name}")
    return code, spec.origin, spec.parent


def code_again():
    """In a process that multiprocessing started afresh: the code of the main program and its path."""
    kind, _, what = os.environ.get(_VARIABLE, "").partition(":")
    if kind == "script":
        return _script_code(what), what
    if kind == "module":
        return _module_code(what)[:2]
    return compile("", "<string>", "exec"), None  # -c: Python itself runs nothing again, either


def run_again(arguments: list[str]) -> int:
    """The main program of the process that started this one, with arguments of its own; the result is an exit status."""
    kind, _, what = os.environ.get(_VARIABLE, "").partition(":")
    if kind not in ("script", "module"):
        print("tapegrad: no program to run again: python -m tapegrad runs scripts and modules", file=sys.stderr)
        return 2
    return (run_script if kind == "script" else run_module)(what, arguments)


def _tell_processes(main: str) -> None:
    """Other Pythons that this process starts find tapegrad under `import torch`, too: see children/sitecustomize.py."""
    os.environ[_VARIABLE] = main
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "children")
    rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != folder]
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, *rest])


def _execute(code, main: types.ModuleType) -> int:
    """Runs code as the main program; an uncaught exception is shown without this file's own frames."""
    sys.modules["__main__"] = main
    try:
        exec(code, vars(main))
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        sys.excepthook(type(error), error.with_traceback(error.__traceback__.tb_next), error.__traceback__)
        return 1
    return 0


def run_script(path: str, arguments: list[str]) -> int:
    """`python path arguments`; the result is an exit status."""
    if os.path.isdir(path):  # python takes a folder's __main__.py, too
        folder, path = path, os.path.join(path, "__main__.py")
    else:
        folder = os.path.dirname(os.path.realpath(path))
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        print(f"tapegrad: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return 2
    sys.argv[:] = [path, *arguments]
    sys.path[0] = folder
    _tell_processes(f"script:{os.path.abspath(path)}")
    install()
    main = _fresh_main(path, None)
    try:
        code = _script_code(path)
    except SyntaxError as error:
        sys.excepthook(SyntaxError, error, None)
        return 1
    return _execute(code, main)


def run_module(name: str, arguments: list[str]) -> int:
    """`python -m name arguments`; the result is an exit status."""
    install()
    sys.argv[:] = ["-m", *arguments]
    try:
        code, path, package = _module_code(name)
    except ImportError as error:
        print(f"tapegrad: {error}", file=sys.stderr)
        return 1
    sys.argv[0] = path
    _tell_processes(f"module:{name}")
    return _execute(code, _fresh_main(path, package))


def run_code(text: str, arguments: list[str]) -> int:
    """`python -c text arguments`; the result is an exit status."""
    sys.argv[:] = ["-c", *arguments]
    sys.path[0] = ""
    _tell_processes("code:")
    install()
    try:
        code = compile(text, "<string>", "exec", dont_inherit=True)
    except SyntaxError as error:
        sys.excepthook(SyntaxError, error, None)
        return 1
    return _execute(code, _fresh_main(None, None))
