"""tensor(), as_tensor() and friends; dtype, device, Size; conversions of tensors."""

import math
import pickle
import re
from collections import UserList, deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import tapegrad as tg
from pairs import DTYPES, assert_same, assert_same_outcome, name_of, pair

torch = pytest.importorskip("torch")

GOOD = [
    1, 2.5, True, 1 + 2j, [1, 2], [1.0, 2], [True, 2], [True, False], [1, 2.5, 1j], [[1, 2], [3, 4]], [[[1]]], [], [[]], [[], []], (1, 2), [(1, 2), [3, 4]],
    range(4), [range(2), range(2)], [np.float32(1), np.float32(2)], [np.int8(1)], np.float64(3), np.int32(7), np.bool_(True), np.arange(3), [np.arange(2), np.arange(2)],
    np.zeros((0, 3)), np.array(3.0), [np.array(1.0), np.array(2.0)], [1, np.float64(2)], -(2**63), 2**63 - 1, math.inf, math.nan, [math.nan, 1], [2**40], [[1.0], [2]],
    np.arange(4, dtype=np.uint8), np.array([True]), [float("inf")], "".join([]) and None or [0], [[[], []]], bytearray(b"ab"),
]
BAD = [
    "text", None, [None], ["a"], [[1, 2], [3]], [[1], 2], [1, [2]], [[1, 2], 3], {}, {"a": 1}, {1, 2}, object(), [object()], [[]] + [[1]], [[1], []], lambda: 1, [1, "a"],
    [{}], 2**64, [2**70], np.array(["a"]), np.array([object()]), [[1, 2], "ab"], [1, None], Ellipsis, [slice(1)], type, [[[1], [2]], [[3]]], (i for i in range(3)),
]


@pytest.mark.parametrize("number", range(len(GOOD)), ids=lambda n: repr(GOOD[n])[:30])
def test_data(number):
    data = GOOD[number]
    assert_same_outcome(lambda: tg.tensor(data), lambda: torch.tensor(data), more=True)
    assert_same_outcome(lambda: tg.as_tensor(data), lambda: torch.as_tensor(data), more=True)
    for dtype in DTYPES:
        assert_same_outcome(lambda: tg.tensor(data, dtype=getattr(tg, dtype)), lambda: torch.tensor(data, dtype=getattr(torch, dtype)), rtol=1e-2, more=True)


@pytest.mark.parametrize("number", range(len(BAD)), ids=lambda n: re.sub(" at 0x[0-9a-f]+", "", repr(BAD[n]))[:30])
def test_bad_data(number):
    data = BAD[number]
    for make in (tg.tensor, tg.as_tensor, tg.asarray):
        with pytest.raises((TypeError, ValueError, RuntimeError, OverflowError)) as caught:
            make(data)
        assert str(caught.value)


def test_the_place_of_a_mistake_is_named():
    with pytest.raises(ValueError, match=r"data\[1\]"):
        tg.tensor([[1, 2], [3]])
    with pytest.raises(TypeError, match=r"data\[1\]\[0\].*str"):
        tg.tensor([[1, 2], ["x", 4]])


def test_odd_sequences():
    assert tg.tensor(deque([1, 2])).tolist() == [1, 2]
    assert tg.tensor(UserList([1.5, 2])).tolist() == [1.5, 2]
    for number in (Decimal("1.5"), Fraction(1, 2)):
        assert_same_outcome(lambda: tg.tensor(number), lambda: torch.tensor(number))

    class Liar:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            if i > 1:
                raise IndexError
            return i

    try:
        tg.tensor(Liar())
    except (ValueError, TypeError, IndexError):
        pass

    class Raises:
        def __len__(self):
            raise KeyError("mine")

        def __getitem__(self, i):
            raise KeyError("mine")

    with pytest.raises((KeyError, TypeError)):
        tg.tensor(Raises())


def test_a_list_that_holds_itself():
    a = []
    a.append(a)
    with pytest.raises((ValueError, RecursionError)):
        tg.tensor(a)


