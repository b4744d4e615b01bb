"""A status line per rank: `[rank 1] step 1200, 31.2 steps/s, loss 0.1234, waited 3 %, 412 MB, saved at step 1100`."""

import os
import sys
import time

from . import distributed_c10d as dist

__all__ = ["Health"]


def resident_bytes() -> int:
    """The memory of this process that is in use now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Health:
    """Writes a line every `every_seconds` (30). Ranks do not wait for each other: each writes its own line, from step().

        health = distributed.health.Health(ddp=model, checkpoints=run)
        for x, y in loader:
            ...
            health.step(loss=loss)

    ddp: a DistributedDataParallel, for the share of the time that this rank waited for others. checkpoints: a checkpoint.Checkpoints.
    stream: a file, default the error stream. Raises ValueError where every_seconds is not positive.
    """

    def __init__(self, every_seconds: float = 30.0, *, ddp=None, checkpoints=None, stream=None) -> None:
        if not every_seconds > 0:
            raise ValueError(f"Health: every_seconds must be positive: got {every_seconds}")
        self.every_seconds, self.ddp, self.checkpoints, self.stream = every_seconds, ddp, checkpoints, stream
        self.steps = 0
        self._mark(time.monotonic())

    def _mark(self, now: float) -> None:
        self._at, self._at_step, self._waited = now, self.steps, self._waited_seconds()

    def _waited_seconds(self) -> float:
        return self.ddp._get_ddp_logging_data()["waited_seconds"] if self.ddp is not None else 0.0

    def step(self, **values) -> str | None:
        """Counts a step; the line, when one was written. values: numbers or tensors of one element, read only for a line."""
        self.steps += 1
        now = time.monotonic()
        return self.write(**values) if now - self._at >= self.every_seconds else None

    def write(self, **values) -> str:
        """Writes a line now and returns it."""
        now = time.monotonic()
        seconds = max(now - self._at, 1e-9)
        rank = dist.get_rank() if dist.is_initialized() else 0
        step = self.checkpoints.steps if self.checkpoints is not None else self.steps
        parts = [f"step {step}", f"{(self.steps - self._at_step) / seconds:.3g} steps/s", *(f"{name} {float(v):.4g}" for name, v in values.items())]
        if self.ddp is not None:
            parts.append(f"waited {(self._waited_seconds() - self._waited) / seconds:.0%}")
        parts.append(f"{resident_bytes() / 1e6:.0f} MB")
        if self.checkpoints is not None:
            saved = self.checkpoints.saved_step
            parts.append("nothing saved" if saved is None else f"saved at step {saved}, {now - self.checkpoints.saved_at:.0f} s ago")
        line = f"[rank {rank}] " + ", ".join(parts)
        stream = self.stream or sys.stderr
        stream.write(line + "\n")
        stream.flush()
        self._mark(now)
        return line
