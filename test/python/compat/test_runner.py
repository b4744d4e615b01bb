"""`python -m tapegrad` and compat.install: programs written for PyTorch, as they are."""

import importlib
import os
import pickle
import subprocess
import sys

import pytest
import tapegrad as tg
from tapegrad.torch_version import TorchVersion

SCRIPT = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional
import torch.optim.lr_scheduler
from torch.nn.modules.conv import _ConvNd
from torch.utils.data import DataLoader
from torch._six import inf, string_classes
import tapegrad

if __name__ == "__main__":
    assert torch is tapegrad and nn is tapegrad.nn and sys.modules["torch.nn.modules.conv"] is tapegrad.nn.modules.conv
    assert issubclass(nn.Conv2d, _ConvNd) and _ConvNd is tapegrad.nn.modules.conv._ConvNd
    from torch._C import _TensorMeta, _disabled_torch_function_impl
    from torch._jit_internal import _copy_to_script_wrapper
    from torch.serialization import MAP_LOCATION
    assert _copy_to_script_wrapper(len) is len and MAP_LOCATION | None
    assert torch.torch is torch and isinstance(torch.Tensor, _TensorMeta) and _disabled_torch_function_impl(len, (), ([1],)) == 1
    assert torch._C._nn._parse_to("cpu", torch.float64)[1] is torch.float64 and torch._C._nn.relu(torch.ones(1)).item() == 1
    assert torch.nn.__spec__.name == "tapegrad.nn" and tapegrad.__spec__.name == "tapegrad" and torch.__name__ == "torch" and torch.save.__module__ == "torch.serialization"
    print(sys.argv, __file__, str(torch.float32), torch.zeros(1).type(), torch.Size([1]), torch.strided)
    assert torch.__version__ >= "2.0" and torch.__version__ > (1, 13) and torch.__version__.split(".")[0] == "2"
    assert torch.version.cuda is None and torch.version.__version__ == torch.__version__
    import importlib.metadata, importlib.util
    assert importlib.metadata.version("torch") == "2.13.0" and importlib.util.find_spec("torch.utils.data")
    assert importlib.util.find_spec("torch.no_such_module") is None
    sys.exit(7)
"""


def python(*arguments, cwd=None, **variables):
    path = os.pathsep.join(filter(None, [os.path.dirname(os.path.dirname(tg.__file__)), os.environ.get("PYTHONPATH")]))
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=100, cwd=cwd,
                          env={**os.environ, "PYTHONPATH": path, **variables})


@pytest.mark.smoke
def test_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = python("-W", "error::ImportWarning", "-m", "tapegrad", str(script), "--epochs", "3")  # as pytest may have it
    assert done.returncode == 7, done.stderr
    assert done.stdout == f"{[str(script), '--epochs', '3']} {script} torch.float32 torch.FloatTensor torch.Size([1]) torch.strided\n"


def test_torchaudio_computes_without_its_libraries(tmp_path):
    """Its two ways of asking for them: since 2.9 and before."""
    files = {"__init__.py": "", "_extension/__init__.py": "from .utils import _load_lib\nLOADED = _load_lib('libtorchaudio')\n", "lib/libtorchaudio.so": "",
             "_extension/utils.py": "import torch\ndef _load_lib(lib):\n    torch.ops.load_library(lib)\n    return True\n",
             "_internal/__init__.py": "", "_internal/module_utils.py": "import importlib.util\ndef is_module_available(*modules):\n"
                                                                      "    return all(importlib.util.find_spec(m) is not None for m in modules)\n"}
    for name, text in files.items():
        (tmp_path / "torchaudio" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "torchaudio" / name).write_text(text)
    script = tmp_path / "script.py"
    script.write_text("import inspect, torch, torchaudio._extension\nfrom torchaudio._internal.module_utils import is_module_available as there\n"
                      "print(torchaudio._extension.LOADED, there('torchaudio.lib._torchaudio'), there('json', 'torchaudio.lib._torchaudio'), there('json', 'zlib'))\n"
                      "print('load_library' in inspect.getsource(torchaudio._extension.utils))\n")
    done = python("-m", "tapegrad", str(script))
    assert (done.returncode, done.stdout) == (0, "False False False True\nTrue\n"), done.stderr


NATIVE = """
import pickle
import torch
from torch._C import Event, Future, Graph, JITException, NoneType, ScriptModule, Stream, Value, device, finfo
assert finfo is torch.finfo and Future is torch.futures.Future and ScriptModule is torch.jit.ScriptModule and device is torch.device
from torch._C._autograd import ProfilerActivity
from torch._C._distributed_c10d import ProcessGroup, Work
from torch._C._functorch import get_unwrapped, is_batchedtensor
import torch._C._linalg
assert torch.Value is Value and ProfilerActivity is torch.profiler.ProfilerActivity and ProcessGroup is torch.distributed.ProcessGroup
assert torch._C._linalg.linalg_inv is torch.linalg.inv and torch._C._special.special_erf is torch.special.erf and torch._C._VariableFunctions.add is torch.add
seen = []
torch.vmap(lambda x: (seen.append((is_batchedtensor(x), get_unwrapped(x).shape)), x)[1])(torch.ones(3, 2))
assert seen == [(True, (3, 2))] and not is_batchedtensor(torch.ones(1))
assert torch._C.Value is Value and pickle.loads(pickle.dumps(Value)) is Value and not isinstance(1, (Value, Graph)) and issubclass(JITException, Exception)
for call in (Value, lambda: torch._C.Values, lambda: torch._C._linalg.linalg_inverted, lambda: get_unwrapped(torch.ones(1))):
    try:
        call()
    except (NotImplementedError, AttributeError, RuntimeError) as error:
        print(str(error).splitlines()[0])
