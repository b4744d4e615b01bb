"""Trains a small convolutional network on handwritten digits: `make demo`, or `python examples/mnist.py --help`.

The run can be stopped at any time: `--resume` goes on from the last complete epoch, and ends with the same weights, bit for
bit, as a run that was never stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time

import tapegrad as tg
from tapegrad import nn
from tapegrad.datasets import MNIST
from tapegrad.utils.data import DataLoader, TensorDataset

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


def build_network() -> nn.Module:
    """Two convolutions with pooling, two linear layers: 28 x 28 images to ten scores."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10))


class Run:
    """Everything that a training run consists of, and what a checkpoint has to hold."""

    def __init__(self, options) -> None:
        self.options = options
        tg.manual_seed(options.seed)
        train = MNIST(options.data, train=True, download=options.download)
        self.test = MNIST(options.data, train=False)
        self.generator = tg.Generator()
        self.loader = DataLoader(TensorDataset(*train.tensors()), batch_size=options.batch_size, shuffle=True, drop_last=True,
                                 generator=self.generator)
        self.model = build_network()
        self.optimizer = tg.optim.AdamW(self.model.parameters(), lr=options.lr, weight_decay=0.01)
        self.schedule = tg.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=options.lr,
                                                         total_steps=options.epochs * len(self.loader) + 1)
        self.epoch = 0
        self.losses: list[float] = []

    def save(self) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(self.options.checkpoint)), exist_ok=True)
        tg.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "schedule": self.schedule.state_dict(),
                 "epoch": self.epoch, "losses": self.losses, "random": tg.get_rng_state(), "epochs": self.options.epochs,
                 "seed": self.options.seed}, self.options.checkpoint)

    def load(self) -> None:
        state = tg.load(self.options.checkpoint)
        for name in ("epochs", "seed"):
            if state[name] != getattr(self.options, name):
                raise SystemExit(f"the checkpoint was made with --{name} {state[name]}: give the same to go on with it")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        tg.set_rng_state(state["random"])
        self.epoch, self.losses = state["epoch"], state["losses"]

    def train_one_epoch(self) -> None:
        self.model.train()
        self.generator.manual_seed(1000 * self.options.seed + self.epoch)  # the order of an epoch depends on its number only
        begin, seen, smooth = time.perf_counter(), 0, None
        with progress(self.loader, f"epoch {self.epoch + 1}/{self.options.epochs}", self.options.quiet) as batches:
            for images, labels in batches:
                loss = nn.functional.cross_entropy(self.model(images), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                value = loss.item()
                self.losses.append(value)
                seen += len(labels)
                smooth = value if smooth is None else 0.9 * smooth + 0.1 * value
                if hasattr(batches, "set_postfix_str"):
                    batches.set_postfix_str(f"loss {smooth:.3f}, {seen / (time.perf_counter() - begin):,.0f} images/s", refresh=False)
        if tqdm is None and not self.options.quiet:
            print(f"epoch {self.epoch + 1}/{self.options.epochs}: loss {smooth:.3f}, {seen / (time.perf_counter() - begin):,.0f} images/s")
        self.epoch += 1

    @tg.no_grad()
    def evaluate(self):
        """Scores and labels of the held-out images."""
        self.model.eval()
        images, labels = self.test.tensors()
        return tg.cat([self.model(part) for part in images.split(500)]), labels


@contextlib.contextmanager
def progress(loader, title: str, quiet: bool):
    """The loader itself, or with a progress bar around it."""
    if quiet or tqdm is None:
        yield loader
    else:
        with tqdm(loader, desc=title, unit="batch", ncols=100) as bar:
            yield bar


def draw(run: Run, scores, labels, path: str) -> None:
    """A picture with the loss, the confusion matrix and the worst mistakes."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        print("no picture: matplotlib is not installed")
        return
    import numpy as np

    guesses, truth = scores.argmax(1).numpy(), labels.numpy()
    doubt = nn.functional.cross_entropy(scores, labels, reduction="none").numpy()
    figure = plt.figure(figsize=(13, 7))
    grid = figure.add_gridspec(2, 8)
    axis = figure.add_subplot(grid[0, :4])
    axis.plot(run.losses, lw=0.6, alpha=0.5)
    width = max(1, len(run.losses) // 50)
    if len(run.losses) > width:
        axis.plot(np.arange(width - 1, len(run.losses)), np.convolve(run.losses, np.ones(width) / width, "valid"))
    axis.set(title="loss of each batch", xlabel="step", yscale="log")
    axis = figure.add_subplot(grid[0, 5:])
    matrix = np.zeros((10, 10), int)
    np.add.at(matrix, (truth, guesses), 1)
    axis.imshow(np.log1p(matrix), cmap="Blues")
    for (i, j), n in np.ndenumerate(matrix):
        if n:
            axis.text(j, i, n, ha="center", va="center", fontsize=7, color="white" if i == j else "black")
    axis.set(title=f"{np.trace(matrix)} of {matrix.sum()} right", xlabel="guess", ylabel="digit", xticks=range(10), yticks=range(10))
    wrong = np.flatnonzero(guesses != truth)
    for place, i in enumerate(wrong[np.argsort(-doubt[wrong])][:8]):
        axis = figure.add_subplot(grid[1, place])
        axis.imshow(run.test.data[int(i)].numpy(), cmap="gray_r")
        axis.set(title=f"{truth[i]} read as {guesses[i]}", xticks=[], yticks=[])
    figure.tight_layout()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)
    print(f"picture: {path}")


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=4e-3, help="the highest learning rate of the schedule")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", help="folder with the full MNIST files (default: the images in the package)")
    parser.add_argument("--download", action="store_true", help="fetch the full set into the folder --data")
    parser.add_argument("--checkpoint", default="runs/mnist.tape")
    parser.add_argument("--picture", default="runs/mnist.png")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--stop-after", type=int, metavar="N", help="end after epoch N, as if the run had been stopped")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args(arguments)


def main(arguments=None) -> float:
    options = parse(arguments)
    run = Run(options)
    if options.resume:
        run.load()
        print(f"resuming after epoch {run.epoch}")
    count = sum(p.numel() for p in run.model.parameters())
    print(f"{len(run.loader.dataset):,} images to train, {len(run.test):,} held out, {count:,} parameters, "
          f"{tg.get_num_threads()} threads")
    begin = time.perf_counter()
    while run.epoch < options.epochs:
        run.train_one_epoch()
        run.save()
        if run.epoch == options.stop_after:
            print(f"stopped after epoch {run.epoch}; checkpoint: {options.checkpoint}")
            return 0.0
    print(f"trained in {time.perf_counter() - begin:.1f} s; checkpoint: {options.checkpoint}")
    scores, labels = run.evaluate()
    if options.picture:
        draw(run, scores, labels, options.picture)
    accuracy = (scores.argmax(1) == labels).float().mean().item()
    print(f"held-out accuracy: {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    main()
