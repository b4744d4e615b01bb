"""save and load: what comes back, ties and views, files of others, damage, interruption."""

import io
import json
import os
import struct
from collections import Counter, OrderedDict

import numpy as np
import pytest
import tapegrad as tg


def again(obj, **options):
    buffer = io.BytesIO()
    tg.save(obj, buffer)
    buffer.seek(0)
    return tg.load(buffer, **options)


@pytest.mark.parametrize("value", [
    None, True, 3, -(2**70), 2.5, float("inf"), float("-inf"), 1 + 2j, "text", "\u00e4\u2713", b"bytes", [], [1, [2, None]], (), (1, ("a",)),
    {}, {"a": 1}, {1: "x", (2, 3): [4]}, {"$t": 1}, OrderedDict([("b", 1), ("a", 2)]), Counter("hello"), {1, 2}, frozenset([3]),
])
def test_plain_data(value):
    back = again(value)
    assert back == value
    assert type(back) is type(value)


def test_nan_and_library_values():
    assert np.isnan(again(float("nan")))
    assert again(tg.float32) is tg.float32
    assert again(tg.device("cpu")) == tg.device("cpu")
    size = again(tg.ones(2, 3).shape)
    assert size == (2, 3)
    assert type(size) is tg.Size
    assert again(np.float32(1.5)) == 1.5
    assert again({"rng": np.random.default_rng(0).integers(0, 9, 5)})["rng"].tolist() == np.random.default_rng(0).integers(0, 9, 5).tolist()


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
                                   "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 3, 4)])
def test_tensors(dtype, shape):
    x = (tg.rand(shape) * 5).to(getattr(tg, dtype))
    back = again({"x": x, "y": [x.clone()]})
    for y in (back["x"], back["y"][0]):
        assert y.dtype == x.dtype
        assert y.shape == x.shape
        assert tg.equal(y, x)


def test_state_of_a_network_and_its_optimizer(tmp_path):
    model = tg.nn.Sequential(tg.nn.Linear(4, 3), tg.nn.BatchNorm1d(3))
    optimizer = tg.optim.Adam(model.parameters(), lr=0.1)
    model(tg.randn(5, 4)).sum().backward()
    optimizer.step()
    schedule = tg.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])
    path = tmp_path / "run.tape"
    tg.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "epoch": 3}, path)
    data = tg.load(path)
    assert data["epoch"] == 3
    assert data["model"]._metadata[""] == {"version": 1}
    other = tg.nn.Sequential(tg.nn.Linear(4, 3), tg.nn.BatchNorm1d(3))
    other.load_state_dict(data["model"])
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert tg.equal(a, b)
    second = tg.optim.Adam(other.parameters(), lr=9.0)
    second.load_state_dict(data["optimizer"])
    assert second.param_groups[0]["lr"] == 0.1
    assert second.param_groups[0]["betas"] == (0.9, 0.999)
    assert tg.equal(second.state[other[0].weight]["exp_avg"], optimizer.state[model[0].weight]["exp_avg"])
    tg.optim.lr_scheduler.MultiStepLR(second, [1]).load_state_dict(data["schedule"])


def test_parameters_and_gradients_flags():
    p, x = tg.nn.Parameter(tg.ones(2)), tg.ones(2, requires_grad=True)
    back = again([p, x, tg.nn.Parameter(tg.ones(1), requires_grad=False), (x * 2)])
    assert [type(t).__name__ for t in back] == ["Parameter", "Tensor", "Parameter", "Tensor"]
    assert [t.requires_grad for t in back] == [True, True, False, False]


