"""`save` and `load`. No pickle: tensors, numbers, texts and containers of them, in a file that every safetensors reader opens, or,
for names that end in .pt or .pth, in PyTorch's format, which torch.load reads.

A save to a path is atomic: the old file is there until the new one is complete and on the disk. Every tensor has a checksum. Files
of PyTorch are read whatever their age; nothing in a file can run code.
"""

import contextlib
import io
import os
import threading
import typing
from collections.abc import Callable

from . import device
from ._files import container, container_reader, objects, torch_archive, torch_legacy, torch_writer
from ._files.atomic import atomic_writer
from ._files.errors import FileError, UnknownFormat, reading
from ._files.lazy import LazyFile
from ._files.objects import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from ._files.places import default_restore_location, is_meta, location_tag, placer, register_package
from ._files.source import MappedSource, Source, can_seek, read_exactly
from ._lazy import more_names as _more_names
from ._warn import warn
from .types import Storage

MAP_LOCATION = typing.Union[Callable[[Storage, str], Storage], device, str, dict[str, str], None]  # noqa: UP007  a name, also at run time

__all__ = ["FileError", "LazyFile", "UnknownFormat", "add_safe_globals", "clear_safe_globals", "default_restore_location",
           "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "load_file", "location_tag", "open_file", "register_package",
           "safe_globals", "save", "save_file", "skip_data"]

__getattr__, __dir__ = _more_names(__name__)
_TORCH_NAMES = (".pt", ".pth", ".pt.tar", ".pth.tar")
_local = threading.local()


class SourceChangeWarning(Warning):
    """PyTorch's warning of a whole module whose source is another by now. Source is not kept here, so that it is never given."""


class skip_data:  # noqa: N801
    """A context in which save writes no tensors' bytes (there are zeros in their place, for a program that fills them in) and load
    reads none (tensors have the right form and whatever values their memory held)."""

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors  # PyTorch's; there are no such tensors here

    def __enter__(self) -> None:
        self._before = getattr(_local, "skip", False)
        _local.skip = True

    def __exit__(self, *_) -> None:
        _local.skip = self._before


def _skips() -> bool:
    return getattr(_local, "skip", False)


def _is_path(f) -> bool:
    return isinstance(f, (str, bytes, os.PathLike))


def _file_name(f) -> str:
    name = os.fsdecode(os.fspath(f)) if _is_path(f) else getattr(f, "name", "")
    return name if isinstance(name, str) else ""


def _check_mode(what: str, f, mode: str) -> None:
    if isinstance(f, io.TextIOBase):
        raise TypeError(f"{what}: the file is one of text\nopen it with {mode!r}")


def save(obj, f, pickle_module=None, pickle_protocol=None, _use_new_zipfile_serialization: bool = True,
         _disable_byteorder_record: bool = False, *, format: str | None = None) -> None:
    """Writes tensors and plain data to a path or a binary file object.

    dict, list, tuple, set, OrderedDict, Counter, defaultdict, deque, Namespace, numbers, texts, bytes, None, paths, times, NumPy
    arrays and numbers, dtypes, devices and tensors are kept as they are, tied tensors stay tied, a view takes only the memory that it
    needs. Layers (nn.Module) and objects of classes in add_safe_globals are kept by the name of their class; other objects are
    refused: save their state_dict().

    format: "tapegrad" (a safetensors file with the plain data in its metadata), "torch" (PyTorch's zip format, which torch.load
    reads, also with weights_only=True), or None: "torch" when the name ends in .pt, .pth, .pt.tar or .pth.tar, else "tapegrad". The
    pickle arguments are PyTorch's and have no effect.
    """
    if format not in (None, "tapegrad", "torch"):
        raise ValueError(f"save: format is 'tapegrad', 'torch' or None: got {format!r}")
    name = _file_name(f)
    explicit = format is not None
    if format is None:
        format = "torch" if name.lower().endswith(_TORCH_NAMES) else "tapegrad"

    def write(file, owned: bool) -> None:
        if format == "torch":
            stem = os.path.basename(name).partition(".")[0] or "archive"
            torch_writer.write(obj, file, stem, owned, _skips())
            return
        try:
            container.write(obj, file, owned, _skips())
        except objects.Refused:  # before anything is written
            if explicit or not objects.is_compat():
                raise
            torch_writer.write(obj, file, "archive", owned, _skips())  # holds more of the program's own objects

    if _is_path(f):
        if not name:
            raise RuntimeError("save: the name of the file is empty")
        with atomic_writer(f) as file:
            write(file, file.seekable())
    elif hasattr(f, "write"):
        _check_mode("save", f, "wb")
        write(f, False)
        if hasattr(f, "flush"):  # as torch.save does: the file can be read by its name
            f.flush()
    else:
        raise AttributeError(f"expected 'f' to be string, path, or a file-like object with a 'write' attribute: got "
                             f"{type(f).__name__}")


