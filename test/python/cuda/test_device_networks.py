"""The kernels of networks (convolutions, pooling, resampling, attention, recurrent layers) on CUDA against the CPU, at sizes that
cross their tiles, parts and ways. Runs where test_operators.py does; test_simulated.py starts both on the simulated device."""

import os

import device_asked_for  # noqa: F401
import pytest
import rows
import tapegrad
from rows import assert_equal, map_tree, tensors_of
from tapegrad.nn import functional as F


def both(f, *inputs, rtol=1e-4, kwargs=None):
    """f and its gradients for floating inputs, on the CPU and twice on the device: the same within rtol, and the same bits."""
    results = []
    for device in ("cpu", "cuda", "cuda"):
        args = [t.detach().to(device).requires_grad_(t.dtype.is_floating_point or t.dtype.is_complex) for t in inputs]
        out = [t for t in tensors_of(f(*args)) if t.requires_grad]
        weights = [rows.Make(tapegrad.float32, 7 + i)(tuple(o.shape)).to(device).to(o.dtype) for i, o in enumerate(out)]
        leaves = [t for t in args if t.requires_grad]
        grads = tapegrad.autograd.grad(out, leaves, weights, allow_unused=True, materialize_grads=True)
        results.append(map_tree(lambda t: t.detach().cpu(), [*out, *grads]))
    host, device, again = results
    for n, (h, d, a) in enumerate(zip(host, device, again)):
        assert d.tolist() == a.tolist(), f"result {n} differs from run to run"
        assert_equal(d, h, f"result {n}", rtol)


def make(*shape, seed=0, dtype=tapegrad.float32):
    return rows.Make(dtype, seed)(shape)


def assert_repeated(results, rtol, switches):
    """The results of the host and of two runs on a device; the runs have the same bits where the switches promise it."""
    for n, (host, device, again) in enumerate(zip(*results)):
        scale = host.abs().max().item()
        assert_equal(device.double() / scale, host.double() / scale, f"result {n}", rtol)
        if "deterministic" in switches or "benchmark" not in switches:
            assert device.tolist() == again.tolist(), f"result {n} differs from run to run"


@pytest.mark.parametrize("switches", [{"enabled": False}, {"enabled": True}, {"enabled": True, "deterministic": True},
                                      {"enabled": True, "benchmark": True}, {"enabled": True, "benchmark": True, "deterministic": True, "benchmark_limit": 2}],
                         ids=lambda switches: "-".join(switches))
@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-4), ("float64", 1e-10), ("bfloat16", 0.03), ("float16", 4e-3)])
def test_convolutions_agree_under_every_switch_of_cudnn(switches, dtype, rtol):
    dtype = getattr(tapegrad, dtype)
    x, w = make(4, 16, 9, 10).to(dtype), make(24, 8, 3, 3, seed=1).to(dtype) * 0.2
    with tapegrad.backends.cudnn.flags(**switches):
        results = []
        for device in ("cpu", "cuda", "cuda"):
            leaves = [t.to(device).requires_grad_() for t in (x, w)]
            y = F.conv2d(*leaves, padding=1, stride=(1, 2), groups=2)
            results.append([t.detach().cpu() for t in (y, *tapegrad.autograd.grad(y, leaves, tapegrad.ones_like(y)))])
    assert_repeated(results, rtol, switches)


def check_replay(step, x):
    """A graph of step(), which reads x, gives for another x what step() gives for it."""
    graph = tapegrad.cuda.CUDAGraph()
    with tapegrad.cuda.graph(graph):  # without a step before it: plans are made while it is captured
        captured = step()
    x.copy_(x * 2)
    graph.replay()
    for a, b in zip(captured, step()):
        assert a.tolist() == b.tolist()


def test_convolutions_in_a_graph():
    x, w = make(2, 8, 9, 10).to("cuda"), make(12, 8, 3, 3, seed=1).to("cuda").requires_grad_()

    def step():
        y = F.conv2d(x, w, padding=1)
        return y, *tapegrad.autograd.grad(y, (w,), tapegrad.ones_like(y))

    check_replay(step, x)