"""


def test_names_of_the_native_module_can_be_imported(tmp_path):
    done = python("-m", "tapegrad", "-c", NATIVE)
    assert done.returncode == 0, done.stderr
    refused, missing, below, unwrapped = done.stdout.splitlines()
    assert refused.startswith("_C.Value: ") and missing == "module 'torch._C' has no attribute 'Values'"
    assert below == "module 'torch._C._linalg' has no attribute 'linalg_inverted'" and unwrapped.startswith("_functorch.get_unwrapped: expected")


REEXPORTS = """
import importlib
import torch
from tapegrad.compat import reexports
for path, names in reexports.NAMES.items():
    module = importlib.import_module(f"torch.{path}")
    for name in names:
        assert getattr(module, name) is not None
from torch.distributions.kl import Bernoulli
from torch.nn.modules.transformer import MultiheadAttention
from torch import TensorType
assert Bernoulli is torch.distributions.Bernoulli and MultiheadAttention is torch.nn.MultiheadAttention
try:
    from torch.functional import Tenser
except ImportError as error:
    print(str(error).splitlines()[0])
import tapegrad.compat
tapegrad.compat.uninstall()
assert not hasattr(tapegrad.distributions.kl, "Bernoulli") and not hasattr(tapegrad.nn.functional, "Tensor")
"""


def test_what_files_of_pytorch_import_can_be_imported_from_them():
    done = python("-m", "tapegrad", "-c", REEXPORTS)
    assert (done.returncode, done.stdout) == (0, "cannot import name 'Tenser' from 'torch.functional'\n"), done.stderr


def test_the_table_of_what_files_import_is_pytorchs():
    torch = pytest.importorskip("torch")
    from tapegrad.compat import reexports

    for path, names in reexports.NAMES.items():
        for name in names:
            module = importlib.import_module(f"torch.{path}" if path != "nn.module" else "torch.nn.modules.module")
            assert hasattr(module, name) or torch.__version__ < "2.13", (path, name)


def test_explain_counts_what_is_replayed_and_the_reasons_against_it():
    explain, linear = tg._dynamo.explain, tg.nn.Linear(3, 3)
    for found in (explain(linear)(tg.ones(2, 3)), explain(linear, tg.ones(2, 3))):  # its backward pass has not come
        assert (found.graph_count, found.graph_break_count, found.break_reasons) == (1, 0, [])
    with tg.no_grad():
        assert explain(linear)(tg.ones(2, 3)).op_count > 0
        found = explain(lambda x: x + float(x.numpy()[0]))(tg.ones(2))
    assert found.graph_break_count == len(found.break_reasons) == 1 and "numpy reads a value" in found.break_reasons[0].reason
    assert found.break_reasons[0].reason in str(found) and str(found).startswith("Graph Count: 2\nGraph Break Count: 1\n")
    with pytest.raises(ZeroDivisionError):
        explain(lambda: 1 / 0)()


def test_script_imports_its_neighbours_and_ends_with_its_traceback(tmp_path):
    (tmp_path / "neighbour.py").write_text("import torch\nvalue = torch.ones(3).sum().item()\n")
    (tmp_path / "script.py").write_text("import neighbour\nprint(neighbour.value)\nimport torch\ntorch.nn.Lineer\n")
    done = python("-m", "tapegrad", "script.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "3.0\n"
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Traceback") and lines[1] == '  File "script.py", line 4, in <module>'
    assert lines[-2:] == ["AttributeError: module 'torch.nn' has no attribute 'Lineer'", "did you mean 'Linear'?"]


def test_missing_names_say_where_to_look():
    done = python("-m", "tapegrad", "-c", "import torch.utils.data\ntorch.utils.data.zzzz")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "AttributeError: module 'torch.utils.data' has no attribute 'zzzz'",
        "torch.utils.data is tapegrad.utils.data here: dir(torch.utils.data) lists its names, docs/compat.md what tapegrad leaves out"]
    done = python("-m", "tapegrad", "-c", "import torch.zzzz")
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'torch.zzzz': docs/compat.md says what tapegrad leaves out"


def test_module_and_code(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("import torch\nsize = torch.eye(2).shape\n")
    (package / "__main__.py").write_text("import sys\nfrom .part import size\nprint(size, sys.argv[1:], __name__, __package__)\n")
    assert python("-m", "tapegrad", "-m", "package", "a", cwd=tmp_path).stdout == "torch.Size([2, 2]) ['a'] __main__ package\n"
    assert python("-m", "tapegrad", "-c", "import sys, torch; print(torch.ones(2), sys.argv)", "b").stdout == "tensor([1., 1.]) ['-c', 'b']\n"


def test_command_line_mistakes(tmp_path):
    done = python("-m", "tapegrad", "none.py", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "tapegrad: can't open file 'none.py': [Errno 2] No such file or directory\n")
    done = python("-m", "tapegrad")
    assert done.returncode == 2 and done.stderr.startswith("usage: python -m tapegrad")
    assert python("-m", "tapegrad", "-m").returncode == 2
    assert python("-m", "tapegrad", "--zzz").returncode == 2
    assert python("-m", "tapegrad", "-m", "no_such_module_anywhere").stderr == "tapegrad: No module named no_such_module_anywhere\n"
    assert python("-m", "tapegrad", "-V").stdout == f"tapegrad {tg.__version__} (names of PyTorch 2.13.0)\n"
    (tmp_path / "broken.py").write_text("def f(:\n")
    done = python("-m", "tapegrad", "broken.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith("SyntaxError")


def test_processes_that_start_afresh_find_torch(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import multiprocessing, sys
import torch

def work(queue):
    queue.put((torch.__name__, torch.ones(4).sum().item(), __name__, sys.argv[1:]))

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print(queue.get(timeout=60))
    process.join()
""")
    done = python("-m", "tapegrad", str(script), "x")
    assert done.stdout == "('torch', 4.0, '__mp_main__', ['x'])\n", done.stderr