def test_ties_are_kept():
    w = tg.nn.Parameter(tg.randn(3, 2))
    x = tg.arange(10.0)
    back = again({"a": w, "b": w, "data": w.detach(), "low": x[:6], "high": x[4:], "turned": x.reshape(2, 5).t()})
    assert back["a"] is back["b"]
    back["data"].fill_(7.0)
    assert back["a"].detach().tolist() == [[7, 7]] * 3
    back["low"][5] = 100.0
    assert back["high"].tolist() == [4, 100, 6, 7, 8, 9]
    assert back["turned"].tolist() == x.reshape(2, 5).t().tolist()[:0] + [[0, 100], [1, 6], [2, 7], [3, 8], [4, 9]]


def test_views_are_cut_to_what_they_need():
    big = tg.zeros(1_000_000)
    for view in (big[10:20], big[::100_000], big.reshape(1000, 1000)[:, 3][:10]):
        buffer = io.BytesIO()
        tg.save(view, buffer)
        assert tg.load(io.BytesIO(buffer.getvalue())).tolist() == [0.0] * 10
        assert buffer.tell() < 1000
    buffer = io.BytesIO()
    tg.save([big[:5], big[500_000:500_005]], buffer)  # no byte in common: two small tensors
    assert buffer.tell() < 2000
    assert again(tg.ones(1).expand(1000)).shape == (1000,)


def test_layouts():
    x = tg.randn(3, 4)
    back = again([x.t(), x[:, 1:3], x[0], x.t()[1:]])
    for a, b in zip(back, [x.t(), x[:, 1:3], x[0], x.t()[1:]], strict=True):
        assert a.tolist() == b.tolist()


class Something:
    pass


@pytest.mark.parametrize(("value", "hint"), [
    ({"a": Something()}, "Something at 'a'"), ([Something], "at '0'"), ({"f": len}, "functions and classes"),
    ({"model": tg.optim.SGD([tg.ones(1, requires_grad=True)])}, r"state_dict\(\)"), (object(), "plain data only")])
