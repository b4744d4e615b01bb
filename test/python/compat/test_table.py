"""compat/names.py: each module of the table is imported, found from above and under PyTorch's name, and each of its names does what its row says."""

import importlib
import os
import pickle
import subprocess
import sys

import pytest
import tapegrad as tg
from tapegrad.compat import importer, kinds, names

PACKAGE = os.path.dirname(tg.__file__)
FILES = {path for path, entry in names.MODULES.items() if isinstance(entry, kinds.Module) and entry.doc is None}
ERRORS = {"profiler.itt": RuntimeError, **dict.fromkeys(("mps", "mtia", "xpu"), RuntimeError), "classes": OSError}  # others: NotImplementedError


def run(program: str, *options: str) -> str:
    path = os.pathsep.join(filter(None, [os.path.dirname(PACKAGE), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, *options, "-c", program], capture_output=True, text=True, timeout=200, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", names.MODULES)
def test_a_module_of_the_table(path):
    full = f"tapegrad.{path}"
    module, wanted = importlib.import_module(full), importer.names_of(full)
    above, _, last = full.rpartition(".")
    assert module.__name__ == full and module.__doc__ and module.__spec__.name == full and getattr(sys.modules[above], last) is module
    assert os.path.exists(module.__file__) and (module.__file__ == names.__file__) == (path not in FILES)
    assert wanted <= set(dir(module)) and last in dir(sys.modules[above])
    for name in wanted:
        assert getattr(module, name) is getattr(module, name), name
    star: dict = {}
    exec(f"from {full} import *", star)
    if path not in FILES:
        assert set(getattr(module, "__all__", ())) <= set(star)
    if path != "classes":
        entry = names.MODULES[path]
        with pytest.raises(AttributeError, match=f"^module '{f'tapegrad.{entry.of}' if isinstance(entry, kinds.SecondPath) else full}' has no attribute 'zzzz'"):
            module.zzzz  # noqa: B018
    with pytest.raises(ModuleNotFoundError, match=f"^No module named '{full}.zzzz'"):
        importlib.import_module(f"{full}.zzzz")


def test_what_refuses_says_why_and_what_can_be_named_is_pickled():
    refusing = 0
    for path, entry in names.MODULES.items():
        if not isinstance(entry, kinds.Module):
            continue
        module = importlib.import_module(f"tapegrad.{path}")
        for name in entry.rows:
            value = getattr(module, name)
            if getattr(value, "__module__", None) != module.__name__ or (path, name) == ("onnx", "_export"):
                continue  # another module's, or another name of one
            assert value.__name__ == name and pickle.loads(pickle.dumps(value)) is value, (path, name)
            if (value.__doc__ or "").startswith("Not there: "):
                refusing += 1
                error = ERRORS.get(path, NotImplementedError)
                with pytest.raises(error) as raised:
                    value(1, x=2)
                assert type(raised.value) is error and str(raised.value) == f"{path}.{name}: {value.__doc__[len('Not there: '):]}"
                if isinstance(value, type):
                    assert not isinstance(1, value) and type("Own", (value,), {"__init__": lambda self: None})() is not None
    assert refusing >= 158


def test_questions_are_answered_with_the_parameters_of_torch():
    assert tg.backends.mps.is_macos_or_newer(13, minor=0) is False and tg.backends.openmp.is_available() is True
    assert tg.fx.wrap(fn_or_name=len) is len and tg._dynamo.run()(len) is len
    for call, text in [(lambda: tg.backends.mps.is_macos_or_newer(13), r"^is_macos_or_newer\(\) missing 1 required positional argument: 'minor'$"),
                       (lambda: tg.fx.wrap(), "^wrap.* missing 1 required"), (lambda: tg.onnx.is_in_onnx_export(1), "^is_in_onnx_export.* takes 0")]:
        with pytest.raises(TypeError, match=text):
            call()
    assert tg.onnx.TensorProtoDataType.BFLOAT16.value == 16 and tg.onnx.ExportOptions(dynamic_shapes=True).dynamic_shapes
    assert pickle.loads(pickle.dumps(tg.onnx.TrainingMode.TRAINING)) is tg.onnx.TrainingMode.TRAINING
    assert issubclass(tg._dynamo.OptimizedModule, tg.nn.Module) and tg._dynamo.eval_frame.OptimizedModule is tg._dynamo.OptimizedModule
    with pytest.raises(RuntimeError, match="^classes: class 'Mine' is not there: "):
        tg.classes.Mine  # noqa: B018
    with pytest.raises(AttributeError, match="^module 'tapegrad' has no attribute 'onx'\ndid you mean 'onnx'\\?$"):
        tg.onx  # noqa: B018


def test_second_paths_give_the_same_objects():
    for path, entry in names.MODULES.items():
        if isinstance(entry, kinds.SecondPath):
            real, second = kinds.place_of(entry.of), importlib.import_module(f"tapegrad.{path}")
            for name in dir(real):
                if not name.startswith("__") and f"{path}.{name}" not in names.MODULES:
                    assert getattr(second, name) is getattr(real, name), (path, name)
    assert tg.quantization.QuantStub is tg.ao.quantization.QuantStub and tg.utils.model_zoo.load_url is tg.hub.load_state_dict_from_url


def test_torch_s_name_gives_the_same_modules():
    program = """
import importlib, sys
import torch
from tapegrad.compat import names
for path in names.MODULES:
    assert importlib.import_module("torch." + path) is importlib.import_module("tapegrad." + path), path
from torch.ao.quantization import QuantStub
import torch.fx.experimental.symbolic_shapes
print(torch.xpu.is_available(), torch.fx.experimental.symbolic_shapes.__name__)
try:
    torch.fx.Grap
except AttributeError as error:
    print(error)
"""
    assert run(program, "-m", "tapegrad") == ("False tapegrad.fx.experimental.symbolic_shapes\n"
                                              "module 'torch.fx' has no attribute 'Grap'\ndid you mean 'Graph'?\n")


def test_the_table_is_loaded_when_it_is_asked_and_loads_nothing_else():
    program = """
import sys, tapegrad
tapegrad.nn, tapegrad.backends, tapegrad.utils, tapegrad.cuda, tapegrad.distributed
print("tapegrad.compat.names" in sys.modules)
"""
    assert run(program) == "False\n"
    program = """
import sys, tapegrad._dynamo.config, tapegrad.fx, tapegrad.package, tapegrad.xpu
print(sorted(m for m in sys.modules if m in ("tapegrad.nn", "tapegrad.distributed", "tapegrad.compat.finder")))
"""
    assert run(program) == "[]\n"


def test_no_file_hides_a_module_of_the_table():
    for path in names.MODULES:
        place = os.path.join(PACKAGE, *path.split("."))
        assert (os.path.isdir(place) or os.path.exists(place + ".py")) == (path in FILES), path


def test_several_threads_get_one_object():
    program = """
import sys, threading, tapegrad
sys.setswitchinterval(1e-6)
names, found = ("fx.Graph", "_dynamo.OptimizedModule", "onnx.TrainingMode", "distributed.pipelining.Pipe"), []
start = threading.Barrier(8)

def ask():
    start.wait()
    for name in names:
        value = tapegrad
        for part in name.split("."):
            value = getattr(value, part)
        found.append((name, value))

threads = [threading.Thread(target=ask) for _ in range(8)]
[t.start() for t in threads], [t.join() for t in threads]
print(len(found), len(set(found)))
"""
    assert run(program) == "32 4\n"