def load(f, map_location=None, pickle_module=None, *, weights_only: bool | None = None, mmap: bool | None = None,
         **pickle_load_args):
    """Reads what `save` wrote, any safetensors file (as a dictionary of tensors) or a file of PyTorch (zip, older streams, tar).

    map_location says where the tensors go: a device, a dictionary from saved to wanted device, or a function
    (storage, location) -> storage. mmap=True maps a path into memory: nothing is read before it is used, checksums are not
    compared, and writing to a tensor does not change the file. encoding and errors are for texts that Python 2 wrote.

    Nothing in a file can run code, whatever weights_only says. weights_only=False allows layers (classes derived from nn.Module
    that the program has imported); other classes and functions are met with an error that names them, and are used only after
    `add_safe_globals`. A file that cannot be read is a FileError (a RuntimeError and a pickle.UnpicklingError). The environment variable
    TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD says weights_only=False where the call does not set it, TORCH_FORCE_WEIGHTS_ONLY_LOAD True whatever it says.
    """
    weights_only = _weights_only(weights_only)
    if pickle_module is not None and weights_only:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    encoding, errors = pickle_load_args.get("encoding", "utf-8"), pickle_load_args.get("errors", "strict")
    options = _Options(placer(map_location), objects.Policy(weights_only is not False), _skips() or is_meta(map_location), encoding, errors)
    if _is_path(f):
        with open(f, "rb") as file, reading("the file"):
            return _read(file, options, MappedSource(f) if mmap else None)
    if mmap:
        raise ValueError("f must be a file path in order to use the mmap argument")
    if hasattr(f, "read"):
        _check_mode("load", f, "rb")
        if can_seek(f) and (place := f.tell()):
            if not f.read(1):
                raise FileError(f"load: the file object is at its end, byte {place}\nseek(0) goes to its beginning")
            f.seek(place)
        with reading("the file"):
            return _read(f, options, None)
    raise AttributeError(f"load: expected a path or a file object with a 'read' method: got {type(f).__name__}")


def _weights_only(asked: bool | None) -> bool | None:
    """What a caller asked for, changed by PyTorch's two environment variables."""
    always, never = (os.environ.get(f"TORCH_FORCE_{name}WEIGHTS_ONLY_LOAD", "").lower() in ("1", "y", "yes", "true") for name in ("", "NO_"))
    if always and never:
        raise RuntimeError("Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set.")
    if never and asked is None:
        warn("Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the`weights_only` argument was not explicitly passed to "
             "`torch.load`, forcing weights_only=False.")
        return False
    return True if always else asked


class _Options:
    def __init__(self, place, policy, skip, encoding, errors) -> None:
        self.place, self.policy, self.skip = place, policy, skip
        self.texts = {"encoding": encoding, "errors": errors}


def _read(file, options: _Options, mapped: MappedSource | None):
    start = read_exactly(file, 8, "its first eight bytes")
    archive = torch_archive.is_archive(start)
    if not archive and int.from_bytes(start, "little") <= container.MOST_HEADER:
        return _read_container(file, start, options, mapped)
    if can_seek(file):
        file.seek(-8, os.SEEK_CUR)
    else:
        file = io.BytesIO(start + file.read())
    if archive:
        return torch_archive.read(file, options.place, options.policy, mapped, options.skip, **options.texts)
    older = start[:1] == b"\x80" or start == b"L1195470"  # a pickle of protocol 2 or above; the magic number in digits
    if mapped is not None and older:
        raise RuntimeError("mmap can only be used with files saved with `torch.save(..., _use_new_zipfile_serialization=True)` and "
                           "files of tapegrad.save: this is an older file")
    if older:
        return torch_legacy.read(file, options.place, options.policy, options.skip, **options.texts)
    if torch_legacy.is_tar(file):
        return torch_legacy.read_tar(file, options.place, options.policy, **options.texts)
    raise UnknownFormat("load: this is neither a safetensors file nor a file of PyTorch")


