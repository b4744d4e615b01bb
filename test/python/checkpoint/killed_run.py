"""A small training run as a program: `python killed_run.py FOLDER EPOCHS` trains, saves every 3 steps, resumes, prints a hash of the weights.

Everything that a real run has draws random numbers: the order of samples, dropout, augmentation by NumPy and by Python's random.
"""

import hashlib
import random
import sys

import numpy as np
import tapegrad as tg
from tapegrad import checkpoint
from tapegrad.utils.data import DataLoader, TensorDataset


def main(folder: str, epochs: int, announce=print) -> str:
    tg.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    data = tg.randn(256, 16)
    target = (data.sum(1) > 0).long()
    model = tg.nn.Sequential(tg.nn.Linear(16, 64), tg.nn.BatchNorm1d(64), tg.nn.ReLU(), tg.nn.Dropout(0.2), tg.nn.Linear(64, 2))
    optimizer = tg.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = tg.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=epochs * 16)
    loader = DataLoader(TensorDataset(data, target), batch_size=16, shuffle=True)
    run = checkpoint.Checkpoints(folder, every_steps=3, keep=2, best="loss", model=model, optimizer=optimizer, scheduler=scheduler, loader=loader)
    values = run.resume() or {"epoch": 0}
    announce(f"at {run.steps}")
    for epoch in range(values["epoch"], epochs):
        for x, y in loader:
            x = x * (1 + 0.1 * float(np.random.randn())) + 0.1 * random.random()
            optimizer.zero_grad()
            loss = tg.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.step(epoch=epoch, loss=loss.item())
    everything = {**model.state_dict(), **{f"{n}.{k}": v for n, s in optimizer.state_dict()["state"].items() for k, v in s.items()}}
    return hashlib.sha256(b"".join(t.numpy().tobytes() for t in everything.values())).hexdigest()


if __name__ == "__main__":
    print("done", main(sys.argv[1], int(sys.argv[2]), lambda text: print(text, flush=True)), flush=True)
