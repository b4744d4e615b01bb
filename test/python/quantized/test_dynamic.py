"""Linear layers of int8 whose input is rounded in each call: quantize_dynamic, and the layer that it puts in."""

import copy
import math

import numpy as np
import pytest
import tapegrad as tg
from tapegrad import nn

try:
    import torch
except ImportError:
    torch = None

HAS_TORCH = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
Dynamic = tg.ao.nn.quantized.dynamic.Linear
quantize = tg.ao.quantization.quantize_dynamic
CONFIGS = ["default_dynamic_qconfig", "per_channel_dynamic_qconfig"]


def _model(lib, bias=True):
    return lib.nn.Sequential(lib.nn.Linear(100, 70, bias=bias), lib.nn.ReLU(), lib.nn.Linear(70, 33))


def _pair(config, bias=True):
    """The same model in both libraries, quantised."""
    theirs = _model(torch, bias)
    mine = _model(tg, bias)
    mine.load_state_dict({name: tg.tensor(t.numpy()) for name, t in theirs.state_dict().items()})
    return (quantize(mine, {nn.Linear: getattr(tg.ao.quantization, config)}),
            torch.ao.quantization.quantize_dynamic(theirs, {torch.nn.Linear: getattr(torch.ao.quantization, config)}))


# What an input may be: its rounding depends on the least and the greatest number of all.
INPUTS = {"normal": lambda r: r.standard_normal((7, 100)), "three dimensions": lambda r: r.standard_normal((2, 3, 100)), "one row": lambda r: r.standard_normal((1, 100)),
          "many rows": lambda r: r.standard_normal((600, 100)), "no rows": lambda r: r.standard_normal((0, 100)), "zeros": lambda r: np.zeros((3, 100)),
          "positive": lambda r: r.uniform(0.5, 2, (5, 100)), "negative": lambda r: r.uniform(-2, -0.5, (5, 100)), "small": lambda r: r.standard_normal((4, 100)) * 1e-3,
          "smaller": lambda r: r.standard_normal((4, 100)) * 1e-5, "small and positive": lambda r: r.uniform(0, 1e-4, (4, 100)),
          "small and negative": lambda r: r.uniform(-1e-4, 0, (4, 100)), "subnormal": lambda r: r.standard_normal((4, 100)) * 1e-40,
          "large": lambda r: r.standard_normal((4, 100)) * 1e36, "halves": lambda r: r.integers(-127, 128, (9, 100)) / 2, "one outlier": lambda r: np.where(np.arange(500).reshape(5, 100) == 77, 1e4, r.standard_normal((5, 100)))}  # fmt: skip


@HAS_TORCH
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", INPUTS)
def test_equals_pytorch(name, config):
    """The same integers, and floats to the last bit or two, layer by layer."""
    x = INPUTS[name](np.random.default_rng(0)).astype(np.float32)
    mine, theirs = _pair(config)
    for i in (0, 2):
        weight = theirs[i].weight()
        assert np.array_equal(mine[i]._packed_params.weight.numpy(), weight.int_repr().numpy())
        scales = weight.q_per_channel_scales().numpy() if "channel" in config else np.array([weight.q_scale()])
        assert np.array_equal(mine[i]._packed_params.scale.numpy(), scales.astype(np.float32))
        assert np.array_equal(mine[i].weight().numpy(), weight.dequantize().numpy())
    expected = theirs[0](torch.tensor(x)).numpy()
    got = mine[0](tg.tensor(x))
    assert got.shape == expected.shape and not got.requires_grad
    size = np.abs(expected).max(initial=1e-30)
    assert np.abs(got.numpy() - expected).max(initial=0) <= 3e-7 * size


@HAS_TORCH
@pytest.mark.parametrize("bias", [True, False])
def test_whole_model_as_pytorch(bias):
    mine, theirs = _pair("default_dynamic_qconfig", bias)
    x = np.random.default_rng(1).standard_normal((40, 100)).astype(np.float32)
    expected = theirs(torch.tensor(x)).detach().numpy()
    # What ReLU gives may be rounded to the next number in the second layer.
    assert np.abs(mine(tg.tensor(x)).numpy() - expected).max() <= 0.01 * np.abs(expected).max()
    assert str(mine) == str(theirs) and repr(mine[0]) == repr(theirs[0])
    assert [name for name, _ in mine.named_modules()] == [name for name, _ in theirs.named_modules()]


