"""PyTorch's files: what torch.save writes is read, in every format that it had; what is written here torch.load reads."""

import argparse
import collections
import io
import pickle
import struct
import tarfile
import zipfile

import numpy as np
import pytest
import tapegrad as tg
from pairs import same_as_torch

torch = pytest.importorskip("torch")

FORMS = {"zip": {}, "zip, protocol 5": {"pickle_protocol": 5}, "streams": {"_use_new_zipfile_serialization": False},
         "streams, protocol 1": {"_use_new_zipfile_serialization": False, "pickle_protocol": 1}}
forms = pytest.mark.parametrize("form", FORMS)
DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")


def theirs(obj, form="zip"):
    buffer = io.BytesIO()
    torch.save(obj, buffer, **FORMS[form])
    buffer.seek(0)
    return buffer


def ours(obj, weights_only=True):
    buffer = io.BytesIO()
    tg.save(obj, buffer, format="torch")
    buffer.seek(0)
    return torch.load(buffer, weights_only=weights_only)


def bits(t):
    t = t.detach()
    if t.dtype in (torch.bfloat16, tg.bfloat16):
        t = t.view(torch.int16 if isinstance(t, torch.Tensor) else tg.int16)
    return t.numpy().tobytes()


@forms
def test_every_dtype_and_layout(form):
    saved = {f"{d} {shape}": (torch.rand(shape) * 5).to(getattr(torch, d)) for d in DTYPES for shape in ((), (3,), (2, 0), (2, 3))}
    saved["turned"] = torch.randn(3, 4).t()
    saved["part"] = torch.randn(100)[10:20:3]
    saved["last"] = torch.randn(1, 2, 3, 3).to(memory_format=torch.channels_last)
    saved["conj"] = torch.tensor([1 + 2j]).conj()
    back = tg.load(theirs(saved, form))
    assert list(back) == list(saved)
    for name, t in saved.items():
        assert str(back[name].dtype).rpartition(".")[2] == str(t.dtype).rpartition(".")[2]
        assert tuple(back[name].shape) == tuple(t.shape)
        assert back[name].stride() == t.stride()
        assert bits(back[name].contiguous()) == bits(t.resolve_conj().contiguous())


@forms
def test_state_dicts_and_ties(form):
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    w, p = torch.randn(4, 4), torch.nn.Parameter(torch.ones(2))
    back = tg.load(theirs({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "w": w,
                           "row": w[1], "p": [p, p, p.detach()]}, form))
    assert back["model"]._metadata == model.state_dict()._metadata
    mine = tg.nn.Sequential(tg.nn.Linear(3, 2), tg.nn.BatchNorm1d(2))
    assert str(mine.load_state_dict(back["model"])) == "<All keys matched successfully>"
    for a, b in zip(mine.state_dict().values(), model.state_dict().values(), strict=True):
        assert bits(a) == bits(b)
    own = tg.optim.AdamW(mine.parameters())
    own.load_state_dict(back["optimizer"])
    assert bits(own.state[mine[0].weight]["exp_avg"]) == bits(optimizer.state[model[0].weight]["exp_avg"])
    tg.optim.lr_scheduler.StepLR(own, 1).load_state_dict(back["schedule"])
    back["w"].fill_(3.0)
    assert back["row"].tolist() == [3.0] * 4
    a, b, c = back["p"]
    assert a is b
    assert isinstance(a, tg.nn.Parameter)
    assert c.data_ptr() == a.data_ptr()


