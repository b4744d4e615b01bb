"""Files whose tensors are read one by one, on access."""

import fnmatch
import os
from collections import OrderedDict
from collections.abc import Mapping

from .. import Tensor
from . import torch_archive
from .container_reader import Mapped, TreeReader, _form, check_end, over, read_header
from .errors import FileError, damaged, reading
from .objects import Policy
from .source import MappedSource
from .steps import checksum


class LazyFile(Mapping):
    """The tensors of a file by name: `file["encoder.weight"]` reads this one and nothing else.

    A dictionary to read from: `model.load_state_dict(file)`, `list(file)`, `len(file)`. Tensors are mapped into memory: their bytes
    come from the disk when they are used, and writing to them does not change the file. `verify`: compare the checksum of a tensor
    when it is first asked for (which reads all of it). Names are the keys joined by dots; `metadata` are the texts of a safetensors
    file. Close by leaving a `with` block or by dropping it; tensors that were read live on.
    """

    def __init__(self, path, verify: bool = True, weights_only: bool = True) -> None:
        self.path, self.verify = os.fspath(path), verify
        self.metadata: dict[str, str] = {}
        self._source = MappedSource(self.path)
        self._checked: set = set()
        self._tensors: dict[str, Tensor] = {}
        self._refs: dict[str, dict] = {}  # name -> reference in the tree
        self._header = None
        policy = Policy(weights_only)
        with reading("the file"):
            start = bytes(self._source.view(0, 8, "its first eight bytes"))
            if torch_archive.is_archive(start):
                self._open_archive(policy)
            else:
                self._open_container(start, policy)

    def _open_container(self, start: bytes, policy: Policy) -> None:
        source = self._source
        header = self._header = read_header(lambda n, what: source.view(8, n, what), start)
        if 8 + header.data_bytes > source.size or header.data_at + header.data_bytes > source.size:
            raise FileError(f"load: the file ends within its tensors: it has {source.size} bytes and would need "
                            f"{header.data_at + header.data_bytes}")
        check_end(header, header.data_at + header.data_bytes < source.size)
        self._memories = Mapped(header, source)
        if header.own is None:
            self.metadata = header.metadata
            self._refs = dict.fromkeys(header.names, {})
        else:
            self._reader = TreeReader(header, self._memories, lambda memory, location: memory, policy)
            self._walk(header.own["tree"], "")

    def _walk(self, data, path: str) -> None:
        if isinstance(data, list):
            for k, part in enumerate(data):
                self._walk(part, f"{path}.{k}" if path else str(k))
        elif isinstance(data, dict):
            tag = next(iter(data), "")
            if tag in ("$tensor", "$meta", "$sparse", "$uninitialized"):
                name, n = path or "value", 2
                while name in self._refs:
                    name, n = f"{path}#{n}", n + 1
                self._refs[name] = data
            elif tag in ("$od", "$d", "$counter", "$dd", "$ns", "$sns"):
                for key, part in data[tag]:
                    key = key if isinstance(key, str) else str(self._reader.decode(key))
                    self._walk(part, f"{path}.{key}" if path else key)
            elif tag in ("$t", "$s", "$fs", "$deque"):
                self._walk(data[tag], path)
            elif tag == "$object":
                self._walk(data["state"], path)
            elif not tag.startswith("$"):
                for key, part in data.items():
                    self._walk(part, f"{path}.{key}" if path else key)

    def _open_archive(self, policy: Policy) -> None:
        with open(self.path, "rb") as file:
            storages: list = []
            tree = torch_archive.read(file, lambda memory, location: memory, policy, self._source, opened=storages)
            self._archive = storages[0].archive
            self._where = {memory._storage_id(): (memory, key) for key, memory in storages[0].loaded.items()}
            self._spans = {key: self._archive.span(key) for key in storages[0].loaded}
        self._collect(tree, "")

    def _collect(self, value, path: str) -> None:
        if isinstance(value, Tensor):
            self._tensors.setdefault(path or "value", value)
        elif isinstance(value, dict):
            for key, part in value.items():
                self._collect(part, f"{path}.{key}" if path else str(key))
        elif isinstance(value, (list, tuple)):
            for k, part in enumerate(value):
                self._collect(part, f"{path}.{k}" if path else str(k))

    # Asking.
    def __iter__(self):
        return iter(self._refs or self._tensors)

    def __len__(self) -> int:
        return len(self._refs or self._tensors)

    def __contains__(self, name) -> bool:
        return name in self._refs or name in self._tensors

    def __getitem__(self, name: str) -> Tensor:
        return self.read(name, self.verify)

    def read(self, name: str, verify: bool = True) -> Tensor:
        """One tensor. With verify=False not even its own bytes are read before they are used."""
        if name not in self:
            raise KeyError(f"{name!r} is not in {os.fsdecode(self.path)}")
        with reading(f"the tensor {name[:200]!r}"):
            if verify and name not in self._checked:
                self._check(name)
                self._checked.add(name)
            if name not in self._tensors:
                self._tensors[name] = self._make(name)
            return self._tensors[name]

    def _make(self, name: str) -> Tensor:
        if self._header.own is not None:
            return self._reader.decode(self._refs[name])
        dtype, shape = _form(name, self._header.entries[name])
        return over(self._memories[name], dtype, shape)

    def _check(self, name: str) -> None:
        if self._header is not None:
            if self._header.own is None:
                return
            reference = self._refs[name]
            sparse = reference.get("$sparse")  # two parts, and where blocks begin as the last
            numbers = sparse[:2] + sparse[5:] if sparse else [reference["$tensor"]] if "$tensor" in reference else []
            for number in numbers:
                self._memories.check(self._header.own["places"][number]["in"], name)
            return
        t = self._tensors[name]
        found = None if t._is_any_sparse else self._where.get(t._storage_id())
        if found is not None:
            begin, size, crc = self._spans[found[1]]
            if crc and checksum(self._source.view(begin, size, name)) != crc:
                raise damaged(f"the tensor {name[:200]!r}")

    def load(self, names=None, prefix: str = "", pattern: str | None = None, strip: bool = False) -> OrderedDict:
        """Some of the tensors by name: those in `names`, those that begin with `prefix` or match `pattern` ("layer?.*"); with
        `strip` their names lose the prefix. A name that is not there is a KeyError."""
        chosen = list(names) if names is not None else list(self)
        chosen = [n for n in chosen if n.startswith(prefix) and (pattern is None or fnmatch.fnmatchcase(n, pattern))]
        return OrderedDict((n[len(prefix):] if strip else n, self[n]) for n in chosen)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor; of a safetensors file without making the tensor."""
        if self._header is not None and self._header.own is None and name in self._refs:
            return tuple(self._header.entries[name][1])
        return tuple(self.read(name, False).shape)

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self._tensors, self._refs = {}, {}

    def __repr__(self) -> str:
        return f"LazyFile({os.fsdecode(self.path)!r}: {len(self)} tensors)"
