"""Storages over files and slices, and what asarray makes of them."""

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
    with pytest.raises(TypeError, match="a number of bytes"):
        storage.resize_("8")
    with pytest.raises(RuntimeError, match="belongs to another library"):
        tg.from_numpy(np.ones(3)).untyped_storage().resize_(100)
    with pytest.raises(RuntimeError):
        storage.resize_(2**62)
    assert storage.nbytes() == 100


def test_storages_that_become_shorter():
    """What is cut off is given back, as programs do that keep a tensor to fill it again; looking at it harms nobody."""
    x = tg.arange(1.0, 1001.0)
    part = x[500:]
    x.untyped_storage().resize_(8)
    assert x.untyped_storage().nbytes() == 8 and x.storage().size() == 2
    assert x.sum() == 3 and part.sum() == 0
    with pytest.raises(RuntimeError, match="reach outside a storage of 8 bytes"):
        x[2:]
    part.fill_(1)
    for size in (0, 4000, 100, 8000, 4000):
        x.untyped_storage().resize_(size)
        assert x.untyped_storage().nbytes() == size
        x.copy_(tg.full((1000,), 2.0))
        assert part.sum() == 1000 and x.sum() == 2000
    with pytest.raises(RuntimeError, match="belongs to another library"):
        tg.from_numpy(np.ones(3)).untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="cannot have -1 bytes"):
        x.untyped_storage().resize_(-1)


def outcome(call):
    """What a call gives, or the class of what it raises."""
    try:
        result = call()
    except Exception as error:
        return type(error).__name__
    return result.tolist() if hasattr(result, "tolist") else result


BUFFERS = [({"dtype": "uint8"}, 12), ({"dtype": "int8"}, 12), ({"dtype": "bool"}, 12), ({}, 12), ({"dtype": "int32"}, 12)] + [
    (dict(zip(("dtype", "byte_order", "count", "offset"), case)), length) for length in (0, 12, 24) for case in (
        ("float32", "native"), ("int16", "big"), ("int32", "big", 2), ("int32", "big", 1, 5), ("int64", "big", -1, 4), ("int64", "little", -2),
        ("float16", "big", 1, 2), ("bfloat16", "big"), ("complex64", "big", 1), ("complex128", "big"), ("bool", "big"), ("int32", "odd"), ("int32", 5),
        ("int16", "native", 0), ("int16", "native", 1.5), ("int16", "native", -1, 12), ("int16", "native", -1, 11), ("int16", "native", 3, 13),
        ("int16", "native", -1, -1), ("int32", "big", 5, 4))]


@pytest.mark.parametrize("kind", ["UntypedStorage", "FloatStorage", "BoolStorage"])
def test_from_buffer_is_torch_s(kind):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kwargs, length in BUFFERS:
            if kind != "UntypedStorage":
                kwargs = {name: value for name, value in kwargs.items() if name != "dtype"}

            def call(library, kwargs=kwargs, length=length):
                given = {**kwargs, "dtype": getattr(library, kwargs["dtype"])} if "dtype" in kwargs else kwargs
                return outcome(lambda: getattr(library, kind).from_buffer(bytearray(range(length)), **given))

            assert call(tg) == call(torch), (kwargs, length)
    for data in ("abc", 5, memoryview(b"abcd")[::2], memoryview(b"abcd").cast("B", (2, 2)), np.empty((0, 3), np.float32), np.ones(2)):
        assert outcome(lambda d=data: tg.UntypedStorage.from_buffer(d, dtype=tg.uint8)) == outcome(
            lambda d=data: torch.UntypedStorage.from_buffer(d, dtype=torch.uint8))


def test_from_buffer_copies():
    data = bytearray(8)
    storage = tg.UntypedStorage.from_buffer(data, dtype=tg.uint8)
    data[0] = 1
    data.extend(b"x")  # the buffer is let go
    assert storage[0] == 0 and storage.resize_(100).nbytes() == 100
    assert tg.TypedStorage.from_buffer(bytes(8), "native").dtype == tg.get_default_dtype()
    with pytest.raises(ValueError, match="expected at least .* bytes behind offset 0: got 8"):  # PyTorch's own crashes
        tg.UntypedStorage.from_buffer(bytes(8), "native", 2**62, dtype=tg.int32)
    with pytest.raises(RuntimeError, match="from_buffer: FloatStorage has its dtype"):
        tg.FloatStorage.from_buffer(bytes(8), "native", dtype=tg.int32)


