"""What is not here says so in a sentence, what is elsewhere says where, and what cannot be sent to a process is named."""

import importlib
import importlib.util
import pickle
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
import tapegrad as tg
import tapegrad.multiprocessing as mp
from tapegrad.utils.data import DataLoader, TensorDataset


@pytest.mark.parametrize("module, name, text", [
    (tg, "nested", "there are no nested tensors: nn.utils.rnn.pad_sequence and a mask do their work"),
    (tg, "quantize_per_tensor", "quantised tensors are not supported: quantize_dynamic makes linear layers of int8, bfloat16 and float16 make other layers small"),
    (tg, "_scaled_grouped_mm", "it is nn.functional.scaled_grouped_mm"),
    (tg.masked, "masked_tensor", "there are no masked tensors: the functions of masked take a mask as an argument, masked.mean(x, mask=mask)"),
])
def test_absent_names_say_why(module, name, text):
    with pytest.raises(AttributeError, match=f"^{re.escape(f'module {module.__name__!r} has no attribute {name!r}: {text}')}$"):
        getattr(module, name)
    assert not hasattr(module, name)  # a program that asks takes its other way


def error_of(line):
    with pytest.raises(ImportError) as raised:
        exec(line, {})
    return f"{type(raised.value).__name__}: {raised.value}"


@pytest.mark.parametrize("line, text", [
    ("import tapegrad.nested", "ModuleNotFoundError: No module named 'tapegrad.nested': there are no nested tensors: nn.utils.rnn.pad_sequence and a mask do their work"),
    ("from tapegrad import nested", "ImportError: cannot import name 'nested' from 'tapegrad': there are no nested tensors: nn.utils.rnn.pad_sequence and a mask do their work"),
    ("from tapegrad.masked import MaskedTensor", "ImportError: cannot import name 'MaskedTensor' from 'tapegrad.masked': there are no masked tensors: the functions of masked take a "
                                                 "mask as an argument, masked.mean(x, mask=mask)"),
    ("from tapegrad.fx.passes import x", "ModuleNotFoundError: No module named 'tapegrad.fx.passes': programs are not recorded as graphs: tapegrad runs eagerly"),
    ("from tapegrad.fx import PythonCode", "ImportError: cannot import name 'PythonCode' from 'tapegrad.fx': programs are not recorded as graphs: tapegrad runs eagerly"),
    ("from tapegrad import Linear", "ImportError: cannot import name 'Linear' from 'tapegrad'\nit is tapegrad.nn.Linear"),
    ("from tapegrad.nn import Linaer", "ImportError: cannot import name 'Linaer' from 'tapegrad.nn'\ndid you mean 'Linear'?"),
    ("import tapegrad.utils.viz", "ModuleNotFoundError: No module named 'tapegrad.utils.viz': docs/compat.md says what tapegrad leaves out"),
    ("import tapegrad.nn.functionl", "ModuleNotFoundError: No module named 'tapegrad.nn.functionl': docs/compat.md says what tapegrad leaves out\ndid you mean 'functional'?"),
])
def test_imports_of_what_is_absent_say_why(line, text):
    assert tg.nn.Linear  # loaded
    assert error_of(line) == text


def test_under_pytorchs_name_they_say_so_too():
    """In a process of its own: where PyTorch was imported before, its modules below the root stay."""
    program = "\n".join(["import importlib.util, tapegrad.compat", "tapegrad.compat.install()"]
                        + [f"try: {line}\nexcept ImportError as e: print(type(e).__name__, e)" for line in ("from torch.nested import nested_tensor", "from torch import nested")]
                        + ["print(importlib.util.find_spec('torch.nested'))"])
    module, name, spec = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.splitlines()
    assert module.startswith("ModuleNotFoundError No module named 'torch.nested': there are no nested tensors")
    assert name.startswith("ImportError cannot import name 'nested' from 'torch': there are no nested tensors")
    assert spec == "None"


