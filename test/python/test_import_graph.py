"""No circles among the Python files: what a file needs while it is loaded never waits for that file.

What is imported when a function runs does not count, nor does a file's own package, whose __init__ begins before its parts.
"""

import ast
import graphlib
import re
from pathlib import Path

import pytest
import tapegrad


def while_loading(node):
    """The nodes that are run when a file is loaded: not the bodies of functions, nor what only type checkers see."""
    yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        inner = [*getattr(node, "decorator_list", ()), *node.args.defaults, *filter(None, node.args.kw_defaults)]
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        inner = node.orelse
    else:
        inner = ast.iter_child_nodes(node)
    for child in inner:
        yield from while_loading(child)


def names(node, package):
    """The full names, of modules or of what is in them, that a node asks for; `package` is that of its file."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = package[:len(package) - node.level + 1] if node.level else ()
        return [".".join([*base, *filter(None, [node.module]), alias.name]) for alias in node.names]
    if isinstance(node, ast.Attribute) and re.fullmatch(r"\w+(\.\w+)+", text := ast.unparse(node)):
        return [text]  # tapegrad.nn.functional, which the package loads when it is asked for
    return []


def import_graph(folder):
    """{module: the modules that it needs while it is loaded} of the package in a folder; those of C++ need none."""
    files = {(folder.name, *path.relative_to(folder).parts[:-1], *([] if path.stem == "__init__" else [path.name.split(".")[0]])): path
             for path in folder.rglob("*") if path.suffix in (".py", ".so") and path.stem.split(".")[0].isidentifier()}
    graph = {}
    for module, path in files.items():
        needed = graph[module] = set()
        if path.suffix == ".so":
            continue
        package = module if path.name == "__init__.py" else module[:-1]
        for node in while_loading(ast.parse(path.read_text())):
            for name in names(node, package):
                target = tuple(name.split("."))
                while target and target not in files:
                    target = target[:-1]
                # The packages on the way are loaded first, but for those that this file is in, which have begun.
                needed.update(target[:n] for n in range(1, len(target) + 1) if n == len(target) or target[:n] != module[:n])
        needed.discard(module)
    return graph


def circle(graph):
    """One circle, as its modules' names in their order; empty if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return [".".join(module) for module in reversed(error.args[1])]
    return []


def test_no_file_waits_for_itself():
    graph = import_graph(Path(tapegrad.__file__).parent)
    assert len(graph) > 300 and ("tapegrad", "_C") in graph
    assert ("tapegrad", "nn", "_layers") in graph["tapegrad", "nn", "lazy"] and ("tapegrad", "nn") not in graph["tapegrad", "nn", "lazy"]
    assert not (found := circle(graph)), " needs ".join(found)


@pytest.mark.parametrize(("files", "expected"), [
    ({"a": "from . import b", "b": "from .a import x"}, True),
    ({"a": "import p.b", "b": "try:\n    from . import a\nexcept ImportError:\n    pass"}, True),
    ({"a": "import p\nclass A(p.b.B): pass", "b": "from .a import A"}, True),
    ({"a": "import p\ndef f(x=p.b.B): pass", "b": "from .a import f"}, True),
    ({"__init__": "from .a import x", "a": "from . import y"}, True),
    ({"a": "from .q.r import x", "q/__init__": "from .. import a", "q/r": ""}, True),
    ({"__init__": "from .a import x", "a": "from . import b", "b": ""}, False),
    ({"a": "def f():\n    from .b import x", "b": "from .a import f"}, False),
    ({"a": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .b import x", "b": "from .a import f"}, False),
    ({"a": "import p\nf = lambda: p.b.x", "b": "from .a import f"}, False),
])
def test_what_counts(tmp_path, files, expected):
    for name, text in {"__init__": "", **files}.items():
        path = tmp_path / "p" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert bool(circle(import_graph(tmp_path / "p"))) == expected