class Sequence:
    """Nothing but `__len__` and `__getitem__`."""

    def __init__(self, length, item):
        self.length, self.item = length, item

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.item(self, i)


@pytest.mark.parametrize("make", [tg.tensor, tg.as_tensor, tg.asarray, tg.Tensor, tg.tensor([]).new_tensor], ids=lambda f: f.__name__)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_sequence_that_holds_itself(make, length):
    with pytest.raises(ValueError, match="too many dimensions"):
        make(Sequence(length, lambda self, i: self))


def test_a_sequence_without_a_length_or_an_end():
    class Endless:
        def __getitem__(self, i):
            return self

    class Numbers:
        def __getitem__(self, i):
            return 1.0

    for data in (Endless(), Numbers()):
        with pytest.raises(TypeError, match="has no len"):
            tg.tensor(data)
        with pytest.raises(TypeError, match="has no len"):
            tg.tensor([data])
    # No more is read than the length says.
    assert tg.tensor(Sequence(3, lambda self, i: float(i))).tolist() == [0, 1, 2]
    assert tg.tensor([Sequence(2, lambda self, i: i), (2, 3)]).tolist() == [[0, 1], [2, 3]]
    assert tg.tensor(Sequence(0, lambda self, i: self)).shape == (0,)


def stop(self, i):
    if i > 1:
        raise IndexError("no more")
    return 1.0


def fresh(self, i):
    return Sequence(1, fresh)


@pytest.mark.parametrize("data, error", [
    (Sequence(5, stop), IndexError),
    (Sequence(-1, stop), ValueError),
    (Sequence(1 << 70, stop), OverflowError),
    (Sequence((1 << 63) - 1, stop), IndexError),
    (Sequence("2", stop), TypeError),
    (Sequence(2, fresh), ValueError),
    ([Sequence(2, stop), Sequence(1, stop)], ValueError),
    (Sequence(2, lambda self, i: [1.0] * (i + 1)), ValueError),
    (Sequence(2, lambda self, i: self if i else 1.0), TypeError),
    (Sequence(2, lambda self, i: 1.0 if i else self), ValueError),
    (Sequence(1, lambda self, i: None), TypeError),
    (Sequence(1, lambda self, i: "a"), TypeError),
], ids=range(12))
def test_sequences_that_lie(data, error):
    with pytest.raises(error):
        tg.tensor(data)


def test_a_sequence_that_grows_and_shrinks():
    class Grows(Sequence):
        def __len__(self):
            self.length += 1
            return self.length

    with pytest.raises(ValueError, match="ragged"):
        tg.tensor(Grows(1, lambda self, i: 1.0))

    outer = []

    class Clears(Sequence):
        def __len__(self):
            outer.clear()
            return 2

    outer[:] = [Clears(2, lambda self, i: object()), Clears(2, lambda self, i: 1.0)]
    with pytest.raises((ValueError, TypeError)):
        tg.tensor(outer)
    outer[:] = [[1.0, 2.0], Clears(2, lambda self, i: 1.0), [3.0, 4.0]]
    with pytest.raises(ValueError, match="ragged"):
        tg.tensor(outer)


def test_a_list_that_changes_meanwhile():
    data = [0] * 5

    class Shrinks:
        def __index__(self):
            data.clear()
            return 1

        def __float__(self):
            data.clear()
            return 1.0

    data[1] = Shrinks()
    try:
        tg.tensor(data)
    except (ValueError, TypeError, RuntimeError, IndexError):
        pass