# Each makes tensors of its own: set_ changes them.
SETS = {
    "a storage": lambda L: L.empty(0).set_(L.arange(6.0).untyped_storage()),
    "bytes that are left over": lambda L: L.empty(0).set_(L.UntypedStorage(13)).shape[0],
    "a part": lambda L: L.empty(0).set_(L.arange(12.0).untyped_storage(), 2, (2, 3)),
    "with strides": lambda L: L.empty(0).set_(L.arange(12.0).untyped_storage(), 2, (2, 3), (1, 2)),
    "by name": lambda L: L.empty(0).set_(source=L.arange(12.0).untyped_storage(), storage_offset=1, size=[2], stride=[3]),
    "overlapping": lambda L: L.empty(0).set_(L.arange(12.0).untyped_storage(), 2, (2, 3), (0, 1)),
    "no elements far away": lambda L: L.empty(0).set_(L.arange(3.0).untyped_storage(), 100, (0, 3)),
    "a number": lambda L: L.empty(0).set_(L.arange(3.0).untyped_storage(), 1, ()),
    "a tensor": lambda L: L.empty(0).set_(L.arange(6.0)[2:]),
    "a part of a tensor": lambda L: L.empty(0).set_(L.arange(6.0)[2:], 1, (2,), (1,)),
    "its own part": lambda L: (lambda x: x.set_(x, 1, (2,), (2,)))(L.arange(6.0)),
    "elements": lambda L: L.empty(0).set_(L.FloatStorage([1, 2, 3]), 1, (2,)),
    "nothing": lambda L: L.ones(3, 3).set_().shape[0],
    "another dtype's bytes": lambda L: L.empty(0, dtype=L.int32).set_(L.ones(2).untyped_storage()),
    "growing": lambda L: (lambda s: (L.empty(0).set_(s, 10, (6,)).shape[0], s.nbytes(), s.tolist()[:48]))(L.arange(12.0).untyped_storage()),
    "resizing": lambda L: (lambda x: (lambda s: (x.resize_(10).shape[0], s.nbytes(), len(s), s.tolist()[:12]))(x.untyped_storage()))(L.arange(3.0)),
    "a parameter": lambda L: (lambda p: no_grad(L, lambda: p.set_(L.arange(3.0))) is p and p.requires_grad and p.tolist())(L.nn.Parameter(L.ones(2))),
    "elements of another dtype": lambda L: L.empty(0).set_(L.LongStorage([1, 2, 3])),
    "a tensor of another dtype": lambda L: L.empty(0).set_(L.ones(2, dtype=L.int64)),
    "a part of a tensor of another dtype": lambda L: L.empty(0).set_(L.ones(2, dtype=L.int64), 0, (1,)),
    "another device": lambda L: L.empty(0, device="meta").set_(L.ones(2)),
    "another device's storage": lambda L: L.empty(0, device="meta").set_(L.ones(2).untyped_storage()),
    "a leaf": lambda L: L.ones(2, requires_grad=True).set_(L.ones(3)),
    "a leaf and a storage": lambda L: L.ones(2, requires_grad=True).set_(L.ones(3).untyped_storage()),
    "a sparse tensor": lambda L: L.eye(2).to_sparse().set_(L.ones(2)),
    "a sparse source": lambda L: L.ones(2).set_(L.eye(2).to_sparse()),
    "memory that cannot grow": lambda L: L.empty(0, dtype=L.float64).set_(L.from_numpy(np.arange(4.0)).untyped_storage(), 0, (8,), (1,)),
    **{f"wrong {args}": lambda L, args=args: L.empty(0).set_(L.arange(12.0).untyped_storage(), *args) for args in (
        (2,), (2, 6), (2, None), (2, (6,), 1), (2, (2, 3), (1,)), (2, (2, 3), (-1, 1)), (-1, (2, 3)), (2, (2, -3)), (2, (2.5,)), (1.5, (2,)), (2**62, (2, 3)),
        (0, (2**40, 2**40)), (0, (2**62,), (4,)))},
    **{f"wrong source {source}": lambda L, source=source: L.empty(0).set_(source) for source in (None, 3, [1, 2], "a")},
}


def no_grad(library, call):
    with library.no_grad():
        return call()


@pytest.mark.parametrize("name", SETS)
def test_set_is_torch_s(name):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome(lambda: SETS[name](tg)) == outcome(lambda: SETS[name](torch))


def test_set_shares_memory_and_changes_nothing_when_it_refuses():
    x, y = tg.arange(6.0), tg.empty(0)
    assert y.set_(x.untyped_storage(), 1, (2, 2), (2, 1)) is y and y.stride() == (2, 1) and y.storage_offset() == 1
    y[0, 0] = 7
    assert x[1] == 7
    storage = x.untyped_storage()
    for args in ((storage, 1, (2,), (-1,)), (storage, 2**60, (2,)), (tg.ones(2, dtype=tg.int64),), (storage, 100, (2, 2), (1,)), (storage, 0, (1,) * 65)):
        with pytest.raises(RuntimeError, match="^(set_|allocate): "):
            y.set_(*args)
    assert y.shape == (2, 2) and y.stride() == (2, 1) and storage.nbytes() == 24


def test_who_saved_a_tensor_notices_that_it_sees_other_memory():
    w, x = tg.ones(3, requires_grad=True), tg.zeros(3)
    y = w * x
    x.set_(tg.full((3,), 5.0).untyped_storage())
    with pytest.raises(RuntimeError, match="overwritten by set_ at .*test_storage.py"):
        y.sum().backward()
    # Who saved the memory that a new tensor is made to see does not.
    x = tg.full((3,), 5.0)
    y = w * x
    tg.empty(0).set_(x)
    y.sum().backward()
    assert w.grad.tolist() == [5, 5, 5]


