"""safetensors both ways, against the safetensors package."""

import io
import json
import os
import struct

import pytest
import tapegrad as tg
from tapegrad import serialization

safetensors = pytest.importorskip("safetensors")
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")


def test_their_readers_open_what_save_writes(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    x = tg.arange(10.0)
    saved = {"model": {d: (tg.rand(2, 3) * 5).to(getattr(tg, d)) for d in DTYPES}, "low": x[:6], "high": x[4:], "turned": tg.randn(3, 4).t(),
             "n": 3, "z": tg.ones(2, dtype=tg.complex64), "empty": tg.zeros(0, 2)}
    tg.save(saved, tmp_path / "x.tape")
    theirs = load_file(tmp_path / "x.tape")
    for d in DTYPES:
        assert theirs[f"model.{d}"].dtype == getattr(torch, d)
        assert theirs[f"model.{d}"].double().tolist() == saved["model"][d].double().tolist()
    assert theirs["turned"].tolist() == saved["turned"].tolist()
    assert theirs["z"].tolist() == [[1, 0], [1, 0]]  # complex numbers as pairs
    with safetensors.safe_open(tmp_path / "x.tape", "numpy") as file:
        assert set(file.metadata()) == {"tapegrad", "tapegrad_crc32"}
    tg.save(tg.nn.Linear(2, 2).state_dict(), tmp_path / "model.safetensors")
    assert set(load_file(tmp_path / "model.safetensors")) == {"weight", "bias"}


def test_plain_files_both_ways(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file, save_file

    mine = {d: (tg.rand(2, 3) * 5).to(getattr(tg, d)) for d in DTYPES}
    mine["z"] = tg.ones(2, dtype=tg.complex64) * 1j
    mine["turned"] = tg.randn(3, 4).t()
    serialization.save_file(mine, tmp_path / "mine.safetensors", {"format": "pt", "note": "hi"})
    theirs = load_file(tmp_path / "mine.safetensors")
    assert {n: t.tolist() for n, t in theirs.items()} == {n: t.tolist() for n, t in mine.items()}
    with safetensors.safe_open(tmp_path / "mine.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt", "note": "hi"}
    assert serialization.open_file(tmp_path / "mine.safetensors").metadata == {"format": "pt", "note": "hi"}

    written = {d: (torch.rand(2, 3) * 5).to(getattr(torch, d)) for d in DTYPES}
    written["z"] = torch.ones(2, dtype=torch.complex64)
    written["scalar"] = torch.tensor(1.5)
    save_file(written, tmp_path / "theirs.safetensors", {"a": "b"})
    for back in (tg.load(tmp_path / "theirs.safetensors"), tg.load(tmp_path / "theirs.safetensors", mmap=True),
                 serialization.load_file(tmp_path / "theirs.safetensors"), serialization.open_file(tmp_path / "theirs.safetensors")):
        assert {n: back[n].tolist() for n in back} == {n: t.tolist() for n, t in written.items()}
        assert back["bfloat16"].dtype is tg.bfloat16


def test_refusals_of_save_file(tmp_path):
    for bad, message in (({3: tg.ones(1)}, "must be a text"), ({"a": [1]}, "dense tensors"), ({"a": tg.ones(1, device="meta")}, "dense tensors"),
                         ({"a": tg.ones(1, dtype=tg.complex128)}, "no tapegrad.complex128")):
        with pytest.raises(ValueError, match=message):
            serialization.save_file(bad, tmp_path / "x")
    with pytest.raises(TypeError, match="metadata are texts"):
        serialization.save_file({}, tmp_path / "x", {"a": 1})
    assert not (tmp_path / "x").exists()


GOOD = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(("header", "message"), [
    ({"a": {"dtype": "F32", "shape": [10**18], "data_offsets": [0, 8]}}, "has the shape"),
    ({"a": {"dtype": "F32", "shape": [10**18], "data_offsets": [0, 4 * 10**18]}}, "ends within the tensor 'a'"),
    ({"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}}, "has the shape"),
    ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "no dtype and shape"),
    ({"a": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}}, "no dtype and shape"),
    ({"a": {"dtype": "F32", "shape": [1] * 100, "data_offsets": [0, 8]}}, "no dtype and shape"),
    ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, "does not lie where"),
    ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, "does not lie where"),
    ({"a": {"dtype": "X1", "shape": [2], "data_offsets": [0, 8]}}, "dtype X1, which does not exist"),
    ({"a": {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}}, "no dtype and shape"),
    ({"a": {"shape": [2], "data_offsets": [0, 8]}}, "header is damaged"), ({"a": 3}, "not described"), ([1], "header is damaged|neither"),
    ({"__metadata__": {"a": 1}, **GOOD}, "metadata are not texts"), ({"__metadata__": 3, **GOOD}, "metadata are not texts"),
])
@pytest.mark.parametrize("how", ["file", "mapped", "lazy"])
def test_false_headers(header, message, how, tmp_path):
    head = json.dumps(header).encode()
    raw = struct.pack("<Q", len(head)) + head + bytes(8)
    path = tmp_path / "x"
    path.write_bytes(raw)
    with pytest.raises(serialization.FileError, match=message + "|ends within its tensors"):
        if how == "file":
            tg.load(io.BytesIO(raw))
        elif how == "mapped":
            tg.load(path, mmap=True)
        else:
            serialization.open_file(path).load()