@pytest.mark.parametrize("config", CONFIGS)
def test_near_the_layer_of_floats(config):
    """Off by no more than both roundings give: half a step of the input for each weight, and half one of the weight for each input."""
    linear = nn.Linear(300, 50)
    layer = quantize(nn.Sequential(linear), {nn.Linear: getattr(tg.ao.quantization, config)})[0]
    x = tg.randn(20, 300)
    step = float(x.max() - x.min()) / 127
    scale = layer._packed_params.scale
    limit = 0.5 * step * linear.weight.detach().abs().sum(1) + 0.5 * scale * x.abs().sum(1, keepdim=True) + 300 * 0.25 * step * scale + 1e-4
    error = (layer(x) - linear(x)).abs()
    assert (error <= limit).all() and error.max() > 0


def test_sixteen_bits():
    layer = quantize(nn.Sequential(nn.Linear(64, 30)))[0]
    x = tg.randn(5, 64)
    for dtype in (tg.bfloat16, tg.float16):
        got = layer(x.to(dtype))
        assert got.dtype == dtype and got.equal(layer(x.to(dtype).float()).to(dtype))


def test_what_is_replaced():
    class Special(nn.Linear):
        pass

    shared = nn.Linear(4, 4)
    seen = []
    shared.register_forward_hook(lambda module, args, result: seen.append(type(module)))
    model = nn.ModuleDict({"a": shared, "b": nn.Sequential(shared, nn.Linear(4, 2)), "c": Special(3, 4), "d": nn.MultiheadAttention(8, 2)})
    model.train()
    made = quantize(model, {nn.Linear})
    assert type(made["a"]) is Dynamic and made["b"][0] is made["a"] and type(made["b"][1]) is Dynamic and type(made["c"]) is Special
    assert type(made["d"].out_proj) is not Dynamic and not made["a"].training and not made.training
    assert type(model["a"]) is nn.Linear and model.training, "the model itself is left alone"
    made["a"](tg.ones(1, 4))
    assert seen == [Dynamic]
    names = quantize(model, {"b.1"})
    assert type(names["b"][1]) is Dynamic and type(names["a"]) is nn.Linear
    assert type(quantize(model, {"b"})["b"][1]) is Dynamic
    kept = quantize(model, {nn.Linear: tg.ao.quantization.default_dynamic_qconfig, "b.1": None})
    assert type(kept["b"][1]) is nn.Linear and type(kept["a"]) is Dynamic
    single = nn.Linear(2, 2)
    assert type(quantize(single, {nn.Linear})) is nn.Linear, "as in PyTorch the model itself is not replaced"
    assert quantize(model, {nn.Linear}, inplace=True) is model and type(model["a"]) is Dynamic


def test_what_is_refused():
    linear = nn.Sequential(nn.Linear(3, 4))
    for dtype in (tg.float16, tg.quint8, tg.int8):
        with pytest.raises(NotImplementedError, match="^quantize_dynamic: the only dtype is qint8"):
            quantize(linear, {nn.Linear}, dtype=dtype)
    for layer in (nn.LSTM(3, 4), nn.GRU(3, 4), nn.LSTMCell(3, 4)):
        with pytest.raises(NotImplementedError, match=f"^quantize_dynamic: recurrent layers are not supported: got {type(layer).__name__} at '0'\n"):
            quantize(nn.Sequential(layer))
        assert type(quantize(nn.Sequential(layer), {nn.Linear})[0]) is type(layer)
    with pytest.raises(TypeError, match="^quantize_dynamic: expected default_dynamic_qconfig"):
        quantize(linear, {nn.Linear: 3})
    layer = quantize(linear)[0]
    for x in (tg.ones(5, 4), tg.ones(()), tg.ones(5, 3, dtype=tg.float64), tg.ones(5, 3, dtype=tg.int64)):
        with pytest.raises(RuntimeError, match="^dynamic quantized linear: "):
            layer(x)
    with pytest.raises(AssertionError, match="expected nn.Linear: got ReLU"):
        Dynamic.from_float(nn.ReLU())