def _read_container(file, start: bytes, options: _Options, mapped: MappedSource | None):
    source = Source(file)
    header = container_reader.read_header(lambda n, what: read_exactly(file, n, what), start)
    if mapped is not None:
        memories = container_reader.Mapped(header, mapped)
    else:
        memories = container_reader.read_memories(header, source, options.skip)
    if header.own is None:
        container_reader.check_end(header, mapped.size > header.data_at + header.data_bytes if mapped else bool(file.read(1)))
        return container_reader.read_plain(header, memories, options.place)
    return container_reader.TreeReader(header, memories, options.place, options.policy).load()


def open_file(path, verify: bool = True, weights_only: bool = True) -> LazyFile:
    """A file of `save`, of safetensors or of PyTorch (zip) as a dictionary of tensors that are read on access."""
    return LazyFile(path, verify, weights_only)


def save_file(tensors: dict, path, metadata: dict | None = None) -> None:
    """Writes a plain safetensors file: tensors by name, and texts by name as metadata. Ties are not kept, by this format."""
    with atomic_writer(path) as file:
        container.write_safetensors(tensors, file, metadata)


def load_file(path, device="cpu") -> dict:
    """Reads the tensors of a safetensors file by name; `open_file(path).metadata` has its texts."""
    return load(path, map_location=device)


def normalize_storage_type(storage_type: type) -> type:
    """The class of storages by its public name: here all are public."""
    return storage_type


def _is_zipfile(f) -> bool:
    """Whether a zip archive begins where the file object is."""
    begin = f.tell()
    try:
        return f.read(4) == b"PK\x03\x04"
    finally:
        f.seek(begin)


class _Records:
    """The records of a file of PyTorch (zip) by name: a context."""

    def __init__(self, name_or_buffer, mode: str) -> None:
        import zipfile

        self._zip = zipfile.ZipFile(name_or_buffer, mode)
        names = self._zip.namelist()
        self._prefix = names[0].partition("/")[0] + "/" if names else "archive/"

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self._zip.close()

    def write_record(self, name: str, data, size: int) -> None:
        self._zip.writestr(self._prefix + name, bytes(data)[:size])

    def get_record(self, name: str) -> bytes:
        return self._zip.read(self._prefix + name)

    def has_record(self, name: str) -> bool:
        return self._prefix + name in self._zip.namelist()

    def get_all_records(self) -> list[str]:
        return [name.removeprefix(self._prefix) for name in self._zip.namelist()]


def _open_zipfile_reader(name_or_buffer) -> _Records:
    return _Records(name_or_buffer, "r")


def _open_zipfile_writer(name_or_buffer) -> _Records:
    return _Records(name_or_buffer, "w")


def check_module_version_greater_or_equal(module, req_version_tuple, error_if_malformed: bool = True) -> bool:
    """Whether a module's `__version__` is at least this one, number by number; a text without numbers is an error, or else a warning and true."""
    try:
        version = tuple(type(wanted)(part) for wanted, part in zip(req_version_tuple, module.__version__.split("."), strict=False))
    except (AttributeError, ValueError) as error:
        text = f"'{module.__name__}' module version string is malformed '{getattr(module, '__version__', None)}' and cannot be compared with tuple {req_version_tuple}"
        if error_if_malformed:
            raise RuntimeError(text) from error
        warn(f"{text}, but continuing assuming that requirement is met", UserWarning)
        return True
    return version >= tuple(req_version_tuple)


def get_unsafe_globals_in_checkpoint(f) -> list[str]:
    """The names in a file of PyTorch (zip) that `load` would refuse, without loading it."""
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(open(f, "rb")) if _is_path(f) else f
        if not torch_archive.is_archive(read_exactly(file, 8, "its first eight bytes")):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        file.seek(-8, os.SEEK_CUR)
        with reading("the file"):
            return torch_archive.refused_names(file, objects.Policy())
