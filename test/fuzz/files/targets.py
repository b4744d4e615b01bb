"""What is done with a file, and what may come of it."""

import io
import os

import mutate
import tapegrad as tg
from tapegrad import serialization
from tapegrad._files import objects
from tapegrad._files.errors import reading
from tapegrad._files.torch_names import Reader, StorageKind, wrap

ALLOWED = (RuntimeError,)


def touch(value, left: list | None = None) -> None:
    """Reads what was loaded: memory that is not there would show."""
    left = [2000] if left is None else left
    left[0] -= 1
    if left[0] < 0:
        return
    if isinstance(value, tg.Tensor):
        if value.is_sparse:
            if value.numel() < 10_000:
                value.to_dense()
        elif not value.is_meta:
            value.detach().reshape(-1)[:100].tolist() if value.numel() < 1_000_000 else value.detach().flatten(0)[:1] if value.dim() == 0 else None
    elif isinstance(value, dict):
        for part in value.values():
            touch(part, left)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for part in value:
            touch(part, left)


def _memory(data: bytes, path: str) -> None:
    touch(tg.load(io.BytesIO(data)))


def _layers(data: bytes, path: str) -> None:
    touch(tg.load(io.BytesIO(data), weights_only=False))


def _mapped(data: bytes, path: str) -> None:
    with open(path, "wb") as file:
        file.write(data)
    touch(tg.load(path, mmap=True))


def _lazy(data: bytes, path: str) -> None:
    with open(path, "wb") as file:
        file.write(data)
    with serialization.open_file(path) as file:
        for name in list(file)[:50]:
            touch(file[name])
            file.shape(name)


def _stream(data: bytes, path: str) -> None:
    """The machine for streams alone; its storages are all of 64 bytes."""
    def storage(pid):
        kind = pid[1] if isinstance(pid, tuple) and len(pid) > 1 and isinstance(pid[1], StorageKind) else StorageKind(tg.float32)
        return wrap(tg.zeros(64, dtype=tg.uint8), kind)

    with reading("the stream"):
        touch(Reader(storage, lambda memory, location: memory, objects.Policy(len(data) % 2 == 0)).read(io.BytesIO(data)))


# name: (corpus, how files are changed, what is done with them)
TARGETS = {
    "container": ("container", mutate.container, (_memory, _memory, _layers, _mapped, _lazy)),
    "safetensors": ("safetensors", mutate.container, (_memory, _mapped, _lazy)),
    "archive": ("archive", mutate.archive, (_memory, _memory, _layers, _mapped, _lazy)),
    "streams": ("streams", mutate.stream, (_memory, _layers)),
    "stream": ("stream", mutate.stream, (_stream,)),
    "tar": ("tar", mutate.some_bytes, (_memory, _layers)),
}


def scratch() -> str:
    """A folder in memory where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
