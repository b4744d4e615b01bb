"""What else tapegrad's own container keeps: layouts, attributes, NumPy's dtypes, times, objects of allowed classes, whole layers."""

import argparse
import collections
import dataclasses
import datetime
import enum
import io
import json
import pathlib
import pickle
import struct
import types

import numpy as np
import pytest
import tapegrad as tg


def again(obj, format="tapegrad", **options):
    buffer = io.BytesIO()
    tg.save(obj, buffer, format=format)
    buffer.seek(0)
    return tg.load(buffer, **options)


FORMATS = pytest.mark.parametrize("format", ["tapegrad", "torch"])


@FORMATS
@pytest.mark.parametrize("value", [
    argparse.Namespace(lr=0.1, layers=[1, 2]), types.SimpleNamespace(a=1), pathlib.Path("/a/b"), datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    datetime.date(2026, 1, 2), datetime.timedelta(1, 2, 3), range(1, 9, 2), slice(1, None, 2), collections.deque([1, 2], 5), bytearray(b"ab"),
    collections.defaultdict(list, {"a": [1]}), frozenset({1}), {(1, "a"): 2}, 2**3000, -1, 255, 256, 65536, "\ud800", np.dtype("<f4"),
    collections.OrderedDict(a=collections.Counter("aab")),
])
def test_values(format, value):
    back = again(value, format)
    assert type(back) is type(value)
    assert back == value


@FORMATS
@pytest.mark.parametrize("array", [
    np.arange(6, dtype=np.uint32).reshape(2, 3), np.array(["ab", "c"]), np.array([b"x", b"yz"]), np.arange(3, dtype=">f4"), np.float16([1, 2]),
    np.array(["2026-01-02"], dtype="M8[D]"), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.zeros((0, 4), np.uint64), np.array(3.5),
    np.array([True, False]), np.array([1 + 2j]), np.arange(24).reshape(2, 3, 4)[:, ::2],
])
def test_numpy_arrays(format, array):
    back = again({"a": array}, format)["a"]
    # NumPy makes its numbers native when it reads them from PyTorch's format.
    assert back.dtype == (array.dtype if format == "tapegrad" else array.dtype.newbyteorder("="))
    assert back.shape == array.shape
    assert np.array_equal(back, array)


@FORMATS
@pytest.mark.parametrize("number", [np.float32(1.5), np.uint64(2**63), np.int8(-3), np.bool_(True), np.complex64(1j), np.str_("ab"), np.datetime64("2026-01-02")])
def test_numpy_numbers(format, number):
    back = again(number, format)
    assert type(back) is type(number)
    assert back == number


@FORMATS
def test_kinds_of_tensors(format):
    sparse = tg.eye(3).to_sparse()
    p = tg.nn.Parameter(tg.randn(2, 3), requires_grad=False)
    p.tag = "weight"
    t = tg.ones(2)
    t.note = {"a": [1]}
    values = {"sparse": sparse, "p": p, "t": t, "meta": tg.empty(2, 3, device="meta"), "buffer": tg.nn.Buffer(tg.ones(2), persistent=False),
              "last": tg.randn(2, 3, 4, 4).to(memory_format=tg.channels_last), "once": tg.tensor([7.0]).expand(1000), "empty": tg.zeros(0, 3)}
    back = again(values, format)
    assert tg.equal(back["sparse"].to_dense(), tg.eye(3))
    assert back["sparse"].is_coalesced()
    assert type(back["p"]) is tg.nn.Parameter
    assert not back["p"].requires_grad
    assert back["p"].tag == "weight"
    assert back["t"].note == {"a": [1]}
    assert back["meta"].is_meta
    assert back["meta"].shape == (2, 3)
    assert type(back["buffer"]) is tg.nn.Buffer
    assert back["buffer"].persistent is False
    assert back["last"].stride() == values["last"].stride()
    assert tg.equal(back["last"], values["last"])
    assert back["once"].untyped_storage().nbytes() == 4
    assert back["once"].tolist() == [7.0] * 1000
    assert back["empty"].shape == (0, 3)


def test_one_memory_under_several_dtypes():
    x = tg.arange(4.0)
    back = again({"f": x, "i": x.view(tg.int32), "b": x.view(tg.uint8)[3:9]})
    back["f"][1] = 5.0
    assert back["i"][1].item() == np.float32(5.0).view(np.int32)
    assert back["b"].tolist() == np.array([0, 5, 2, 3], np.float32).view(np.uint8)[3:9].tolist()
    with pytest.raises(RuntimeError, match="view the same data as different types: 'f', 'i'"):
        again({"f": x, "i": x.view(tg.int32)}, "torch")


@dataclasses.dataclass
class Config:
    width: int
    names: list


class Colour(enum.Enum):
    RED = 1


class Slots:
    __slots__ = ("x",)


@FORMATS
def test_objects_of_allowed_classes(format):
    config = {"c": Config(3, ["a"]), "e": Colour.RED}
    with pytest.raises(TypeError, match=r"cannot save an object of class .*Config at 'c'(.|\n)*add_safe_globals\(\[Config\]\)"):
        again(config, format)
    buffer = io.BytesIO()
    with tg.serialization.safe_globals([Config, Colour]):
        tg.save(config, buffer, format=format)
        assert set(tg.serialization.get_safe_globals()) == {Config, Colour}
        assert again(config, format) == config
    assert tg.serialization.get_safe_globals() == []
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match=r"the file needs .*Config, and only tensors(.|\n)*add_safe_globals\(\[Config\]\)"):
        tg.load(buffer, weights_only=False)
    tg.serialization.add_safe_globals([Config, (Colour, f"{__name__}.Colour")])
    buffer.seek(0)
    assert tg.load(buffer) == config
    tg.serialization.clear_safe_globals()
    buffer.seek(0)
    with pytest.raises(tg.serialization.FileError):
        tg.load(buffer)


