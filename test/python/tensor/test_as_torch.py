"""What PyTorch's own tests ask of arguments and of small methods."""

import warnings

import numpy as np
import pytest
import tapegrad as tg


def test_sizes_are_joined():
    assert type(() + tg.Size([1])) is tg.Size and (2,) + tg.Size([1]) == (2, 1) and type(tg.Size([1]) + (2,)) is tg.Size
    for right in ([1], "ab", None):
        with pytest.raises(TypeError, match=r"can only concatenate tuple \(not \w+\) to tapegrad.Size"):
            tg.Size([1]) + right
    with pytest.raises(TypeError):
        [1] + tg.Size([1])


def test_sizes_may_be_arrays_of_one_number():
    assert tg.ones((np.array(3), np.int64(4))).shape == (3, 4)
    with pytest.raises(TypeError):
        tg.ones((np.array([3, 4]), 2))


def test_numbers_require_no_gradient():
    x = tg.ones(2)
    assert tg.isclose(x, x, tg.tensor(1.5), tg.tensor(1.0)).all()
    with pytest.raises(TypeError, match="must be float"):
        tg.isclose(x, x, tg.tensor(1.5), tg.tensor(1.0, requires_grad=True))


def test_seeds_fit_64_bits():
    for seed in (2**64, -2**63 - 1):
        with pytest.raises(ValueError, match="Overflow when unpacking long long"):
            tg.manual_seed(seed)


def test_an_empty_tensor_lies_nowhere():
    t = tg.empty(2, 2)
    assert t.data_ptr() != 0 and t[:0].data_ptr() == 0 and t.resize_(0, 2).data_ptr() == 0


def test_set_with_the_same_shape_stays_inside_of_the_storage():
    t = tg.ones(1)
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 4"):
        t.set_(t.untyped_storage(), 1000, t.size())
    assert t.set_(t.untyped_storage(), 1000, (2, 3)).shape == (2, 3) and t.untyped_storage().nbytes() == 4 * 1006


def test_set_gives_a_leaf_a_place_of_its_own_on_the_tape():
    x = tg.nn.Parameter(tg.ones(3))
    tg.cat((x, x)).sum().backward()
    with tg.no_grad():
        x.set_(x[1:])
        x.grad = None
    tg.cat((x, x)).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_diff_needs_a_dimension():
    with pytest.raises(RuntimeError, match="diff expects input to be at least one-dimensional"):
        tg.diff(tg.tensor(1.0))


@pytest.mark.parametrize("dtype", [tg.bool, tg.uint8, tg.int64, tg.float16])
def test_coins_fall_into_any_dtype(dtype):
    out = tg.full((1000,), 2).to(dtype)
    assert tg.bernoulli(tg.full((1000,), 0.5), out=out) is out and out.dtype is dtype and set(out.tolist()) == {0, 1}


def test_functions_of_elements_have_no_gradient():
    x, y = tg.ones(2), tg.ones(2, requires_grad=True)
    for call in (lambda: x.map_(y, max), lambda: x.map2_(x.clone(), y, lambda a, b, c: a), lambda: tg.ones(2, requires_grad=True).apply_(abs)):
        with pytest.raises(RuntimeError, match="requires grad"):
            call()


def test_order_of_dimensions():
    t = tg.empty(2, 3, 4, 5).to(memory_format=tg.channels_last)
    assert t.dim_order() == t.dim_order(ambiguity_check=True) == (0, 2, 3, 1)
    one = tg.empty(2, 2, 1, 2)
    with pytest.raises(RuntimeError, match="does not have unique dim order"):
        one.dim_order(ambiguity_check=True)
    assert one.dim_order(ambiguity_check=[tg.contiguous_format, tg.channels_last]) == (0, 1, 2, 3)
    with pytest.raises(TypeError, match="must be a bool or a list of memory formats"):
        t.dim_order(ambiguity_check="no")
    with pytest.raises(AttributeError):
        t.to_sparse().dim_order()


def test_checks():
    for check, error in ((tg._check, RuntimeError), (tg._check_index, IndexError), (tg._check_type, TypeError)):
        with pytest.raises(error, match="Expected cond to be True"):
            check(False)
        with pytest.raises(TypeError, match="cond must be a bool"):
            check(tg.tensor(True))
    tg._check_tensor_all(tg.ones(2, dtype=tg.bool))
    with pytest.raises(RuntimeError, match="why"):
        tg._check_tensor_all(tg.tensor([True, False]), lambda: "why")
    for wrong in (True, tg.ones(1)):
        with pytest.raises(TypeError, match="cond (must be a tensor|tensor must have dtype)"):
            tg._check_tensor_all(wrong)


def test_old_classes():
    with pytest.raises(TypeError, match="type 'tapegrad.FloatTensor' is not an acceptable base type"):
        type("Mine", (tg.FloatTensor,), {})
    for dtype in (tg.quint8, tg.qint32):
        with pytest.raises(RuntimeError, match="not supported for quantized"):
            _ = dtype.is_signed
    with pytest.warns(UserWarning, match="please use set_default_dtype"):
        tg.set_default_tensor_type(tg.FloatTensor)


def test_a_storage_of_odd_length_is_whole_elements():
    assert tg.tensor(tg.UntypedStorage(10)).shape == (2,) and tg.tensor(tg.UntypedStorage(3)).shape == (0,)
    t = tg.rand(3)
    assert t.storage()._cdata == t[1:].storage()._cdata == t.untyped_storage()._cdata != tg.rand(3).storage()._cdata


def test_warnings_that_are_given_once_or_always():
    array = np.arange(3)
    array.flags.writeable = False
    tg.set_warn_always(True)
    try:
        for _ in range(2):
            with pytest.warns(UserWarning, match="non-writable"):
                tg.from_numpy(array)
    finally:
        tg.set_warn_always(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tg.from_numpy(array)


def test_losses_name_what_is_wrong():
    F = tg.nn.functional
    with pytest.raises(RuntimeError, match="weight tensor should be defined either for all 3 classes or no classes"):
        F.nll_loss(tg.rand(2, 3), tg.tensor([0, 1]), weight=tg.rand(4))
    with pytest.raises(ValueError, match="at least one dimension"):
        F.nll_loss(tg.tensor(0.0), tg.tensor(0))
    with pytest.raises(RuntimeError, match="but got input with sizes"):
        F.grid_sample(tg.rand(5, 5, 5, 5), tg.rand(1, 1, 4, 4), align_corners=True)


def test_the_base_of_tensors_by_pytorch_s_name():
    from tapegrad.compat import native

    base = native.name("TensorBase")
    assert isinstance(tg.ones(1), base) and issubclass(tg.nn.Parameter, base) and not isinstance(1, base)
    with pytest.raises(RuntimeError, match="Cannot construct"):
        base()
    with pytest.raises(RuntimeError, match="Cannot subclass"):
        type("Mine", (base,), {})


def test_nodes_by_pytorch_s_name():
    from tapegrad.compat import native

    functions = native.Functions(tg._C._functions)
    x = tg.ones(2, requires_grad=True)
    assert isinstance((x * 2).grad_fn.next_functions[0][0], functions.AccumulateGrad)
    functions.UndefinedGrad()(x * 2).sum().backward()
    assert x.grad is None
    with pytest.raises(RuntimeError, match="later"):
        functions.DelayedError("later", 1)(x * 2).sum().backward()
