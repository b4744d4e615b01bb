"""Teaches a network that reads digits to read them turned on their side, by training a thirtieth of it: `python examples/finetune.py --help`.

The network comes from a checkpoint in PyTorch's format (`--base`, a file of mnist.py's network, such as one that PyTorch saved; one is trained
and written first where there is none). Its weights stay as they are: each linear and convolutional layer gets a product of two thin
matrices added to its weight (Hu et al., LoRA, 2021), as a parametrisation, and only these are trained. At the end they are folded into the
weights, and the result is written as a checkpoint of the same format. `--resume` goes on bit for bit.
"""

import os

import common
import tapegrad as tg
from mnist import build_network
from tapegrad import nn
from tapegrad.datasets import MNIST
from tapegrad.nn import functional as F
from tapegrad.nn.utils import parametrize


class LowRank(nn.Module):
    """weight to weight + up @ down * scale, where up begins as zero."""

    def __init__(self, weight, rank: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.down = nn.Parameter(tg.randn(rank, weight[0].numel()) / weight[0].numel() ** 0.5)
        self.up = nn.Parameter(tg.zeros(len(weight), rank))

    def forward(self, weight):
        return weight + (self.up @ self.down).view_as(weight) * self.scale


def add_low_rank(model, rank: int, scale: float):
    """Freezes the model and gives its layers low-rank parts, which are returned by name."""
    model.requires_grad_(False)
    parts = nn.ModuleDict()
    for name, layer in list(model.named_modules()):
        if isinstance(layer, (nn.Linear, nn.Conv2d)):
            parts[name] = LowRank(layer.weight, rank, scale)
            parametrize.register_parametrization(layer, "weight", parts[name])
    return parts


def fold(model) -> None:
    """Puts the low-rank parts into the weights; the model is a plain one again."""
    for layer in model.modules():
        if parametrize.is_parametrized(layer):
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)


def data(train: bool, turned: bool, count: int | None = None):
    """(images, labels), upright or turned by a quarter; the first `count`, or all."""
    images, labels = (t[:count] for t in MNIST(train=train).tensors())
    return (tg.rot90(images, 1, (2, 3)).contiguous() if turned else images), labels


@tg.no_grad()
def accuracy(model, images, labels) -> float:
    return (tg.cat([model(part) for part in images.split(500)]).argmax(1) == labels).float().mean().item()


def write_base(path: str, seed: int, count: int | None) -> None:
    """Trains mnist.py's network on upright digits and writes its weights in PyTorch's format."""
    print(f"no base network at {path}: training one on upright digits")
    tg.manual_seed(seed)
    model, (images, labels) = build_network(), data(train=True, turned=False, count=count)
    optimizer = tg.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(4):
        for chosen in tg.randperm(len(images)).split(64):
            loss = F.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    tg.save(model.state_dict(), path)


def parse(arguments=None):
    return common.arguments(__doc__, "finetune", epochs=6, batch_size=64, rank=(2, "columns of the thin matrices"), lr=1e-2,
                            images=(0, "train on the first N images only"), base=("runs/digits.pt", "the network to begin with, in PyTorch's format"),
                            result=("runs/turned.pt", "file for the network at the end")).parse_args(arguments)


@common.stoppable
def main(arguments=None):
    options = parse(arguments)
    if not os.path.exists(options.base):
        write_base(options.base, options.seed, options.images or None)
    tg.manual_seed(options.seed)
    model = build_network()
    model.load_state_dict(tg.load(options.base))
    images, labels = data(train=True, turned=True, count=options.images or None)
    turned, upright = data(train=False, turned=True), data(train=False, turned=False)
    before, read_before = accuracy(model, *turned), accuracy(model, *upright)
    whole = sum(p.numel() for p in model.parameters())
    parts = add_low_rank(model, options.rank, 2.0)
    optimizer = tg.optim.AdamW(parts.parameters(), lr=options.lr)
    run = common.Run(options, ("epochs", "batch_size", "rank", "images"), parts=parts, optimizer=optimizer)
    few = sum(p.numel() for p in parts.parameters())
    print(f"{whole:,} parameters stay as they are, {few:,} are trained; turned digits read right: {before:.3f}, upright ones: {read_before:.3f}")
    for _ in run.rounds(options.epochs, "epoch"):
        total = 0.0
        for chosen in tg.randperm(len(images)).split(options.batch_size):
            with parametrize.cached():
                loss = F.cross_entropy(model(images[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(chosen) / len(images)
        run.record(loss=total, turned=accuracy(model, *turned), upright=accuracy(model, *upright))
    scores = model(turned[0][:500])
    fold(model)
    assert tg.allclose(model(turned[0][:500]), scores, atol=1e-4)  # the same function without the extra products
    os.makedirs(os.path.dirname(os.path.abspath(options.result)), exist_ok=True)
    tg.save(model.state_dict(), options.result)
    after = accuracy(model, *turned)
    with common.picture(options.picture, 11, 4, 1, 2) as drawing:
        if drawing:
            curve, shown = drawing[1][0]
            for name in ("turned", "upright"):
                common.draw_curve(curve, run.history[name], "digits read right", "epoch", label=name)
            curve.axhline(before, ls=":", color="gray", label="turned, before")
            curve.set(ylim=(0, 1.02), ylabel="share")
            curve.legend(loc="center right")
            guesses = model(turned[0][:40]).argmax(1)
            common.draw_images(shown, turned[0][:40], f"read as {' '.join(map(str, guesses[:8].tolist()))} ... (first row)")
    print(f"turned digits read right: {before:.3f} before, {after:.3f} now; written to {options.result}")
    return before, after


if __name__ == "__main__":
    main()
