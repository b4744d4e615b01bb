"""tapegrad.checkpoint: what comes back, optimizer state by name, folders of files."""

import os
import random
import struct

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import checkpoint


class Loader:
    """Batches of numbers in a shuffled order, with a position: what a loader needs to be resumed."""

    def __init__(self, n=40, batch=4):
        self.n, self.batch = n, batch
        self.at, self.order = 0, None

    def __iter__(self):
        if self.order is None:
            self.order = tg.randperm(self.n)
        while self.at < self.n:
            self.at += self.batch
            yield self.order[self.at - self.batch:self.at]
        self.at, self.order = 0, None

    def state_dict(self):
        return {"at": self.at, "order": self.order}

    def load_state_dict(self, state):
        self.at, self.order = state["at"], state["order"]


def make(seed=0):
    tg.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    model = tg.nn.Sequential(tg.nn.Linear(3, 8), tg.nn.BatchNorm1d(8), tg.nn.ReLU(), tg.nn.Dropout(0.3), tg.nn.Linear(8, 1))
    optimizer = tg.optim.Adam(model.parameters(), lr=0.05)
    scheduler = tg.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=200)
    return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": Loader(), "noise": np.random.default_rng(seed),
            "dice": random.Random(seed), "generator": tg.Generator().manual_seed(seed)}