WHO = "import torch; import importlib.metadata; print(torch.__version__.partition('+tapegrad')[1], importlib.metadata.version('torch'))"


def test_pythons_that_a_program_starts_find_torch(tmp_path):
    """By subprocess, as launchers do: tapegrad is imported when torch is; another sitecustomize still runs."""
    (tmp_path / "worker.py").write_text("import sys; before = 'tapegrad' in sys.modules\n" + WHO + "; print(before, sys.argv[1:])")
    (tmp_path / "sitecustomize.py").write_text("print('own sitecustomize')")
    (tmp_path / "script.py").write_text("import os, subprocess, sys\n"
                                        "def run(*args, **more): subprocess.run([sys.executable, *args], check=True, env={**os.environ, **more})\n"
                                        "run('worker.py', 'x')\nrun('-c', 'import subprocess, sys; subprocess.run([sys.executable, \"worker.py\"])')\n"
                                        "run('-c', 'import sys; print(sys.meta_path[0])', TAPEGRAD_MAIN='')")
    done = python("-m", "tapegrad", "script.py", cwd=tmp_path)
    lines = [line for line in done.stdout.splitlines() if "own" not in line]
    assert lines[:2] == ["+tapegrad 2.13.0", "False ['x']"] and lines[2:4] == ["+tapegrad 2.13.0", "False []"], done.stderr
    assert len(lines) == 5 and "_Until" not in lines[4]
    done = python("-m", "tapegrad", "script.py", cwd=tmp_path, PYTHONPATH=os.pathsep.join([*filter(None, sys.path), str(tmp_path)]))
    assert done.stdout.count("own sitecustomize") == 5, done.stderr  # its own, three that it starts, and one that one starts


