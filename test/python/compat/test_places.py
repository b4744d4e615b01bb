"""What classes and functions say that they are of while `import torch` gives tapegrad: as PyTorch's own."""

import json
import pathlib

import pytest
from programs import run

PROGRAM = str(pathlib.Path(__file__).with_name("places_program.py"))


def test_modules_of_classes_and_functions_are_those_of_pytorch():
    pytest.importorskip("torch")
    theirs, mine = json.loads(run(PROGRAM)), json.loads(run("-m", "tapegrad", PROGRAM))
    # In files of other names there.
    known = {f"utils.data.{name}" for name in (
        "DataChunk", "IterDataPipe", "MapDataPipe", "default_collate", "default_convert", "functional_datapipe", "get_worker_info")}
    assert len(theirs.keys() & mine.keys()) > 400 and theirs["pickled"] == mine["pickled"] and len(mine["pickled"]) == 21
    assert {name for name in theirs.keys() & mine.keys() if theirs[name] != mine[name]} == known


def test_names_go_back():
    print(run("-c", """
import sys, tapegrad as tg, tapegrad.compat as compat
def names():
    return {f"{m}.{n}": v.__module__ for m in list(sys.modules) if m.startswith("tapegrad") and not m.startswith("tapegrad.compat")
            for n, v in list(vars(sys.modules[m]).items()) if isinstance(v, type) or callable(v) and hasattr(v, "__module__") and hasattr(v, "__name__")}
import tapegrad.optim.lr_scheduler, tapegrad.distributions, tapegrad.nn.utils.parametrizations
before = names()
compat.install()
import torch.optim, torch.fft
assert torch.nn.Linear.__module__ == "torch.nn.modules.linear" and torch.optim.AdamW.__module__ == "torch.optim.adamw" and torch.fft.fft.__module__ == "torch.fft"
assert torch.vision.models.ResNet.__module__.startswith("tapegrad.vision")
compat.uninstall()
after = names()
assert {k: (v, after[k]) for k, v in before.items() if after[k] != v} == {}
assert not [k for k, v in after.items() if str(v).partition(".")[0] == "torch"]
"""))


def test_recorded_steps_know_the_package_under_its_other_name():
    """A layer or an optimizer is no object of the program's: what is in it is watched as the package's own."""
    program = """
import torch, logging
layer, seen = torch.nn.Linear(2, 1), []
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
@torch.record
def step(x):
    loss = torch.nn.functional.relu(layer(x)).square().sum() + torch.nn.init.calculate_gain("relu")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
for i in range(8):
    seen.append(step(torch.ones(3, 2) * (i + 1)).item())
print([round(s, 4) for s in seen], step)
"""
    plain = program.replace("import torch, logging", "import tapegrad as torch")
    plain, renamed = run("-c", "import tapegrad; tapegrad.manual_seed(0)\n" + plain), run("-m", "tapegrad", "-c", "import torch; torch.manual_seed(0)\n" + program)
    assert plain == renamed


def test_annotations_of_classes_can_be_evaluated():
    """typing.get_type_hints looks a class's strings up in the module that the class names: transformers calls it for each model."""
    program = """
import importlib, pkgutil, sys, typing, {root} as root
names = "nn optim optim.lr_scheduler utils.data distributions distributions.transforms distributions.constraints autograd cuda amp fx profiler ao.quantization testing".split()
modules = [root, *(importlib.import_module("{root}." + name) for name in names)]
classes = {{value for module in modules for value in (getattr(module, n, None) for n in dir(module)) if isinstance(value, type)}}
for cls in classes:
    try:
        typing.get_type_hints(cls), typing.get_type_hints(cls.__init__)
    except NameError as error:
        print(cls, error)
assert len(classes) > 400, len(classes)
class Net(root.nn.Module):
    pass
assert "Callable" in str(typing.get_type_hints(Net)["forward"])
"""
    assert run("-c", program.format(root="tapegrad")) == ""
    assert run("-m", "tapegrad", "-c", program.format(root="torch")) == ""
