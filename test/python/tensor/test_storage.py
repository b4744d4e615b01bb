"""Storages over files and slices, and what asarray makes of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import tapegrad as tg


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(32)))
    return str(path)


def look(library, path):
    s = library.UntypedStorage.from_file(path, shared=False, nbytes=32)
    part = s[4:20]
    t = library.asarray(part, dtype=library.uint8)
    t[0] = 99
    part[1] = 77
    with warnings.catch_warnings():  # PyTorch calls typed storages old
        warnings.simplefilter("ignore")
        floats = library.asarray(library.FloatStorage([1, 2]))
    return (len(s), s[3], s[-1], s[4], len(part), part[0], part.data_ptr() - s.data_ptr(), t.data_ptr() == part.data_ptr(), t[:3].tolist(),
            t.view(dtype=library.int32).tolist(), len(s[10:5]), s.filename, s.untyped()[2], str(floats.dtype).partition(".")[2], floats.tolist(),
            library.asarray(library.ones(3).untyped_storage()[4:], dtype=library.float32).tolist(),
            library.UntypedStorage([1, 2, 3]).tolist(), library.UntypedStorage(2).copy_(library.UntypedStorage(2).fill_(3)).tolist())


def test_they_are_torch_s(path):
    torch = pytest.importorskip("torch")
    assert look(tg, path) == look(torch, path)


def test_writing_stays_in_the_process_or_goes_to_the_file(path, tmp_path):
    tg.UntypedStorage.from_file(path, nbytes=32)[0] = 200
    assert open(path, "rb").read()[0] == 0
    tg.UntypedStorage.from_file(path, shared=True, nbytes=8)[0] = 200
    assert open(path, "rb").read()[0] == 200
    new = str(tmp_path / "new")
    tg.UntypedStorage.from_file(new, True, 5).fill_(7)
    assert open(new, "rb").read() == b"\7" * 5


def test_a_slice_keeps_the_memory(path):
    part = tg.UntypedStorage.from_file(path, nbytes=32)[8:12]
    assert part.tolist() == [8, 9, 10, 11]
    t = tg.asarray(tg.arange(4.0).untyped_storage()[8:], dtype=tg.float32)
    assert t.tolist() == [2, 3]


def test_mistakes(path):
    s = tg.UntypedStorage.from_file(path, nbytes=32)
    for call, error, text in [
        (lambda: tg.UntypedStorage.from_file(path, nbytes=64), RuntimeError, "has 32 bytes: expected at least 64"),
        (lambda: tg.UntypedStorage.from_file(path + "x", nbytes=4), RuntimeError, "No such file"),
        (lambda: s[40], IndexError, "index 40 out of range for storage of size 32"),
        (lambda: s.__setitem__(-33, 1), IndexError, "index -33 out of range"),
        (lambda: s["a"], TypeError, "can't index"),
        (lambda: s[::2], RuntimeError, "only a step of 1"),
        (lambda: s.copy_(tg.UntypedStorage(4)), RuntimeError, "32 and 4 bytes"),
    ]:
        with pytest.raises(error, match=text):
            call()


def test_resize_of_storages():
    x = tg.arange(6.0)
    storage, part = x.untyped_storage(), x[2:]
    assert storage.resize_(100) is storage and storage.nbytes() == x.untyped_storage().nbytes() == 100
    assert part.tolist() == [2.0, 3.0, 4.0, 5.0]
    part[0] = 7  # it follows
    assert x[2] == 7 and tg.FloatStorage(3).resize_(5).size() == 5
    with pytest.raises(RuntimeError, match="cannot shrink while tensors see it: from 100 to 99 bytes"):
        storage.resize_(99)
    with pytest.raises(TypeError, match="a number of bytes"):
        storage.resize_("8")
    with pytest.raises(RuntimeError, match="belongs to another library"):
        tg.from_numpy(np.ones(3)).untyped_storage().resize_(100)
    with pytest.raises(RuntimeError):
        storage.resize_(2**62)
    assert storage.nbytes() == 100