@forms
def test_plain_data(form):
    saved = {"numbers": [1, 2.5, None, True, False, "x\u00e4", (1, 2), (1, 2, 3, 4), {3}, 1j, b"y\xff", -5, 300, 70000, 2**40, -2**70],
             "size": torch.Size([1, 2]), "dtype": torch.float16, "device": torch.device("cuda", 1), 1: collections.OrderedDict(a=1),
             "count": collections.Counter("aab"), "default": collections.defaultdict(int, {"a": 1}), "args": argparse.Namespace(lr=0.1, names=["a"]),
             "numpy": [np.float32(1.5), np.arange(6, dtype=np.uint16).reshape(2, 3), np.array(["ab", "c"]), np.asfortranarray(np.eye(2))],
             "none": torch.nn.ParameterList().state_dict()}
    back = tg.load(theirs(saved, form))
    for key in ("numbers", 1, "count", "default", "args", "none"):
        assert back[key] == saved[key]
        assert type(back[key]) is type(saved[key])
    assert type(back["size"]) is tg.Size
    assert back["dtype"] is tg.float16
    assert back["device"] == tg.device("cuda", 1)
    for a, b in zip(back["numpy"], saved["numpy"], strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


@forms
def test_kinds_of_tensors(form):
    t, p = torch.ones(2), torch.nn.Parameter(torch.ones(2), requires_grad=False)
    t.note = p.note = "here"
    back = tg.load(theirs({"sparse": torch.eye(3).to_sparse(), "meta": torch.empty(2, 3, device="meta"), "t": t, "p": p,
                           "buffer": torch.nn.Buffer(torch.ones(2)), "leaf": torch.ones(2, requires_grad=True), "many": torch.ones(1).expand(9)}, form))
    assert tg.equal(back["sparse"].to_dense(), tg.eye(3))
    assert back["meta"].is_meta
    assert back["t"].note == back["p"].note == "here"
    assert not back["p"].requires_grad
    assert type(back["buffer"]) is tg.nn.Buffer
    assert back["leaf"].requires_grad
    assert back["many"].tolist() == [1.0] * 9


def test_dtypes_that_we_lack():
    with pytest.raises(RuntimeError, match="torch.float4_e2m1fn_x2, and this dtype does not exist here"):
        tg.load(theirs(torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)))


@forms
def test_whole_models(form):
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(72, 3)).eval()
    with pytest.raises(pickle.UnpicklingError, match=r"needs torch.nn.modules.container.Sequential(.|\n)*weights_only=False"):
        tg.load(theirs(model, form))
    back = tg.load(theirs(model, form), weights_only=False)
    x = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype(np.float32)
    assert np.allclose(back(tg.from_numpy(x)).detach().numpy(), model(torch.from_numpy(x)).detach().numpy(), atol=1e-6)
    assert type(ours(back, weights_only=False)) is torch.nn.Sequential


@forms
def test_large_storages(form):
    """Larger than all that the file holds besides them."""
    x = torch.arange(300_000.0)
    back = tg.load(theirs({"x": x, "part": x[10:20], "y": torch.ones(200_000)}, form))
    assert bits(back["x"]) == bits(x)
    assert back["part"].data_ptr() == back["x"][10:].data_ptr()
    assert back["y"].sum().item() == 200_000


# The other way round.
@pytest.mark.parametrize("weights_only", [True, False])
def test_torch_reads_what_is_written_here(weights_only):
    w = tg.randn(4, 4)
    p = tg.nn.Parameter(tg.ones(2))
    model = tg.nn.Sequential(tg.nn.Linear(3, 2), tg.nn.BatchNorm1d(2))
    optimizer = tg.optim.Adam(model.parameters())
    model(tg.randn(4, 3)).sum().backward()
    optimizer.step()
    saved = {d: (tg.rand(2, 3) * 5).to(getattr(tg, d)) for d in DTYPES}
    saved.update(model=model.state_dict(), optimizer=optimizer.state_dict(), w=w, row=w[1], turned=w.t(), p=[p, p, p.detach()],
                 size=w.shape, dtype=tg.int8, device=tg.device("cpu"), sparse=tg.eye(3).to_sparse(), meta=tg.empty(2, 3, device="meta"),
                 many=tg.ones(1).expand(9), empty=tg.zeros(2, 0), leaf=tg.ones(2, requires_grad=True),
                 plain=[1, 2.5, None, True, "\u00e4", (1, 2, 3, 4), {3}, 1j, b"\xff", -5, 300, 70000, 2**40, -2**70, collections.Counter("aab")])
    back = ours(saved, weights_only)
    for d in DTYPES:
        assert back[d].dtype == getattr(torch, d)
        assert bits(back[d]) == bits(saved[d])
    theirs_model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    theirs_model.load_state_dict(back["model"])
    assert back["model"]._metadata == model.state_dict()._metadata
    other = torch.optim.Adam(theirs_model.parameters())
    other.load_state_dict(back["optimizer"])
    assert bits(other.state[theirs_model[0].weight]["exp_avg"]) == bits(optimizer.state[model[0].weight]["exp_avg"])
    back["w"].fill_(3.0)
    assert back["row"].tolist() == [3.0] * 4
    assert back["turned"].stride() == (1, 4)
    assert back["p"][0] is back["p"][1]
    assert back["p"][2].data_ptr() == back["p"][0].data_ptr()
    assert back["size"] == torch.Size([4, 4])
    assert back["dtype"] is torch.int8
    assert torch.equal(back["sparse"].to_dense(), torch.eye(3))
    assert back["meta"].is_meta
    assert back["many"].untyped_storage().nbytes() == 4
    assert back["leaf"].requires_grad
    assert back["plain"] == saved["plain"]


