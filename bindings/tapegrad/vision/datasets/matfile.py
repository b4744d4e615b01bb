"""Arrays of numbers out of MATLAB's files of level 5 ("MAT-File Format", MathWorks), so that SVHN needs no SciPy."""

import struct
import zlib

import numpy as np

_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_MATRIX, _COMPRESSED = 14, 15


def _element(data, at: int, order: str):
    """(type, contents, where the next element begins)"""
    if len(data) < at + 8:
        raise RuntimeError("read_mat: the file ends in the middle of an element")
    kind, size = struct.unpack_from(f"{order}II", data, at)
    if kind >> 16:  # small elements keep their contents beside the type
        kind, size = kind & 0xFFFF, kind >> 16
        return kind, data[at + 4:at + 4 + size], at + 8
    if len(data) < at + 8 + size:
        raise RuntimeError("read_mat: the file ends in the middle of an element")
    end = at + 8 + size
    return kind, data[at + 8:end], end if kind == _COMPRESSED else at + 8 + (size + 7) // 8 * 8


def _matrix(data, order: str):
    """(name, array), or None for what is no array of numbers."""
    _, flags, at = _element(data, 0, order)
    kind = struct.unpack_from(f"{order}I", flags)[0] & 0xFF
    _, dims, at = _element(data, at, order)
    _, name, at = _element(data, at, order)
    if kind not in _CLASSES:
        return None
    stored, values, _ = _element(data, at, order)
    if stored not in _NUMBERS:
        raise RuntimeError(f"read_mat: unknown type of numbers: {stored}")
    shape = np.frombuffer(dims, f"{order}i4")
    array = np.frombuffer(values, np.dtype(order + _NUMBERS[stored]))
    if array.size != np.prod(shape, dtype=np.int64):
        raise RuntimeError(f"read_mat: {array.size} values for shape {tuple(shape)}")
    return bytes(name).decode(), array.astype(_CLASSES[kind]).reshape(tuple(shape), order="F")


def read_mat(path) -> dict[str, np.ndarray]:
    """The arrays of numbers in a file, by name; RuntimeError for what is no such file."""
    with open(path, "rb") as file:
        data = memoryview(file.read())
    if len(data) < 128 or bytes(data[126:128]) not in (b"IM", b"MI"):
        raise RuntimeError(f"read_mat: not a MATLAB file of level 5: {path}")
    order = "<" if bytes(data[126:128]) == b"IM" else ">"
    arrays, at = {}, 128
    while at < len(data):
        kind, content, at = _element(data, at, order)
        if kind == _COMPRESSED:
            try:
                kind, content, _ = _element(memoryview(zlib.decompress(content)), 0, order)
            except zlib.error as error:
                raise RuntimeError(f"read_mat: {path}: {error}") from None
        found = _matrix(content, order) if kind == _MATRIX else None
        if found is not None:
            arrays[found[0]] = found[1]
    return arrays
