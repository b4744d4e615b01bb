"""Trains a small convolutional network on handwritten digits: `make demo`, or `python examples/mnist.py --help`.

The run can be stopped at any time: Ctrl-C ends it after the epoch, `--resume` goes on from the last complete one, and ends with the
same weights, bit for bit, as a run that was never stopped.
"""

from __future__ import annotations

import time

import common
import tapegrad as tg
from tapegrad import nn
from tapegrad.datasets import MNIST
from tapegrad.utils.data import DataLoader, TensorDataset


def build_network() -> nn.Module:
    """Two convolutions with pooling, two linear layers: 28 x 28 images to ten scores."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10))


class Training:
    """The data, the network, and one epoch of training."""

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
        self.run = common.Run(options, ("epochs", "batch_size"), model=self.model, optimizer=self.optimizer, schedule=self.schedule)

    def one_epoch(self, epoch: int) -> None:
        self.model.train()
        self.generator.manual_seed(1000 * self.options.seed + epoch)  # the order of an epoch depends on its number only
        begin, seen, smooth = time.perf_counter(), 0, None
        with common.progress(self.loader, f"epoch {epoch + 1}/{self.options.epochs}", self.options.quiet, unit="batch") as batches:
            for images, labels in batches:
                loss = nn.functional.cross_entropy(self.model(images), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.schedule.step()
                value = loss.item()
                self.run.record(loss=value)
                seen += len(labels)
                smooth = value if smooth is None else 0.9 * smooth + 0.1 * value
                if hasattr(batches, "set_postfix_str"):
                    batches.set_postfix_str(f"loss {smooth:.3f}, {seen / (time.perf_counter() - begin):,.0f} images/s", refresh=False)
        if batches is self.loader and not self.options.quiet:
            print(f"epoch {epoch + 1}/{self.options.epochs}: loss {smooth:.3f}, {seen / (time.perf_counter() - begin):,.0f} images/s")

    @tg.no_grad()
    def evaluate(self):
        """Scores and labels of the held-out images."""
        self.model.eval()
        images, labels = self.test.tensors()
        return tg.cat([self.model(part) for part in images.split(500)]), labels


def draw(training: Training, scores, labels, path: str) -> None:
    """A picture with the loss, the confusion matrix and the worst mistakes."""
    import numpy as np

    guesses, truth = scores.argmax(1).numpy(), labels.numpy()
    doubt = nn.functional.cross_entropy(scores, labels, reduction="none").numpy()
    with common.picture(path, 13, 6, 2, 8) as drawing:
        if drawing is None:
            return
        figure, axes = drawing
        for axis in axes[0]:
            axis.remove()
        grid = axes[0, 0].get_gridspec()
        grid.set_height_ratios([2, 1])
        common.draw_curve(figure.add_subplot(grid[0, :5]), training.run.history["loss"], "loss of each batch", yscale="log")
        axis = figure.add_subplot(grid[0, 5:])
        matrix = np.zeros((10, 10), int)
        np.add.at(matrix, (truth, guesses), 1)
        axis.imshow(np.log1p(matrix), cmap="Blues")
        for (i, j), n in np.ndenumerate(matrix):
            if n:
                axis.text(j, i, n, ha="center", va="center", fontsize=7, color="white" if i == j else "black")
        axis.set(title=f"{np.trace(matrix)} of {matrix.sum()} right", xlabel="guess", ylabel="digit", xticks=range(10), yticks=range(10))
        wrong = np.flatnonzero(guesses != truth)
        worst = wrong[np.argsort(-doubt[wrong])]
        for place, axis in enumerate(axes[1]):
            if place >= len(worst):
                axis.remove()
                continue
            i = worst[place]
            axis.imshow(training.test.data[int(i)].numpy(), cmap="gray_r")
            axis.set_title(f"{truth[i]} read as {guesses[i]}")
            axis.set_axis_off()


def parse(arguments=None):
    parser = common.arguments(__doc__, "mnist", epochs=8, batch_size=64, lr=(4e-3, "the highest learning rate of the schedule"))
    parser.add_argument("--data", help="folder with the full MNIST files (default: the images in the package)")
    parser.add_argument("--download", action="store_true", help="fetch the full set into the folder --data")
    return parser.parse_args(arguments)


@common.stoppable
def main(arguments=None) -> float:
    options = parse(arguments)
    training = Training(options)
    count = sum(p.numel() for p in training.model.parameters())
    print(f"{len(training.loader.dataset):,} images to train, {len(training.test):,} held out, {count:,} parameters, "
          f"{tg.get_num_threads()} threads")
    for epoch in training.run.rounds(options.epochs, "epoch", bar=False):
        training.one_epoch(epoch)
    scores, labels = training.evaluate()
    draw(training, scores, labels, options.picture)
    accuracy = (scores.argmax(1) == labels).float().mean().item()
    print(f"held-out accuracy: {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    main()
