"""What the examples share: arguments, progress, checkpoints from which a run goes on bit for bit, pictures, the text.

An example makes a `Run`, names the parts whose state it holds, and loops over `run.rounds(n)`; everything about stopping and
going on happens there:

    run = Run(options, model=model, optimizer=optimizer)
    for round in run.rounds(options.steps, "step"):
        ...
        run.record(loss=loss.item())
"""

from __future__ import annotations

import os
import signal
import sys


def _leave(*_) -> None:
    """What Ctrl-C does while modules are imported: some of them turn it into an error of their own."""
    if os.environ.get("RANK", "0") == "0":  # of many processes one tells
        os.write(2, b"interrupted before the run began\n")
    os._exit(130)


# Whether an example is the program, and Ctrl-C ends it.
PROGRAM = os.path.dirname(os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "")) == os.path.dirname(os.path.abspath(__file__)) \
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler
if PROGRAM:
    signal.signal(signal.SIGINT, _leave)

import argparse  # noqa: E402
import bz2  # noqa: E402
import contextlib  # noqa: E402
import functools  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import tapegrad as tg  # noqa: E402

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
    """The run ended before its time: --stop-after was reached, or Ctrl-C was pressed."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Run:
    """A training run: its parts (whatever has a state_dict), the rounds done, and what was recorded in each of them.

    fixed: the options that a run which goes on must share with the one that was stopped.
    """

    seconds: float | None = 30  # the longest time without a checkpoint; None where several processes have to agree on when they save
    written = None  # the checkpoint that this program wrote last

    def __init__(self, options, fixed=("seed",), **parts) -> None:
        self.options, self.fixed, self.parts = options, ("seed", *(f for f in fixed if f != "seed")), parts
        self.round = 0
        self.history: dict[str, list[float]] = {}
        self.extra: dict = {}  # plain numbers and tensors of an example's own
        self.interrupts, self.bar = [], None

    @property
    def interrupted(self) -> bool:
        return bool(self.interrupts)

    def _prepare(self) -> None:
        """What would keep the first checkpoint from being written is said before hours of training."""
        path = os.path.abspath(self.options.checkpoint)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise self._unwritable(error.strerror) from None
        if os.path.isdir(path) or not os.access(os.path.dirname(path), os.W_OK):
            raise self._unwritable("it is a folder" if os.path.isdir(path) else "nothing can be written there")

    def _unwritable(self, reason: str) -> Stopped:
        left = f"; the one before, {Run.written}, is still there" if Run.written else ""
        return Stopped(f"the checkpoint {self.options.checkpoint} cannot be written: {reason}{left}", 130 if self.interrupted else 1)

    def save(self) -> None:
        try:
            tg.checkpoint.save(self.options.checkpoint, **self.parts, round=self.round, history=self.history, extra=self.extra,
                               options={name: getattr(self.options, name) for name in self.fixed})
        except OSError as error:
            raise self._unwritable(error.strerror.removeprefix("save: ")) from None
        Run.written = self.options.checkpoint

    def load(self) -> None:
        try:
            fixed = tg.load(self.options.checkpoint)["values"]["options"]
        except (OSError, tg.serialization.FileError) as error:
            reason = getattr(error, "strerror", None) or str(error).removeprefix("load: ").partition("\n")[0]
            raise Stopped(f"the checkpoint {self.options.checkpoint} cannot be read: {reason}", 1) from None
        except (KeyError, TypeError):
            raise Stopped(f"{self.options.checkpoint} is no checkpoint of an example", 1) from None
        for name, value in fixed.items():
            if getattr(self.options, name, None) != value:
                raise SystemExit(f"the checkpoint was made with --{name.replace('_', '-')} {value}: give the same to go on with it")
        values = tg.checkpoint.load(self.options.checkpoint, **self.parts)
        self.round, self.history, self.extra = values["round"], values["history"], values["extra"]

    def record(self, **values: float) -> None:
        """Puts numbers into the history."""
        for name, value in values.items():
            self.history.setdefault(name, []).append(value)

    def say(self, text: str) -> None:
        """Prints without disturbing the bar; nothing where --quiet was given."""
        if not self.options.quiet:
            (self.bar.write if hasattr(self.bar, "write") else print)(text)

    def rounds(self, total: int, unit: str, save_every: int = 1, bar: bool = True):
        """The numbers of the rounds still to be done, with a progress bar, and a checkpoint after every save_every of them and every
        30 seconds. Ctrl-C takes effect after the round, with a checkpoint; pressed again, at once and without."""
        self._prepare()
        if self.options.resume:
            self._resume(total, unit)
        begin, first, saved, told = time.perf_counter(), self.round, time.perf_counter(), False
        with remembered_interrupts(self.interrupts, self.seconds is not None), progress(range(self.round, total), unit, self.options.quiet or not bar, total=total,
                                             initial=self.round) as numbers:
            self.bar = numbers
            for number in numbers:
                yield number
                self.round, now = number + 1, time.perf_counter()
                self._show(numbers, unit, total, bar)
                stop = self.interrupted or self.round == self.options.stop_after
                if stop or self.round == total or self.round % save_every == 0 or (self.seconds is not None and now - saved > self.seconds):
                    self.save()
                    saved = now
                if stop:
                    raise self._stopped(total, unit)
                if not told and now - begin > 3:
                    told, left = True, (now - begin) / (self.round - first) * (total - self.round)
                    self.say(f"about {left / 60:.0f} minutes to go" if left > 90 else f"about {left:.0f} s to go")
            self.bar = None
        if self.interrupted:  # while the last checkpoint was written
            raise self._stopped(total, unit)
        if self.round > first:
            print(f"trained in {time.perf_counter() - begin:.1f} s; checkpoint: {self.options.checkpoint}")

    def _stopped(self, total: int, unit: str) -> Stopped:
        return Stopped(f"{'interrupted' if self.interrupted else 'stopped'} after {unit} {self.round} of {total}; "
                       f"checkpoint: {self.options.checkpoint}, --resume goes on from it", 130 if self.interrupted else 0)

    def _resume(self, total: int, unit: str) -> None:
        if not os.path.exists(self.options.checkpoint):
            print(f"no checkpoint at {self.options.checkpoint} yet: starting from the beginning")
            return
        self.load()
        print(f"resuming after {unit} {self.round} of {total}" if self.round < total else
              f"the run is complete, all {total} {unit}s of it: nothing is left to train ({self.options.checkpoint})")

    def _show(self, numbers, unit, total, bar) -> None:
        if self.options.quiet or not bar:
            return
        noisy = unit != "epoch"  # a step's loss is smoothed; what describes an epoch, or is computed now and then, is shown as it is
        shown = {name: values[-20:] if noisy and len(values) >= self.round else values[-1:] for name, values in self.history.items() if values}
        text = ", ".join(f"{name} {sum(values) / len(values):.4g}" for name, values in shown.items())
        if hasattr(numbers, "set_postfix_str"):
            numbers.set_postfix_str(text, refresh=False)
        elif self.round % max(1, total // 20) == 0 or self.round == total:
            print(f"{unit} {self.round}/{total}: {text}", flush=True)


@contextlib.contextmanager
def remembered_interrupts(interrupts: list, wanted: bool = True):
    """Inside, the first Ctrl-C is put into a list, so that a checkpoint is that of a whole round. The next one is raised."""
    def remember(*_) -> None:
        if interrupts:
            raise KeyboardInterrupt
        interrupts.append(True)

    ours = wanted and threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def stoppable(main):
    """main, which gives None when the run was stopped. Ctrl-C prints one line and ends the program with 130."""
    @functools.wraps(main)
    def call(*args):
        if PROGRAM:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return main(*args)
        except Stopped as stopped:
            print(stopped)
            if stopped.code:
                raise SystemExit(stopped.code) from None
            return None
        except KeyboardInterrupt:
            print(f"interrupted; checkpoint: {Run.written}, --resume goes on from it" if Run.written else "interrupted before the first checkpoint")
            raise SystemExit(130) from None
        finally:
            if PROGRAM:  # all is said, and the interpreter ends
                signal.signal(signal.SIGINT, signal.SIG_IGN)

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
                if stopped.code:
                    raise SystemExit(stopped.code) from None
            except KeyboardInterrupt:  # of all ranks the first tells
                if dist.get_rank() != 0:
                    raise SystemExit(130) from None
                raise
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


STYLE = {"savefig.dpi": 100, "font.size": 10, "axes.titlesize": 11, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": False,
         "legend.frameon": False, "lines.linewidth": 1.6}


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
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, figsize=(width, height), squeeze=False, layout="constrained")
        yield figure, axes
        for axis in figure.axes:
            low, high = axis.get_ylim()
            if axis.get_yscale() == "log" and high < 100 * low:  # plain numbers where there are few powers of ten
                axis.yaxis.set_major_formatter("{x:g}")
                some = "25" if high > 10 * low else "123456789"
                axis.yaxis.set_minor_formatter(lambda x, _, some=some: f"{x:g}" if f"{x:e}"[0] in some else "")
        try:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            figure.savefig(path)
            print(f"picture: {path}")
        except OSError as error:
            print(f"no picture: {path} cannot be written: {error.strerror}")
        plt.close(figure)


def draw_curve(axis, values, title: str, xlabel: str = "step", yscale: str = "linear", label=None) -> None:
    """Values over the rounds, counted from 1. Many are shown pale, with their moving mean in the same colour."""
    import numpy as np

    width = max(1, len(values) // 50)
    rounds = np.arange(1, len(values) + 1)
    (line,) = axis.plot(rounds[width - 1:], np.convolve(values, np.ones(width) / width, "valid"), label=label, marker="o" if len(values) <= 20 else None, ms=3)
    if width > 1:
        axis.plot(rounds, values, lw=0.5, alpha=0.3, color=line.get_color(), zorder=1)
    axis.set(title=title, xlabel=xlabel, yscale=yscale)
    if len(values) == 1:
        axis.set_xticks([1])  # or there would be parts of a round
    else:
        axis.xaxis.get_major_locator().set_params(integer=True)


def draw_images(axis, images, title: str, columns: int = 8) -> None:
    """A grid of gray images (N, 1, H, W) with values from 0 to 1."""
    from tapegrad.vision.utils import make_grid

    axis.imshow(make_grid(images.detach().clamp(0, 1), nrow=columns, pad_value=0.5).permute(1, 2, 0).numpy())
    axis.set_title(title)
    axis.set_axis_off()


def shakespeare() -> str:
    """The text of tiny Shakespeare: 1,115,394 characters."""
    with bz2.open(Path(__file__).parent / "data" / "tinyshakespeare.txt.bz2", "rt", encoding="utf-8") as file:
        return file.read()


def digits(train: bool = True) -> tg.Tensor:
    """The packaged MNIST images as floats from 0 to 1: (N, 1, 28, 28)."""
    from tapegrad.datasets import MNIST

    return MNIST(train=train).data.unsqueeze(1).float() / 255