def train_step(parts, index):
    x = tg.stack([index.float() / 40, index.float().sin(), tg.full((len(index),), float(np.random.rand()))], 1)
    x = x + 0.01 * float(parts["noise"].normal()) + 0.01 * random.random() + 0.01 * parts["dice"].random()
    x = x + 0.01 * tg.rand(1, generator=parts["generator"])
    parts["optimizer"].zero_grad()
    loss = (parts["model"](x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    parts["optimizer"].step()
    parts["scheduler"].step()
    return loss.item()


def run(parts, epochs, each=lambda epoch, loss: None, start=0):
    losses = []
    for epoch in range(start, epochs):
        for index in parts["loader"]:
            losses.append(train_step(parts, index))
            each(epoch, losses[-1])
    return losses


def bits(parts):
    return [t.numpy().tobytes() for t in parts["model"].state_dict().values()]


class Stop(Exception):
    pass


def test_a_run_goes_on_in_mid_epoch_bit_for_bit(tmp_path):
    whole = make()
    losses = run(whole, 3)
    first = make()
    path = tmp_path / "run.tape"
    seen = []

    def stop(epoch, loss):
        seen.append(loss)
        if len(seen) == 17:
            checkpoint.save(path, epoch=epoch, loss=loss, note={"a": [1, (2, 3)]}, **first)
            raise Stop

    with pytest.raises(Stop):
        run(first, 3, stop)
    second = make(seed=5)
    values = checkpoint.load(path, **second)
    assert values == {"epoch": 1, "loss": seen[-1], "note": {"a": [1, (2, 3)]}}
    rest = run(second, 3, start=values["epoch"])
    assert seen + rest == losses
    assert bits(second) == bits(whole)


def test_flags_gradients_and_tied_weights(tmp_path):
    def tied():
        model = tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.Dropout(), tg.nn.Linear(4, 4))
        model[2].weight = model[0].weight
        return model

    model = tied()
    model[1].eval()
    model(tg.ones(2, 4)).sum().backward()
    checkpoint.save(tmp_path / "x", model=model, gradients=True)
    other = tied()
    checkpoint.load(tmp_path / "x", model=other)
    assert [m.training for m in other.modules()] == [True, True, False, True]
    assert tg.equal(other[0].weight.grad, model[0].weight.grad)
    assert other[2].weight is other[0].weight
    checkpoint.save(tmp_path / "x", model=model, generators=False)
    third = tied()
    before = tg.get_rng_state()
    checkpoint.load(tmp_path / "x", model=third)
    assert third[0].weight.grad is None
    assert tg.equal(tg.get_rng_state(), before)


def trained(model, optimizer):
    for _ in range(3):
        optimizer.zero_grad()
        model(tg.randn(4, 3)).square().sum().backward()
        optimizer.step()


class Model(tg.nn.Module):
    def __init__(self, turned=False, more=False):
        super().__init__()
        if turned:
            self.b = tg.nn.Linear(5, 2)
            self.a = tg.nn.Linear(3, 5)
        else:
            self.a = tg.nn.Linear(3, 5)
            self.b = tg.nn.Linear(5, 2)
        if more:
            self.c = tg.nn.Linear(2, 2)

    def forward(self, x):
        return self.b(self.a(x))


def test_optimizer_state_follows_names(tmp_path):
    model = Model()
    optimizer = tg.optim.Adam([{"params": model.a.parameters(), "lr": 0.1}, {"params": model.b.parameters(), "lr": 0.2}])
    trained(model, optimizer)
    checkpoint.save(tmp_path / "x", model=model, optimizer=optimizer)

    other = Model(turned=True)
    own = tg.optim.Adam([{"params": [other.b.bias, other.b.weight], "lr": 9.0}, {"params": other.a.parameters(), "lr": 9.0}])
    checkpoint.load(tmp_path / "x", model=other, optimizer=own)
    for (name, p), q in zip(sorted(model.named_parameters()), [q for _, q in sorted(other.named_parameters())], strict=True):
        assert tg.equal(p, q), name
        for key in ("exp_avg", "exp_avg_sq", "step"):
            assert tg.equal(optimizer.state[p][key], own.state[q][key]), name
    assert [g["lr"] for g in own.param_groups] == [0.2, 0.1]

    one = Model()
    single = tg.optim.Adam(one.parameters(), lr=9.0)  # one group where there were two
    checkpoint.load(tmp_path / "x", model=one, optimizer=single)
    assert tg.equal(single.state[one.b.weight]["exp_avg"], optimizer.state[model.b.weight]["exp_avg"])
    assert single.param_groups[0]["lr"] == 0.1

    larger = Model(more=True)
    grown = tg.optim.Adam(larger.parameters())
    with pytest.raises(RuntimeError, match=r"Missing key"):
        checkpoint.load(tmp_path / "x", model=larger, optimizer=grown)
    checkpoint.load(tmp_path / "x", model=larger, optimizer=grown, strict=False)
    assert tg.equal(grown.state[larger.b.weight]["exp_avg"], optimizer.state[model.b.weight]["exp_avg"])
    assert larger.c.weight not in grown.state or not grown.state[larger.c.weight]
    trained(larger, grown)


def test_parameters_that_an_optimizer_lacks(tmp_path):
    model = Model(more=True)
    optimizer = tg.optim.Adam([*model.a.parameters(), *model.b.parameters()])
    trained(model, optimizer)
    checkpoint.save(tmp_path / "x", model=model, optimizer=optimizer)
    other = tg.optim.Adam([*model.b.parameters(), *model.c.parameters()])
    message = "not in the file: model.c.weight, model.c.bias; only in the file: model.a.weight, model.a.bias"
    with pytest.raises(RuntimeError, match=f"the parameters of 'optimizer' do not match: {message}"):
        checkpoint.load(tmp_path / "x", model=model, optimizer=other)
    checkpoint.load(tmp_path / "x", model=model, optimizer=other, strict=False)
    assert tg.equal(other.state[model.b.bias]["exp_avg"], optimizer.state[model.b.bias]["exp_avg"])


def test_optimizers_without_names_go_by_position(tmp_path):
    w = tg.ones(3, requires_grad=True)
    optimizer = tg.optim.Adam([w])
    w.sum().backward()
    optimizer.step()
    checkpoint.save(tmp_path / "x", optimizer=optimizer)
    v = tg.ones(3, requires_grad=True)
    other = tg.optim.Adam([v])
    checkpoint.load(tmp_path / "x", optimizer=other)
    assert tg.equal(other.state[v]["exp_avg"], optimizer.state[w]["exp_avg"])


def test_mistakes(tmp_path):
    path = tmp_path / "x"
    parts = make()
    checkpoint.save(path, model=parts["model"], n=1)
    with pytest.raises(RuntimeError, match=r"do not match .*x: not in the file: 'optimizer'\nstrict=False"):
        checkpoint.load(path, model=parts["model"], optimizer=parts["optimizer"])
    with pytest.raises(RuntimeError, match="only in the file: 'model'"):
        checkpoint.load(path)
    assert checkpoint.load(path, strict=False) == {"n": 1}
    with pytest.raises(RuntimeError, match="'model' is a Adam, and the saved one was of the kind 'module'"):
        checkpoint.load(path, model=parts["optimizer"])
    with pytest.raises(TypeError, match="'model' has no state to restore: got int"):
        checkpoint.load(path, model=3)
    tg.save({"a": 1}, path)
    with pytest.raises(RuntimeError, match="holds no checkpoint"):
        checkpoint.load(path)
    with pytest.raises(TypeError, match="cannot save an object of class"):
        checkpoint.save(path, value=object())
    assert tg.load(path) == {"a": 1}
    for options in ({"keep": 0}, {"every_steps": 0}, {"every_seconds": -1.0}, {"mode": "least"}):
        with pytest.raises(ValueError, match="Checkpoints: "):
            checkpoint.Checkpoints(tmp_path / "f", **options)
    with pytest.raises(TypeError, match="'n' has no state"):
        checkpoint.Checkpoints(tmp_path / "f", n=3)
    files = checkpoint.Checkpoints(tmp_path / "f", model=parts["model"])
    with pytest.raises(ValueError, match="belong to parts and options: model"):
        files.save(model=1)
    with pytest.raises(TypeError, match="'optimizer' has a state"):
        files.save(optimizer=parts["optimizer"])


def test_periods_and_what_stays(tmp_path):
    model = tg.nn.Linear(1, 1)
    run_ = checkpoint.Checkpoints(tmp_path / "run", every_steps=3, keep=2, best="loss", model=model)
    assert run_.resume() is None
    saved = [run_.step(loss=loss, n=n) for n, loss in enumerate([9, 8, 7, 6, 5, 1.0, 3, 3, 3, 2, 2, 2.0])]
    assert [s is not None for s in saved] == [False, False, True] * 4
    assert [os.path.basename(f) for f in run_.files()] == ["step-000000009.tape", "step-000000012.tape"]
    assert run_.best_value == 1.0
    other = checkpoint.Checkpoints(tmp_path / "run", model=tg.nn.Linear(1, 1), best="loss")
    assert other.resume() == {"loss": 2.0, "n": 11}
    assert other.steps == 12
    assert other.best_value == 1.0
    assert other.load(other.best_file) == {"loss": 1.0, "n": 5}
    assert other.steps == 6
    assert sorted(os.listdir(tmp_path / "run")) == ["best.tape", "step-000000009.tape", "step-000000012.tape"]

    timed = checkpoint.Checkpoints(tmp_path / "timed", every_seconds=0.0, model=model, best="acc", mode="max")
    assert timed.step(acc=float("nan"))
    assert timed.best_file is None
    assert timed.step(acc=0.5)
    assert timed.best_value == 0.5
    timed.every_seconds = 1000.0
    assert timed.step(acc=0.6) is None


def test_a_damaged_file_is_skipped(tmp_path):
    model = tg.nn.Linear(2, 2)
    run_ = checkpoint.Checkpoints(tmp_path, model=model)
    for n in range(2):
        run_.steps = n
        with tg.no_grad():
            model.weight.fill_(float(n + 1))
        run_.save(n=n)
    newest = run_.files()[-1]
    with open(newest, "rb") as file:
        raw = bytearray(file.read())
    raw[raw.index(struct.pack("<f", 2.0) * 4)] ^= 1
    with open(newest, "wb") as file:
        file.write(raw)
    (tmp_path / ".step-000000007.tape.0123456789ab.tmp").write_bytes(b"left")
    with pytest.warns(UserWarning, match="'parts.model.state.state.weight' is damaged"):
        assert run_.resume() == {"n": 0}
    assert model.weight.tolist() == [[1, 1], [1, 1]]
    assert not [f for f in os.listdir(tmp_path) if f.endswith(".tmp")]
    for path in run_.files():
        with open(path, "wb"):
            pass
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="none of the 2 files"):
        run_.resume()