@pytest.mark.parametrize("shape, kernel", [((2, 5, 7, 6), (4, 5, 3, 3)), ((2, 3, 4, 5, 6), (4, 3, 2, 2, 2))])
def test_convolutions_keep_channels_last(shape, kernel):
    f = F.conv2d if len(shape) == 4 else F.conv3d
    transposed = F.conv_transpose2d if len(shape) == 4 else F.conv_transpose3d
    x, w, b = (make(*sizes, seed=i, dtype=tapegrad.float64) for i, sizes in enumerate((shape, kernel, kernel[:1])))
    results = []
    for device, memory_format in (("cpu", tapegrad.contiguous_format), ("cuda", tapegrad.channels_last)):
        leaves = [x.to(device).contiguous(memory_format=memory_format).requires_grad_(), w.to(device).contiguous(memory_format=memory_format).requires_grad_(),
                  b.to(device).requires_grad_()]
        y = f(*leaves, padding=1)
        z = transposed(y, leaves[1])
        assert all(t.is_contiguous(memory_format=memory_format) for t in (y, z))
        results.append([t.detach().cpu() for t in (y, z, *tapegrad.autograd.grad((z * z).sum(), leaves))])
    for n, (host, device) in enumerate(zip(*results)):
        assert_equal(device, host, f"result {n}", 1e-10)


@pytest.mark.parametrize("x, w, options", [
    ((2, 20, 9, 11), (70, 20, 3, 3), {"padding": 1}),  # tiles of channels and of positions
    ((3, 24, 8, 7), (36, 12, 3, 2), {"groups": 2, "stride": 2, "padding": (1, 0), "dilation": (1, 2)}),
    ((2, 18, 6, 7), (18, 1, 3, 3), {"groups": 18, "padding": 1}),  # depthwise
    ((2, 12, 40), (16, 12, 5), {"stride": 3, "dilation": 2}),
    ((1, 10, 5, 6, 7), (12, 10, 2, 3, 3), {"padding": (0, 1, 1), "stride": (1, 2, 1)}),
    ((5, 16, 12, 12), (10, 16, 1, 1), {}),
    ((6, 9, 20, 20), (9, 9, 2, 2), {}),  # the weight's gradient in parts
])
def test_convolutions(x, w, options):
    conv = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}[len(x)]
    both(lambda a, b, c: conv(a, b, c, **options), make(*x), make(*w, seed=1), make(w[0], seed=2))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64", "int32"])
def test_convolutions_of_other_types(dtype):
    x, w = (rows.Make(getattr(tapegrad, dtype), seed)(shape, low=-3, high=3) for seed, shape in ((1, (2, 10, 6, 5)), (2, (12, 10, 3, 3))))
    host = F.conv2d(x, w, padding=1)
    assert_equal(F.conv2d(x.to("cuda"), w.to("cuda"), padding=1).cpu(), host, dtype, {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-5))


def test_transposed_convolutions():
    both(lambda a, b: F.conv_transpose2d(a, b, stride=2, padding=1, output_padding=1), make(2, 12, 6, 5), make(12, 10, 3, 3, seed=1))
    both(lambda a, b: F.conv_transpose1d(a, b, stride=3, groups=2, dilation=2), make(2, 8, 9), make(8, 9, 4, seed=1))


