"""Names of PyTorch by how much public code uses them (names.txt: name, number of repositories that use it): each is there."""

import os
import subprocess
import sys

import tapegrad as tg

HERE = os.path.dirname(__file__)

# Names that are not there, and why. This list may only get shorter.
MISSING = {
    "torch.Tensor._cdata": "an address in PyTorch's own library",
    "torch.Tensor.dequantize": "quantised tensors are not there",
    "torch.Tensor.q_scale": "quantised tensors are not there",
    "torch.Tensor.to_padded_tensor": "nested tensors are not there",
}

PROGRAM = """
import importlib, importlib.util, sys, warnings
warnings.simplefilter("ignore")
import torch

def there(path):
    place, found = "torch", torch
    for part in path.split(".")[1:]:
        place += "." + part
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(place)
            except ImportError:
                return False
    return True

for line in open(sys.argv[1]):
    name = line.split()[0]
    if not there(name):
        print(name)
"""


def test_every_name_is_there():
    path = os.pathsep.join(filter(None, [os.path.dirname(os.path.dirname(tg.__file__)), os.environ.get("PYTHONPATH")]))
    done = subprocess.run([sys.executable, "-m", "tapegrad", "-c", PROGRAM, os.path.join(HERE, "names.txt")], capture_output=True, text=True,
                          timeout=200, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    missing = set(done.stdout.splitlines())
    assert sorted(missing - set(MISSING)) == [], "names that public code uses are missing"
    assert sorted(set(MISSING) - missing) == [], "these names are there now: take them off the list of missing ones"


def test_the_list_is_as_long_as_it_was():
    names = [line.split() for line in open(os.path.join(HERE, "names.txt"))]
    assert len(names) >= 1334 and len({name for name, _ in names}) == len(names) and all(int(count) >= 2 for _, count in names)
    assert len(MISSING) <= 13
