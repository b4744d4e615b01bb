"""The demo: it learns, it resumes bit for bit, it draws; the notebook runs."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tapegrad as tg

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def demo(example):
    return example("mnist")


def test_one_epoch_prints_what_it_should(tmp_path):
    picture = tmp_path / "picture.png"
    run = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "mnist.py"), "--epochs", "1", "--checkpoint", str(tmp_path / "run.tape"),
         "--picture", str(picture)],
        capture_output=True, text=True, timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(tg.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])})
    assert run.returncode == 0, run.stderr
    accuracy = re.fullmatch(r"held-out accuracy: (0\.\d{4})", run.stdout.splitlines()[-1])
    assert accuracy and float(accuracy[1]) > 0.9
    assert re.search(r"loss [\d.]+, [\d,]+ images/s", run.stderr + run.stdout)
    if importlib.util.find_spec("matplotlib"):
        assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000
    assert (tmp_path / "run.tape").exists()


def test_a_stopped_run_resumes_bit_for_bit(demo, tmp_path):
    common = ["--epochs", "2", "--batch-size", "256", "--quiet", "--picture", ""]
    whole, parts = tmp_path / "whole.tape", tmp_path / "parts.tape"
    accuracy = demo.main([*common, "--checkpoint", str(whole)])
    demo.main([*common, "--checkpoint", str(parts), "--stop-after", "1"])
    tg.manual_seed(99)  # whatever happened in between
    assert demo.main([*common, "--checkpoint", str(parts), "--resume"]) == accuracy
    assert whole.read_bytes() == parts.read_bytes()


def test_resuming_with_other_settings_is_refused(demo, tmp_path):
    checkpoint = str(tmp_path / "run.tape")
    demo.main(["--epochs", "2", "--stop-after", "1", "--batch-size", "1000", "--quiet", "--picture", "", "--checkpoint", checkpoint])
    with pytest.raises(SystemExit, match="--epochs 2"):
        demo.main(["--epochs", "3", "--resume", "--quiet", "--picture", "", "--checkpoint", checkpoint])


def test_the_notebook_runs(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    notebook = nbformat.read(ROOT / "examples" / "mnist.ipynb", as_version=4)
    path = [str(Path(tg.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "MPLBACKEND": "agg", "IPYTHONDIR": str(tmp_path)}
    runner = client.NotebookClient(notebook, timeout=200, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    runner.execute(env=environment)
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", []))
    accuracy = re.search(r"held-out accuracy: (0\.\d{4})", printed)
    assert accuracy and float(accuracy[1]) > 0.97


def test_parameter_server(example, tmp_path, monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    module = example("parameter_server")

    def run(name, *more):
        return module.main(["--steps", "120", "--images", "2000", "--lr", "0.02", "--quiet", "--checkpoint", str(tmp_path / name), *more])

    assert run("whole") > 0.75  # 0.1 by chance
    run("parts", "--stop-after", "50")
    run("parts", "--resume")
    files = [tmp_path / name / "shard-0000.step-000000120.tape" for name in ("whole", "parts")]
    assert files[0].read_bytes() == files[1].read_bytes()
