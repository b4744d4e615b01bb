"""Which tensors share memory, and what of that memory a file needs."""

from dataclasses import dataclass, field

from .. import _C, as_strided, uint8

PARALLEL = 1 << 21  # bytes from which a second thread computes checksums while the first writes


def extent(t) -> tuple[int, int]:
    """First and last element (exclusive) that the tensor reaches in its memory, counted in elements."""
    begin, count = t.storage_offset(), t.numel()
    if count == 0 or t.is_contiguous():
        return begin, begin + count
    reach = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return begin, begin + reach + 1


def dense_strides(shape) -> tuple[int, ...]:
    """Strides of a tensor that lies row after row."""
    strides, step = [], 1
    for n in reversed(tuple(shape)):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _is_dense(t) -> bool:
    """Whether every element of the stretch of memory is there exactly once."""
    step = 1
    for stride, n in sorted((s, n) for n, s in zip(t.shape, t.stride(), strict=True) if n != 1):
        if stride != step:
            return False
        step *= n
    return t.numel() > 0


@dataclass
class Piece:
    """One run of bytes of a file. `source`: a tensor on any device whose elements, row after row, are the bytes.

    `views` says of each tensor (by number) how it lies in the piece: None when it is the piece, row after row; strides when it has
    the piece's shape and elements but other strides; (shape, strides, offset in elements of its own dtype) when it is a part.
    """

    name: str
    source: object
    views: dict[int, object] = field(default_factory=dict)


class Pieces:
    """Collects tensors, in the order in which a file meets them, and finds the pieces.

    `flat`: every piece is one-dimensional and every tensor a view with its own strides, as PyTorch's files have it.
    """

    def __init__(self, flat: bool = False) -> None:
        self.flat = flat
        self.tensors: list = []  # (detached tensor, path)
        self._numbers: dict[int, int] = {}
        self._alive: list = []  # ids are those of living objects

    def add(self, t, path: str) -> int:
        number = self._numbers.get(id(t))
        if number is None:
            number = self._numbers[id(t)] = len(self.tensors)
            self._alive.append(t)
            self.tensors.append((t.detach(), path))
        return number

    def _groups(self) -> list[list[int]]:
        """Numbers of tensors that share bytes, in the order of their first members."""
        by_memory: dict = {}
        groups = []
        for number, (t, _) in enumerate(self.tensors):
            if t.numel() == 0:
                groups.append([number])
                continue
            size, (first, last) = t.element_size(), extent(t)
            by_memory.setdefault((t.device, t._storage_id()), []).append((first * size, last * size, number))
        for spans in by_memory.values():
            if len(spans) == 1:
                groups.append([spans[0][2]])
                continue
            spans.sort()
            group, end = [], -1
            for first, last, number in spans:
                if first >= end and group:
                    groups.append(sorted(group))
                    group = []
                group.append(number)
                end = max(end, last)
            groups.append(sorted(group))
        groups.sort(key=lambda group: group[0])
        return groups

    def _same(self, members: list[int]) -> bool:
        def place(t):
            return t.dtype, tuple(t.shape), t.stride(), t.storage_offset()

        first = place(self.tensors[members[0]][0])
        return all(place(self.tensors[n][0]) == first for n in members[1:])

    def _piece(self, members: list[int]) -> Piece:
        lead, name = self.tensors[members[0]]
        if len(members) == 1 and lead.is_contiguous():  # nearly all of them
            return Piece(name, lead, {members[0]: (tuple(lead.shape), tuple(lead.stride()), 0) if self.flat else None})
        first, last = extent(lead)
        spread = last - first
        if self._same(members) and spread >= lead.numel() and not (self.flat and _is_dense(lead)):
            if self.flat:  # with gaps: copied without them
                view = (tuple(lead.shape), dense_strides(lead.shape), 0)
            else:
                view = tuple(lead.stride()) if _is_dense(lead) and not lead.is_contiguous() else None
            return Piece(name, lead, dict.fromkeys(members, view))
        tensors = {n: self.tensors[n][0] for n in members}
        if all(t.dtype == lead.dtype for t in tensors.values()):
            size, flat, dtype = 1, lead, lead.dtype
        else:  # the memory is bytes, whatever the tensors take it for
            size, flat, dtype = None, _C._storage_bytes(lead), uint8
        spans = {n: [e * (size or t.element_size()) for e in extent(t)] for n, t in tensors.items()}
        low, high = min(s[0] for s in spans.values()), max(s[1] for s in spans.values())
        if size is None:  # a multiple of every element size
            low -= low % 16
        views = {}
        for n, t in tensors.items():
            offset = t.storage_offset() - (low if size else low // t.element_size())
            views[n] = (tuple(t.shape), tuple(t.stride()), offset)
        source = as_strided(flat, (high - low,), (1,), low)
        assert source.dtype == dtype
        return Piece(name, source, views)

    def pieces(self) -> list[Piece]:
        return [self._piece(group) for group in self._groups()]


def host_bytes(source) -> tuple[object, memoryview]:
    """A tensor's elements, row after row, as bytes in this process; the tensor that keeps them alive comes first."""
    if source.numel() == 0:
        return source, memoryview(b"")
    t = source.cpu().contiguous()
    data = memoryview(_C._storage_bytes(t)).cast("B")
    begin = t.storage_offset() * t.element_size()
    return t, data[begin:begin + t.numel() * t.element_size()]