def test_from_tensors():
    t = tg.arange(3.0)
    c = tg.tensor(t)
    assert c.data_ptr() != t.data_ptr() and c.tolist() == [0, 1, 2]
    assert tg.as_tensor(t) is t
    assert tg.tensor([t[0], t[1]]).tolist() == [0, 1]
    assert tg.tensor([tg.tensor(1), tg.tensor(2.5)]).tolist() == [1, 2.5]
    assert not tg.tensor(tg.ones(2, requires_grad=True)).requires_grad
    assert tg.tensor([1.0], requires_grad=True).is_leaf
    with pytest.raises(RuntimeError):
        tg.tensor([1], requires_grad=True)
    with pytest.raises(TypeError):
        tg.tensor([1.0], dtype="float32")
    with pytest.raises(TypeError):
        tg.tensor()
    with pytest.raises(TypeError):
        tg.tensor([1], tg.float32)
    with pytest.raises(TypeError):
        tg.tensor([1], colour=3)
    assert tg.tensor([1, 2], device="meta").is_meta
    with pytest.raises(RuntimeError):
        tg.tensor([1], device="nonsense")
    assert t.new_tensor([1, 2]).dtype == tg.float32
    assert t.new_tensor([1, 2], dtype=tg.int8).dtype == tg.int8
    assert t.new_zeros(2, 3).shape == (2, 3) and t.new_full((2,), 7).tolist() == [7, 7]


def test_old_constructor():
    for args in [(), (2, 3), ([1, 2],), ([[1.0]],), (tg.Size([2]),), ((2, 3),)]:
        other = [torch.Size([2]) if isinstance(a, tg.Size) else a for a in args]
        ours, theirs = tg.Tensor(*args), torch.Tensor(*other)
        assert tuple(ours.shape) == tuple(theirs.shape) and name_of(ours.dtype) == name_of(theirs.dtype)
    assert tg.FloatTensor([1, 2]).dtype == tg.float32 and tg.LongTensor([1]).dtype == tg.int64
    assert isinstance(tg.zeros(1), tg.FloatTensor) and not isinstance(tg.zeros(1), tg.LongTensor)
    assert tg.BoolTensor([0, 1]).tolist() == [False, True]
    for bad in [(1.5,), ("a",), (-1,), (2**70,), (None,), (1, "a")]:
        with pytest.raises((TypeError, RuntimeError, ValueError, OverflowError)):
            tg.Tensor(*bad)
    with pytest.raises(TypeError):
        tg.Tensor([1], dtype=tg.float32)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_conversion(dtype):
    a, b = pair([[0, 1, 2], [3, 4, 100]], dtype)
    for target in DTYPES:
        assert_same(a.to(getattr(tg, target)), b.to(getattr(torch, target)))
        assert_same(a.type(getattr(tg, target)), b.type(getattr(torch, target)))
    for name in ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble"):
        assert_same(getattr(a, name)(), getattr(b, name)())
    assert a.tolist() == b.tolist() and type(a.tolist()[0][0]) is type(b.tolist()[0][0])
    assert a[0, 1].item() == b[0, 1].item() and type(a[0, 1].item()) is type(b[0, 1].item())
    assert a.type() == b.type().replace("torch", "tapegrad")
    assert a.itemsize == b.itemsize and a.element_size() == b.element_size() and a.nbytes == b.nbytes
    assert a.is_floating_point() == b.is_floating_point() and a.is_complex() == b.is_complex() and a.is_signed() == b.is_signed()


def test_to_forms():
    a = tg.ones(2, 3)
    assert a.to(tg.int64).dtype == tg.int64 and a.to("cpu") is a and a.to("cpu", tg.float64).dtype == tg.float64
    assert a.to(dtype=tg.int8).dtype == tg.int8 and a.to(device="cpu") is a and a.to(tg.zeros(1, dtype=tg.float16)).dtype == tg.float16
    assert a.to(float).dtype == tg.float64 and a.to(int).dtype == tg.int64 and a.to(tg.float32, non_blocking=True, copy=True) is not a
    assert a.to("meta").is_meta and a.to(tg.device("cpu")) is a and a.to(a) is a
    assert a.type("tapegrad.DoubleTensor").dtype == tg.float64 and a.type(tg.LongTensor).dtype == tg.int64
    for bad in [(3.5,), ("float32",), (None, 3), ("cuda:99999",), (tg.float32, tg.float32), ([],)]:
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            a.to(*bad)
    with pytest.raises(RuntimeError):
        a.to("cuda")
    with pytest.raises(TypeError):
        a.to(colour=1)
    with pytest.raises(RuntimeError, match="element"):
        a.item()
    with pytest.raises((RuntimeError, NotImplementedError)):
        a.to("meta").item()
    with pytest.raises((RuntimeError, NotImplementedError)):
        a.to("meta").to("cpu")


