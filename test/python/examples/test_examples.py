"""Each example in small: it learns what only learning reaches, draws, and goes on bit for bit after a stop."""

from __future__ import annotations

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
