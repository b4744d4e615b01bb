"""Sequences of different lengths."""

from __future__ import annotations

from ... import full

__all__ = ["pad_sequence", "unpad_sequence"]


def pad_sequence(sequences, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"):
    """Stacks sequences (L_i, *) into one tensor (L, N, *), or (N, L, *) with batch_first, padded to the longest."""
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