def test_names():
    assert tg.nn.quantized.dynamic.Linear is Dynamic and tg.quantization.quantize_dynamic is quantize
    import tapegrad.ao.nn.quantized.dynamic as again

    assert again.Linear is Dynamic
    assert repr(Dynamic(3, 4)) == "DynamicQuantizedLinear(in_features=3, out_features=4, dtype=torch.qint8, qscheme=torch.per_tensor_affine)"
    assert type(Dynamic.from_float(nn.Linear(3, 4))) is Dynamic


@pytest.mark.parametrize("config", CONFIGS)
def test_state(tmp_path, config):
    made = quantize(nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 5, bias=False)), {nn.Linear: getattr(tg.ao.quantization, config)})
    state, x = made.state_dict(), tg.randn(3, 30)
    assert list(state) == ["0._packed_params.weight", "0._packed_params.scale", "0._packed_params.bias", "1._packed_params.weight", "1._packed_params.scale"]
    assert [t.dtype for t in state.values()] == [tg.int8, tg.float32, tg.float32, tg.int8, tg.float32] and not list(made.parameters())
    tg.save(state, tmp_path / "state.pt")
    fresh = quantize(nn.Sequential(nn.Linear(30, 20), nn.Linear(20, 5, bias=False)))
    fresh.load_state_dict(tg.load(tmp_path / "state.pt"))
    assert fresh(x).equal(made(x)) and copy.deepcopy(made)(x).equal(made(x)) and str(fresh) == str(made)
    with pytest.raises(RuntimeError, match="size mismatch"):
        quantize(nn.Sequential(nn.Linear(30, 21), nn.Linear(21, 5, bias=False))).load_state_dict(state)


def test_casts_leave_the_layer_alone():
    made, x = quantize(nn.Sequential(nn.Linear(30, 20))), tg.randn(3, 30)
    expected = made(x)
    for cast in (lambda m: m.half(), lambda m: m.bfloat16(), lambda m: m.double(), lambda m: m.to(tg.float16), lambda m: m.cpu()):
        assert cast(copy.deepcopy(made))(x).equal(expected)
    with tg.autocast("cpu", dtype=tg.bfloat16):
        assert made(x).equal(expected)


def test_numbers_that_are_none():
    """PyTorch takes NaN for the least number, and raises where there is nothing else."""
    layer = quantize(nn.Sequential(nn.Linear(40, 20)))[0]
    x = tg.randn(4, 40)
    for place in (0, 17, 39):
        bad = x.clone()
        bad[1, place] = math.nan
        got = layer(bad)
        assert got[1].isnan().all() and got[[0, 2, 3]].isfinite().all()
        for value in (math.inf, -math.inf):
            bad[1, place] = value
            assert not layer(bad).isfinite().any()
    assert layer(tg.full((2, 40), math.nan)).isnan().all()
    with tg.no_grad():
        broken = nn.Linear(40, 20)
        broken.weight[3, 4] = math.nan
    assert quantize(nn.Sequential(broken))(x).isnan().all()
    channels = quantize(nn.Sequential(broken), {nn.Linear: tg.ao.quantization.per_channel_dynamic_qconfig})(x)
    assert channels[:, 3].isnan().all() and channels[:, :3].isfinite().all()


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (1, 1)])
def test_smallest_layers(sizes):
    made = quantize(nn.Sequential(nn.Linear(*sizes)))
    got = made(tg.ones(2, sizes[0]))
    assert tuple(got.shape) == (2, sizes[1])
    if sizes[0] == 0:
        assert got.equal(made[0].bias().expand(2, -1))


def test_no_gradient_as_in_pytorch():
    made = quantize(nn.Sequential(nn.Linear(30, 20)))
    assert not made(tg.randn(3, 30, requires_grad=True)).requires_grad
