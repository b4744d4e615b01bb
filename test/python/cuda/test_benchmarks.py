"""The benchmarks of devices: all of it runs, on the simulated device at tiny sizes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad

ROOT = Path(__file__).parents[3]
LIBRARIES = [Path(tapegrad._C.__file__).parent / "lib", Path(tapegrad._C.__file__).parents[2] / "lib"]
simulated = pytest.mark.skipif(not any((folder / "libtapegrad_cuda_sim.so").exists() for folder in LIBRARIES), reason="the simulated device was not built")


def run(*arguments):
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, env={**os.environ, "TAPEGRAD_CUDA_SIMULATE": "1"}, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@simulated
def test_the_benchmarks_of_networks_run_and_are_written(tmp_path):
    run("-m", "benchmarks", "cuda", "--only", "cuda: networks*NCF*", "--rounds", "1", "--out", str(tmp_path))
    (written,) = tmp_path.glob("*.json")
    rows = json.loads(written.read_text())["rows"]
    assert [r["name"] for r in rows] == [f"NCF, 2 ratings, {dtype}, {mode}" for dtype in ("float32", "tf32", "bfloat16") for mode in ("eager", "graphed")]
    for row in rows:
        asked = row["allocator"]["tapegrad"]
        assert row["rate"].endswith(" ratings/s") and row["median"] > 0 and asked["driver"] == 0
        assert asked["requests"] > 10 if "eager" in row["name"] else asked["requests"] == 0
    text = written.with_suffix(".md").read_text()
    assert "## Allocator, per step" in text and "- Training steps without an allocation of the driver: 6 of 6" in text


@simulated
def test_recorded_steps_are_timed():
    lines = run("-m", "benchmarks.recorded_device", "--rounds", "1").splitlines()
    assert lines[2] == "| | eager | call by call | graphs | chains | kernels of chains | making it |" and len(lines) == 7
    assert all(float(t) > 0 for t in lines[4].split("|")[2:6])


@simulated
def test_benchmarks_go_on_with_what_is_there(tmp_path):
    arguments = ["-m", "benchmarks", "cuda", "--only", "cuda: launches*", "--rounds", "1", "--out", str(tmp_path)]
    run(*arguments)
    (written,) = tmp_path.glob("*.json")
    whole = json.loads(written.read_text())
    assert len(whole["rows"]) == 3
    cut = whole | {"rows": [whole["rows"][0] | {"median": 123.0}]}  # as a run leaves it that ended after its first case
    written.write_text(json.dumps(cut))
    run(*arguments, "--resume")
    rows = json.loads(written.read_text())["rows"]
    assert [r["name"] for r in rows] == [r["name"] for r in whole["rows"]]
    assert rows[0]["median"] == 123.0 and all(r["median"] < 100 for r in rows[1:])
    run(*arguments)
    assert json.loads(written.read_text())["rows"][0]["median"] < 100


@simulated
def test_the_first_step_is_timed_in_a_process_of_its_own():
    times = json.loads(run("-m", "benchmarks.models.on_cuda", "tapegrad", "NCF"))
    assert list(times) == ["import", "build", "first", "fourth"] and min(times.values()) > 0


@simulated
def test_graphed_training_has_the_bits_of_eager_training():
    run("-c", """
import tapegrad
from benchmarks.models import named
from benchmarks.models.on_cuda import training_step
for name, dtype in (("NCF", "float32"), ("GNMT", "bfloat16"), ("GPT-2 small", "bfloat16"), ("AlexNet", "float32")):
    network = named(name)
    found = []
    for graphed in (False, True):
        step = training_step(tapegrad, network, 2, dtype, graphed)  # three steps are made before a capture
        for _ in range(2 if graphed else 5):
            step()
        found.append([p.detach().cpu() for p in step.model.state_dict().values()])
    assert all(tapegrad.equal(a, b) for a, b in zip(*found)), name
    assert any(p.is_floating_point() and bool((p != q).any()) for p, q in zip(found[0], training_step(tapegrad, network, 2, dtype, False).model.cpu().state_dict().values())), name
""")