@pytest.mark.parametrize("f, shape", [
    (lambda t: F.max_pool2d(t, 3, 2, 1), (2, 3, 30, 31)),
    (lambda t: F.max_pool2d(t, 2, 1, dilation=3), (1, 2, 60, 80)),  # several parts of a plane, all windows overlap
    (lambda t: F.max_pool2d(t, 3, 2), (1, 1, 370, 360)),  # a plane by sorted positions
    (lambda t: F.max_pool3d(t, 2, ceil_mode=True), (1, 2, 5, 7, 9)),
    (lambda t: F.avg_pool2d(t, 3, 2, 1, count_include_pad=False, ceil_mode=True), (2, 3, 14, 15)),
    (lambda t: F.avg_pool2d(t, 12, 1), (1, 2, 20, 20)),  # groups of threads
    (lambda t: F.adaptive_avg_pool2d(t, 1), (3, 4, 40, 40)),
    (lambda t: F.adaptive_avg_pool2d(t, (5, 7)), (2, 2, 13, 11)),
    (lambda t: F.adaptive_max_pool1d(t, 6), (2, 3, 40)),
    (lambda t: F.unfold(t, 3, dilation=2, padding=1, stride=2), (2, 3, 9, 12)),
    (lambda t: F.fold(t, (7, 8), 3, padding=1), (2, 18, 56)),
    (lambda t: F.pad(t, (3, 1, 2, 2), mode="reflect"), (2, 3, 5, 6)),
    (lambda t: F.pad(t, (3, 1, 0, 2), mode="replicate"), (2, 3, 5, 6)),
    (lambda t: F.pad(t, (2, 1, 2, 3), mode="circular"), (2, 3, 5, 6)),
    (lambda t: F.pad(t, (-1, 2, 3, 0, 1, 1), value=2.5), (2, 3, 5, 6)),
    (lambda t: F.interpolate(t, scale_factor=2.3, mode="bilinear"), (2, 3, 9, 8)),
    (lambda t: F.interpolate(t, size=(5, 4), mode="bicubic", antialias=True), (2, 3, 13, 17)),
    (lambda t: F.interpolate(t, size=(21, 30), mode="bicubic", align_corners=True), (1, 2, 9, 8)),
    (lambda t: F.interpolate(t, size=7, mode="nearest"), (2, 3, 11)),
    (lambda t: F.interpolate(t, scale_factor=1.7, mode="trilinear"), (1, 2, 4, 5, 6)),
])
def test_images(f, shape):
    both(f, make(*shape))


def test_positions_out_of_bounds_are_raised():
    x, at = make(1, 1, 2, 2).to("cuda"), tapegrad.tensor([[[[0, 3], [5, 99]]]], device="cuda")
    with pytest.raises(IndexError, match="index 99"):
        F.max_unpool2d(x, at, 2).sum().item()


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_samples(mode, padding):
    grid = make(2, 9, 7, 2, seed=3) * 1.3
    both(lambda a, b: F.grid_sample(a, b, mode, padding, align_corners=False), make(2, 3, 6, 5), grid)


def half_attention(device, dtype, shape, options, interleaved=True, weight=None):
    """Attention of 16 bits and its gradients, heads beside columns as projections give them."""
    heads, shared, rows_, keys, width = shape
    def leaf(h, n, seed):
        x = make(2, n, h, width, seed=seed) if interleaved else make(2, h, n, width, seed=seed)
        return x.to(dtype).to(device).requires_grad_()
    leaves = [leaf(heads, rows_, 0), leaf(shared, keys, 1), leaf(shared, keys, 2)]
    args = [t.transpose(1, 2) if interleaved else t for t in leaves]
    options = {k: v.to(device) if isinstance(v, tapegrad.Tensor) else v for k, v in options.items()}
    tapegrad.manual_seed(11)  # dropout draws the same numbers everywhere
    y = F.scaled_dot_product_attention(*args, enable_gqa=heads != shared, **options)
    return [t.detach().cpu() for t in (y, *tapegrad.autograd.grad(y, leaves, tapegrad.cos(y.detach())))]


def check_half_attention(dtype, rtol, cudnn, *args):
    """With cuDNN allowed or not: what the CPU computes, and the same bits in every run."""
    backends = tapegrad.backends.cuda
    before = backends.cudnn_sdp_enabled()
    backends.enable_cudnn_sdp(cudnn)
    try:
        results = [half_attention(device, dtype, *args) for device in ("cpu", "cuda", "cuda")]
    finally:
        backends.enable_cudnn_sdp(before)
    for n, (host, device, again) in enumerate(zip(*results)):
        scale = host.abs().max().item() or 1.0
        assert_equal(device.double() / scale, host.double() / scale, f"result {n}", rtol)
        assert device.tolist() == again.tolist(), f"result {n} differs from run to run"


