"""tapegrad, torch and NumPy in one process, imported in each order, each at work: three BLAS, three thread pools
and two OpenMP runtimes (torch brings its own) must not get into each other's way."""

import importlib.util
import itertools
import subprocess
import sys

import pytest

PROGRAM = """
import {first}
import {second}
import {third}
import numpy

def train(lib):
    lib.manual_seed(0)
    generator = numpy.random.default_rng(0)
    x = lib.tensor(generator.standard_normal((256, 1, 12, 12)).astype("float32"))
    y = lib.tensor((generator.standard_normal(256) > 0).astype("int64"))
    model = lib.nn.Sequential(
        lib.nn.Conv2d(1, 8, 3), lib.nn.ReLU(), lib.nn.Flatten(), lib.nn.Linear(800, 64), lib.nn.ReLU(),
        lib.nn.Linear(64, 2))
    optimizer = lib.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], (lib.__name__, losses)

for _ in range(2):  # in turn, so that each finds the other's threads there
    train(tapegrad)
    a = numpy.random.default_rng(1).standard_normal((300, 300))
    assert numpy.allclose(numpy.linalg.inv(a) @ a, numpy.eye(300), atol=1e-6)
    if {with_torch}:
        train(torch)
print("done")
"""


def run(order):
    program = PROGRAM.format(first=order[0], second=order[1], third=order[2], with_torch="torch" in order)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200)
    assert finished.returncode == 0, finished.stderr[-2000:]
    assert finished.stdout.endswith("done\n")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("order", list(itertools.permutations(["tapegrad", "torch", "numpy"])), ids="-".join)
def test_each_import_order_trains(order):
    run(order)


@pytest.mark.parametrize("order", [("tapegrad", "numpy", "math"), ("numpy", "tapegrad", "math")], ids="-".join)
def test_each_import_order_trains_without_torch(order):
    run(order)
