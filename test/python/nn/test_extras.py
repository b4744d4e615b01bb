"""Small helpers of nn under the paths where PyTorch's users import them, and global hooks, against PyTorch."""

import importlib
import io
import os
from collections import OrderedDict

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")


def module_of(t, path):
    return importlib.import_module(f"{t.__name__}.{path}")


@pytest.mark.parametrize("d", [1, 2, 3])
def test_gradients_of_convolutions(d):
    def run(t):
        rng = np.random.default_rng(0)
        x = t.tensor(rng.standard_normal((2, 4, *[7, 6, 5][:d])))
        w = t.tensor(rng.standard_normal((6, 2, *[3, 2, 3][:d])))
        options = {"stride": 2, "padding": 1, "groups": 2}
        g = t.tensor(rng.standard_normal(tuple(getattr(t.nn.functional, f"conv{d}d")(x, w, **options).shape)))
        grad = module_of(t, "nn.grad")
        return [getattr(grad, f"conv{d}d_input")(x.shape, w, g, **options), getattr(grad, f"conv{d}d_weight")(x, w.shape, g, **options)]

    for a, b in zip(run(tg), run(torch), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9)


def test_gradients_of_convolutions_are_one_kernel_each():
    """No forward pass is run first, and a lone image, an even window and gradients of gradients work as in `conv2d`."""
    x, w, g = tg.randn(2, 3, 9, 9), tg.randn(5, 3, 3, 3, requires_grad=True), tg.randn(2, 5, 7, 7)
    tg.nn.grad.conv2d_input(x.shape, w.detach(), g)
    for call in (lambda: tg.nn.grad.conv2d_input(x.shape, w.detach(), g), lambda: tg.nn.grad.conv2d_weight(x, w.shape, g)):
        with tg.profiler.profile() as profile:
            call()
        assert not [event.key for event in profile.key_averages() if event.key.endswith("convolution") or event.key in ("_conv", "conv2d")]
    assert tg.nn.grad.conv2d_input((3, 9, 9), w, g[0]).equal(tg.nn.grad.conv2d_input((1, 3, 9, 9), w, g[:1])[0])
    tg.nn.grad.conv2d_input(x.shape, w, g).square().sum().backward()
    twin = w.detach().clone().requires_grad_()
    tg.nn.functional.conv_transpose2d(g, twin).square().sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), twin.grad.numpy(), rtol=1e-4)
    z = tg.randn(1, 2, 5, dtype=tg.complex64)
    k = tg.randn(2, 2, 3, dtype=tg.complex64, requires_grad=True)
    out = tg.nn.functional.conv1d(z, k)
    (want,) = tg.autograd.grad(out, k, out.detach())
    np.testing.assert_allclose(tg.nn.grad.conv1d_weight(z, k.shape, out.detach()).numpy(), want.numpy(), rtol=1e-5)


def helpers(t):
    u = module_of(t, "nn.modules.utils")
    state = OrderedDict([("module.a", 1), ("b", 2), ("module.c.d", 3)])
    state._metadata = OrderedDict([("", 0), ("module", 1), ("module.c", 2), ("x", 3)])
    u.consume_prefix_in_state_dict_if_present(state, "module.")
    log = [u._single(3), u._pair((1, 2)), u._triple(1), u._quadruple(0), u._ntuple(5)("ab"), u._reverse_repeat_tuple((1, 2), 2),
           u._list_with_default([None, 3], [7, 8, 9]), list(state.items()), list(state._metadata.items()), u._pair.__name__]
    with pytest.raises(ValueError, match="Input dimension should be at least 3"):
        u._list_with_default([None, 3], [7, 8])
    log.append(t.nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"dtype": 1}}))
    for wrong in ({"other": 1}, {"dtype": 1, "factory_kwargs": {"dtype": 1}}):
        with pytest.raises(TypeError) as error:
            t.nn.factory_kwargs(wrong)
        log.append(str(error.value))
    f = t.nn.functional
    chosen = f.boolean_dispatch("flag", 1, False, lambda x, flag=False: ("yes", x), lambda x, flag=False: ("no", x), "m", "g")
    log += [chosen(1), chosen(1, True), chosen(1, flag=True), chosen.__name__]
    return log


def test_helpers():
    assert helpers(tg) == helpers(torch)