@pytest.mark.parametrize("cudnn", [True, False], ids=["cudnn", "ours"])
@pytest.mark.parametrize("dtype, rtol", [("bfloat16", 0.03), ("float16", 4e-3)])
@pytest.mark.parametrize("shape, options", [((4, 4, 33, 33, 64), {"is_causal": True}), ((4, 2, 20, 70, 24), {}), ((6, 1, 65, 9, 8), {"is_causal": True, "scale": 0.3}),
                                            ((2, 2, 1, 40, 128), {}), ((2, 2, 5, 1, 16), {}), ((2, 2, 9, 9, 12), {}), ((2, 1, 10, 12, 136), {"scale": 0.05})],
                         ids=lambda p: "-".join(map(str, p)) if isinstance(p, tuple) else None)
def test_attention_of_16_bits(shape, options, dtype, rtol, cudnn):
    for interleaved in (True, False):
        check_half_attention(getattr(tapegrad, dtype), rtol, cudnn, shape, options, interleaved)


def mask_of(kind, rows_, keys, dtype):
    if kind == "padding":  # the first keys of one sample, more than a tile of them, and all but the first of another
        place = tapegrad.arange(keys)
        return tapegrad.stack([place >= keys - 9, place < 1])[:, None, None]
    x = make(2, 4, rows_, keys, seed=5)
    if kind == "bool":
        x[:, :, 1] = -1  # a row that sees nothing
        return x > -0.2
    x[x < -0.8] = -float("inf")
    x[:, :2, 1] = -float("inf")
    x[:, 2:, 2] = tapegrad.finfo(dtype).min  # as good as hidden
    return x.to(dtype)


@pytest.mark.parametrize("cudnn", [True, False], ids=["cudnn", "ours"])
@pytest.mark.parametrize("dtype, rtol", [("bfloat16", 0.03), ("float16", 4e-3)])
@pytest.mark.parametrize("kind", ["padding", "bool", "float", "none"])
@pytest.mark.parametrize("shape, options", [((4, 4, 40, 200, 64), {}), ((4, 2, 21, 150, 24), {"scale": 0.3}), ((4, 1, 5, 17, 8), {}),
                                            ((4, 4, 40, 200, 64), {"dropout_p": 0.1}), ((4, 2, 21, 77, 24), {"dropout_p": 0.4})],
                         ids=lambda p: "-".join(map(str, p)) if isinstance(p, tuple) else None)
def test_masked_attention_of_16_bits(shape, options, kind, dtype, rtol, cudnn):
    dtype = getattr(tapegrad, dtype)
    mask = {"is_causal": True} if kind == "none" else {"attn_mask": mask_of(kind, shape[2], shape[3], dtype)}
    check_half_attention(dtype, rtol, cudnn, shape, {**options, **mask})


def test_attention_of_16_bits_in_a_graph():
    leaves = [make(2, 4, 33, 16, seed=i).to(tapegrad.bfloat16).to("cuda").requires_grad_() for i in range(3)]

    def step():
        y = F.scaled_dot_product_attention(*leaves, is_causal=True)
        return y.detach(), *tapegrad.autograd.grad(y, leaves, tapegrad.ones_like(y))

    graph = tapegrad.cuda.CUDAGraph()
    with tapegrad.cuda.graph(graph):  # without a step before it: plans are made while it is captured
        captured = step()
    with tapegrad.no_grad():
        leaves[0].mul_(2)
    graph.replay()
    for a, b in zip(captured, step()):
        assert a.tolist() == b.tolist()


