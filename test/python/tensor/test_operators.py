"""Python's operators on tensors: arithmetic, reflected, in place, comparison, numbers, iteration."""

import math
import operator

import numpy as np
import pytest
import tapegrad as tg
from pairs import DTYPES, assert_same, assert_same_outcome, pair

torch = pytest.importorskip("torch")

BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
          operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
COMPARE = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
INPLACE = [operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ifloordiv, operator.imod, operator.ipow,
           operator.iand, operator.ior, operator.ixor, operator.ilshift, operator.irshift]
NUMBERS = [2, 3.5, True, 1 + 2j]
# torch refuses these, tapegrad computes them: a bool in a subtraction, powers of bools, complex numbers with float16.
MORE = (operator.sub, operator.isub, operator.pow, operator.ipow, operator.add, operator.mul, operator.truediv)
CLOSE = {"rtol": 1e-2, "atol": 1e-2}
ids = {"ids": lambda v: getattr(v, "__name__", str(v))}


def values(dtype: str):
    if dtype == "bool":
        return [[True, False, True], [False, False, True]]
    return [[1, 2, 3], [4, 5, 6]]


def tolerance(*dtypes):
    return CLOSE if any(d in ("float16", "bfloat16") for d in dtypes) else {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("op", BINARY + COMPARE, **ids)
@pytest.mark.parametrize("dtype", DTYPES)
def test_two_tensors(op, dtype):
    a, ta = pair(values(dtype), dtype)
    for other in DTYPES:
        b, tb = pair(values(other)[0], other)
        assert_same_outcome(lambda: op(a, b), lambda: op(ta, tb), **tolerance(dtype, other), more=op in MORE)


@pytest.mark.parametrize("op", BINARY + COMPARE, **ids)
@pytest.mark.parametrize("dtype", DTYPES)
def test_tensor_and_number(op, dtype):
    a, ta = pair(values(dtype), dtype)
    for number in NUMBERS:
        if isinstance(number, complex) and dtype == "float16":
            continue  # torch has complex numbers of half precision
        assert_same_outcome(lambda: op(a, number), lambda: op(ta, number), **tolerance(dtype), more=op in MORE)
        assert_same_outcome(lambda: op(number, a), lambda: op(number, ta), **tolerance(dtype), more=op in MORE)


@pytest.mark.parametrize("op", INPLACE, **ids)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place(op, dtype):
    for number in [*NUMBERS, "tensor"]:
        a, ta = pair(values(dtype), dtype)
        b, tb = pair(values(dtype)[0], dtype) if number == "tensor" else (number, number)
        keep = a
        pointer = a.data_ptr()

        def ours(a=a, b=b):
            return op(a, b)

        before = ta.clone()
        assert_same_outcome(ours, lambda: op(ta, tb), **tolerance(dtype), more=op in MORE)
        assert keep is a and a.data_ptr() == pointer
        if not (op in MORE and (ta == before).all()):
            assert_same(a, ta, **tolerance(dtype))


@pytest.mark.parametrize("op", [operator.neg, operator.pos, operator.abs, operator.invert], **ids)
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_tensor(op, dtype):
    a, ta = pair(values(dtype), dtype)
    assert_same_outcome(lambda: op(a), lambda: op(ta), **tolerance(dtype), more=op is operator.pos)


def test_integer_division_and_signs():
    for dtype in ("int32", "int64", "float32", "float64"):
        a, ta = pair([-7, -3, 0, 3, 7], dtype)
        b, tb = pair([2, -2, 5, -5, 3], dtype)
        for op in (operator.floordiv, operator.mod, operator.truediv):
            assert_same(op(a, b), op(ta, tb), rtol=1e-6)
            assert_same(op(a, 2), op(ta, 2), rtol=1e-6)
            assert_same(op(a, -3), op(ta, -3), rtol=1e-6)
    a, ta = pair([1, 2], "int64")
    assert_same_outcome(lambda: a // 0, lambda: ta // 0, kinds=True)
    assert_same_outcome(lambda: a % 0, lambda: ta % 0, kinds=True)


def test_matmul():
    for left, right in [((3, 4), (4, 2)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)), ((2, 3, 4), (4, 5)), ((5, 1, 3, 4), (2, 4, 6))]:
        a, ta = pair(np.random.default_rng(0).standard_normal(left))
        b, tb = pair(np.random.default_rng(1).standard_normal(right))
        assert_same(a @ b, ta @ tb, rtol=1e-12, atol=1e-12)
    with pytest.raises(TypeError):
        a @ 2
    with pytest.raises(TypeError):
        2 @ a
    c = a
    c @= b
    assert c is not a


@pytest.mark.parametrize("op", BINARY + COMPARE, **ids)
@pytest.mark.parametrize("other", ["text", None, pytest.param(object(), id="object"), {}, {1}], **ids)
def test_foreign_operands(op, other):
    a, ta = pair([1, 2, 3])
    assert_same_outcome(lambda: op(a, other), lambda: op(ta, other), kinds=True)
    assert_same_outcome(lambda: op(other, a), lambda: op(other, ta), kinds=True)


def test_reflected_operator_of_another_class():
    class Other:
        def __radd__(self, left):
            return "radd"

        def __add__(self, right):
            return "add"

        def __eq__(self, right):
            return "eq"

        __hash__ = None

    a = tg.tensor([1.0])
    assert a + Other() == "radd"
    assert Other() + a == "add"
    assert (a == Other()) == "eq"


def test_numpy_operands():
    a, ta = pair([1.0, 2.0, 3.0])
    for number in (np.float32(2), np.float64(2.5), np.int64(3), np.int8(3)):
        assert_same(a * number, ta * number)
        assert_same(a + number, ta + number)
        assert isinstance(number * a, tg.Tensor)
        np.testing.assert_allclose((number * a).numpy(), (number * ta).numpy())


def test_numpy_arrays():
    a, ta = pair([[1.0, 2.0], [3.0, 4.0]], "float64")
    array = np.array([[5.0, 6.0], [7.0, 8.0]])
    for op in (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.matmul, operator.lt, operator.eq):
        assert_same(op(a, array), op(ta, torch.tensor(array)), rtol=1e-6)
        assert_same(op(a, array[::-1, ::-1]), op(ta, torch.tensor(array[::-1, ::-1].copy())), rtol=1e-6)
        if op not in (operator.lt, operator.eq):
            assert_same(op(array, a), op(torch.tensor(array), ta), rtol=1e-6)
    a += array
    assert a.tolist() == [[6, 8], [10, 12]] and (tg.ones(2) + array).dtype == tg.float64
    with pytest.raises(TypeError):
        a + np.array(["x"])


def test_pow_forms():
    a, ta = pair([1.0, 2.0, 3.0])
    assert_same(a ** 2, ta ** 2)
    assert_same(2 ** a, 2 ** ta)
    assert_same(a ** 0.5, ta ** 0.5, rtol=1e-6)
    assert_same(a ** -1, ta ** -1, rtol=1e-6)
    assert_same(pow(a, a), pow(ta, ta), rtol=1e-6)
    with pytest.raises(TypeError):
        pow(a, 2, 3)
    i, ti = pair([1, 2, 3])
    assert_same_outcome(lambda: i ** -1, lambda: ti ** -1, kinds=True)


def test_broadcast_errors():
    a, b = tg.zeros(2, 3), tg.zeros(2, 4)
    with pytest.raises(RuntimeError, match="3.*4"):
        a + b
    with pytest.raises(RuntimeError):
        b += a
    small = tg.zeros(3)
    with pytest.raises(RuntimeError):
        small += a
    i = tg.zeros(3, dtype=tg.int64)
    with pytest.raises(RuntimeError):
        i += 1.5
    with pytest.raises(RuntimeError):
        i /= 2


def test_conversion_to_numbers():
    for data in (3, -2.75, True, 0, 2**40, 1e30):
        a, ta = pair(data)
        for kind in (int, float, bool, complex):
            assert_same_outcome(lambda: kind(a), lambda: kind(ta), kinds=True)
        for function in (math.floor, math.ceil, math.trunc, round):
            assert_same_outcome(lambda: float(function(a)), lambda: float(function(ta)))
    for data in ([1.0], [[2]], [1.0, 2.0], [], 1 + 2j):
        a, ta = pair(data)
        for kind in (int, float, bool, complex):
            assert_same_outcome(lambda: kind(a), lambda: kind(ta), kinds=data != 1 + 2j)
    with pytest.raises(RuntimeError, match="real"):
        int(tg.tensor(1 + 2j))
    assert isinstance(int(tg.tensor(2.9)), int) and int(tg.tensor(2.9)) == 2
    assert_same_outcome(lambda: int(tg.tensor(math.nan)), lambda: int(torch.tensor(math.nan)), kinds=True)
    assert_same_outcome(lambda: int(tg.tensor(math.inf)), lambda: int(torch.tensor(math.inf)), kinds=True)


def test_index():
    assert list(range(10))[tg.tensor(3)] == 3
    assert list(range(10))[tg.tensor(2):tg.tensor(5)] == [2, 3, 4]
    assert operator.index(tg.tensor([4])) == 4
    assert hex(tg.tensor(255)) == "0xff"
    assert [0] * tg.tensor(3) is not None
    for bad in (tg.tensor(1.0), tg.tensor([1, 2])):
        with pytest.raises(TypeError):
            operator.index(bad)
    assert_same_outcome(lambda: operator.index(tg.tensor(True)), lambda: operator.index(torch.tensor(True)), kinds=True)


def test_truth():
    assert tg.tensor(1) and not tg.tensor(0.0) and tg.tensor([[2.0]]) and not tg.tensor([False])
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(tg.tensor([1, 2]))
    assert_same_outcome(lambda: bool(tg.empty(0)), lambda: bool(torch.empty(0)))


def test_length_and_iteration():
    a, ta = pair(np.arange(24.0).reshape(2, 3, 4))
    assert len(a) == 2 and len(tg.empty(0, 3)) == 0
    for row, other in zip(a, ta):
        assert_same(row, other)
    assert [float(v) for v in tg.arange(3.0)] == [0.0, 1.0, 2.0]
    x, y = a
    assert_same(y, ta[1])
    first, *rest = tg.arange(5)
    assert first == 0 and len(rest) == 4
    assert list(tg.empty(0, 3)) == []
    for scalar in (tg.tensor(1.0),):
        with pytest.raises(TypeError):
            len(scalar)
        with pytest.raises(TypeError):
            iter(scalar)
    assert [v.item() for v in reversed(tg.arange(3))] == [2, 1, 0]
    assert [v.item() for v in tg.arange(3)] == list(tg.arange(3).tolist())
    r = tg.zeros(3, requires_grad=True)
    sum(v * v for v in r).backward()
    assert r.grad is not None


def test_contains():
    a, ta = pair([1.0, 2.0, 3.0])
    for value in (2, 2.0, 5, True):
        assert (value in a) == (value in ta)
    assert tg.tensor(3.0) in a
    with pytest.raises(RuntimeError):
        "x" in a


def test_format():
    for spec in ("", ".2f", "e", "8.3f", "d"):
        for data in (3.14159, 7, -2.5):
            assert_same_outcome(lambda: format(tg.tensor(data), spec), lambda: format(torch.tensor(data), spec), kinds=True)
    assert f"{tg.tensor(2.5):.1f}" == "2.5"
    with pytest.raises(TypeError):
        format(tg.tensor([1.0]), ".2f")
    assert f"{tg.tensor([1.0])}" == "tensor([1.])"


def test_hash_is_identity():
    a, b = tg.tensor([1.0]), tg.tensor([1.0])
    assert len({a: 1, b: 2}) == 2 and {a: 1}[a] == 1
    assert hash(a) == hash(a)


def test_comparison_gives_tensors():
    a = tg.tensor([1.0, 2.0])
    assert (a == a).dtype == tg.bool and (a == a).all()
    assert (a == None) is False and (a != None) is True  # noqa: E711
    assert not (a == "x")


def test_shift_and_bits_of_bool():
    a, ta = pair([True, False])
    for op in (operator.and_, operator.or_, operator.xor):
        assert_same(op(a, True), op(ta, True))
        assert_same(op(False, a), op(False, ta))
    assert_same(~a, ~ta)
    assert_same_outcome(lambda: -a, lambda: -ta, kinds=True)
    assert_same_outcome(lambda: a - a, lambda: ta - ta, kinds=True)
