"""A shard's files: the last steps that it saved, and from which of them all shards go on together.

    shard-0000.step-000000100.tape      one file for each shard and step, complete or not there

Shards may save at different moments, and the death of a worker in the midst of a push leaves one of them a step ahead. So each keeps
several, never removes the newest that all have, and when the job starts again they agree on that one through the store.
"""

import contextlib
import os
import re

from ... import serialization
from ..._warn import warn
from ..distributed_c10d import DistError
from ._messages import KEY

__all__ = ["ShardFiles"]


class ShardFiles:
    """The files of one shard in a folder, which may or may not be the other shards' folder, too."""

    def __init__(self, folder, shard: int, shards: int, keep: int, store) -> None:
        self.folder, self.shard, self.shards, self.keep, self.store = os.fspath(folder), shard, shards, keep, store
        self._untidy = False
        os.makedirs(self.folder, exist_ok=True)

    def path(self, step: int) -> str:
        return os.path.join(self.folder, f"shard-{self.shard:04}.step-{step:09}.tape")

    def steps(self) -> list[int]:
        """Those that are there, ascending."""
        name = re.compile(rf"shard-{self.shard:04}\.step-(\d{{9,}})\.tape")
        return sorted(int(m[1]) for m in map(name.fullmatch, os.listdir(self.folder)) if m)

    def save(self, step: int, state: dict) -> None:
        serialization.save(state, self.path(step))
        self._untidy = True

    def tidy(self) -> None:
        """Removes files that are no longer needed: older than the newest step that all have, and not of the last ones. Asks the store, so it is
        not to be called while workers wait."""
        if not self._untidy:
            return
        self._untidy = False
        mine = self.steps()
        with contextlib.suppress(DistError):  # where the store has gone, too much stays
            common = self._of_all("saved", mine)
            for step in mine[:-self.keep]:
                if common and step < max(common):
                    self._remove(step)

    def _of_all(self, name: str, mine: list[int]) -> set:
        """The steps that all shards have; those of one that has not said anything are none."""
        keys = [f"{KEY}/{name}/{k}" for k in range(self.shards)]
        self.store.set(keys[self.shard], " ".join(["steps", *map(str, mine)]))
        if not self.store.check(keys):
            return set()
        return set.intersection(*({int(step) for step in self.store.get(key).split()[1:]} for key in keys))

    def resume(self) -> dict | None:
        """The state of the newest step that all shards can read; None, and no file is left, where nothing was ever saved by all. Waits for
        all shards. Raises RuntimeError where there is something and no such step."""
        mine = self.steps()
        self.store.set(f"{KEY}/found/{self.shard}", " ".join(["steps", *map(str, mine)]))
        found = [[int(step) for step in self.store.get(f"{KEY}/found/{k}").split()[1:]] for k in range(self.shards)]
        state, common_step = None, 0
        for step in sorted(set.intersection(*map(set, found)), reverse=True):
            state, problem = self._read(step)
            self.store.set(f"{KEY}/read/{step}/{self.shard}", problem or "well")
            problems = [self.store.get(f"{KEY}/read/{step}/{k}").decode() for k in range(self.shards)]
            bad = next((text for text in problems if text != "well"), "")
            if not bad:
                common_step = step
                break
            state = None
            warn(f"parameter server: step {step} cannot be read, and the one before it is taken: {bad}")
        if state is None and (all(found) or any(len(steps) > 1 for steps in found)):  # else a job was killed while it first saved
            had = "; ".join(f"shard {k} has {', '.join(map(str, steps)) or 'none'}" for k, steps in enumerate(found))
            raise RuntimeError(f"parameter server: there is no step that all shards have saved: {had}\nremove the files to begin anew")
        for step in mine:
            if step > common_step:  # of what will be done again: the other shards' may not be of the same past
                self._remove(step)
        self._untidy = True
        return state

    def _read(self, step: int):
        try:
            return serialization.load(self.path(step)), ""
        except (OSError, serialization.FileError) as error:
            return None, f"shard {self.shard}: {error}"

    def _remove(self, step: int) -> None:
        with contextlib.suppress(OSError):
            os.unlink(self.path(step))