def test_second_derivatives_of_attention_of_16_bits():
    results = []
    for device in ("cpu", "cuda"):
        leaves = [make(1, 2, 6, 8, seed=i).to(tapegrad.float16).to(device).requires_grad_() for i in range(3)]
        y = F.scaled_dot_product_attention(*leaves)
        first = tapegrad.autograd.grad(y.float().square().sum(), leaves, create_graph=True)
        results.append([t.cpu() for t in tapegrad.autograd.grad(sum(g.float().square().sum() for g in first), leaves)])
    for host, device in zip(*results):
        scale = host.abs().max().item()
        assert_equal(device.double() / scale, host.double() / scale, "second derivative", 2e-2)


@pytest.mark.parametrize("q, k, v, options", [
    ((2, 3, 70, 16), (2, 3, 70, 16), (2, 3, 70, 16), {"is_causal": True}),
    ((1, 4, 65, 20), (1, 2, 130, 20), (1, 2, 130, 70), {"enable_gqa": True}),
    ((1, 2, 3, 130), (1, 2, 5, 130), (1, 2, 5, 8), {}),
    ((2, 1, 130, 8), (2, 1, 40, 8), (2, 1, 40, 8), {"is_causal": True}),
])
def test_attention(q, k, v, options):
    def run(a, b, c, **more):
        tapegrad.manual_seed(11)
        return F.scaled_dot_product_attention(a, b, c, **options, **more)

    both(run, make(*q), make(*k, seed=1), make(*v, seed=2))
    both(lambda *x: run(*x, dropout_p=0.2), make(*q), make(*k, seed=1), make(*v, seed=2))


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_with_masks(kind):
    mask = tapegrad.rand(2, 1, 70, 1).expand(2, 3, 70, 66) * make(66, seed=4)
    mask = mask > -0.2 if kind == "bool" else mask * 5
    if kind == "bool":
        mask[0, :, 3] = False  # a row that sees nothing
    inputs = [make(2, 3, n, 12, seed=n) for n in (70, 66, 66)]
    both(lambda a, b, c: F.scaled_dot_product_attention(a, b, c, attn_mask=mask.to(a.device)), *inputs)


@pytest.mark.parametrize("kind, options", [
    ("LSTM", {"num_layers": 2, "bidirectional": True}), ("LSTM", {"proj_size": 5}), ("GRU", {"bidirectional": True, "num_layers": 2}),
    ("RNN", {"nonlinearity": "tanh", "bias": False}), ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
])
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers(kind, options, packed):
    tapegrad.manual_seed(3)
    layer = getattr(tapegrad.nn, kind)(9, 17, **options)
    names, parameters = zip(*[(n, p.detach()) for n, p in layer.named_parameters()])

    def run(x, *weights):
        if packed:
            x = tapegrad.nn.utils.rnn.pack_padded_sequence(x, [6, 4, 4, 1])
        out, state = tapegrad.func.functional_call(layer.to(weights[0].device), dict(zip(names, weights)), (x,))
        return [out.data if packed else out, state]

    both(run, make(6, 4, 9), *parameters)


def _network(kind, dtype, device, **options):
    tapegrad.manual_seed(3)
    return getattr(tapegrad.nn, kind)(9, 16, num_layers=2, bidirectional=True, **options).to(device, dtype)


@pytest.mark.parametrize("switches", [{"enabled": False}, {"enabled": True}, {"enabled": True, "benchmark": True},
                                      {"enabled": True, "benchmark": True, "deterministic": True}], ids=lambda switches: "-".join(switches))
@pytest.mark.parametrize("dtype, rtol", [("float32", 1e-4), ("float64", 1e-10), ("bfloat16", 0.05), ("float16", 6e-3)])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_agree_under_every_switch_of_cudnn(kind, dtype, rtol, switches):
    dtype = getattr(tapegrad, dtype)
    with tapegrad.backends.cudnn.flags(**switches):
        results = []
        for device in ("cpu", "cuda", "cuda"):
            layer = _network(kind, dtype, device)
            x = make(6, 8, 9).to(device, dtype).requires_grad_()
            y, state = layer(x)
            loss = (y * y).sum() + sum(s.sum() for s in tensors_of(state))
            grads = tapegrad.autograd.grad(loss, (x, *layer.parameters()))
            results.append([t.detach().cpu() for t in (y, *tensors_of(state), *grads)])
    assert_repeated(results, rtol, switches)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("options", [{}, {"bias": False}, {"proj_size": 5}, {"dropout": 0.5}], ids=str)