def test_storage():
    a = tg.arange(6.0).reshape(2, 3)
    s = a.untyped_storage()
    assert s.nbytes() == 24 and s is a[1].untyped_storage() and s.data_ptr() == a.data_ptr()
    assert len(a.storage()) == 6 and list(a[1].storage()) == [0, 1, 2, 3, 4, 5] and a.storage()[2] == 2
    assert a[1].storage_offset() == 3 and a.stride() == (3, 1) and a.stride(0) == 3 and a.size(1) == 3 and a.size(-1) == 3
    with pytest.raises(IndexError):
        a.size(2)
    assert tg.is_storage(s) and a.is_contiguous() and not a.t().is_contiguous()
    assert a.numel() == 6 and a.nelement() == 6 and a.dim() == 2 and a.ndim == 2 and a.ndimension() == 2 and a.get_device() == -1
    shared = tg.ones(3).share_memory_()
    assert shared.is_shared() and shared.sum() == 3 and not a.is_shared()


def test_size():
    s, t = tg.zeros(2, 3, 4).shape, torch.zeros(2, 3, 4).shape
    assert s == (2, 3, 4) and isinstance(s, tuple) and s.numel() == 24 and tuple(s) == tuple(t) and hash(s) == hash((2, 3, 4))
    assert type(s[1:]) is tg.Size and type(s + (1,)) is tg.Size and type(s * 2) is tg.Size and s[0] == 2 and s[-1] == 4
    assert_same_outcome(lambda: tuple((1,) + s), lambda: tuple((1,) + t))
    assert tg.zeros(s).shape == s and tg.Size() == () and tg.Size([tg.tensor(2), np.int64(3)]) == (2, 3)
    for bad in (3, "ab", [1.5], [None], 1.0):
        with pytest.raises(TypeError):
            tg.Size(bad)
    assert tg.Size([-1]) == (-1,)


def test_dtype_objects():
    for name in DTYPES:
        ours, theirs = getattr(tg, name), getattr(torch, name)
        assert ours.is_floating_point == theirs.is_floating_point and ours.is_complex == theirs.is_complex
        assert ours.is_signed == theirs.is_signed and ours.itemsize == theirs.itemsize
        if ours.is_floating_point and name != "float16":
            assert name_of(ours.to_complex()) == name_of(theirs.to_complex())
        assert ours == ours and ours != "x" and {ours: 1}[ours] == 1
    assert tg.float is tg.float32 and tg.long is tg.int64 and tg.half is tg.float16
    with pytest.raises(TypeError):
        type(tg.float32)()
    for f in ("float32", "float64", "float16", "bfloat16"):
        for field in ("eps", "max", "min", "tiny", "bits", "resolution", "smallest_normal", "dtype"):
            ours, theirs = getattr(tg.finfo(getattr(tg, f)), field), getattr(torch.finfo(getattr(torch, f)), field)
            assert ours == theirs or str(ours) == str(theirs) or math.isclose(ours, theirs), (f, field)
    for i in ("int8", "int16", "int32", "int64", "uint8"):
        for field in ("max", "min", "bits", "dtype"):
            ours, theirs = getattr(tg.iinfo(getattr(tg, i)), field), getattr(torch.iinfo(getattr(torch, i)), field)
            assert str(ours) == str(theirs), (i, field)
    with pytest.raises(TypeError):
        tg.finfo(tg.int32)
    with pytest.raises(TypeError):
        tg.iinfo(tg.float32)


