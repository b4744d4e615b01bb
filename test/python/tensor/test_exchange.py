"""Memory shared with NumPy, with torch and through the buffer protocol."""

import array
import gc
import mmap
import weakref

import numpy as np
import pytest
import tapegrad as tg
from pairs import DTYPES, as_numpy, assert_same

torch = pytest.importorskip("torch")
NUMPY_DTYPES = [d for d in DTYPES if d != "bfloat16"]


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_to_numpy_and_back(dtype):
    a = np.arange(24).reshape(2, 3, 4).astype(dtype)
    t = tg.from_numpy(a)
    assert t.dtype == getattr(tg, dtype) and t.data_ptr() == a.ctypes.data and t.shape == a.shape
    t[0, 0, 0] = 1
    assert a[0, 0, 0] == 1
    back = t.numpy()
    assert back.ctypes.data == a.ctypes.data and back.dtype == a.dtype and back.strides == a.strides
    back[1] = 0
    assert (t[1] == 0).all()
    assert np.asarray(t).ctypes.data == a.ctypes.data
    assert np.array(t).ctypes.data != a.ctypes.data
    assert tg.as_tensor(a).data_ptr() == a.ctypes.data
    assert tg.asarray(a).data_ptr() == a.ctypes.data
    assert tg.tensor(a).data_ptr() != a.ctypes.data


def test_views_and_layouts():
    a = np.arange(24.0).reshape(2, 3, 4)
    for view in (a.T, a[:, ::2], a[..., 1], a[1:, :, 2:], np.broadcast_to(a, (2, 2, 3, 4)), a[0, 0, 0:1], np.asfortranarray(a)):
        t = tg.from_numpy(view) if view.flags.writeable else tg.tensor(view)
        np.testing.assert_array_equal(t.numpy(), view)
    t = tg.arange(24.0).reshape(2, 3, 4)
    for view in (t.transpose(0, 2), t[:, ::2], t[0, 0], t.expand(2, 2, 3, 4), t[1, 2, 3], t[:0]):
        n = view.numpy()
        assert n.shape == tuple(view.shape)
        np.testing.assert_array_equal(n, np.array(view.tolist()).reshape(n.shape))
        if n.size:
            assert n.ctypes.data == view.data_ptr()


def test_memory_outlives_its_maker():
    a = np.arange(1000.0)
    t = tg.from_numpy(a)
    r = weakref.ref(a)
    del a
    gc.collect()
    assert r() is not None and t[999] == 999
    del t
    gc.collect()
    assert r() is None
    n = tg.arange(1000.0).numpy()
    gc.collect()
    assert n[999] == 999


