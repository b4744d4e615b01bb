"""What the examples share: arguments, progress, checkpoints from which a run goes on bit for bit, pictures, the text.

An example makes a `Run`, names the parts whose state it holds, and loops over `run.rounds(n)`; everything about stopping and
going on happens there:

    run = Run(options, model=model, optimizer=optimizer)
    for round in run.rounds(options.steps, "step"):
        ...
        run.record(loss=loss.item())
"""

from __future__ import annotations

import argparse
import bz2
import contextlib
import functools
import os
import time
from pathlib import Path

import tapegrad as tg

try:
    from tqdm import tqdm
except ImportError:
    tqdm = None


def arguments(doc: str, name: str, seed: int = 1, **own) -> argparse.ArgumentParser:
    """A parser with the arguments that every example has, and the example's own: name=default or name=(default, help), a number or a text."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=seed)
    parser.add_argument("--checkpoint", default=f"runs/{name}.tape", help="file that holds the run (%(default)s)")
    parser.add_argument("--picture", default=f"runs/{name}.png", help="file for the plot; '' for none (%(default)s)")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--stop-after", type=int, metavar="N", help="end after round N, as if the run had been stopped")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    for option, default in own.items():
        default, text = default if isinstance(default, tuple) else (default, None)
        parser.add_argument("--" + option.replace("_", "-"), type=type(default), default=default, help=text)
    return parser


class Stopped(Exception):
    """--stop-after was reached."""


class Run:
    """A training run: its parts (whatever has a state_dict), the rounds done, and what was recorded in each of them.

    fixed: the options that a run which goes on must share with the one that was stopped.
    """

    def __init__(self, options, fixed=("seed",), **parts) -> None:
        self.options, self.fixed, self.parts = options, ("seed", *(f for f in fixed if f != "seed")), parts
        self.round = 0
        self.history: dict[str, list[float]] = {}
        self.extra: dict = {}  # plain numbers and tensors of an example's own

    def save(self) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(self.options.checkpoint)), exist_ok=True)
        tg.checkpoint.save(self.options.checkpoint, **self.parts, round=self.round, history=self.history, extra=self.extra,
                           options={name: getattr(self.options, name) for name in self.fixed})

    def load(self) -> None:
        for name, value in tg.load(self.options.checkpoint)["values"]["options"].items():
            if getattr(self.options, name) != value:
                raise SystemExit(f"the checkpoint was made with --{name.replace('_', '-')} {value}: give the same to go on with it")
        values = tg.checkpoint.load(self.options.checkpoint, **self.parts)
        self.round, self.history, self.extra = values["round"], values["history"], values["extra"]

    def record(self, **values: float) -> None:
        """Puts numbers into the history."""
        for name, value in values.items():
            self.history.setdefault(name, []).append(value)

    def rounds(self, total: int, unit: str, save_every: int = 1, bar: bool = True):
        """The numbers of the rounds still to be done, with a progress bar, and a checkpoint after every save_every of them."""
        if self.options.resume:
            self.load()
            print(f"resuming after {unit} {self.round}")
        begin, first = time.perf_counter(), self.round
        with progress(range(self.round, total), unit, self.options.quiet or not bar, total=total, initial=self.round) as numbers:
            for number in numbers:
                yield number
                self.round = number + 1
                self._show(numbers, unit, total, bar)
                stop = self.round == self.options.stop_after
                if stop or self.round == total or self.round % save_every == 0:
                    self.save()
                if stop:
                    raise Stopped(f"stopped after {unit} {self.round}; checkpoint: {self.options.checkpoint}")
        if self.round > first:
            print(f"trained in {time.perf_counter() - begin:.1f} s; checkpoint: {self.options.checkpoint}")

    def _show(self, numbers, unit, total, bar) -> None:
        if self.options.quiet or not bar:
            return
        text = ", ".join(f"{name} {sum(values[-20:]) / len(values[-20:]):.4g}" for name, values in self.history.items() if values)
        if hasattr(numbers, "set_postfix_str"):
            numbers.set_postfix_str(text, refresh=False)
        elif self.round % max(1, total // 20) == 0 or self.round == total:
            print(f"{unit} {self.round}/{total}: {text}", flush=True)


def stoppable(main):
    """main, which gives None when the run was stopped."""
    @functools.wraps(main)
    def call(*args):
        try:
            return main(*args)
        except Stopped as stopped:
            print(stopped)
            return None

    return call


@contextlib.contextmanager
def many_processes():
    """The world of a launcher's processes, or of this one alone. Inside, only rank 0 prints."""
    import tapegrad.distributed as dist

    if any(name in os.environ for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")):
        dist.init_process_group()
    else:
        dist.init_process_group(rank=0, world_size=1, store=dist.HashStore())
    try:
        with contextlib.ExitStack() as stack:
            if dist.get_rank() != 0:
                stack.enter_context(contextlib.redirect_stdout(stack.enter_context(open(os.devnull, "w"))))
            try:
                yield
            except Stopped as stopped:
                print(stopped)
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def progress(things, title: str, quiet: bool, **options):
    """The things themselves, or with a progress bar around them."""
    if quiet or tqdm is None:
        yield things
    else:
        with tqdm(things, desc=title, ncols=110, **options) as bar:
            yield bar


@contextlib.contextmanager
def picture(path: str, width: float, height: float, rows: int = 1, columns: int = 1):
    """(figure, axes) that are written to a file at the end; None when there is no path or no matplotlib."""
    plt = None
    if path:
        try:
            import matplotlib

            matplotlib.use("Agg")
            import matplotlib.pyplot as plt
        except ImportError:
            print("no picture: matplotlib is not installed")
    if plt is None:
        yield None
        return
    figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)
    yield figure, axes
    figure.tight_layout()
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)
    print(f"picture: {path}")


def draw_curve(axis, values, title: str, xlabel: str = "step", yscale: str = "linear", label=None) -> None:
    """Values and their moving mean."""
    import numpy as np

    width = max(1, len(values) // 50)
    axis.plot(values, lw=0.6, alpha=0.4 if width > 1 else 1, label=None if width > 1 else label)
    if width > 1:
        axis.plot(np.arange(width - 1, len(values)), np.convolve(values, np.ones(width) / width, "valid"), label=label)
    axis.set(title=title, xlabel=xlabel, yscale=yscale)


def draw_images(axis, images, title: str, columns: int = 8) -> None:
    """A grid of gray images (N, 1, H, W) with values from 0 to 1."""
    from tapegrad.vision.utils import make_grid

    axis.imshow(make_grid(images.detach().clamp(0, 1), nrow=columns, pad_value=0.5).permute(1, 2, 0).numpy())
    axis.set(title=title, xticks=[], yticks=[])


def shakespeare() -> str:
    """The text of tiny Shakespeare: 1,115,394 characters."""
    with bz2.open(Path(__file__).parent / "data" / "tinyshakespeare.txt.bz2", "rt", encoding="utf-8") as file:
        return file.read()


def digits(train: bool = True) -> tg.Tensor:
    """The packaged MNIST images as floats from 0 to 1: (N, 1, 28, 28)."""
    from tapegrad.datasets import MNIST

    return MNIST(train=train).data.unsqueeze(1).float() / 255
