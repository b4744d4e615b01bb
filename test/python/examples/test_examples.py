"""Each example in small: it learns what only learning reaches, draws, and goes on bit for bit after a stop."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tapegrad as tg


def run_small(example, name, arguments, tmp_path, half, picture=True):
    """What main gives; on the way the run is made a second time with a stop in the middle, and must end with the same bytes."""
    module = example(name)
    whole, parts, plot = tmp_path / "whole.tape", tmp_path / "parts.tape", tmp_path / "plot.png"
    common = [*arguments, "--quiet", "--checkpoint"]
    result = module.main([*common, str(whole), "--picture", str(plot)])
    assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 10_000
    assert module.main([*common, str(parts), "--picture", "", "--stop-after", str(half)]) is None
    tg.manual_seed(99)  # whatever happened in between
    assert module.main([*common, str(parts), "--picture", "", "--resume"]) == result
    assert whole.read_bytes() == parts.read_bytes()
    return result


@pytest.fixture(autouse=True)
def drawing():
    pytest.importorskip("matplotlib")
    pytest.importorskip("PIL")


def test_gpt(example, tmp_path, capsys):
    arguments = ["--steps", "250", "--layers", "2", "--width", "64", "--length", "32", "--lr", "8e-3", "--sample", "300",
                 "--temperature", "0.6"]
    loss, written = run_small(example, "gpt", arguments, tmp_path, 130)
    assert loss < 2.43  # pairs of letters alone give 2.45, single ones 3.3
    text = example("gpt").Text()
    assert text.real_words(written) > 0.06
    generator = tg.Generator()
    noise = text.decode(tg.randint(0, len(text.letters), (3000,), generator=generator))
    assert text.real_words(noise) < 0.01
    assert "--- it writes:\nROMEO:\n" in capsys.readouterr().out


def test_gpt_sees_no_later_letter(example):
    model = example("gpt").GPT(letters=11, length=8, layers=2, heads=2, width=8, dropout=0.0)
    x = tg.arange(8).unsqueeze(0)
    changed = x.clone()
    changed[0, 5] = 10
    before, after = model(x), model(changed)
    assert tg.equal(before[:, :5], after[:, :5]) and not tg.allclose(before[:, 5:], after[:, 5:])
    assert model.write(x[:, :1], 12).shape == (1, 13)  # beyond its length


def test_vae(example, tmp_path):
    bound = run_small(example, "vae", ["--epochs", "2", "--width", "128", "--codes", "8"], tmp_path, 1)
    assert bound < 185  # 206 is what the mean image alone gives


def test_vae_bound_of_the_mean_image(example):
    images = example("common").digits()
    mean = images.mean(0, keepdim=True).clamp(1e-6, 1 - 1e-6)
    nats = -(images * mean.log() + (1 - images) * (1 - mean).log()).sum((1, 2, 3)).mean().item()
    assert 200 < nats < 212


def test_dcgan(example, tmp_path):
    arguments = ["--steps", "60", "--width", "8", "--lr", "2e-3"]
    before, after = run_small(example, "dcgan", arguments, tmp_path, 31)
    assert after < 0.5 * before


def test_dcgan_distance(example):
    module = example("dcgan")
    real = example("common").digits() * 2 - 1
    distance = module.Distance(real[:2000])
    assert distance(real[:2000]) == pytest.approx(0, abs=1e-3)
    assert distance(real[2000:4000]) < 1.5
    assert distance(tg.randn(500, 1, 28, 28)) > 50


def test_cartpole(example, tmp_path):
    before, after = run_small(example, "cartpole", ["--rounds", "12"], tmp_path, 5)
    assert before < 120
    assert after > 180


def test_cartpole_is_the_well_known_one(example):
    """One step of the equations, with numbers worked out by hand in double precision."""
    import math

    world = example("cartpole").CartPole(1)
    x, v, a, w = 0.1, -0.2, 0.05, 0.3
    world.state = tg.tensor([[x, v, a, w]])
    state, fell, ended = world.step(tg.tensor([1]))
    push = (10 + 0.05 * w * w * math.sin(a)) / 1.1
    turning = (9.8 * math.sin(a) - math.cos(a) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(a) ** 2 / 1.1))
    moving = push - 0.05 * turning * math.cos(a) / 1.1
    assert state[0].tolist() == pytest.approx([x + 0.02 * v, v + 0.02 * moving, a + 0.02 * w, w + 0.02 * turning], rel=1e-5)
    assert not fell.item() and not ended.item()
    world.state = tg.tensor([[2.41, 0.0, 0.0, 0.0]])
    assert world.step(tg.tensor([0]))[1].item()
    assert world.state.abs().max().item() <= 0.05  # it begins anew


def test_lstm(example, tmp_path):
    arguments = ["--steps", "120", "--width", "64", "--words", "1000", "--layers", "1", "--lr", "0.02", "--length", "20"]
    known, perplexity = run_small(example, "lstm", arguments, tmp_path, 50)
    assert perplexity < 0.8 * known


def test_recommender(example, tmp_path):
    arguments = ["--users", "300", "--films", "200", "--ratings", "20000", "--epochs", "6", "--lr", "0.03", "--batch-size", "250"]
    guess, error = run_small(example, "recommender", arguments, tmp_path, 2)
    assert guess > 0.8
    assert 0.3 < error < 0.37  # the noise is 0.3


def test_recommender_touches_the_rows_of_a_batch_only(example):
    model = example("recommender").Factorisation(50, 40, 3, 3.5)
    model(tg.tensor([4, 7]), tg.tensor([1, 1])).sum().backward()
    assert model.users.weight.grad.is_sparse
    assert model.users.weight.grad.coalesce().indices().tolist() == [[4, 7]]
    assert model.film_bias.weight.grad.coalesce().indices().tolist() == [[1]]


def test_finetune(example, tmp_path):
    base, result = tmp_path / "base.pt", tmp_path / "turned.pt"
    module = example("finetune")
    arguments = ["--epochs", "2", "--images", "2000", "--rank", "3", "--base", str(base), "--result", str(result)]
    before, after = run_small(example, "finetune", arguments, tmp_path, 1)
    assert before < 0.3 and after > 0.6
    state, old = tg.load(result), tg.load(base)  # a plain network of the same format, every weight of which has moved a little
    assert sorted(state) == sorted(old)
    assert all(tg.linalg.matrix_rank((state[n] - old[n]).flatten(1), rtol=1e-3).item() <= 3 for n in state if n.endswith("weight"))
    assert all(tg.equal(state[n], old[n]) for n in state if n.endswith("bias"))
    model = module.build_network()
    model.load_state_dict(state)
    assert module.accuracy(model, *module.data(train=False, turned=True)) == after


def test_graph(example, tmp_path):
    arguments = ["--steps", "30", "--nodes", "1200", "--labels", "5", "--near", "6"]
    alone, graph = run_small(example, "graph", arguments, tmp_path, 12)
    assert graph > alone + 0.03 and graph > 0.6


def test_graph_matrix_has_the_rows_of_the_definition(example):
    module = example("graph")
    points = tg.tensor([[0.0], [1.0], [3.0], [3.5]])
    edges = module.neighbours(points, 1)
    assert edges.tolist() == [[0, 1, 2, 3], [1, 0, 3, 2]]
    half = tg.tensor([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]])
    assert tg.allclose(module.normalised(edges, 4).to_dense(), half)


def test_diffusion(example, tmp_path):
    arguments = ["--steps", "80", "--width", "8", "--batch-size", "32", "--lr", "6e-3", "--denoise", "8", "--judged", "100"]
    before, after = run_small(example, "diffusion", arguments, tmp_path, 25)
    assert before > 150 and after < 0.75 * before


def test_noise_is_taken_away_by_who_knows_it(example):
    """A model that knows the image gives it back, whatever the noise was."""
    module = example("diffusion")
    image = tg.rand(2, 1, 28, 28) * 2 - 1

    def knows(x, ratio):
        signal = ratio.sigmoid().sqrt()[:, None, None, None]  # signal^2 + noise^2 = 1
        return (x - signal * image) / (1 - signal * signal).sqrt()

    found, stages = module.draw(knows, tg.randn(2, 1, 28, 28), 10, keep=5)
    assert tg.allclose(found, image, atol=0.05) and len(stages) == 6
    assert len(module.draw(knows, tg.randn(2, 1, 28, 28), 3, keep=5)[1]) == 4  # fewer steps than were asked for


SMALL = ["--users", "30", "--films", "20", "--ratings", "200", "--picture", ""]


def started_small(folder, *arguments):
    """recommender.py as a program, which finds what it imports in a folder first."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(Path(tg.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])}
    program = [sys.executable, str(Path(__file__).resolve().parents[3] / "examples/recommender.py"), *SMALL, *arguments]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_ctrl_c_ends_after_the_round_with_a_checkpoint(tmp_path):
    checkpoint = tmp_path / "x.tape"
    started = started_small(tmp_path, "--checkpoint", str(checkpoint), "--epochs", "100000")
    while not checkpoint.exists() and started.poll() is None:
        time.sleep(0.02)
    started.send_signal(signal.SIGINT)
    printed, errors = started.communicate(timeout=60)
    assert started.returncode == 130 and "Traceback" not in errors
    (line,) = (line for line in printed.splitlines() if "interrupted" in line)
    number = int(re.fullmatch(rf"interrupted after epoch (\d+) of 100000; checkpoint: {checkpoint}, --resume goes on from it", line)[1])
    assert tg.load(checkpoint)["values"]["round"] == number