def test_device_objects():
    for args in [("cpu",), ("cuda",), ("cuda:1",), ("cuda", 1), ("meta",), ("cpu", 0)]:
        ours, theirs = tg.device(*args), torch.device(*args)
        assert (ours.type, ours.index, str(ours)) == (theirs.type, theirs.index, str(theirs))
    assert tg.device("cpu") == tg.zeros(1).device and tg.device("cuda:0") != tg.device("cuda:1") and tg.device("cpu") != "cpu"
    assert hash(tg.device("cuda:0")) == hash(tg.device("cuda", 0))
    for bad in [(), ("tpu",), ("cuda:-1",), ("cuda:x",), (-1,), (1.5,), ("cpu", "a"), ("cuda:1", 1), ("",), (None,), ("cuda:",), ("cuda:999999999999",)]:
        with pytest.raises((TypeError, RuntimeError, ValueError, OverflowError)):
            tg.device(*bad)
    with tg.device("meta"):
        assert tg.zeros(2).is_meta
    assert tg.zeros(2).is_cpu


def test_bytes_viewed_as_bool_convert_to_true_unless_zero():
    odd = tg.tensor([0, 1, 2, 190], dtype=tg.uint8).view(tg.bool)
    assert odd.long().tolist() == [0, 1, 1, 1]
    assert odd.float().tolist() == [0.0, 1.0, 1.0, 1.0]


class Endless:
    """A sequence of one element, itself, of which iteration would never end."""

    read = 0

    def __len__(self):
        return 1

    def __getitem__(self, i):
        self.read += 1
        assert self.read < 1000, "read beyond the length that it gives"
        return self


@pytest.mark.filterwarnings("ignore:index. a list of subscripts")
@pytest.mark.parametrize("call", [
    lambda s: tg.zeros(3)[s], lambda s: tg.zeros(3).__setitem__(s, 1.0), lambda s: tg.zeros(s), lambda s: tg.Size(s),
    lambda s: tg.zeros(3).sum(dim=s), lambda s: tg.stack(s), lambda s: tg.zeros(3).reshape(s),
    lambda s: tg.ones((), requires_grad=True).exp().backward(inputs=s), lambda s: tg.autograd.grad(tg.ones(()), s),
], ids=["index", "assign", "zeros", "Size", "sum", "stack", "reshape", "backward", "grad"])
def test_sequences_are_read_by_their_length_wherever_one_is_taken(call):
    with pytest.raises((TypeError, ValueError, RuntimeError, IndexError)):
        call(Endless())


def test_devices_keep_the_index_that_was_written():
    torch = pytest.importorskip("torch")
    for args in (("cpu:64",), ("cpu:0",), ("cpu",), ("meta:3",), ("cpu", 3), ("cuda:7",), ("cpu:127",)):
        mine, theirs = tg.device(*args), torch.device(*args)
        assert (str(mine), repr(mine), mine.index) == (str(theirs), repr(theirs), theirs.index)
        assert str(pickle.loads(pickle.dumps(mine))) == str(theirs)
    for device in ("cpu:64", tg.device("cpu:2"), tg.device("cpu", 3)):
        x = tg.ones(2, device=device)
        assert str(x.device) == "cpu" and (x + tg.ones(2)).tolist() == [2, 2] and x.to(device) is x
        with tg.device(device):
            assert (tg.ones(2) + x).tolist() == [2, 2]
    assert (tg.ones(2, device=tg.device("meta", 1)) + tg.ones(2, device="meta")).is_meta
    for wrong in ("cpu:128", "cpu:-1", "cpu:x", "cpu:", "cpu:1x", "cuda:01"):
        with pytest.raises(RuntimeError, match=f"^device: Invalid device string: '{wrong}'$"):
            tg.device(wrong)
    with pytest.raises(RuntimeError, match="^device: Expected one of .* device type at start of device string: dummy$"):
        tg.device("dummy:1")
    with pytest.raises(RuntimeError, match="^device: Device string must not be empty$"):
        tg.device("")