def test_set_refuses_tensors_that_are_mapped_over():
    for call in (lambda q: q.set_(tg.ones(2)), lambda q: tg.empty(0).set_(q), lambda q: tg.empty(0).set_(q, 0, (2,)), lambda q: q.set_(tg.ones(2), 0, (1,)),
                 lambda q: q.set_()):
        with pytest.raises(RuntimeError, match="^set_: vmap: a tensor that is mapped over cannot get other memory$"):
            tg.vmap(call)(tg.rand(3, 5))


def test_files_as_tensors_and_typed_storages(tmp_path):
    path = tmp_path / "numbers"
    tg.FloatStorage.from_file(str(path), True, 4)._tensor().fill_(2.5)
    assert tg.FloatStorage.from_file(str(path), False, 3).tolist() == [2.5] * 3 and path.stat().st_size == 16
    shared, own = (tg.from_file(str(path), shared, 4, dtype=tg.float32) for shared in (True, False))
    own[0], shared[1] = 1, 3
    assert tg.from_file(str(path), size=4).tolist() == [2.5, 3, 2.5, 2.5]
    with pytest.raises(RuntimeError, match="has 16 bytes: expected at least 40"):
        tg.from_file(str(path), size=5, dtype=tg.float64)
    with pytest.raises(RuntimeError, match="^from_file: a file is memory of the CPU"):
        tg.from_file(str(path), size=1, device="meta")


def test_storage_is_that_of_the_default_dtype():
    assert tg.Storage is tg.FloatStorage
    tg.set_default_dtype(tg.float64)
    try:
        assert tg.Storage is tg.DoubleStorage
    finally:
        tg.set_default_dtype(tg.float32)


def test_storages_of_elements_as_sequences():
    s = tg.IntStorage([-1, 0, 1, 2])
    assert s.type() == "torch.IntStorage" and s.float().type() == "torch.FloatStorage" and s.float().tolist() == [-1.0, 0.0, 1.0, 2.0]
    assert s.byte().tolist() == [255, 0, 1, 2] and s.complex_double().dtype == tg.complex128 and s.int() is s
    s[1:3] = 7
    s[0] = 5
    assert s.tolist() == [5, 7, 7, 2] and s.clone().fill_(3).tolist() == [3] * 4 and tg.IntStorage(4).copy_(s).tolist() == s.tolist()
    assert tg.TypedStorage([1, 2], dtype=tg.float64).tolist() == [1.0, 2.0] and tg.TypedStorage(wrap_storage=s.untyped(), dtype=tg.int16).size() == 8
    assert tg.storage._dtype_to_storage_type_map()[tg.float32] == "FloatStorage" and tg.ones(1).double().storage_type() is tg.DoubleStorage
    with pytest.raises(RuntimeError, match="differ in size: 4 and 3"):
        s.copy_(tg.IntStorage(3))
    assert tg.FloatStorage(10).__sizeof__() - tg.FloatStorage(0).__sizeof__() == 40
    x = tg.ones(2)
    assert x.storage().resizable()
    x.numpy()
    assert not x.storage().resizable()


def test_bytes_are_turned():
    s = tg.UntypedStorage(range(16))
    for dtype, expected in ((tg.int16, [1, 0, 3, 2]), (tg.float32, [3, 2, 1, 0]), (tg.complex64, [3, 2, 1, 0]), (tg.uint8, [0, 1, 2, 3])):
        turned = s.clone()
        turned.byteswap(dtype)
        assert turned.tolist()[:4] == expected


def test_tensors_of_storages():
    x = tg.arange(6.0, dtype=tg.float64)
    copy = tg.tensor(x.storage())
    assert copy.dtype == tg.float64 and tg.equal(copy, x) and copy.data_ptr() != x.data_ptr()
    assert tg.equal(tg.tensor(x.untyped_storage(), dtype=tg.float64), x)
    with pytest.raises(RuntimeError, match="Expected a Storage of type torch.float32|Expected a Storage of type float32|Expected a Storage of type"):
        tg.tensor(x.storage(), dtype=tg.float32)
    with pytest.raises(RuntimeError, match="set_: Expected a Storage of type"):
        tg.empty(0).set_(x.storage())


def test_storages_without_data():
    for s in (tg.TypedStorage([1, 2, 3], device="meta", dtype=tg.int16), tg.ones(3, dtype=tg.int16, device="meta").storage(), tg.ShortStorage(3, device="meta")):
        assert s.device.type == "meta" and s.size() == 3 and s.nbytes() == 6 and s.data_ptr() == 0
        for call, error, text in ((s.tolist, NotImplementedError, "Not available"), (lambda s=s: s[0], NotImplementedError, "Not available"),
                                  (s.cpu, NotImplementedError, "Cannot copy out"), (s.share_memory_, RuntimeError, "only available on CPU"),
                                  (lambda s=s: tg.ShortStorage(3).copy_(s), NotImplementedError, "Cannot copy out")):
            with pytest.raises(error, match=text):
                call()
        assert s.resize_(10).size() == 10
