"""A small training run as a program: `python killed_run.py FOLDER EPOCHS` trains, saves every 3 steps, resumes, prints a hash of the weights.

Everything that a real run has draws random numbers: the order of samples, dropout, augmentation by NumPy and by Python's random.
"""

from __future__ import annotations

import hashlib
import random
import sys

import numpy as np
import tapegrad as tg
from tapegrad import checkpoint


class Loader:
    """Batches in a shuffled order, with a position."""

    def __init__(self, n: int, batch: int) -> None:
        self.n, self.batch, self.at, self.order = n, batch, 0, None

    def __iter__(self):
        if self.order is None:
            self.order = tg.randperm(self.n)
        while self.at < self.n:
            self.at += self.batch
            yield self.order[self.at - self.batch:self.at]
        self.at, self.order = 0, None

    def state_dict(self) -> dict:
        return {"at": self.at, "order": self.order}

    def load_state_dict(self, state: dict) -> None:
        self.at, self.order = state["at"], state["order"]


def main(folder: str, epochs: int, announce=print) -> str:
    tg.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    data = tg.randn(256, 16)
    target = (data.sum(1) > 0).long()
    model = tg.nn.Sequential(tg.nn.Linear(16, 64), tg.nn.BatchNorm1d(64), tg.nn.ReLU(), tg.nn.Dropout(0.2), tg.nn.Linear(64, 2))
    optimizer = tg.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = tg.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=epochs * 16)
    loader = Loader(256, 16)
    run = checkpoint.Checkpoints(folder, every_steps=3, keep=2, best="loss", model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
    values = run.resume() or {"epoch": 0}
    announce(f"at {run.steps}")
    for epoch in range(values["epoch"], epochs):
        for index in loader:
            x = data[index] * (1 + 0.1 * float(np.random.randn())) + 0.1 * random.random()
            optimizer.zero_grad()
            loss = tg.nn.functional.cross_entropy(model(x), target[index])
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.step(epoch=epoch, loss=loss.item())
    everything = {**model.state_dict(), **{f"{n}.{k}": v for n, s in optimizer.state_dict()["state"].items() for k, v in s.items()}}
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in everything.values())).hexdigest()


if __name__ == "__main__":
    print("done", main(sys.argv[1], int(sys.argv[2]), lambda text: print(text, flush=True)), flush=True)