def test_whole_numbers_of_any_length_as_other_kinds():
    assert tg.tensor([2**64, -2**70, 2**24 + 1], dtype=tg.float64).tolist() == [2.0**64, -2.0**70, 2.0**24 + 1]
    assert tg.tensor(2**65, dtype=tg.float32).item() == 2.0**65 and tg.tensor([2**64, 0], dtype=tg.bool).tolist() == [True, False]
    assert tg.tensor(2**64, dtype=tg.complex128).item() == 2.0**64
    for value, dtype in ((2**64, None), (2**64, tg.int64), (10**400, tg.float64)):
        with pytest.raises(OverflowError):
            tg.tensor(value, dtype=dtype)


def test_complex_elements_as_real_numbers():
    assert float(tg.tensor(1.5 + 0j)) == 1.5 and int(tg.tensor(2 + 0j)) == 2
    for kind in (float, int):
        with pytest.raises(RuntimeError, match="value cannot be converted"):
            kind(tg.tensor(1.5j))


@pytest.mark.parametrize("data", [[[1.0, 2.0], 3.0], [[[1.0, 2.0], 3.0]], [[np.zeros(3), 1.0]], [[np.zeros(3), np.float64(1)]]], ids=range(4))
def test_a_number_among_sequences_is_a_type_error_as_in_pytorch(data):
    with pytest.raises(TypeError, match="not a sequence"):
        tg.tensor(data)


@pytest.mark.parametrize("call", [
    lambda t: t.tensor([1.0]).new(), lambda t: t.tensor([1.0]).new(1, 2), lambda t: t.tensor([1]).new([3.7, 4]), lambda t: t.tensor([1.0]).new(size=(3, 4)),
    lambda t: t.tensor([1.0]).new(np.array((3, 4))), lambda t: t.tensor([1.0]).new(2, device="cpu"), lambda t: t.tensor([1.0]).new(t.IntTensor([1])),
    lambda t: t.tensor([1.0]).new(t.tensor([5.0]).storage()), lambda t: t.tensor([1.0]).new(t.IntTensor([1]).storage()),
    lambda t: t.tensor([1.0]).new(device="cuda"), lambda t: t.tensor([1.0]).new(foo=1), lambda t: t.tensor([1.0]).new(1, size=(2,)),
    lambda t: t.FloatTensor(size=(2, 3)), lambda t: t.FloatTensor(2, device="cpu"), lambda t: t.FloatTensor(2, device="cuda"), lambda t: t.Tensor(2, device="cpu"),
    lambda t: t.Tensor(2, device="cuda"), lambda t: t.Tensor(2, dtype=t.int64)])
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_old_constructors_with_names(call):
    """Sizes and dtypes as PyTorch's, or an error of the same class."""
    torch = pytest.importorskip("torch")

    def outcome(library):
        try:
            made = call(library)
        except Exception as error:
            return type(error)
        return list(made.shape), str(made.dtype).partition(".")[2], made.tolist() if 0 < made.numel() < 3 and list(made.shape) != [1, 2] and made[0].item() in (3, 4, 5) else None

    assert outcome(tg) == outcome(torch)


def test_sizes_as_arrays_without_dimensions():
    three = np.array(3)
    assert tg.ones(three, np.int64(4)).shape == (3, 4) and tg.zeros(3).reshape(three, 1).shape == (3, 1) and tg.zeros(3).expand(np.int32(2), three).shape == (2, 3)
    assert tg.zeros(4).narrow(0, np.array(1), tg.tensor(2)).shape == (2,) and tg.zeros(3, 4).permute(np.array(1), 0).shape == (4, 3)
    for wrong in (np.array(3.0), np.array([3, 4])[:1], np.array(True)):
        with pytest.raises(TypeError, match="^ones\\(\\): argument 'size' \\(position 1\\) must be int, not numpy.ndarray$"):
            tg.ones(wrong, 2)