def test_names_decide(tmp_path):
    for name in ("a.pt", "b.pth", "c.PT", "d.pth.tar"):
        tg.save({"x": tg.ones(2)}, tmp_path / name)
        assert torch.load(tmp_path / name)["x"].tolist() == [1, 1]
        assert torch.load(tmp_path / name, mmap=True)["x"].tolist() == [1, 1]
        assert tg.load(tmp_path / name)["x"].tolist() == [1, 1]
        with zipfile.ZipFile(tmp_path / name) as archive:
            assert archive.testzip() is None
            assert archive.namelist()[0] == f"{name.partition('.')[0]}/data.pkl"
    with open(tmp_path / "e.pt", "wb") as file:
        tg.save([1], file)
    assert torch.load(tmp_path / "e.pt") == [1]
    for name in ("a.tape", "a.safetensors", "a"):
        tg.save({"x": tg.ones(2)}, tmp_path / name)
        assert (tmp_path / name).read_bytes()[:2] != b"PK"
    tg.save({"x": tg.ones(2)}, tmp_path / "z", format="torch")
    assert torch.load(tmp_path / "z")["x"].tolist() == [1, 1]


def test_views_are_cut_for_torch_too():
    big = tg.zeros(1_000_000)
    for view in (big[10:20], big[::100_000], [big[:5], big[500_000:500_005]]):
        buffer = io.BytesIO()
        tg.save(view, buffer, format="torch")
        assert buffer.tell() < 2000


# map_location, damage, older things.
@forms
def test_map_location(form):
    saved = {"a": torch.ones(2), "b": torch.nn.Parameter(torch.ones(1))}
    seen = []
    for where in (None, "cpu", tg.device("cpu"), {"cpu": "cpu"}, lambda storage, location: seen.append((storage.nbytes(), location)),
                  lambda storage, location: storage):
        assert tg.load(theirs(saved, form), map_location=where)["a"].tolist() == [1, 1]
    assert sorted(seen) == [(4, "cpu"), (8, "cpu")]
    assert tg.load(theirs(saved, form), map_location="meta")["b"].is_meta
    with pytest.raises(ZeroDivisionError):
        tg.load(theirs(saved, form), map_location=lambda storage, location: 1 / 0)
    with pytest.raises(TypeError, match="map_location must return a storage or None: got int"):
        tg.load(theirs(saved, form), map_location=lambda storage, location: 3)


def cuda_file():
    """What a machine with a GPU writes: the same stream with another location."""
    raw = theirs({"a": torch.ones(2)}, "streams").getvalue()
    return raw.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")


@pytest.mark.skipif(tg.cuda.is_available(), reason="needs a machine without a GPU")
def test_files_from_a_gpu():
    with pytest.raises(RuntimeError, match=r"Attempting to deserialize object on a CUDA device but tapegrad.cuda.is_available\(\) is False"):
        tg.load(io.BytesIO(cuda_file()))
    for where in ("cpu", {"cuda:0": "cpu"}, lambda storage, location: storage):
        assert tg.load(io.BytesIO(cuda_file()), map_location=where)["a"].tolist() == [1, 1]


