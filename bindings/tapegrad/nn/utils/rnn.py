"""Sequences of different lengths: padded, and packed step by step as recurrent networks take them."""

from collections.abc import Iterable
from typing import NamedTuple

from ... import Tensor, arange, as_tensor, empty_like, full, int64, nonzero, sort

__all__ = ["PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence",
           "pad_sequence", "unpack_sequence", "unpad_sequence"]


class PackedSequence_(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Sequences of different lengths without padding: `data` holds the first elements of all sequences, then all second ones and
    so on, longest sequence first; `batch_sizes` (int64, on the CPU) says how many there are of each.

    `sorted_indices` is the order in which the sequences were taken, `unsorted_indices` the way back. Made by
    pack_padded_sequence and pack_sequence.
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        if batch_sizes is None:
            if not (isinstance(data, (list, tuple)) and len(data) == 2):
                raise AssertionError("Expected data to be a list or tuple of length 2")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            raise ValueError("batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                             "They should be instantiated by functions like pack_sequence and pack_padded_sequences in "
                             "nn.utils.rnn.")
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args, **kwargs):
        """Converts or moves `data`, and moves the indices with it."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        moved = [None if t is None else t.to(data.device) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *moved)

    def pin_memory(self):
        """A copy in pinned memory."""
        pinned = [None if t is None else t.pin_memory() for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(self.data.pin_memory(), self.batch_sizes, *pinned)

    def is_pinned(self) -> bool:
        return self.data.is_pinned()

    @property
    def is_cuda(self) -> bool:
        return self.data.is_cuda

    def cpu(self):
        return self.to("cpu")

    def cuda(self, device="cuda"):
        return self.to(device)


def _conversion(name: str):
    def convert(self):
        data = getattr(self.data, name)()
        return self if data is self.data else type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    convert.__name__ = name
    convert.__qualname__ = f"PackedSequence.{name}"
    convert.__doc__ = f"The sequence with `data` as Tensor.{name}() gives it."
    return convert


for _name in ("double", "float", "half", "bfloat16", "long", "int", "short", "char", "byte"):
    setattr(PackedSequence, _name, _conversion(_name))


def invert_permutation(permutation):
    """The permutation that undoes the given one."""
    if permutation is None:
        return None
    return empty_like(permutation).scatter_(0, permutation, arange(permutation.numel(), device=permutation.device))


def _places(batch_sizes, sequences: int, steps: int):
    """Flat positions (step, sequence) that packed data holds, in its order."""
    there = arange(sequences).unsqueeze(0) < batch_sizes.unsqueeze(1)
    assert there.size(0) <= steps
    return nonzero(there.reshape(-1)).squeeze(1)


def pack_padded_sequence(input, lengths, batch_first: bool = False, enforce_sorted: bool = True):
    """Packs padded sequences (L, N, *), or (N, L, *) with batch_first, of the given lengths.

    With enforce_sorted the lengths must not rise; else the sequences are sorted, and come back in their order from
    pad_packed_sequence.
    """
    lengths = lengths.to(dtype=int64) if isinstance(lengths, Tensor) else as_tensor(lengths, dtype=int64)
    if lengths.device.type != "cpu":
        raise RuntimeError("'lengths' argument should be a 1D CPU int64 tensor, but got "
                           f"{lengths.dim()}D {lengths.device} Long tensor")
    if input.numel() == 0:
        raise RuntimeError(f"pack_padded_sequence: Cannot pack empty tensors: got {tuple(input.shape)}")
    if input.dim() < 2 or lengths.dim() != 1:
        raise RuntimeError(f"pack_padded_sequence: expected an input of 2 dimensions at least and lengths of one: got "
                           f"{tuple(input.shape)} and {tuple(lengths.shape)}")
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    if batch_first:
        input = input.transpose(0, 1)
    listed = lengths.tolist()
    if not listed or input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if len(listed) != input.size(1):
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(listed)} (batch_size={input.size(1)})")
    if listed[-1] <= 0 or min(listed) <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if any(a < b for a, b in zip(listed, listed[1:], strict=False)):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
                           "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
                           "do not need ONNX exportability.")
    if listed[0] > input.size(0):
        raise RuntimeError(f"Expected lengths of at most {input.size(0)} steps, but got {listed[0]}")
    steps, n = listed[0], input.size(1)
    batch_sizes = (arange(steps).unsqueeze(1) < lengths.unsqueeze(0)).sum(1)
    flat = input[:steps].reshape(steps * n, *input.shape[2:])
    data = flat if listed[-1] == steps else flat.index_select(0, _places(batch_sizes, n, steps).to(input.device))
    return PackedSequence(data, batch_sizes, sorted_indices, None)


def pad_packed_sequence(sequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None):
    """The reverse of pack_padded_sequence: the padded sequences and their lengths."""
    data, batch_sizes, _, unsorted_indices = sequence
    longest = steps = batch_sizes.size(0)
    if total_length is not None:
        if total_length < steps:
            raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but got "
                             f"total_length={total_length} and max sequence length being {steps}")
        longest = total_length
    n = int(batch_sizes[0])
    lengths = (arange(n).unsqueeze(1) < batch_sizes.unsqueeze(0)).sum(1)
    rest = tuple(data.shape[1:])
    if n * longest == data.size(0):
        padded = data
    else:
        padded = full((longest * n, *rest), padding_value, dtype=data.dtype, device=data.device)
        padded = padded.index_copy(0, _places(batch_sizes, n, longest).to(data.device), data)
    padded = padded.reshape(longest, n, *rest)
    if batch_first:
        padded = padded.transpose(0, 1)
    if unsorted_indices is not None:
        return padded.index_select(0 if batch_first else 1, unsorted_indices), lengths[unsorted_indices.cpu()]
    return padded, lengths


def pad_sequence(sequences, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"):
    """Stacks sequences (L_i, *) into one tensor (L, N, *), or (N, L, *) with batch_first, padded to the longest."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    longest = max(s.size(0) for s in sequences)
    rest = tuple(sequences[0].shape[1:])
    shape = (len(sequences), longest, *rest) if batch_first else (longest, len(sequences), *rest)
    out = full(shape, padding_value, dtype=sequences[0].dtype, device=sequences[0].device)
    for i, sequence in enumerate(sequences):
        n = sequence.size(0)
        where = slice(0, n) if padding_side == "right" else slice(longest - n, longest)
        if batch_first:
            out[i, where] = sequence
        else:
            out[where, i] = sequence
    return out


def unpad_sequence(padded_sequences, lengths, batch_first: bool = False):
    """The reverse of pad_sequence."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [sequence[:int(n)] for sequence, n in zip(padded_sequences, lengths, strict=True)]


def pack_sequence(sequences, enforce_sorted: bool = True):
    """Packs a list of sequences (L_i, *)."""
    lengths = as_tensor([s.size(0) for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The reverse of pack_sequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
