"""Checkpoints of a run in a folder: periodic, the last ones and the best one, resumed after whatever happened."""

import contextlib
import math
import os
import re
import shutil
import time

from .. import serialization
from .._warn import warn
from . import state

_NAME = re.compile(r"step-(\d{9,})\.tape")
_LEFT = re.compile(r"\.(step-\d{9,}|best)\.tape\.[0-9a-f]+\.tmp")


def check_options(every_steps: int | None, every_seconds: float | None, keep: int, parts: dict) -> None:
    if keep < 1:
        raise ValueError(f"Checkpoints: keep must be at least 1: got {keep}")
    if every_steps is not None and every_steps < 1:
        raise ValueError(f"Checkpoints: every_steps must be at least 1: got {every_steps}")
    if every_seconds is not None and not every_seconds >= 0:
        raise ValueError(f"Checkpoints: every_seconds must not be negative: got {every_seconds}")
    for name, part in parts.items():
        if state._kind(part) is None:
            raise TypeError(f"Checkpoints: {name!r} has no state: got {type(part).__name__}\nvalues go to step() and save()")


def numbered(folder: str, name) -> list[str]:
    """What in the folder has a name that the pattern fits, by the number in its first group."""
    found = sorted((int(m[1]), m[0]) for m in map(name.fullmatch, os.listdir(folder)) if m)
    return [os.path.join(folder, entry) for _, entry in found]


class Checkpoints:
    """Saves a run every `every_steps` steps or `every_seconds` seconds, whichever comes first.

        run = tapegrad.checkpoint.Checkpoints("runs/a", every_steps=100, keep=3, model=model, optimizer=optimizer, loader=loader)
        values = run.resume() or {"epoch": 0}
        for epoch in range(values["epoch"], 10):
            for x, y in loader:
                ...
                run.step(epoch=epoch)

    keep: how many of the last files stay. best: the name of a value; the file whose value was the lowest (mode="min") or the highest
    ("max") stays as `best.tape`. generators and gradients are those of `tapegrad.checkpoint.save`. The parts are what `save` takes.
    """

    def __init__(self, folder, *, every_steps: int | None = None, every_seconds: float | None = None, keep: int = 3,
                 best: str | None = None, mode: str = "min", generators: bool = True, gradients: bool = False, **parts) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"Checkpoints: mode is 'min' or 'max': got {mode!r}")
        check_options(every_steps, every_seconds, keep, parts)
        self.folder = os.fspath(folder)
        self.every_steps, self.every_seconds = every_steps, every_seconds
        self.keep, self.best, self.mode = keep, best, mode
        self.generators, self.gradients = generators, gradients
        self.parts = parts
        self.steps = 0
        self.best_value: float | None = None
        self._saved_at = time.monotonic()
        os.makedirs(self.folder, exist_ok=True)

    # Files.
    def files(self) -> list[str]:
        """The files, oldest first."""
        return numbered(self.folder, _NAME)

    @property
    def best_file(self) -> str | None:
        """The file of the best value, where there is one."""
        path = os.path.join(self.folder, "best.tape")
        return path if os.path.exists(path) else None

    # Saving.
    def step(self, **values) -> str | None:
        """Counts a step and saves when it is time to; then the path is returned. values: what `resume` shall give back."""
        self.steps += 1
        due = self.every_steps is not None and self.steps % self.every_steps == 0
        if not due and self.every_seconds is not None:
            due = time.monotonic() - self._saved_at >= self.every_seconds
        return self.save(**values) if due else None

    def save(self, **values) -> str:
        """Saves now; returns the path."""
        taken = sorted(set(values) & {*self.parts, "generators", "gradients"})
        if taken:
            raise ValueError(f"Checkpoints: these names belong to parts and options: {', '.join(taken)}")
        for name, value in values.items():
            if state._kind(value) is not None:
                raise TypeError(f"Checkpoints: {name!r} has a state: give it to Checkpoints(...), not to each step: got {type(value).__name__}")
        better = self._is_better(values)
        if better:
            self.best_value = float(values[self.best])
        data = state.collect({**self.parts, **values}, self.generators, self.gradients)
        data["run"] = {"steps": self.steps, "best": self.best_value}
        path = os.path.join(self.folder, f"step-{self.steps:09}.tape")
        serialization.save(data, path, format="tapegrad")
        if better:
            self._keep_best(path)
        for old in self.files()[:-self.keep]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(old)
        self._saved_at = time.monotonic()
        return path

    def _is_better(self, values: dict) -> bool:
        if self.best is None or self.best not in values:
            return False
        value = float(values[self.best])
        if math.isnan(value):
            return False
        return self.best_value is None or (value < self.best_value if self.mode == "min" else value > self.best_value)

    def _keep_best(self, path: str) -> None:
        """A second name for the file; a copy where the file system has no links."""
        name = os.path.join(self.folder, f".best.tape.{os.getpid():x}.tmp")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        try:
            os.link(path, name)
        except OSError:
            shutil.copyfile(path, name)
        os.replace(name, os.path.join(self.folder, "best.tape"))

    # Resuming.
    def resume(self, map_location=None, strict: bool = True) -> dict | None:
        """Restores the parts, the generators and the count of steps from the newest file that is whole, and returns its values;
        None, and nothing is changed, where there is no file. A damaged file is skipped with a warning."""
        for name in os.listdir(self.folder):  # of a process that was killed between two instructions
            if _LEFT.fullmatch(name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.folder, name))
        paths = self.files()
        for path in reversed(paths):
            try:
                data = serialization.load(path, map_location=map_location)
            except serialization.FileError as error:
                warn(f"checkpoint: {path} cannot be read, and the one before it is taken: {error}")
                continue
            return self._restore(data, strict, path)
        if paths:
            raise RuntimeError(f"checkpoint: none of the {len(paths)} files in {self.folder} can be read")
        return None

    def load(self, path, map_location=None, strict: bool = True) -> dict:
        """Restores from this file, such as `best_file`."""
        return self._restore(serialization.load(path, map_location=map_location), strict, str(path))

    def _restore(self, data, strict: bool, path: str) -> dict:
        values = state.restore(data, self.parts, strict, path)
        run = data.get("run", {"steps": 0, "best": None})
        self.steps, self.best_value = run["steps"], run["best"]
        self._saved_at = time.monotonic()
        return values