def test_a_launcher_starts_the_main_program_again(tmp_path):
    """Launchers run `python -m NAME` where __main__ has a spec of that name."""
    (tmp_path / "script.py").write_text("import os, subprocess, sys, torch\nprint(sys.argv[1:], __name__, __file__, flush=True)\n"
                                        "if 'RANK' not in os.environ:\n"
                                        "    name = sys.modules['__main__'].__spec__.name\n"
                                        "    sys.exit(subprocess.run([sys.executable, '-m', name, *sys.argv[1:]], env={**os.environ, 'RANK': '1'}).returncode)\n"
                                        "sys.exit(5)")
    for program, path in (["script.py"], "script.py"), (["-m", "script"], str(tmp_path / "script.py")):
        done = python("-m", "tapegrad", *program, "a", "-b", cwd=tmp_path)
        first, second = done.stdout.splitlines()
        assert first == f"['a', '-b'] __main__ {path}" and done.returncode == 5, done.stderr
        assert second == f"['a', '-b'] __main__ {tmp_path / 'script.py'}"
    done = python("-m", "tapegrad.compat.main_again", cwd=tmp_path)
    assert done.returncode == 2 and "no program to run again" in done.stderr


def test_install_and_uninstall():
    program = """
import sys, pickle
import tapegrad as tg, tapegrad.compat as compat
compat.install(); compat.install()
import torch.nn.functional as F
assert sys.modules["torch"] is tg and compat.is_installed() and str(tg.int64) == "torch.int64"
assert pickle.loads(b"ctorch.nn.modules.linear\\nLinear\\n.") is tg.nn.Linear
assert pickle.loads(b"ctorch\\nfloat16\\n.") is tg.float16
kinds = [tg.Tensor, tg.dtype, tg.device, tg.Size, tg.Generator, tg.FloatTensor, type(tg.nn.Parameter(tg.ones(1))), tg.OutOfMemoryError]
assert tg.__name__ == "torch" and all(str(kind).startswith("<class 'torch.") for kind in kinds), kinds
assert tg.nn.Parameter.__module__ == "torch.nn.parameter" and [pickle.loads(pickle.dumps(kind)) for kind in kinds] == kinds
assert pickle.loads(pickle.dumps(tg.float16)) is tg.float16 and tg.load is tg.serialization.load and tg._foreach_add is not None
compat.uninstall(); compat.uninstall()
assert tg.__name__ == "tapegrad" and all(str(kind).startswith("<class 'tapegrad.") for kind in kinds), kinds
assert not [m for m in sys.modules if m.split(".")[0] == "torch"] and str(tg.int64) == "tapegrad.int64"
assert tg.__version__ == tg._C.__version__ == tg.version.__version__ and not compat.is_installed()
assert tg.nn.functional is F and tg.zeros(1).type() == "tapegrad.FloatTensor"
sys.modules["torch"] = sys
try:
    compat.install()
except RuntimeError as error:
    print(error)
"""
    done = python("-c", program)
    assert done.stdout == "compat.install: PyTorch itself has been imported already: call install() before `import torch`\n", done.stderr


