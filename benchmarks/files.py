"""Saving and loading: a state_dict of 500 MB and one of 160 small tensors, on the disk and in a file system in memory.

On the disk tapegrad's save replaces the old file in one step and waits until the bytes and the name are there (fsync of the file and of the
folder). torch.save does neither; it is shown as programs do it that want the same (another name, fsync, rename, fsync of the folder), and bare.
Loading compares every checksum.
"""

import atexit
import os
import shutil
import tempfile

from .harness import Case

LARGE = 500_000_000  # bytes
GROUP = "files"


def _state(lib, size: int, tensors: int) -> dict:
    count = size // 4 // tensors
    return {f"layer{n}.weight": lib.full((count,), float(n)) for n in range(tensors)}


def _folder(parent: str | None) -> str:
    folder = tempfile.mkdtemp(prefix="tapegrad-bench-", dir=parent)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _synced(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _saves(libraries, label: str, states: dict, folder: str, on_disk: bool, inner: int):
    tg, torch = libraries["tapegrad"], libraries["torch"]
    own, theirs = os.path.join(folder, "own"), os.path.join(folder, "theirs.pt")

    def save_theirs():
        torch.save(states["torch"], theirs)

    def save_theirs_safely():
        torch.save(states["torch"], f"{theirs}.tmp")
        _synced(f"{theirs}.tmp")
        os.replace(f"{theirs}.tmp", theirs)
        _synced(folder)

    for format in ("tapegrad", "torch"):
        def save(format=format):
            tg.save(states["tapegrad"], f"{own}.{format}", format=format)

        name = f"save {label}, {format}'s format"
        if on_disk:
            yield Case(GROUP, f"{name}, to the disk (torch made as safe)", {"tapegrad": save, "torch": save_theirs_safely}, inner, 5)
            yield Case(GROUP, f"{name}, to the disk (torch without fsync)", {"tapegrad": save, "torch": save_theirs}, inner, 5)
        else:
            yield Case(GROUP, f"{name}, to memory", {"tapegrad": save, "torch": save_theirs}, inner, 5)


def _loads(libraries, label: str, states: dict, folder: str, inner: int):
    tg, torch = libraries["tapegrad"], libraries["torch"]
    own, theirs, plain = (os.path.join(folder, name) for name in ("own", "theirs.pt", "plain.safetensors"))
    tg.save(states["tapegrad"], own, format="tapegrad")
    torch.save(states["torch"], theirs)
    tg.serialization.save_file(states["tapegrad"], plain)
    load_theirs = lambda: torch.load(theirs)  # noqa: E731
    yield Case(GROUP, f"load {label}, tapegrad's format", {"tapegrad": lambda: tg.load(own), "torch": load_theirs}, inner, 5)
    yield Case(GROUP, f"load {label}, torch's file by both", {"tapegrad": lambda: tg.load(theirs), "torch": load_theirs}, inner, 5)
    yield Case(GROUP, f"load {label}, mapped", {"tapegrad": lambda: tg.load(theirs, mmap=True), "torch": lambda: torch.load(theirs, mmap=True)}, 0, 5)
    try:
        from safetensors.torch import load_file, safe_open
    except ImportError:
        return
    yield Case(GROUP, f"load {label}, safetensors, mapped (torch by the safetensors package)", {"tapegrad": lambda: tg.load(plain, mmap=True), "torch": lambda: load_file(plain)}, 0, 5)

    def one_of_theirs():
        with safe_open(plain, "pt") as file:
            return file.get_tensor("layer3.weight")

    yield Case(GROUP, f"one tensor of {label}, safetensors", {"tapegrad": lambda: tg.serialization.open_file(plain)["layer3.weight"], "torch": one_of_theirs}, 0, 5)


def cases(libraries):
    if "torch" not in libraries:
        return
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    for label, size, tensors, inner in (("500 MB", LARGE, 50, 1), ("160 small tensors", 160 * 4 * 256, 160, 0)):
        states = {name: _state(libraries[name], size, tensors) for name in ("tapegrad", "torch")}
        yield from _saves(libraries, label, states, _folder(memory), False, inner)
        yield from _saves(libraries, label, states, _folder(os.getcwd()), True, inner)
        yield from _loads(libraries, label, states, _folder(memory), inner)