def test_other_objects_are_refused(value, hint, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(TypeError, match=hint.split(" at ")[-1]):
        tg.save(value, path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x"]


def test_cycles_are_refused():
    loop: list = []
    loop.append(loop)
    with pytest.raises(ValueError, match="holds itself"):
        tg.save(loop, io.BytesIO())


def test_every_safetensors_reader_opens_it(tmp_path):
    model = tg.nn.Linear(3, 2)
    path = tmp_path / "m"
    tg.save({"model": model.state_dict(), "more": {"h": tg.ones(3, dtype=tg.float16), "f": tg.ones(1, dtype=tg.int64)}}, path)
    raw = path.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + n])
    assert n % 8 == 0
    assert (8 + n) % 64 == 0
    metadata = header.pop("__metadata__")
    assert all(isinstance(v, str) for v in metadata.values())
    assert set(header) == {"model.weight", "model.bias", "more.h", "more.f"}
    spans = sorted(e["data_offsets"] for e in header.values())
    assert spans[0][0] == 0
    assert all(a[1] == b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert spans[-1][1] == len(raw) - 8 - n
    begin, end = header["model.weight"]["data_offsets"]
    assert np.frombuffer(raw[8 + n + begin:8 + n + end], np.float32).reshape(2, 3).tolist() == model.weight.tolist()
    library = pytest.importorskip("safetensors.numpy")
    assert library.load_file(path)["model.bias"].tolist() == model.bias.tolist()


def test_reads_other_safetensors_files():
    header = {"b": {"dtype": "I32", "shape": [2], "data_offsets": [4, 12]}, "a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}
    head = json.dumps(header).encode()
    raw = struct.pack("<Q", len(head)) + head + struct.pack("<fii", 1.5, 2, 3)
    back = tg.load(io.BytesIO(raw))
    assert list(back) == ["b", "a"]
    assert back["a"].item() == 1.5
    assert back["b"].tolist() == [2, 3]


def test_a_flipped_byte_is_reported_with_the_name(tmp_path):
    path = tmp_path / "x"
    tg.save({"first": tg.ones(50), "second": tg.zeros(50, dtype=tg.int64)}, path)
    good = path.read_bytes()
    (n,) = struct.unpack("<Q", good[:8])
    seen = set()
    for at in [*range(8, 8 + n, 7), *range(8 + n, len(good), 31), len(good) - 1]:
        bad = bytearray(good)
        bad[at] ^= 0x10
        if at >= 8 + n:
            with pytest.raises(RuntimeError, match="'(first|second)' is damaged") as error:
                tg.load(io.BytesIO(bytes(bad)))
            seen.add("first" if "first" in str(error.value) else "second")
        elif bytes(bad[8:8 + n]).strip() != good[8:8 + n].strip():
            with pytest.raises(RuntimeError, match="load: "):
                tg.load(io.BytesIO(bytes(bad)))
    assert seen == {"first", "second"}
    for cut in (0, 5, 8, 20, 8 + n, len(good) - 1):
        with pytest.raises(RuntimeError, match="load: "):
            tg.load(io.BytesIO(good[:cut]))
    with pytest.raises(RuntimeError, match="neither"):
        tg.load(io.BytesIO(b"hello, this is a text and nothing else"))


def test_a_failed_save_leaves_the_old_file(tmp_path):
    path = tmp_path / "x"
    tg.save({"v": 1}, path)
    with pytest.raises(TypeError):
        tg.save({"t": tg.ones(1000), "bad": object()}, path)
    assert tg.load(path) == {"v": 1}
    with pytest.raises(RuntimeError, match="does not exist"):
        tg.save(1, tmp_path / "no" / "x")
    with pytest.raises(FileNotFoundError):
        tg.load(tmp_path / "nothing")
    with pytest.raises(AttributeError, match="write"):
        tg.save(1, 3)


def test_map_location():
    x = [tg.ones(2), tg.nn.Parameter(tg.ones(1))]
    assert again(x, map_location="cpu")[0].device.type == "cpu"
    assert again(x, map_location=tg.device("meta"))[0].device.type == "meta"
    assert again(x, map_location={"cpu": "cpu"})[1].device.type == "cpu"
    assert again(x, map_location=lambda storage, location: storage)[0].tolist() == [1, 1]
    with pytest.raises(TypeError, match="map_location"):
        again(x, map_location=[1])


def test_file_objects_in_a_row():
    buffer = io.BytesIO()
    for i in range(3):
        tg.save({"i": i, "t": tg.full((3,), float(i))}, buffer)
    buffer.seek(0)
    assert [tg.load(buffer)["i"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("name", ["x.tape", "x.pt", "x.safetensors"])
def test_memory_goes_when_the_program_lets_go(tmp_path, name):
    """Not when Python's collector runs: what is loaded or saved is held by nothing that holds itself."""
    import gc

    path, allocated = tmp_path / name, tg.cpu.memory_allocated
    gc.collect()
    gc.disable()
    try:
        before = allocated()
        saved = {f"layer{n}": tg.randn(100_000) for n in range(3)}
        saved["part"] = saved["layer0"][::2]
        full = allocated()
        tg.serialization.save_file(saved, path) if name == "x.safetensors" else tg.save(saved, path)
        assert allocated() == full
        del saved
        assert allocated() == before
        for options in ({}, {"mmap": True}, {"map_location": "cpu"}):
            loaded = tg.load(path, **options)
            assert loaded["part"].numel() == 50_000
            del loaded
            assert allocated() == before
        with tg.serialization.open_file(path) as file:
            file["layer1"].sum()
        del file
        assert allocated() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("format", ["tapegrad", "torch"])
def test_storages_by_themselves(tmp_path, format):
    x = tg.arange(6.0)
    storage, other, none = x.storage(), tg.DoubleStorage([1.0, 2.0]), tg.FloatStorage(0)
    raw = tg.tensor([7, 8, 9], dtype=tg.uint8).untyped_storage()
    path = tmp_path / "x"
    tg.save({"part": x[2:4], "all": [storage, storage], "other": other, "none": none, "raw": raw}, path, format=format)
    for options in ({}, {"mmap": True}, {"map_location": "cpu"}):
        back = tg.load(path, **options)
        first, second = back["all"]
        assert first._cdata == second._cdata == back["part"].untyped_storage()._cdata
        assert first.tolist() == x.tolist() and first.dtype == tg.float32
        first[2] = 10.0
        assert back["part"].tolist() == [10, 3] and second[2] == 10
        assert (back["other"].tolist(), back["other"].dtype, back["none"].tolist(), back["none"].dtype) == ([1, 2], tg.float64, [], tg.float32)
        assert back["raw"].tolist() == [7, 8, 9]


def test_storages_of_several_dtypes_over_one_memory():
    x = tg.arange(3.0)
    values = [x, x.untyped_storage(), tg.storage.TypedStorage(x.untyped_storage(), tg.int32)]
    one, raw, integers = again(values)
    assert one.untyped_storage() == raw == integers.untyped() and integers.dtype == tg.int32
    with pytest.raises(RuntimeError, match="Cannot save multiple tensors or storages that view the same data as different types"):
        tg.save(values, io.BytesIO(), format="torch")
    with pytest.raises(TypeError, match="cannot save a storage of tapegrad.uint16"):
        tg.save(tg.storage.TypedStorage(2, tg.uint16), io.BytesIO(), format="torch")


def test_pytorch_reads_storages_and_we_read_its_own(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    x = tg.arange(3.0)
    tg.save([x, x.storage(), x[1:]], path)
    one, storage, part = torch.load(path)
    assert storage.tolist() == [0, 1, 2] and storage.data_ptr() == one.data_ptr() == part.data_ptr() - 4
    x = torch.arange(3.0)
    torch.save([x, x.storage(), x[1:]], path)
    one, storage, part = tg.load(path)
    assert storage.tolist() == [0, 1, 2] and storage.data_ptr() == one.data_ptr() == part.data_ptr() - 4


@pytest.mark.parametrize("format", ["tapegrad", "torch"])
def test_state_of_layers_that_have_seen_no_data(tmp_path, format):
    def make():
        return tg.nn.Sequential(tg.nn.LazyLinear(3), tg.nn.LazyBatchNorm1d())

    net, other = make(), make()
    net[0].weight.requires_grad_(False)
    net[1](tg.ones(2, 3))
    path = tmp_path / ("x.pt" if format == "torch" else "x")
    tg.save(net.state_dict(), path, format=format)
    state = tg.load(path)
    assert type(state["0.weight"]) is tg.nn.UninitializedParameter and not state["0.weight"].requires_grad and state["0.bias"].requires_grad
    other.load_state_dict(state)
    assert other[1].weight.shape == (3,) and other(tg.ones(2, 5)).shape == (2, 3)
    if format == "torch":
        torch = pytest.importorskip("torch")
        theirs = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.LazyBatchNorm1d())
        theirs.load_state_dict(torch.load(path, weights_only=False))  # PyTorch allows its class only so
        torch.save(theirs.state_dict(), path)
        assert type(tg.load(path)["0.bias"]) is tg.nn.UninitializedParameter


def test_file_objects_that_cannot_be_meant(tmp_path):
    stream = io.BytesIO()
    tg.save(tg.ones(2), stream)
    with pytest.raises(tg.serialization.FileError, match=rf"^load: the file object is at its end, byte {len(stream.getvalue())}\nseek\(0\) goes to its beginning$"):
        tg.load(stream)
    stream.seek(0)
    assert tg.load(stream).tolist() == [1, 1]
    tg.save(tg.ones(2), tmp_path / "x.pt")
    with open(tmp_path / "x.pt", encoding="utf-8") as text, pytest.raises(TypeError, match="^load: the file is one of text\nopen it with 'rb'$"):
        tg.load(text)
    with pytest.raises(TypeError, match="^save: the file is one of text\nopen it with 'wb'$"):
        tg.save(tg.ones(2), io.StringIO())