def test_no_module_of_pytorch_fails_in_another_way():
    """Every public file of PyTorch: its module is here, or its import says in a sentence why it is not; who asks whether it is there gets a no."""
    found = importlib.util.find_spec("torch")
    if found is None:
        pytest.skip("PyTorch is not installed")
    root, bare = Path(found.origin).parent, []
    paths = sorted({".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__") for file in root.rglob("*.py")} - {"__init__"})
    public = [path for path in paths if "-" not in path and not any(part.startswith("_") or part in ("test", "include", "share", "bin") for part in path.split("."))]
    assert len(public) > 500
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in public:
            try:
                importlib.import_module(f"tapegrad.{path}")
            except ModuleNotFoundError as error:
                if not re.search(r"^No module named '[\w.]+'(: \w.+|; '[\w.]+' is not a package)", str(error)):
                    bare.append(str(error))
    assert bare == []
    assert importlib.util.find_spec("tapegrad.nested") is None


@pytest.mark.parametrize("name, place", [("memory_summary", "cuda"), ("Linear", "nn"), ("DataLoader", "utils.data")])
def test_names_of_other_modules_say_where_they_are(name, place):
    assert tg.nn.Linear and DataLoader  # loaded
    with pytest.raises(AttributeError, match=rf"\nit is tapegrad\.{re.escape(place)}\.{name}$"):
        getattr(tg, name)


def test_scripted_modules_are_not_saved():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said once
        scripted = tg.jit.script(tg.nn.Linear(2, 2))
    with pytest.raises(NotImplementedError, match="^jit.save: a program is what a model does with an example: use jit.trace"):
        scripted.save("net.pt")
    assert list(scripted.state_dict()) == ["weight", "bias"] and pickle.loads(pickle.dumps(scripted)).weight.shape == (2, 2)


def test_a_tensor_of_another_library_is_named_with_it():
    Tensor = type("Tensor", (), {"__module__": "torch"})
    with pytest.raises(TypeError, match="must be Tensor, not torch.Tensor$"):
        tg.exp(Tensor())


class Lines:
    def __init__(self):
        self.parts = {"lines": [1, (i for i in range(3))]}

    def __len__(self):
        return 3

    def __getitem__(self, i):
        return i


def nothing(i, *rest):
    """What a process would run."""


@pytest.mark.parametrize("start, place, kind", [
    (lambda: iter(DataLoader(Lines(), num_workers=1, multiprocessing_context="spawn")), "DataLoader: dataset.parts['lines'][1]", "a generator"),
    (lambda: iter(DataLoader(TensorDataset(tg.ones(3)), num_workers=1, collate_fn=lambda x: x, multiprocessing_context="spawn")),
     "DataLoader: collate_fn", "the function <lambda>"),
    (lambda: mp.spawn(nothing, (1, threading.Lock())), "spawn: args[1]", "a lock"),
    (lambda: mp.spawn(lambda i: None), "spawn: fn", "the function <lambda>"),
])
def test_what_cannot_be_sent_is_named(start, place, kind):
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError), match=f"^{re.escape(f'{place} ({kind})')} cannot be sent to another process: "):
        start()


def test_more_workers_than_processors_warn(monkeypatch):
    data = TensorDataset(tg.ones(3))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    with pytest.warns(UserWarning, match="^This DataLoader will create 3 worker processes, but 2 processors are there for this program"):
        DataLoader(data, num_workers=3)
    DataLoader(data, num_workers=2)
    DataLoader(data, num_workers=3, worker_type="thread")


def test_a_schedule_before_its_optimizer_warns_without_old_versions():
    optimizer = tg.optim.SGD([tg.zeros(1, requires_grad=True)], lr=0.1)
    schedule = tg.optim.lr_scheduler.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match="^Detected call of `lr_scheduler.step\\(\\)` before `optimizer.step\\(\\)`") as said:
        schedule.step()
    assert "PyTorch" not in str(said[0].message)