def test_weights_in_another_memory_format():
    net = tg.nn.Sequential(tg.nn.Conv2d(3, 8, 3), tg.nn.ReLU(), tg.nn.Sequential(tg.nn.ConvTranspose2d(8, 4, 3)), tg.nn.Conv3d(1, 2, 2))
    x = tg.randn(2, 3, 8, 8)
    before = net[2](net[1](net[0](x)))
    assert tg.nn.utils.convert_conv2d_weight_memory_format(net, tg.channels_last) is net
    assert net[0].weight.is_contiguous(memory_format=tg.channels_last)
    assert net[2][0].weight.is_contiguous(memory_format=tg.channels_last)
    assert net[3].weight.is_contiguous()
    np.testing.assert_allclose(net[2](net[1](net[0](x))).detach().numpy(), before.detach().numpy(), rtol=1e-4, atol=1e-5)
    net[3].weight.data = net[3].weight.detach().transpose(0, 1).contiguous().transpose(0, 1)
    tg.nn.utils.convert_conv3d_weight_memory_format(net, tg.contiguous_format)
    assert net[3].weight.is_contiguous()


@pytest.mark.parametrize("recipe", ["TensorWise", "RowWise"])
@pytest.mark.parametrize("out", ["float32", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_products_of_float8_with_scales(dtype, out, recipe):
    torch = pytest.importorskip("torch")
    draw = np.random.RandomState(0)
    a, b = (draw.randn(*shape).astype(np.float32) * 3 for shape in ((33, 64), (48, 64)))
    sizes = ((33, 1), (1, 48)) if recipe == "RowWise" else ((1,), (1,))
    scales = [(draw.rand(*shape) + 0.1).astype(np.float32) for shape in sizes]
    bias = draw.randn(48).astype(np.float32)
    results = []
    for lib in (torch, tg):
        f, o = lib.nn.functional, getattr(lib, out)
        x, y = lib.from_numpy(a).to(getattr(lib, dtype)), lib.from_numpy(b).to(lib.float8_e4m3fn)
        kind, s = getattr(f.ScalingType, recipe), [lib.from_numpy(v) for v in scales]
        results.append([f.scaled_mm(x, y.t(), s[0], kind, s[1], kind, bias=z, output_dtype=o) for z in (None, lib.from_numpy(bias).to(o))])
    for theirs, ours in zip(*results, strict=True):
        assert str(ours.dtype).split(".")[1] == out and ours.shape == (33, 48)
        digits = 2e-5 if out == "float32" else 1e-2
        np.testing.assert_allclose(ours.float().numpy(), theirs.float().numpy(), rtol=digits, atol=digits * 3)
    assert tg.nn.functional.scaled_mm(x, y.t(), s[0], [kind], [s[1]], kind).dtype == tg.bfloat16


def test_products_of_float8_refuse():
    f, one = tg.nn.functional, tg.tensor(1.0)
    a, b, kind = tg.ones(4, 8).to(tg.float8_e4m3fn), tg.ones(8, 6).to(tg.float8_e4m3fn), f.ScalingType
    for error, text, call in (
            (ValueError, "mat_a must be a matrix of float8: got tapegrad.float32 of shape", lambda: f.scaled_mm(a.float(), b, one, kind.TensorWise, one, kind.TensorWise)),
            (ValueError, r"scale_a of RowWise must be float32, \[4, 1\]: got tapegrad.float32 of shape \[\]", lambda: f.scaled_mm(a, b, one, kind.RowWise, one, kind.TensorWise)),
            (ValueError, "scale_b of TensorWise must be float32, one number", lambda: f.scaled_mm(a, b, one, kind.TensorWise, one.double(), kind.TensorWise)),
            (RuntimeError, "cannot be multiplied", lambda: f.scaled_mm(a, b[:7], one, kind.TensorWise, one, kind.TensorWise)),
            (NotImplementedError, r"no numbers of 4 bits, whose scales have two levels: got \['BlockWise1x16'\] for mat_a", lambda: f.scaled_mm(a, b, one, kind.BlockWise1x16, one, kind.TensorWise)),
            (ValueError, r"scale_a of BlockWise1x128 must be tapegrad.float32, \[4, 1\], not swizzled: got tapegrad.float32 of shape \[\]",
             lambda: f.scaled_mm(a, b, one, kind.BlockWise1x128, one, kind.TensorWise)),
            (NotImplementedError, "contraction_dim", lambda: f.scaled_mm(a, b, one, kind.TensorWise, one, kind.TensorWise, contraction_dim=[0, 1]))):
        with pytest.raises(error, match="scaled_mm: .*" + text):
            call()


def test_products_of_groups():
    a, b = tg.randn(6, 4, requires_grad=True), tg.randn(3, 4, 5)
    f = tg.nn.functional
    ends = tg.tensor([2, 2, 5], dtype=tg.int32)
    result = f.grouped_mm(a, b, offs=ends)
    expected = tg.cat([a[:2] @ b[0], a[2:5] @ b[2], tg.zeros(1, 5)])
    assert tg.equal(result, expected)
    result.sum().backward()
    assert (a.grad[5] == 0).all()
    assert tg.equal(f.grouped_mm(b, b.mT), tg.bmm(b, b.mT))
    assert f.grouped_mm(a.mT, tg.randn(6, 7), offs=tg.tensor([1, 6], dtype=tg.int32)).shape == (2, 4, 7)
    assert f.grouped_mm(b.mT, tg.randn(4, 9), offs=tg.tensor([3, 3, 9], dtype=tg.int32)).shape == (5, 9)
    a, b, short = tg.randn(6, 4), tg.randn(3, 4, 5), tg.tensor([3, 7], dtype=tg.int32)
    for error, text, call in (
            (RuntimeError, r"offs goes with an operand of two dimensions, which needs it: got none for shapes \[6, 4\]", lambda: f.grouped_mm(a, b)),
            (RuntimeError, "which needs it: got offs", lambda: f.grouped_mm(b, b.mT, offs=ends)),
            (RuntimeError, r"offs must be a vector of int32: got int64 of shape \[3\]", lambda: f.grouped_mm(a, b, offs=ends.long())),
            (RuntimeError, "expected 3 groups: got 2", lambda: f.grouped_mm(a, b, offs=short)),
            (RuntimeError, "inner sizes are 3 and 4", lambda: f.grouped_mm(a[:, :3], b, offs=ends)),
            (RuntimeError, "operands of one floating dtype: got float32 and float64", lambda: f.grouped_mm(a, b.double(), offs=ends)),
            (RuntimeError, "two or three dimensions", lambda: f.grouped_mm(a[0], b, offs=ends)),
            (RuntimeError, "bias is not supported", lambda: f.grouped_mm(a, b, offs=ends, bias=a[0])),
            (ValueError, "ascending ends up to 6 in offs: got 2 behind 3", lambda: f.grouped_mm(a, b, offs=tg.tensor([3, 2, 5], dtype=tg.int32))),
            (ValueError, "got 7 behind 3", lambda: f.grouped_mm(a, b[:2], offs=short))):
        with pytest.raises(error, match="_grouped_mm: .*" + text):
            call()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_products_of_groups_are_those_of_pytorch(dtype):
    torch = pytest.importorskip("torch")
    draw = np.random.RandomState(1)
    for sizes, turned in ((((32, 16), (3, 16, 24)), False), (((3, 8, 16), (16, 32)), False), (((32, 16), (32, 24)), True), (((3, 8, 16), (3, 16, 24)), None)):
        results = []
        operands = [draw.randn(*s).astype(np.float32) for s in sizes]
        ends = np.array([5, 5, 32], np.int32)
        weights = None
        for lib in (torch, tg):
            a, b = (lib.from_numpy(x).to(getattr(lib, dtype)).requires_grad_() for x in operands)
            made = lib._grouped_mm(a.t() if turned else a, b, offs=None if turned is None else lib.from_numpy(ends))
            weights = draw.randn(*made.shape).astype(np.float32) if weights is None else weights
            made.backward(lib.from_numpy(weights).to(made.dtype))
            results.append([x.detach().float().numpy() for x in (made, a.grad, b.grad)])
        for theirs, ours in zip(*results, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-2 if dtype == "bfloat16" else 1e-5, atol=0.1 if dtype == "bfloat16" else 1e-4)


def global_hooks(t):
    m = module_of(t, "nn.modules.module")
    log = []
    net = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.Tanh())
    handles = [m.register_module_forward_pre_hook(lambda mod, args: log.append(("before", type(mod).__name__))),
               m.register_module_forward_hook(lambda mod, args, out: log.append(("after", type(mod).__name__, tuple(out.shape)))),
               m.register_module_forward_hook(lambda mod, args, kw, out: log.append(("kw", sorted(kw))), with_kwargs=True),
               m.register_module_full_backward_pre_hook(lambda mod, g: log.append(("back before", type(mod).__name__))),
               m.register_module_full_backward_hook(lambda mod, gi, go: log.append(("back", type(mod).__name__, tuple(go[0].shape))))]
    net(t.ones(4, 2, requires_grad=True)).sum().backward()
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        m.register_module_backward_hook(print)
    for handle in handles:
        handle.remove()
    more = [m.register_module_parameter_registration_hook(lambda mod, name, p: log.append(("param", name))),
            m.register_module_buffer_registration_hook(lambda mod, name, b: log.append(("buffer", name))),
            m.register_module_module_registration_hook(lambda mod, name, c: log.append(("module", name)))]
    t.nn.Sequential(t.nn.BatchNorm1d(2))
    for handle in more:
        handle.remove()
    net(t.ones(4, 2)).sum().backward()
    return log


def test_global_hooks():
    assert global_hooks(tg) == global_hooks(torch)


def test_swap_tensors():
    a, b = tg.nn.Parameter(tg.ones(2)), tg.arange(3.0)
    a.grad, a.label, holder = tg.full((2,), 7.0), "first", [a]
    tg.utils.swap_tensors(a, b)
    assert holder[0] is a
    assert type(a) is tg.Tensor
    assert a.tolist() == [0.0, 1.0, 2.0]
    assert type(b) is tg.nn.Parameter
    assert b.tolist() == [1.0, 1.0]
    assert b.grad.tolist() == [7.0, 7.0]
    assert b.label == "first"
    assert not hasattr(a, "label")
    assert b.requires_grad
    assert not a.requires_grad
    result = (b * 2).sum()
    with pytest.raises(RuntimeError, match="Expected use_count of t2 to be 1"):
        tg.utils.swap_tensors(a, b)
    result.backward()
    assert b.grad.tolist() == [9.0, 9.0]
    tg.utils.swap_tensors(a, a)
    with pytest.raises(TypeError):
        tg.utils.swap_tensors(a, 3)


@pytest.mark.parametrize("name", ["LSTM", "MultiheadAttention", "BatchNorm2d", "TransformerEncoderLayer", "Embedding"])
def test_states_go_through_files_of_pytorch(name, tmp_path):
    given = {"LSTM": (3, 4, 2), "MultiheadAttention": (8, 2), "BatchNorm2d": (3,), "TransformerEncoderLayer": (8, 2, 16), "Embedding": (5, 3)}[name]
    mine, theirs = getattr(tg.nn, name)(*given), getattr(torch.nn, name)(*given)
    for old in (True, False):
        file = io.BytesIO()
        torch.save(theirs.state_dict(), file, _use_new_zipfile_serialization=old)
        file.seek(0)
        assert str(mine.load_state_dict(tg.load(file))) == "<All keys matched successfully>"
        for key, value in theirs.state_dict().items():
            assert np.array_equal(mine.state_dict()[key].numpy(), value.numpy())
    again = getattr(tg.nn, name)(*given)
    path = os.fspath(tmp_path / "state.pt")
    tg.save(again.state_dict(), path)
    theirs.load_state_dict(torch.load(path, weights_only=True))
    for key, value in theirs.state_dict().items():
        assert np.array_equal(again.state_dict()[key].numpy(), value.numpy())


def test_one_process():
    net = tg.nn.Sequential(tg.nn.Conv2d(1, 2, 3), tg.nn.BatchNorm2d(2), tg.nn.Flatten(), tg.nn.BatchNorm1d(8))
    x = tg.randn(4, 1, 4, 4)
    expected = net(x)
    synced = tg.nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert [type(m).__name__ for m in synced] == ["Conv2d", "SyncBatchNorm", "Flatten", "SyncBatchNorm"]
    np.testing.assert_allclose(synced(x).detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    wrapped = tg.nn.DataParallel(net)
    assert list(wrapped.state_dict())[0] == "module.0.weight"
    with pytest.raises(ValueError, match="process group has not been initialized"):
        tg.nn.parallel.DistributedDataParallel(net)