def test_damage_is_reported_with_the_name(tmp_path):
    path = tmp_path / "x.pt"
    for save in (lambda o: torch.save(o, path), lambda o: tg.save(o, path)):
        lib = torch if save.__code__.co_names[0] == "torch" else tg
        save({"model": {"first": lib.ones(50), "second": lib.full((50,), 2.0)}})
        good = path.read_bytes()
        for name, value in (("first", 1.0), ("second", 2.0)):
            bad = bytearray(good)
            bad[bad.index(struct.pack("<f", value) * 50) + 7] ^= 0x10
            with pytest.raises(RuntimeError, match=f"the tensor 'model.{name}' .* is damaged: its checksum is wrong"):
                tg.load(io.BytesIO(bytes(bad)))
        for cut in (0, 3, 7, 40, len(good) // 2, len(good) - 1):
            with pytest.raises(RuntimeError, match="load: "):
                tg.load(io.BytesIO(good[:cut]))


def test_files_without_checksums():
    torch.serialization.set_crc32_options(False)
    try:
        assert tg.load(theirs({"a": torch.ones(3)}))["a"].tolist() == [1] * 3
    finally:
        torch.serialization.set_crc32_options(True)


def test_other_byte_order():
    raw = zipfile.ZipFile(theirs({"a": torch.arange(5, dtype=torch.int32), "c": torch.tensor([1 + 2j]), "b": torch.ones(2, dtype=torch.uint8)}))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for entry in raw.infolist():
            data = raw.read(entry)
            if entry.filename.endswith("byteorder"):
                data = b"big"
            elif entry.filename.endswith("data/0"):
                data = np.frombuffer(data, "<i4").astype(">i4").tobytes()
            elif entry.filename.endswith("data/1"):
                data = np.frombuffer(data, "<f4").astype(">f4").tobytes()
            archive.writestr(entry.filename, data)
    back = tg.load(io.BytesIO(buffer.getvalue()))
    assert back["a"].tolist() == [0, 1, 2, 3, 4]
    assert back["c"].item() == 1 + 2j


def test_compressed_again(tmp_path):
    raw = zipfile.ZipFile(theirs({"a": torch.arange(5000)}))
    with zipfile.ZipFile(tmp_path / "x", "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in raw.infolist():
            archive.writestr(entry.filename, raw.read(entry))
    assert tg.load(tmp_path / "x")["a"].tolist() == list(range(5000))


def test_mmap(tmp_path):
    w = torch.randn(100, 100)
    torch.save({"w": w, "row": w[3]}, tmp_path / "x.pt")
    back = tg.load(tmp_path / "x.pt", mmap=True)
    assert bits(back["w"]) == bits(w)
    back["w"].fill_(1.0)  # changes the tensor, not the file
    assert back["row"].tolist() == [1.0] * 100
    assert bits(tg.load(tmp_path / "x.pt")["w"]) == bits(w)
    torch.save([1], tmp_path / "old", _use_new_zipfile_serialization=False)
    with pytest.raises(RuntimeError, match="mmap can only be used"):
        tg.load(tmp_path / "old", mmap=True)


def test_texts_of_python_2():
    stream = b"\x80\x02}q\x00U\x01aq\x01U\x02\xe4bq\x02s."  # {"a": "\xe4b"} with byte strings
    def archive_of(data):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("archive/data.pkl", data)
        return io.BytesIO(buffer.getvalue())

    assert tg.load(archive_of(stream), encoding="latin1") == {"a": "\xe4b"}
    assert tg.load(archive_of(stream), encoding="bytes") == {b"a": b"\xe4b"}
    with pytest.raises(RuntimeError, match="UnicodeDecodeError"):
        tg.load(archive_of(stream))


def test_tar_archives(tmp_path):
    """The format of 2016, which no torch of today writes: built here by its description, and read by both."""
    import torch._utils

    values = np.arange(12, dtype=np.float32)
    storages, tensors, data = io.BytesIO(), io.BytesIO(), io.BytesIO()

    def put(file, obj):
        pickle.dump(obj, file, protocol=2)

    put(storages, 1)
    pickle.Pickler(storages, 2).dump((7, "cpu", torch.FloatStorage))
    storages.write(struct.pack("<q", 12) + values.tobytes())
    put(storages, [(8, 7, 4, 6)])  # a storage that is a part of the other
    put(tensors, 2)
    for key, storage, shape, stride, offset in ((100, 7, (3, 4), (4, 1), 0), (101, 8, (2,), (3,), 1)):
        put(tensors, (key, storage, torch.FloatTensor))
        tensors.write(struct.pack("<i4x", len(shape)) + struct.pack(f"<{2 * len(shape) + 1}q", *shape, *stride, offset))

    class Reference:
        def __init__(self, key):
            self.key = key

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            return str(obj.key) if isinstance(obj, Reference) else None

    Pickler(data, 2).dump({"w": Reference(100), "part": Reference(101), "n": 3})
    path = tmp_path / "old.tar"
    with tarfile.open(path, "w") as tar:
        for name, file in (("storages", storages), ("tensors", tensors), ("pickle", data)):
            member = tarfile.TarInfo(name)
            member.size = len(file.getvalue())
            tar.addfile(member, io.BytesIO(file.getvalue()))
    reference = torch.load(path, weights_only=False)
    back = tg.load(path)
    assert back["n"] == reference["n"] == 3
    for name in ("w", "part"):
        assert back[name].tolist() == reference[name].tolist()
    back["w"].fill_(1.0)
    assert back["part"].tolist() == [1.0, 1.0]


def test_names_that_would_be_refused(tmp_path):
    torch.save({"a": torch.nn.Linear(1, 1), "b": torch.ones(1)}, tmp_path / "x.pt")
    names = tg.serialization.get_unsafe_globals_in_checkpoint(tmp_path / "x.pt")
    assert names == ["torch.nn.modules.linear.Linear"]


def test_places_of_our_own():
    seen = []
    tg.serialization.register_package(5, lambda storage: None, lambda storage, location: seen.append(location))
    try:
        assert tg.serialization.location_tag(tg.ones(1).untyped_storage()) == "cpu"
        storage = tg.ones(1).untyped_storage()
        assert tg.serialization.default_restore_location(storage, "cpu") is storage
        assert seen == ["cpu"]
        with pytest.raises(RuntimeError, match="don't know how to restore data location"):
            tg.serialization.default_restore_location(storage, "mars")
    finally:
        from tapegrad._files import places

        places._packages.pop(0)


@same_as_torch
def test_records_of_an_archive(t):
    from importlib import import_module

    module, buffer = import_module(f"{t.__name__}.serialization"), io.BytesIO()
    with module._open_zipfile_writer(buffer) as file:
        file.write_record("a", b"12345", 5)
        file.write_record("b/c", b"678", 3)
    buffer.seek(0)
    assert module._is_zipfile(buffer) and buffer.tell() == 0 and not module._is_zipfile(io.BytesIO(b"none"))
    with module._open_zipfile_reader(buffer) as file:
        found = [file.get_record("a"), file.get_record("b/c"), file.has_record("b/c"), file.has_record("d")]
    saved = io.BytesIO()
    t.save({"x": 1}, saved) if t is torch else t.save({"x": 1}, saved, format="torch")
    saved.seek(0)
    with module._open_zipfile_reader(saved) as file:
        return [*found, len(file.get_record("data.pkl")) > 0]


def test_bytes_are_read_into_memory_where_the_file_can():
    class Reads:
        """Like a file, without `seekable`."""

        def __init__(self, data):
            self.file, self.calls = io.BytesIO(data), set()

        def readinto(self, view):
            self.calls.add("readinto")
            return self.file.readinto(view)

        def __getattr__(self, name):
            if name not in ("read", "readline", "seek", "tell"):
                raise AttributeError(name)
            return getattr(self.file, name)

    for form in ("torch", "tapegrad"):
        buffer = io.BytesIO()
        tg.save(tg.arange(20.0), buffer, format=form)
        file = Reads(buffer.getvalue())
        assert tg.load(file).tolist() == list(range(20)) and file.calls == {"readinto"}
