"""CUDA tensors that pass between processes, on simulated devices: sharing.py holds what is run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad

LIBRARIES = [Path(tapegrad._C.__file__).parent / "lib", Path(tapegrad._C.__file__).parents[2] / "lib"]

pytestmark = pytest.mark.skipif(not any((folder / "libtapegrad_cuda_sim.so").exists() for folder in LIBRARIES),
                                reason="the simulated device was not built")


def run(name, **environment):
    env = {**os.environ, "TAPEGRAD_CUDA_SIMULATE": "2", "TAPEGRAD_CUDA_SIMULATE_MEMORY": "256", **environment}
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("sharing.py")), name], env=env, capture_output=True, text=True,
                          timeout=200)
    assert done.returncode == 0 and done.stdout.endswith("done\n") and "Error" not in done.stderr, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["values", "ownership", "killed", "owner_dies", "module", "spawned", "mistakes", "many"])
def test_tensors_of_a_device_pass_between_processes(name):
    run(name)


@pytest.mark.parametrize("schedule", ["lazy", "random:1"])
def test_a_receiver_works_behind_the_sender(schedule):
    run("order", TAPEGRAD_CUDA_SIMULATE_SCHEDULE=schedule)


def test_memory_that_others_have_let_go_is_used_again_when_memory_is_short():
    run("memory_returns", TAPEGRAD_CUDA_SIMULATE_MEMORY="32")


def test_fixed_segments_and_the_plain_allocator():
    run("values", TAPEGRAD_CUDA_ALLOC_CONF="backend:plain")
    run("ownership", TAPEGRAD_CUDA_ALLOC_CONF="expandable_segments:False")