def test_ctrl_c_in_one_of_many_processes_stops_all_with_a_checkpoint(example, tmp_path, monkeypatch, capsys):
    module = example("fsdp_gpt")
    update = module.update
    monkeypatch.setattr(module, "update", lambda model, optimizer, x, y, step, options: (
        os.kill(os.getpid(), signal.SIGINT) if step == 2 else None, update(model, optimizer, x, y, step, options))[1])
    small = ["--steps", "50", "--length", "8", "--layers", "1", "--heads", "1", "--width", "8", "--batch-size", "2", "--quiet", "--checkpoint", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as ended:
        module.main(small)
    assert ended.value.code == 130
    assert f"interrupted after step 3; checkpoint: {tmp_path / 'run'}, --resume goes on from it" in capsys.readouterr().out
    monkeypatch.setattr(module, "update", update)
    module.main([*small, "--resume", "--stop-after", "4"])
    assert "resuming after step 3" in capsys.readouterr().out


def test_ctrl_c_while_the_last_checkpoint_is_written_is_not_lost(example, tmp_path, monkeypatch, capsys):
    module = example("recommender")
    save = module.common.Run.save
    monkeypatch.setattr(module.common.Run, "save", lambda run: (save(run), os.kill(os.getpid(), signal.SIGINT) if run.round == 2 else None))
    with pytest.raises(SystemExit) as ended:
        module.main([*SMALL, "--checkpoint", str(tmp_path / "x.tape"), "--quiet", "--epochs", "2"])
    assert ended.value.code == 130
    assert capsys.readouterr().out.splitlines()[-1] == f"interrupted after epoch 2 of 2; checkpoint: {tmp_path / 'x.tape'}, --resume goes on from it"


@pytest.mark.parametrize("name", ["tqdm", "bz2", "tapegrad"])  # of what is imported last, of the standard library, and what all else needs
def test_ctrl_c_before_the_run_is_one_line(tmp_path, name):
    """Also where a module takes it for an error of its own, as NumPy does."""
    (tmp_path / f"{name}.py").write_text("import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    raise ImportError\n")
    started = started_small(tmp_path)
    assert started.communicate(timeout=60) == ("", "interrupted before the run began\n") and started.returncode == 130


def test_ctrl_c_after_the_run_changes_nothing(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import atexit, os, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n")
    started = started_small(tmp_path, "--epochs", "1", "--quiet", "--checkpoint", str(tmp_path / "x.tape"))
    printed, errors = started.communicate(timeout=60)
    assert (started.returncode, errors) == (0, "") and "held-out error" in printed


def test_resume_says_what_there_is_to_go_on_from(example, tmp_path, capsys):
    module, where = example("recommender"), ["--checkpoint", str(tmp_path / "x.tape"), "--quiet", "--epochs", "2"]
    module.main([*SMALL, *where, "--resume"])
    assert f"no checkpoint at {tmp_path / 'x.tape'} yet: starting from the beginning\n" in capsys.readouterr().out
    module.main([*SMALL, *where, "--resume"])
    assert "the run is complete, all 2 epochs of it: nothing is left to train" in capsys.readouterr().out


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(("broken", "said"), [
    (cut, "the checkpoint {} cannot be read: the file ends within the tensor 'generators.tapegrad'"),
    (lambda path: tg.save({"a": 1}, path), "{} is no checkpoint of an example"),
    (lambda path: (path.unlink(), path.mkdir()), "the checkpoint {} cannot be written: it is a folder"),
])
def test_a_checkpoint_that_is_none_is_one_line(example, tmp_path, capsys, broken, said):
    module, where = example("recommender"), tmp_path / "x.tape"
    arguments = [*SMALL, "--checkpoint", str(where), "--quiet", "--epochs"]
    module.main([*arguments, "1"])
    broken(where)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        module.main([*arguments, "2", "--resume"])
    assert ended.value.code == 1 and capsys.readouterr().out.splitlines()[-1].startswith(said.format(where))


def test_a_disk_that_is_full_is_one_line(example, tmp_path, monkeypatch, capsys):
    module, where = example("recommender"), tmp_path / "x.tape"
    save = tg.checkpoint.save

    def full(path, **values):
        if values["round"] == 2:
            raise OSError(28, "save: No space left on device", path)
        save(path, **values)

    monkeypatch.setattr(tg.checkpoint, "save", full)
    with pytest.raises(SystemExit) as ended:
        module.main([*SMALL, "--checkpoint", str(where), "--quiet", "--epochs", "3"])
    assert ended.value.code == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"the checkpoint {where} cannot be written: No space left on device; the one before, {where}, is still there"
    monkeypatch.undo()
    module = example("recommender")
    module.main([*SMALL, "--checkpoint", str(where), "--quiet", "--epochs", "3", "--resume", "--picture", str(where / "p.png")])
    printed = capsys.readouterr().out
    assert "resuming after epoch 1 of 3" in printed and f"no picture: {where / 'p.png'} cannot be written: " in printed


def test_checkpoints_by_time_and_figures_as_they_are(example, tmp_path, monkeypatch):
    common = example("common")
    options = common.arguments("", "x").parse_args(["--checkpoint", str(tmp_path / "x.tape")])
    saved, shown = [], []
    run = common.Run(options)
    monkeypatch.setattr(run, "save", lambda: saved.append(run.round))
    monkeypatch.setattr(common, "tqdm", None)
    monkeypatch.setattr("builtins.print", lambda *text, **_: shown.append(text[0]))
    run.seconds = 0.0
    for number in run.rounds(3, "epoch", save_every=100):
        run.record(held_out=float(number))
    assert saved == [1, 2, 3] and "epoch 3/3: held_out 2" in shown  # not the mean of all
    saved.clear()
    run.round, run.seconds, run.history = 0, 30, {}
    for number in run.rounds(3, "step", save_every=100):
        run.record(loss=float(number))
    assert saved == [3] and "step 3/3: loss 1" in shown  # what is recorded in each step is smoothed


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_there_are_no_parts_of_a_round(example, tmp_path, count):
    common = example("vae").common
    with common.picture(str(tmp_path / "x.png"), 4, 3) as (figure, axes):
        common.draw_curve(axes[0, 0], [2.0] * count, "loss", "epoch")
        figure.canvas.draw()
        assert all(tick == round(tick) for tick in axes[0, 0].get_xticks())


def test_other_settings_are_refused(example, tmp_path):
    module = example("recommender")
    small = ["--users", "30", "--films", "20", "--ratings", "200", "--quiet", "--picture", "", "--checkpoint", str(tmp_path / "x.tape")]
    module.main([*small, "--epochs", "2", "--stop-after", "1"])
    with pytest.raises(SystemExit, match="--epochs 2"):
        module.main([*small, "--epochs", "3", "--resume"])


def test_plain_lines_without_tqdm(example, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(example("common"), "tqdm", None)
    example("recommender").main(["--users", "30", "--films", "20", "--ratings", "200", "--epochs", "2", "--picture", "",
                                 "--checkpoint", str(tmp_path / "x.tape")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("epoch 1/2: training ") and "held_out" in lines[1]