VERSIONS = ["2.13.0+cpu", "2.13.0", "2.13", "2.12.1", "2.13.0a0+gitabc", "2.13.0.dev20260101", "2.13.0rc1", "10.0", "1.9"]


def test_versions_compare_as_torch_s():
    theirs = pytest.importorskip("torch.torch_version").TorchVersion
    for a in VERSIONS:
        for b in VERSIONS:
            for how in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
                assert getattr(TorchVersion(a), how)(b) == getattr(theirs(a), how)(b), (a, how, b)
        for b in [(2, 13), (2, 13, 0), (1, 8), [2, 14]]:
            assert (TorchVersion(a) >= b) == (theirs(a) >= tuple(b)), (a, b)
    assert TorchVersion("2.0") < "2.10" and TorchVersion("2.13.0") + "x" == "2.13.0x"
    assert pickle.loads(pickle.dumps(TorchVersion("2.1"))) == "2.1"


OBJECTS = """
import dataclasses, enum, sys, zipfile
import torch

class Mode(str, enum.Enum):
    FAST = "fast"

@dataclasses.dataclass
class Settings:
    steps: int
    mode: Mode
    weights: dict

class Guarded:
    def __setstate__(self, state):
        print("a method ran")

class Bare:
    pass

class Slots:
    __slots__ = ("a", "__dict__")
    @property
    def b(self):
        return 1
    @b.setter
    def b(self, value):
        print("a setter ran")

class Open(enum.Enum):
    ONE, FEW = 1, ("a", 2)
    @classmethod
    def _missing_(cls, value):
        print("a lookup ran")

class Spoofed:
    def __reduce_ex__(self, protocol):
        return torch._utils._rebuild_sparse_tensor, (torch.sparse_csr, (torch.tensor([3, 1]), torch.tensor([0]), torch.ones(1), (1, 1)))

def refused(file, sentence):
    try:
        torch.load(file, weights_only=False)
    except RuntimeError as error:
        assert sentence in str(error), error
    else:
        sys.exit(f"{file} was loaded")

if __name__ == "__main__":
    for name in "settings.pt", "settings.bin":
        torch.save({"all": Settings(3, Mode.FAST, {"w": torch.ones(2)})}, name)
        try:
            torch.load(name, weights_only=True)
        except RuntimeError as error:
            assert "weights_only=False, which allows" in str(error), error
        else:
            sys.exit("loaded with weights_only=True")
        back = torch.load(name, weights_only=False)["all"]
        assert type(back) is Settings and back.steps == 3 and back.mode is Mode.FAST and back.weights["w"].sum() == 2
    for name in "guarded.pt", "guarded.bin":  # is written, and no method runs for a file unless it is allowed
        torch.save(Guarded(), name)
        refused(name, "add_safe_globals([Guarded])")
    torch.save(Spoofed(), "spoofed.pt")
    refused("spoofed.pt", "`crow_indices[..., 0] == 0` is not satisfied")
    torch.save(Bare(), "bare.pt")
    Bare.__setstate__ = Guarded.__setstate__
    refused("bare.pt", "__main__.Bare")
    from tapegrad._files.objects import set_attributes
    for state in (None, {"b": 2}), (None, {"a": 2, "c": 3}), ([1], None):
        try:
            set_attributes(Slots(), state)
        except RuntimeError as error:
            assert "Slots" in str(error), error
        else:
            sys.exit(f"{state} was set")
    slots = Slots()
    slots.a, slots.c = 1, 2
    for name in "slots.pt", "slots.bin":
        torch.save(slots, name)
        back = torch.load(name, weights_only=False)
        assert (back.a, back.c) == (1, 2)
    for name in "open.pt", "open.bin":
        torch.save([Open.ONE, Open.FEW], name)
        assert torch.load(name, weights_only=False) == [Open.ONE, Open.FEW]
    for name in "class.pt", "class.bin":  # a class itself, of which no object is made: data sets of graph networks keep theirs
        torch.save(({"x": torch.ones(2)}, Guarded, torch.nn.Linear), name)
        try:
            torch.load(name)
        except RuntimeError as error:
            assert "add_safe_globals([" in str(error), error
        else:
            sys.exit("loaded with weights_only=True")
        with torch.serialization.safe_globals([Guarded, torch.nn.Linear]):
            assert torch.load(name)[1:] == (Guarded, torch.nn.Linear)
    assert torch.load("class.pt", weights_only=False)[1:] == (Guarded, torch.nn.Linear)
    import subprocess
    for value in (subprocess.Popen, int, type("Local", (), {"__qualname__": "f.<locals>.Local"}), type("Nowhere", (), {"__module__": None}),
                  type("Hashed", (), {"__module__": 5})):
        try:
            torch.save(value, "class.pt")
        except TypeError as error:
            assert "functions and classes are not data" in str(error), error
        else:
            sys.exit(f"{value} was saved")
    from tapegrad._files.objects import Policy
    for named in ["subprocess", "Popen"], ["no.such.module", "A"], ["__main__", "Guarded.__setstate__"], ["__main__", 1], "x", ["torch", "add"]:
        try:
            Policy(weights_only=False).named_class(named)
        except RuntimeError:
            continue
        sys.exit(f"{named} was found")
    class Meta(type):
        def __hash__(cls):
            sys.exit("a metaclass hashed its class for a file")

        def __getattr__(cls, name):
            sys.exit(f"a metaclass was asked for {name} for a file")

    class Key(metaclass=Meta):
        pass

    Key.__qualname__ = "Key"
    sys.modules["__main__"].Key = Key
    for stream in b"\\x80\\x02}c__main__\\nKey\\nK\\x01s.", b"\\x80\\x02c__main__\\nKey\\n)\\x81.":
        with zipfile.ZipFile("key.pt", "w") as archive:
            archive.writestr("a/data.pkl", stream)
            archive.writestr("a/version", "3\\n")
        refused("key.pt", "__main__.Key")
    few = Open._member_map_.pop("FEW")
    for name in "open.pt", "open.bin":
        refused(name, "no Open has the value (('a',")
    print("done")
"""


