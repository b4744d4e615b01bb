"""PyTorch's paths of the modules, whose folders are our own."""

import importlib
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad.distributions

torch = pytest.importorskip("torch")

MODULES = sorted(m.name for m in pkgutil.iter_modules(torch.distributions.__path__))


@pytest.mark.parametrize("name", MODULES)
def test_every_module_has_pytorchs_path(name):
    ours, theirs = (importlib.import_module(f"{lib.__name__}.distributions.{name}") for lib in (tapegrad, torch))
    assert getattr(tapegrad.distributions, name) is ours
    assert not set(theirs.__all__) - set(vars(ours))
    for member in theirs.__all__:
        if isinstance(getattr(ours, member), type):
            assert getattr(ours, member).__module__ == f"tapegrad.distributions.{name}"


def test_no_file_is_loaded_twice():
    folder = Path(tapegrad.distributions.__file__).parent
    files = {path: importlib.import_module(".".join(("tapegrad.distributions", *path.relative_to(folder).with_suffix("").parts)))
             for path in folder.rglob("*.py") if path.name != "__init__.py"}
    classes = [c for module in files.values() for c in vars(module).values() if isinstance(c, type) and issubclass(c, tapegrad.distributions.Distribution)]
    assert len({c.__name__ for c in classes}) == len(set(classes))


@pytest.mark.parametrize("first", ["tapegrad.distributions.normal", "tapegrad.distributions.continuous.normal", "torch.distributions.normal"])
def test_a_path_may_be_the_first_import(first):
    program = f"""
import tapegrad.compat
tapegrad.compat.install()
import {first} as first
from tapegrad.distributions import normal, Normal
import torch.distributions.normal
assert first is normal is torch.distributions.normal and first.Normal is Normal
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_pickles_name_pytorchs_path():
    text = pickle.dumps(tapegrad.distributions.Wishart(3.0, tapegrad.eye(2)))
    assert b"tapegrad.distributions.wishart" in text and b"multivariate" not in text
    assert pickle.loads(text).df.item() == 3
