"""The models of the benchmarks: those of their papers, the same in both libraries, and what a step of each asks for."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tapegrad

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))
from benchmarks.models import MODELS, Sizes, named  # noqa: E402
from benchmarks.models import counts as counting  # noqa: E402
from benchmarks.models.__main__ import COMPILED, IN_JAX, alike, beside_neighbour, neighbour  # noqa: E402
from benchmarks.models.training import Run, losses  # noqa: E402
from benchmarks.models.worker import Task  # noqa: E402


def run(*arguments):
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    before, own = torch.get_num_threads(), tapegrad.get_num_threads()
    torch.set_num_threads(1), tapegrad.set_num_threads(1)
    yield torch
    torch.set_num_threads(before), tapegrad.set_num_threads(own)


# As torchvision, timm and Hugging Face have them; MobileNet v1 as its paper's table of layers gives it.
PARAMETERS = {"AlexNet": 61_100_840, "VGG-19": 143_667_240, "ResNet-50": 25_557_032, "MobileNet v1": 4_231_976, "MobileNetV2": 3_504_872, "ViT-S": 22_050_664,
              "GPT-2 small": 124_439_808, "LSTM language model": 19_780_400, "graph network": 23_063}


@pytest.mark.parametrize("name", PARAMETERS)
def test_models_have_the_parameters_of_their_papers(name):
    with tapegrad.device("meta" if name != "graph network" else "cpu"):
        assert sum(p.numel() for p in named(name).build(tapegrad, Sizes()).parameters()) == PARAMETERS[name]


@pytest.mark.parametrize("name, dtype", [*((m.name, "float64") for m in MODELS), *((name, "bfloat16") for name in ("MobileNet v1", "ViT-S", "small BERT", "NCF"))])
def test_both_libraries_train_the_same_model(torch, name, dtype):
    model = named(name)
    own, other = (losses(Run(lib, model, Sizes(True), model.tiny, dtype)) for lib in (tapegrad, torch))
    assert alike(own, other, dtype), (own, other)
    assert len({round(x, 6) for x in own}) == 4  # the model learns: no two losses are one


def test_another_model_is_told_apart():
    model = named("digits MLP")
    right = losses(Run(tapegrad, model, Sizes(True), model.tiny))
    other = Run(tapegrad, model, Sizes(True), model.tiny)
    other.called = lambda x: other.module[2:](other.module[0](x))  # without the first ReLU
    assert not alike(right, losses(other), "float32")
    assert not alike(right, [float("nan"), *right[1:]], "float32")
    assert alike([1.0, 1.0, 1.0], [1.001, 1.0, 1.01], "float32") and not alike([1.0, 1.0, 1.0], [1.01, 1.0, 1.0], "float32")


def test_inference_gives_the_forward_pass():
    for name in ("ResNet-50", "small GPT"):
        model = named(name)
        r = Run(tapegrad, model, Sizes(True), model.tiny, training=False)
        assert not r.module.training and tapegrad.equal(r.infer(), r.module(*r.inputs).detach()) and not r.infer().requires_grad


def test_row_sparse_gradients_have_the_rows_that_were_read():
    model = named("NCF, row-sparse")
    r = Run(tapegrad, model, Sizes(True), model.tiny)
    before = r.module.user.weight.detach().clone()
    r.step()
    assert r.module.user.weight.grad.is_sparse and r.module.user.weight.grad._nnz() <= model.tiny
    changed = (r.module.user.weight.detach() != before).any(1).nonzero().flatten()
    assert changed.tolist() == sorted(set(r.inputs[0].tolist()))


def test_what_a_step_asks_for_is_as_it_was():
    """Written anew by `python -m benchmarks.models.counts --write`."""
    done = run("benchmarks.models.counts")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_copy_too_many_is_seen():
    native, x = tapegrad._C, tapegrad.randn(64, 64)  # beyond the products that call no library

    def counted(call):
        native._start_counting_work()
        call()
        return native._stop_counting_work()

    assert counted(lambda: x.t() @ x) == {"copies": 0, "library_calls": 1}
    assert counted(lambda: x.t().contiguous() @ x.double().float()) == {"copies": 3, "library_calls": 1}
    assert counted(lambda: tapegrad.nn.functional.conv2d(x.view(1, 1, 64, 64).transpose(2, 3), x[:3, :3].reshape(1, 1, 3, 3))) == {"copies": 2, "library_calls": 1}
    assert counted(lambda: tapegrad.linalg.cholesky(x @ x.t() + tapegrad.eye(64)))["library_calls"] >= 1
    native._start_counting_work()
    native._stop_counting_work()
    x.clone()
    assert native._stop_counting_work() == {"copies": 0, "library_calls": 0}  # nothing is counted in between
    row = dict.fromkeys(counting.KINDS, 1.0)
    assert counting.differences({"a": row, "b": row}, {"a": row | {"copies": 2.0}, "c": row}) == ["c: not in counts.json", "b: no longer a model", "a: copies 1 -> 2"]


def test_tables_and_pictures_are_written(torch, tmp_path):
    arguments = ["--only", "digits MLP", "--parts", "training", "starts", "profile", "--tiny", "--threads", "1", "--rounds", "2", "--starts", "1", "--out", str(tmp_path), "--name", "here"]
    done = run("benchmarks.models", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    (written,) = tmp_path.glob("*-here.json")
    found = json.loads(written.read_text())
    rows = {row["part"]: row for row in found["rows"]}
    assert set(rows) == {"training", "starts", "profile"}
    assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in rows["training"]["seconds"].values())
    own, other = rows["training"]["losses"]
    assert alike(own, other, "float32")
    operators = rows["profile"]["profile"]["operators"]
    assert operators["aten::linear"] > 0 and operators["Optimizer.step#Adam.step"] > 0
    text = written.with_suffix(".md").read_text()
    assert "### First step and memory" in text and "| digits MLP | 64 images |" in text
    assert {p.name.split("here")[1] for p in tmp_path.iterdir()} == {".json", ".md", "-times.png", "-profile.png"}


def test_a_neighbour_keeps_one_processor_busy():
    with neighbour() as process:
        def used(seconds=0.3):  # of processor time, in clock ticks
            def ticks():
                return int(Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11])

            time.sleep(0.1)
            before = ticks()
            time.sleep(seconds)
            return ticks() - before

        assert os.sched_getaffinity(process.pid) == {max(os.sched_getaffinity(0))} and used(1.0) > 0
        process.send_signal(signal.SIGSTOP)
        assert used() == 0
    assert process.returncode is not None
    row = beside_neighbour(Task("digits MLP", "tapegrad", tiny=True), 2)["neighbour"]
    assert len(row["idle"]) == len(row["busy"]) == 2 and min(*row["idle"], *row["busy"]) > 0


def test_the_models_that_are_compared_elsewhere_exist():
    assert len(COMPILED) >= 3 and len(IN_JAX) >= 3
    for name in (*COMPILED, *IN_JAX):
        assert named(name).cpu