class Net(tg.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = tg.nn.Sequential(tg.nn.Linear(2, 3), tg.nn.TransformerEncoderLayer(3, 1, 4, dropout=0.0, batch_first=True))
        self.act = tg.nn.functional.relu
        self.layers[0].weight.tag = 1

    def forward(self, x):
        return self.act(self.layers(x))


@FORMATS
def test_a_file_object_is_flushed(tmp_path, format):
    """As with torch.save: who opened a file may read it by its name before it is closed."""
    with open(tmp_path / "file", "wb") as file:
        tg.save({"a": tg.ones(2)}, file, format=format)
        assert tg.load(tmp_path / "file")["a"].tolist() == [1, 1]

    class Sink:
        """Has no flush()."""
        parts = []

        def write(self, data):
            self.parts.append(bytes(data))
            return len(data)

    tg.save(tg.ones(2), Sink(), format=format)
    assert tg.load(io.BytesIO(b"".join(Sink.parts))).tolist() == [1, 1]


def test_environment_says_weights_only(monkeypatch):
    """As PyTorch's two variables do: the default of weights_only, or its value; still nothing in a file runs."""
    import warnings

    buffer = io.BytesIO()
    tg.save(tg.nn.Linear(1, 1), buffer)

    def load(**options):
        buffer.seek(0)
        return type(tg.load(buffer, **options)).__name__

    never, always = "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    for value in "0", "", "no":
        monkeypatch.setenv(never, value)
        with pytest.raises(pickle.UnpicklingError):
            load()
    for value in "1", "y", "Yes", "TRUE":
        monkeypatch.setenv(never, value)
        with pytest.warns(UserWarning, match=f"Environment variable {never} detected") as record:
            assert load() == "Linear"
        assert record[0].filename == __file__
        with warnings.catch_warnings(), pytest.raises(pickle.UnpicklingError):
            warnings.simplefilter("error")
            load(weights_only=True)
    monkeypatch.setenv(always, "1")
    with pytest.raises(RuntimeError, match="^Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set.$"):
        load()
    monkeypatch.delenv(never)
    with pytest.raises(pickle.UnpicklingError):
        load(weights_only=False)
    monkeypatch.delenv(always)
    assert load(weights_only=False) == "Linear"


@FORMATS
def test_whole_layers_need_weights_only_false(format):
    net, x = Net().eval(), tg.randn(1, 2, 2)
    with pytest.raises(pickle.UnpicklingError, match="weights_only=False"):
        again(net, format)
    back = again(net, format, weights_only=False)
    assert type(back) is Net
    assert repr(back) == repr(net)
    assert tg.equal(back(x), net(x))
    back.train()
    back(x).sum().backward()
    assert back.layers[0].weight.grad is not None


def test_layers_are_not_constructed_by_files():
    """A file could ask for Linear(10**9, 10**9): constructors are not called."""
    stream = b"\x80\x02ctorch.nn\nLinear\nK\x02K\x02\x86R."
    archive = make_archive(stream)
    with pytest.raises(RuntimeError, match="only what makes tensors and plain data is called"):
        tg.load(io.BytesIO(archive), weights_only=False)


def make_archive(stream: bytes) -> bytes:
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", stream)
        archive.writestr("archive/version", b"3\n")
    return buffer.getvalue()


def test_too_deep_and_too_large():
    deep = []
    for _ in range(1000):
        deep = [deep]
    for format in ("tapegrad", "torch"):
        with pytest.raises(ValueError, match="more than 100 deep"):
            again(deep, format)


@FORMATS
def test_skip_data(format, tmp_path):
    path = tmp_path / "x"
    values = {"w": tg.ones(300_000), "n": 3}
    with tg.serialization.skip_data():
        tg.save(values, path, format=format)
    assert path.stat().st_size >= 1_200_000
    back = tg.load(path)
    assert back["n"] == 3
    assert back["w"].count_nonzero().item() == 0  # a hole is zeros
    with tg.serialization.skip_data():
        back = tg.load(path)
    assert back["w"].shape == (300_000,)


def test_header_of_other_versions_and_kinds():
    def file(header, body=b""):
        head = json.dumps(header).encode()
        return io.BytesIO(struct.pack("<Q", len(head)) + head + body)

    from zlib import crc32

    text = json.dumps({"version": 99})
    with pytest.raises(RuntimeError, match="has version 99"):
        tg.load(file({"__metadata__": {"tapegrad": text, "tapegrad_crc32": f"{crc32(text.encode()):010}"}}))
    with pytest.raises(RuntimeError, match="dtype F4, which does not exist here"):
        tg.load(file({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, b"x"))


def test_arguments():
    with pytest.raises(ValueError, match="format is 'tapegrad', 'torch' or None: got 'zip'"):
        tg.save(1, io.BytesIO(), format="zip")
    with pytest.raises(ValueError, match="must be a file path"):
        tg.load(io.BytesIO(b"x" * 20), mmap=True)
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        tg.load(io.BytesIO(b"x" * 20), pickle_module=pickle, weights_only=True)


@FORMATS
def test_streams_that_cannot_seek(format):
    class OneWay:
        def __init__(self, data):
            self.inner = io.BytesIO(data)
            self.read = self.inner.read

    buffer = io.BytesIO()
    tg.save({"x": tg.arange(1000)}, buffer, format=format)
    assert tg.load(OneWay(buffer.getvalue()))["x"].tolist() == list(range(1000))