def test_huge_and_deep_headers(tmp_path):
    for raw in (struct.pack("<Q", 99_999_999) + b"{", struct.pack("<Q", 10**18) + b"{}", struct.pack("<Q", 60_000) + b"[" * 60_000,
                struct.pack("<Q", 100_000) + b'{"a":' * 20_000, struct.pack("<Q", 5002) + b'{' + b"9" * 5000 + b"}"):
        with pytest.raises(serialization.FileError):
            tg.load(io.BytesIO(raw))


@pytest.mark.parametrize("how", ["file", "pipe", "mapped", "lazy"])
@pytest.mark.parametrize(("head", "rest", "message"), [
    (json.dumps(GOOD), b"x", "goes on behind its last tensor.*ends at byte 80"),
    (json.dumps(GOOD), bytes(1 << 20), "goes on behind its last tensor"),
    ("{}", b"\0", "goes on behind its last tensor.*ends at byte"),
    (json.dumps(GOOD)[:-1] + ", " + json.dumps(GOOD)[1:], b"", "'a' is there twice"),
    ('{"a": {"dtype": "F32", "dtype": "I32", "shape": [2], "data_offsets": [0, 8]}}', b"", "'dtype' is there twice"),
    ('{"__metadata__": {"a": "1", "a": "2"}, ' + json.dumps(GOOD)[1:], b"", "'a' is there twice"),
    ('{"__metadata__": {}, "__metadata__": {}, ' + json.dumps(GOOD)[1:], b"", "'__metadata__' is there twice"),
])
def test_what_other_readers_would_see_otherwise(head, rest, message, how, tmp_path):
    head = head.ljust(-(-len(head) // 64) * 64).encode() if head != "{}" else b"{}"
    raw = struct.pack("<Q", len(head)) + head + (bytes(8) if head != b"{}" else b"") + rest
    raw_good = raw[:len(raw) - len(rest)]
    path = tmp_path / "x"
    path.write_bytes(raw)
    if rest:
        assert set(tg.load(io.BytesIO(raw_good))) == set(json.loads(head))
    with pytest.raises(serialization.FileError, match="(?s)" + message):
        if how == "file":
            tg.load(io.BytesIO(raw))
        elif how == "pipe":
            reader, writer = os.pipe()
            with open(writer, "wb") as file:
                file.write(raw[:60_000])
            with open(reader, "rb") as file:
                tg.load(file)
        elif how == "mapped":
            tg.load(path, mmap=True)
        else:
            serialization.open_file(path)


def test_files_of_ours_may_follow_each_other():
    stream = io.BytesIO()
    tg.save({"a": tg.ones(2)}, stream)
    tg.save([1, tg.zeros(1)], stream)
    stream.seek(0)
    assert tg.load(stream)["a"].tolist() == [1, 1]
    assert tg.load(stream)[0] == 1
