"""A child process that may die: it keeps its last call in a file that the parent reads afterwards."""

import mmap
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import tapegrad as tg

SIZE = 4000
MEMORY = 2 << 30  # bytes of address space for a child; larger requests have to be refused politely
SANITIZED = "LD_PRELOAD" in os.environ  # AddressSanitizer reserves terabytes of addresses: children set their limit themselves


class Journal:
    """The child's side: what it is about to do."""

    def __init__(self):
        path = os.environ.get("TG_LAST_CALL")
        if path:
            with open(path, "r+b") as file:
                self.memory = mmap.mmap(file.fileno(), SIZE)
        else:
            self.memory = bytearray(SIZE)

    def write(self, text: str):
        self.memory[:] = (text + " " * SIZE)[:SIZE].encode("ascii", "replace")

    def read(self) -> str:
        return bytes(self.memory).decode().strip()


class Ended(NamedTuple):
    status: int | str
    output: str
    errors: str
    last: str


def _limits(memory: int):
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def limit_memory(nbytes: int):
    """Gives this process as many bytes of address space more than it has by now."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + nbytes, used + nbytes))


def run_child(program: Path, arguments: list, seconds: float, memory: int, threads: int = 2) -> Ended:
    """Runs a Python program with `memory` bytes of address space, for at most `seconds`."""
    with tempfile.NamedTemporaryFile() as journal, tempfile.TemporaryDirectory() as folder:
        journal.write(b" " * SIZE)
        journal.flush()
        search = os.pathsep.join([str(Path(tg.__file__).parents[1]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "TG_LAST_CALL": journal.name, "PYTHONPATH": search, "OMP_NUM_THREADS": str(threads)}
        command = [sys.executable, "-X", "faulthandler", str(program), *map(str, arguments)]
        try:
            child = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=environment, cwd=folder,
                                   preexec_fn=lambda: _limits(memory), errors="replace")
            status, output, errors = child.returncode, child.stdout, child.stderr
        except subprocess.TimeoutExpired as late:
            status, output, errors = "no end", (late.stdout or b"").decode(errors="replace"), ""
        return Ended(status, output, errors, Path(journal.name).read_text(errors="replace").strip())


def describe(value, depth=0) -> str:
    """An argument of a call in a few characters; never raises."""
    try:
        if isinstance(value, tg.Tensor):
            layout = "" if value.is_contiguous() else list(value.stride())
            return f"{str(value.dtype)[9:]}{list(value.shape)}{layout}{'g' if value.requires_grad else ''}{'meta' if value.is_meta else ''}"
        if isinstance(value, (list, tuple)):
            return "[...]" if depth > 2 or len(value) > 12 else str([describe(v, depth + 1) for v in value])
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k}: {describe(v, depth + 1)}" for k, v in value.items()) + "}"
        return repr(value)[:80] if type(value).__repr__ is not object.__repr__ else type(value).__name__
    except Exception:  # noqa: BLE001 - an argument made to raise
        return type(value).__name__