def test_cudnn_computes_recurrent_layers_where_it_is_there(dtype, options):
    layer = _network("LSTM", getattr(tapegrad, dtype), "cuda", **options)
    data = tapegrad.nn.utils.rnn.pack_padded_sequence(make(6, 4, 9).to("cuda", getattr(tapegrad, dtype)), [6, 4, 4, 1])
    by_cudnn = tapegrad.backends.cudnn.is_available() and not os.environ.get("TAPEGRAD_CUDA_SIMULATE")
    assert ("RnnNetwork" in layer(data)[0].data.grad_fn.name()) == by_cudnn
    with tapegrad.backends.cudnn.flags(enabled=False):
        assert "RnnNetwork" not in layer(data)[0].data.grad_fn.name()


def test_recurrent_layers_in_a_graph():
    layer, x = _network("GRU", tapegrad.float32, "cuda"), make(5, 3, 9).to("cuda")

    def step():
        y = layer(x)[0]
        return y, *tapegrad.autograd.grad((y * y).sum(), list(layer.parameters()))

    check_replay(step, x)


def test_gradients_of_recurrent_layers_for_several_seeds_at_once():
    layer, x = _network("LSTM", tapegrad.float64, "cuda"), make(5, 3, 9).to("cuda", tapegrad.float64).requires_grad_()
    y = layer(x)[0]
    seeds = make(2, *y.shape, seed=4).to("cuda", tapegrad.float64)
    leaves = (x, *layer.parameters())
    at_once = tapegrad.autograd.grad(y, leaves, seeds, is_grads_batched=True, retain_graph=True)
    for n, seed in enumerate(seeds):
        for a, b in zip(at_once, tapegrad.autograd.grad(y, leaves, seed, retain_graph=True)):
            assert_equal(a[n].cpu(), b.cpu(), "gradient", 1e-10)


def test_bags_targets_and_repeats():
    weight, index = make(9, 40), tapegrad.tensor([3, 8, 3, 0, 5, 5, 2, 7, 1])
    for mode in ("sum", "mean", "max"):
        both(lambda w: F.embedding_bag(index.to(w.device), w, tapegrad.tensor([0, 4, 4, 6], device=w.device), mode=mode, padding_idx=5), weight)
    both(lambda x: F.ctc_loss(x.log_softmax(-1), tapegrad.tensor([[1, 2, 2, 3], [4, 4, 1, 0]], device=x.device), (12, 9), (4, 3), reduction="none"),
         make(12, 2, 6))
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        F.embedding_bag(tapegrad.tensor([[1, 9]], device="cuda"), weight.to("cuda")).sum().item()
    repeats = tapegrad.tensor([3, 0, 300, 1])
    assert tapegrad.repeat_interleave(repeats.to("cuda")).tolist() == tapegrad.repeat_interleave(repeats).tolist()
    with pytest.raises(RuntimeError, match="must not be negative"):
        tapegrad.repeat_interleave(tapegrad.tensor([2, -1], device="cuda"))
    with pytest.raises(RuntimeError, match="output_size differs"):
        tapegrad.repeat_interleave(tapegrad.tensor([2, 1], device="cuda"), output_size=5).tolist()
    with pytest.raises(RuntimeError, match="more true elements"):
        tapegrad.zeros(4, device="cuda").masked_scatter(tapegrad.ones(4, dtype=tapegrad.bool, device="cuda"), make(3).to("cuda")).tolist()
    for make_indices in (tapegrad.tril_indices, tapegrad.triu_indices):
        for offset in (-40, -3, 0, 5, 70):
            assert make_indices(40, 61, offset, device="cuda").tolist() == make_indices(40, 61, offset).tolist()