def test_what_cannot_be_shared():
    with pytest.raises(TypeError):
        tg.from_numpy([1, 2])
    with pytest.raises(TypeError):
        tg.from_numpy(np.array(["a"]))
    with pytest.raises(TypeError):
        tg.from_numpy(np.array([object()]))
    with pytest.raises(ValueError, match="stride"):
        tg.from_numpy(np.arange(4)[::-1])
    assert tg.as_tensor(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
    assert tg.tensor(np.arange(4)[::-1]).tolist() == [3, 2, 1, 0]
    assert tg.tensor(np.array([1, 2], dtype=">i4")).tolist() == [1, 2]
    with pytest.raises(RuntimeError, match="detach"):
        tg.ones(2, requires_grad=True).numpy()
    with pytest.raises(TypeError):
        tg.ones(2, dtype=tg.bfloat16).numpy()
    with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
        tg.ones(2, device="meta").numpy()
    assert tg.ones(2, requires_grad=True).numpy(force=True).tolist() == [1, 1]
    structured = np.zeros(3, dtype=[("a", "f4"), ("b", "i4")])
    assert tg.from_numpy(structured["a"].copy()).shape == (3,)
    with pytest.raises((TypeError, ValueError)):
        tg.tensor(structured)
    packed = np.zeros(3, dtype=np.dtype([("a", "i1"), ("b", "f4")]))["b"]
    assert tg.tensor(packed).tolist() == [0, 0, 0]


def test_read_only_arrays():
    a = np.arange(3.0)
    a.flags.writeable = False
    t = tg.tensor(a)
    t[0] = 5
    assert a[0] == 0
    shared = tg.from_numpy(a)
    try:
        shared[0] = 9
    except (RuntimeError, ValueError):
        pass
    assert a[0] == 0


@pytest.mark.parametrize("write", [
    lambda x: x.uniform_(), lambda x: x.normal_(), lambda x: x.bernoulli_(0.5), lambda x: x.geometric_(0.5), lambda x: x.add_(1), lambda x: x.zero_(),
    lambda x: x.index_put_((tg.tensor([0]),), tg.tensor(1.0)), lambda x: x.scatter_(0, tg.tensor([[0, 0]]), 1.0), lambda x: x.scatter_add_(0, tg.tensor([[0, 0]]), tg.ones(1, 2)),
    lambda x: x.scatter_reduce_(0, tg.tensor([[0, 0]]), tg.ones(1, 2), "prod"), lambda x: x.index_fill_(0, tg.tensor([0]), 1.0), lambda x: x.index_add_(0, tg.tensor([0]), tg.ones(1, 2)),
    lambda x: x.index_copy_(0, tg.tensor([0]), tg.ones(1, 2)), lambda x: x.put_(tg.tensor([0]), tg.ones(1)), lambda x: x.masked_scatter_(x >= 0, tg.zeros(6)),
    lambda x: x.cumsum_(0), lambda x: x.tril_(), lambda x: x.__setitem__([0], 1.0), lambda x: tg.mm(tg.ones(3, 3), tg.ones(3, 2), out=x), lambda x: tg.cumsum(tg.ones(3, 2), 0, out=x),
    lambda x: tg.sum(tg.ones(3, 2, 2), 2, out=x), lambda x: tg.sort(tg.ones(3, 2), out=(x, tg.zeros(3, 2, dtype=tg.int64))), lambda x: tg.cat([tg.ones(3, 2)], out=x),
    lambda x: tg.rand(3, 2, out=x), lambda x: tg.index_select(tg.ones(3, 2), 0, tg.tensor([0, 1, 2]), out=x), lambda x: tg.ones(3, 2, out=x), lambda x: tg._foreach_add_([x], 1.0)])  # fmt: skip
def test_nothing_writes_to_read_only_memory(write):
    write(tg.arange(6.0).reshape(3, 2))
    a = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    a.flags.writeable = False
    with pytest.raises(RuntimeError, match="read-only"):
        write(tg.from_numpy(a))
    assert a.flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_array_protocol():
    t = tg.arange(6.0).reshape(2, 3)
    assert np.asarray(t, dtype=np.int32).dtype == np.int32
    assert np.array(t, copy=True) is not None
    np.testing.assert_array_equal(np.sin(t), np.sin(t.numpy()))
    assert isinstance(np.sin(t), (tg.Tensor, np.ndarray))
    assert np.concatenate([t, t]).shape == (4, 3)
    assert np.mean(t.numpy()) == 2.5
    assert isinstance(np.float32(2) * t, tg.Tensor)
    a = np.ones((2, 3), dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(a + t), 1 + t.numpy())
    np.testing.assert_array_equal(np.asarray(t + tg.from_numpy(a)), 1 + t.numpy())
    assert np.isclose(t, t.numpy()).all()
    assert np.array_equal(t, t.numpy())
    plain = np.zeros((2, 3), dtype=np.float32)
    plain[:] = t
    np.testing.assert_array_equal(plain, t.numpy())
    assert a[tg.tensor(1)].shape == (3,)
    assert a[tg.tensor([True, False])].shape == (1, 3)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_buffer_protocol(dtype):
    t = tg.arange(6).reshape(2, 3).to(getattr(tg, dtype))
    view = memoryview(t)
    assert view.shape == (2, 3) and view.itemsize == t.element_size() and view.nbytes == t.nbytes and not view.readonly
    np.testing.assert_array_equal(np.asarray(view), t.numpy())
    assert bytes(memoryview(t)) == t.numpy().tobytes()
    assert memoryview(t.t()).strides == t.t().numpy().strides
    with pytest.raises(BufferError):
        memoryview(t.float().requires_grad_())
    with pytest.raises(BufferError):
        memoryview(tg.ones(2, dtype=tg.bfloat16))
    assert memoryview(tg.tensor(3)).shape == ()
    assert memoryview(tg.empty(0)).nbytes == 0


def test_a_held_buffer_keeps_its_memory():
    t = tg.arange(1000.0)
    view = memoryview(t)
    del t
    gc.collect()
    assert view[999] == 999
    t = tg.zeros(4)
    view = memoryview(t)
    with pytest.raises(RuntimeError):
        t.resize_(1000)
    view.release()


def test_frombuffer():
    data = bytearray(b"\x01\x00\x00\x00\x02\x00\x00\x00")
    t = tg.frombuffer(data, dtype=tg.int32)
    assert t.tolist() == [1, 2]
    t[0] = 5
    assert data[0] == 5
    assert tg.frombuffer(data, dtype=tg.int32, offset=4).tolist() == [2]
    assert tg.frombuffer(data, dtype=tg.uint8, count=2, offset=1).tolist() == [0, 0]
    for options in ({"offset": 9}, {"count": 3}, {"offset": 3}, {"count": 0}, {"offset": -1}, {"count": -2}):
        with pytest.raises(ValueError):
            tg.frombuffer(data, dtype=tg.int32, **options)
    with pytest.raises(BufferError):
        data.extend(b"1" * 1000)  # would move the memory
    assert tg.frombuffer(array.array("d", [1.5, 2.5]), dtype=tg.float64).tolist() == [1.5, 2.5]
    frozen = tg.frombuffer(b"\x01\x02", dtype=tg.uint8)
    with pytest.raises((RuntimeError, ValueError)):
        frozen[0] = 3
    with pytest.raises(TypeError):
        tg.frombuffer(3, dtype=tg.uint8)
    with pytest.raises(TypeError):
        tg.frombuffer(data)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_with_torch(dtype):
    ours = tg.arange(12).reshape(3, 4).to(getattr(tg, dtype))
    theirs = torch.from_dlpack(ours)
    assert_same(ours, theirs)
    assert theirs.data_ptr() == ours.data_ptr()
    theirs[0, 0] = 1
    assert ours[0, 0] == 1
    back = tg.from_dlpack(theirs.t())
    assert back.data_ptr() == ours.data_ptr() and back.shape == (4, 3) and back.stride() == theirs.t().stride()
    assert_same(back, theirs.t())
    other = torch.arange(5).to(getattr(torch, dtype))
    mine = tg.from_dlpack(other)
    del other
    gc.collect()
    as_numpy(mine)


@pytest.mark.parametrize("dtype", [d for d in NUMPY_DTYPES if d != "bool"])
def test_dlpack_with_numpy(dtype):
    t = tg.arange(12).reshape(3, 4).to(getattr(tg, dtype))
    a = np.from_dlpack(t)
    assert a.ctypes.data == t.data_ptr() and a.shape == (3, 4) and a.dtype == np.dtype(dtype)
    b = np.arange(6).astype(dtype)
    u = tg.from_dlpack(b)
    assert u.data_ptr() == b.ctypes.data
    u[0] = 3
    assert b[0] == 3


def test_dlpack_details():
    t = tg.ones(3)
    assert t.__dlpack_device__() == (1, 0)
    capsule = t.__dlpack__()
    assert "dltensor" in repr(capsule)
    assert tg.from_dlpack(capsule).data_ptr() == t.data_ptr()
    with pytest.raises((RuntimeError, ValueError)):
        tg.from_dlpack(capsule)  # used up
    del capsule
    unused = t.__dlpack__(max_version=(1, 0))
    del unused
    with pytest.raises(BufferError):
        tg.ones(2, requires_grad=True).__dlpack__()
    with pytest.raises(RuntimeError, match="expected an object with __dlpack__ or a DLPack capsule: got"):
        tg.from_dlpack(3)
    with pytest.raises(RuntimeError, match="expected an object with __dlpack__ or a DLPack capsule: got"):
        tg.from_dlpack([1, 2])
    with pytest.raises(TypeError):
        t.__dlpack__(stream=object())
    copied = t.__dlpack__(copy=True)
    assert tg.from_dlpack(copied).data_ptr() != t.data_ptr()
    whole = {"stream": None, "max_version": None, "dl_device": None, "copy": None}  # what the array API's callers give
    assert tg.from_dlpack(t.__dlpack__(**whole)).data_ptr() == t.data_ptr() == tg.from_dlpack(t, device="cpu", copy=False).data_ptr()
    array = np.arange(3.0)
    for source, place in ((t, t.data_ptr()), (torch.ones(3), None), (array, array.ctypes.data)):
        taken = tg.from_dlpack(source, copy=True)
        assert taken.data_ptr() != (place or source.data_ptr()) and taken.tolist() == list(source)
        assert tg.from_dlpack(source, device=tg.device("cpu")).data_ptr() == (place or source.data_ptr())
    with pytest.raises(ValueError, match="device and copy are for objects with __dlpack__"):
        tg.from_dlpack(t.__dlpack__(), copy=True)
    for wrong in ({"copy": "yes"}, {"device": 1.5}):
        with pytest.raises(TypeError):
            tg.from_dlpack(t, **wrong)
    for shape in [(), (0,), (2, 0, 3), (1,) * 6]:
        assert torch.from_dlpack(tg.zeros(shape)).shape == shape
        assert tg.from_dlpack(torch.zeros(shape)).shape == shape
    r = weakref.ref(t)
    view = torch.from_dlpack(t)
    del t
    gc.collect()
    assert view.sum() == 3
    assert r() is None or True


def test_torch_and_tapegrad_through_numpy():
    theirs = torch.arange(4.0)
    ours = tg.from_numpy(theirs.numpy())
    assert ours.data_ptr() == theirs.data_ptr()
    assert tg.asarray(theirs).data_ptr() == theirs.data_ptr()
    assert tg.tensor(theirs.numpy()).tolist() == [0, 1, 2, 3]
    assert torch.from_numpy(ours.numpy()).data_ptr() == ours.data_ptr()


def test_asarray():
    t = tg.ones(3)
    assert tg.asarray(t) is t or tg.asarray(t).data_ptr() == t.data_ptr()
    assert tg.asarray(t, copy=True).data_ptr() != t.data_ptr()
    with pytest.raises(ValueError):
        tg.asarray([1, 2], copy=False)
    with pytest.raises(ValueError):
        tg.asarray(t, dtype=tg.float64, copy=False)
    assert tg.asarray([1, 2]).dtype == tg.int64
    assert tg.asarray(3.5).item() == 3.5
    assert tg.asarray(memoryview(b"\x00\x00\x80?")).tolist() == [1.0]
    assert tg.asarray([1.0], requires_grad=True).requires_grad
    assert tg.asarray(range(3)).tolist() == [0, 1, 2]


def test_resizing_under_an_array():
    t = tg.zeros(4)
    n = t.numpy()
    with pytest.raises(RuntimeError):
        t.resize_(100)
    assert n.tolist() == [0, 0, 0, 0]


SHARED = {
    "from_numpy": tg.from_numpy,
    "a view": lambda a: tg.from_numpy(a[2:5]),
    "a view of a view": lambda a: tg.from_numpy(a[2:].reshape(2, -1)[1]),
    "as_tensor": tg.as_tensor,
    "asarray": tg.asarray,
    "frombuffer": lambda a: tg.frombuffer(a, dtype=tg.float64),
    "frombuffer of a memoryview": lambda a: tg.frombuffer(memoryview(a)[1:], dtype=tg.float64),
    "from_dlpack": tg.from_dlpack,
    "its detached twin": lambda a: tg.from_numpy(a).detach(),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("refcheck", [True, False])
def test_an_array_is_not_resized_under_a_tensor(name, refcheck):
    a = np.arange(8.0)
    t = SHARED[name](a)
    values = t.tolist()
    for size in (10_000_000, 1, 0):
        with pytest.raises(ValueError, match="cannot resize"):
            a.resize(size, refcheck=refcheck)
    assert t.tolist() == values and a.tolist() == list(range(8))
    own = weakref.ref(a)  # the program's own weak references are its own matter
    del own, t
    gc.collect()
    a.resize(4, refcheck=False)
    assert a.tolist() == [0, 1, 2, 3]


def test_a_backward_keeps_an_array_from_being_resized():
    a = np.arange(4.0)
    x = tg.ones(4, dtype=tg.float64, requires_grad=True)
    y = (x * tg.from_numpy(a)).sum()
    with pytest.raises(ValueError):
        a.resize(10_000_000, refcheck=False)
    y.backward()
    assert x.grad.tolist() == [0, 1, 2, 3]
    del y
    gc.collect()
    a.resize(2, refcheck=False)


@pytest.mark.parametrize("make", [lambda: array.array("B", range(16)), lambda: bytearray(range(16)),
                                  lambda: mmap.mmap(-1, 16)], ids=["array", "bytearray", "mmap"])
def test_exporters_are_not_resized_under_a_tensor(make):
    owner = make()
    t = tg.frombuffer(owner, dtype=tg.uint8)
    values = t.tolist()
    changes = {array.array: [lambda: owner.append(1), lambda: owner.pop(), lambda: owner.extend(owner)],
               bytearray: [lambda: owner.extend(b"1" * 10_000_000), lambda: owner.clear(), lambda: owner.pop()],
               mmap.mmap: [lambda: owner.close(), lambda: owner.resize(1 << 20)]}[type(owner)]
    for change in changes:
        with pytest.raises(BufferError):
            change()
    view = memoryview(owner)
    u = tg.frombuffer(view, dtype=tg.uint8)
    with pytest.raises(BufferError):
        view.release()
    del u
    gc.collect()
    view.release()
    assert t.tolist() == values
    del t
    gc.collect()
    changes[0]()


def test_numbers_of_a_tensor_on_the_tape_are_shown_where_nothing_is_recorded():
    x = tg.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Can't call numpy"):
        x.numpy()
    with tg.no_grad():
        assert x.numpy().tolist() == [1, 1]