def test_objects_of_the_program_in_files(tmp_path):
    (tmp_path / "script.py").write_text(OBJECTS)
    done = python("-m", "tapegrad", "script.py", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr


TEST_LIBRARY = """
import importlib
import torch
import torch.autograd.gradcheck
from torch.autograd.gradcheck import get_numerical_jacobian
from torch.testing._internal.common_utils import TestCase, run_tests
import torch.testing._internal.common_device_type as devices

assert callable(torch.autograd.gradcheck) and importlib.import_module("torch.autograd.gradcheck").gradcheck is torch.autograd.gradcheck
assert torch.testing._internal.common_utils.TestCase is TestCase
for name in ("common_utils.no_such_name", "no_such_module"):
    try:
        exec("from torch.testing._internal." + name.replace(".", " import ") if "." in name else "import torch.testing._internal." + name)
    except ImportError as error:
        assert "no_such" in str(error), error
    else:
        raise SystemExit(name)
try:
    torch.testing._internal.common_utils.no_such_name
except AttributeError as error:
    assert "torch.testing._internal.common_utils" in str(error), error


class TestThings(TestCase):
    @devices.dtypes(torch.float32, torch.int64)
    def test_ones(self, device, dtype):
        self.assertEqual(torch.ones(2, dtype=dtype, device=device), [1, 1])


devices.instantiate_device_type_tests(TestThings, globals())
if __name__ == "__main__":
    run_tests()
"""


def test_scripts_of_tests(tmp_path):
    (tmp_path / "script.py").write_text(TEST_LIBRARY)
    done = python("-m", "tapegrad", "script.py", "-v", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "test_ones_cpu_float32" in done.stderr and "test_ones_cpu_int64" in done.stderr and "Ran 2 tests" in done.stderr
