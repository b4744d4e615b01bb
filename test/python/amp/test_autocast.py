"""Autocast on the CPU: result dtypes of operators as PyTorch's, scopes, the cache of weights, training."""

import threading

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")

# Each takes the library and a maker of float tensors: f(shape), p(shape) positive, s(n) symmetric positive definite.
CALLS = {
    "mm": lambda t, f: t.mm(f(3, 4), f(4, 2)),
    "bmm": lambda t, f: t.bmm(f(2, 3, 4), f(2, 4, 2)),
    "matmul": lambda t, f: f(2, 3, 4) @ f(4),
    "mv": lambda t, f: t.mv(f(3, 4), f(4)),
    "addmm": lambda t, f: t.addmm(f(3, 2), f(3, 4), f(4, 2)),
    "baddbmm": lambda t, f: t.baddbmm(f(2, 3, 2), f(2, 3, 4), f(2, 4, 2)),
    "addbmm": lambda t, f: t.addbmm(f(3, 2), f(2, 3, 4), f(2, 4, 2)),
    "addmv": lambda t, f: t.addmv(f(3), f(3, 4), f(4)),
    "linear": lambda t, f: t.nn.functional.linear(f(3, 4), f(2, 4), f(2)),
    "conv1d": lambda t, f: t.nn.functional.conv1d(f(2, 3, 8), f(4, 3, 3)),
    "conv2d": lambda t, f: t.nn.functional.conv2d(f(2, 3, 8, 8), f(4, 3, 3, 3), f(4)),
    "conv3d": lambda t, f: t.nn.functional.conv3d(f(1, 2, 5, 5, 5), f(2, 2, 3, 3, 3)),
    "conv_transpose2d": lambda t, f: t.nn.functional.conv_transpose2d(f(2, 3, 5, 5), f(3, 4, 3, 3)),
    "sdpa": lambda t, f: t.nn.functional.scaled_dot_product_attention(f(2, 4, 8), f(2, 4, 8), f(2, 4, 8)),
    "prelu": lambda t, f: t.nn.functional.prelu(f(2, 3), f(1)),
    "vecdot": lambda t, f: t.linalg.vecdot(f(2, 3), f(2, 3)),
    "dot": lambda t, f: t.dot(f(3), f(3)),
    "relu": lambda t, f: t.relu(f(3)),
    "add": lambda t, f: f(3) + f(3),
    "mul": lambda t, f: f(3) * 2,
    "exp": lambda t, f: t.exp(f(3)),
    "softmax": lambda t, f: t.softmax(f(3, 4), -1),
    "log_softmax": lambda t, f: t.log_softmax(f(3, 4), -1),
    "layer_norm": lambda t, f: t.nn.functional.layer_norm(f(3, 4), (4,)),
    "group_norm": lambda t, f: t.nn.functional.group_norm(f(2, 4, 3), 2),
    "sum": lambda t, f: f(3, 4).sum(),
    "mean": lambda t, f: f(3, 4).mean(0),
    "norm": lambda t, f: f(3).norm(),
    "cumsum": lambda t, f: f(3).cumsum(0),
    "gelu": lambda t, f: t.nn.functional.gelu(f(3)),
    "embedding": lambda t, f: t.nn.functional.embedding(t.tensor([1, 0]), f(3, 4)),
    "max_pool2d": lambda t, f: t.nn.functional.max_pool2d(f(1, 2, 4, 4), 2),
    "avg_pool2d": lambda t, f: t.nn.functional.avg_pool2d(f(1, 2, 4, 4), 2),
    "avg_pool3d": lambda t, f: t.nn.functional.avg_pool3d(f(1, 2, 4, 4, 4), 2),
    "max_pool3d": lambda t, f: t.nn.functional.max_pool3d(f(1, 2, 4, 4, 4), 2),
    "adaptive_avg_pool3d": lambda t, f: t.nn.functional.adaptive_avg_pool3d(f(1, 2, 4, 4, 4), 2),
    "interpolate": lambda t, f: t.nn.functional.interpolate(f(1, 2, 4, 4), scale_factor=2, mode="bilinear"),
    "grid_sample": lambda t, f: t.nn.functional.grid_sample(f(1, 2, 4, 4), f(1, 3, 3, 2), align_corners=False),
    "reflect": lambda t, f: t.nn.functional.pad(f(1, 2, 4, 4), (1, 1, 1, 1), mode="reflect"),
    "replicate": lambda t, f: t.nn.functional.pad(f(1, 2, 4, 4), (1, 1, 1, 1), mode="replicate"),
    "pad": lambda t, f: t.nn.functional.pad(f(2, 2), (1, 1)),
    "cross_entropy": lambda t, f: t.nn.functional.cross_entropy(f(3, 4), t.tensor([0, 1, 2])),
    "nll_loss": lambda t, f: t.nn.functional.nll_loss(f(3, 4), t.tensor([0, 1, 2])),
    "mse_loss": lambda t, f: t.nn.functional.mse_loss(f(3), f(3)),
    "l1_loss": lambda t, f: t.nn.functional.l1_loss(f(3), f(3)),
    "smooth_l1_loss": lambda t, f: t.nn.functional.smooth_l1_loss(f(3), f(3)),
    "huber_loss": lambda t, f: t.nn.functional.huber_loss(f(3), f(3)),
    "kl_div": lambda t, f: t.nn.functional.kl_div(f(3, 4), f(3, 4).abs(), reduction="sum"),
    "bce_with_logits": lambda t, f: t.nn.functional.binary_cross_entropy_with_logits(f(3), f(3)),
    "bce": lambda t, f: t.nn.functional.binary_cross_entropy(f(3).abs() / 8, f(3).abs() / 8),
    "soft_margin_loss": lambda t, f: t.nn.functional.soft_margin_loss(f(3), f(3)),
    "margin_ranking_loss": lambda t, f: t.nn.functional.margin_ranking_loss(f(3), f(3), f(3)),
    "triplet_margin_loss": lambda t, f: t.nn.functional.triplet_margin_loss(f(2, 3), f(2, 3), f(2, 3)),
    "cosine_embedding_loss": lambda t, f: t.nn.functional.cosine_embedding_loss(f(2, 3), f(2, 3), t.ones(2)),
    "multi_margin_loss": lambda t, f: t.nn.functional.multi_margin_loss(f(2, 3), t.tensor([0, 1])),
    "hinge_embedding_loss": lambda t, f: t.nn.functional.hinge_embedding_loss(f(3), t.ones(3)),
    "poisson_nll_loss": lambda t, f: t.nn.functional.poisson_nll_loss(f(3), f(3).abs()),
    "ctc_loss": lambda t, f: t.nn.functional.ctc_loss(t.log_softmax(f(5, 2, 4), -1), t.tensor([[1, 2], [2, 3]]), t.tensor([5, 5]), t.tensor([2, 2])),
    "cdist": lambda t, f: t.cdist(f(3, 4), f(2, 4)),
    "prod": lambda t, f: f(3).prod(),
    "trace": lambda t, f: f(3, 3).trace(),
    "quantile": lambda t, f: t.quantile(f(5), 0.5),
    "fft": lambda t, f: t.fft.fft(f(8)),
    "rfft2": lambda t, f: t.fft.rfft2(f(4, 4)),
    "inverse": lambda t, f: t.inverse(f(3, 3) + 4 * t.eye(3)),
    "solve": lambda t, f: t.linalg.solve(f(3, 3) + 4 * t.eye(3), f(3, 2).float()),
    "svdvals": lambda t, f: t.linalg.svdvals(f(3, 3)),
    "qr": lambda t, f: t.linalg.qr(f(3, 3))[0],
    "cholesky": lambda t, f: t.linalg.cholesky(4 * t.eye(3) + 0 * f(3, 3)),
    "cat": lambda t, f: t.cat([f(2), f(3)]),
    "cat_mixed": lambda t, f: t.cat([f(2), t.ones(3), t.ones(1, dtype=t.bfloat16)]),
    "stack_mixed": lambda t, f: t.stack([f(2), t.ones(2)]),
    "index_copy": lambda t, f: t.index_copy(f(3, 2), 0, t.tensor([0]), t.ones(1, 2)),
    "einsum": lambda t, f: t.einsum("ij,jk->ik", f(2, 3), f(3, 4)),
    "tensordot": lambda t, f: t.tensordot(f(2, 3), f(3, 4), 1),
    "bilinear": lambda t, f: t.nn.functional.bilinear(f(2, 3), f(2, 4), f(5, 3, 4)),
    "doubles": lambda t, f: t.mm(f(2, 2).double(), f(2, 2).double()),
    "integers": lambda t, f: t.mm(t.ones(2, 2, dtype=t.int64), t.ones(2, 2, dtype=t.int64)),
    "method": lambda t, f: f(2, 2).matmul(f(2, 2)).add(f(2, 2)),
}


def _maker(lib, dtype, seed=0):
    random = np.random.default_rng(seed)
    return lambda *shape: lib.tensor(random.uniform(-1, 1, shape).astype(np.float32)).to(dtype)


def _outcome(lib, call, dtype, lower):
    with lib.autocast("cpu", getattr(lib, lower)):
        try:
            result = call(lib, _maker(lib, getattr(lib, dtype)))
        except RuntimeError:
            return "raises", None
    return str(result.dtype).rpartition(".")[2], result.detach().to(lib.float32 if not result.is_complex() else lib.complex64).numpy()


@pytest.mark.parametrize("lower", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CALLS)
def test_dtypes_and_values_equal_torch(name, lower):
    for dtype in ("float32", lower):
        theirs, their_values = _outcome(torch, CALLS[name], dtype, lower)
        mine, my_values = _outcome(tg, CALLS[name], dtype, lower)
        if theirs == "raises":
            continue  # a kernel that PyTorch does not have in the lower dtype
        assert mine == theirs, f"{name} of {dtype}: {mine}, PyTorch {theirs}"
        np.testing.assert_allclose(my_values, their_values, rtol=2e-2, atol=2e-2)


def test_scopes():
    assert not tg.is_autocast_enabled("cpu") and tg.get_autocast_dtype("cpu") is tg.bfloat16 and tg.get_autocast_gpu_dtype() is tg.float16
    a = tg.ones(2, 2)
    with tg.autocast("cpu", dtype=tg.float16):
        assert tg.is_autocast_enabled("cpu") and tg.is_autocast_cpu_enabled() and not tg.is_autocast_enabled()
        assert (a @ a).dtype is tg.float16
        with tg.autocast("cpu", enabled=False):
            assert (a @ a).dtype is tg.float32
            with tg.amp.autocast("cpu", dtype=tg.bfloat16):
                assert (a @ a).dtype is tg.bfloat16
        assert (a @ a).dtype is tg.float16
        seen = []
        thread = threading.Thread(target=lambda: seen.append(((a @ a).dtype, tg.is_autocast_enabled("cpu"))))
        thread.start()
        thread.join()
        assert seen == [(tg.float32, False)]  # the mode is a thread's own, as PyTorch's
    assert not tg.is_autocast_enabled("cpu") and (a @ a).dtype is tg.float32

    @tg.autocast("cpu")
    def product(x, y=1):
        """Doc."""
        return x @ x * y

    assert product(a, y=2).dtype is tg.bfloat16 and product.__name__ == "product" and product.__doc__ == "Doc."
    with pytest.raises(ZeroDivisionError), tg.autocast("cpu"):
        1 / 0  # noqa: B018
    assert not tg.is_autocast_enabled("cpu")


def test_settings():
    tg.set_autocast_enabled("cpu", True)
    tg.set_autocast_dtype("cpu", tg.float16)
    try:
        assert (tg.ones(2, 2) @ tg.ones(2, 2)).dtype is tg.float16
    finally:
        tg.set_autocast_enabled("cpu", False)
        tg.set_autocast_cpu_dtype(tg.bfloat16)
    assert tg.is_autocast_cache_enabled()
    tg.set_autocast_cache_enabled(False)
    assert not tg.is_autocast_cache_enabled()
    tg.set_autocast_cache_enabled(True)
    tg.set_autocast_enabled(True)  # old form: for 'cuda'
    assert tg.is_autocast_enabled()
    tg.set_autocast_enabled(False)


def test_what_is_refused_and_warned():
    with pytest.warns(UserWarning, match="CUDA is not available"):
        scope = tg.autocast("cuda")
    with scope:
        assert not tg.is_autocast_enabled("cuda") and (tg.ones(2, 2) @ tg.ones(2, 2)).dtype is tg.float32
    with pytest.warns(UserWarning, match="the target dtype is not supported"):
        tg.autocast("cpu", dtype=tg.float64)
    with pytest.raises(ValueError, match="device_type"):
        tg.autocast(3)
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'toaster'"):
        tg.autocast("toaster")
    with pytest.raises(TypeError, match="decorates a function"):
        tg.autocast("cpu")(3)
    with pytest.warns(FutureWarning, match="deprecated"), tg.cpu.amp.autocast():
        assert tg.is_autocast_cpu_enabled()
    with pytest.warns(FutureWarning), pytest.warns(UserWarning), tg.cuda.amp.autocast():
        assert not tg.is_autocast_enabled()
    assert tg.amp.is_autocast_available("cpu") and not tg.amp.is_autocast_available("toaster")


def test_a_weight_is_cast_once():
    def nodes(t):
        """The casts that lead to the leaf."""
        found, waiting = set(), [t.grad_fn]
        while waiting:
            node = waiting.pop()
            for following, _ in node.next_functions:
                if following is not None:
                    waiting.append(following)
                    if "Copy" in type(following).__name__:
                        found.add(following)
        return len(found)

    w = tg.ones(2, 2, requires_grad=True)
    x = tg.ones(2, 2, dtype=tg.bfloat16)
    with tg.autocast("cpu"):
        y = (x @ w) + (x @ w)
        with tg.autocast("cpu"):
            y = y + x @ w
        y = y + x @ w
    assert nodes(y) == 1
    y.sum().backward()
    assert w.grad.dtype is tg.float32 and w.grad.tolist() == [[8.0, 8.0], [8.0, 8.0]]
    with tg.autocast("cpu", cache_enabled=False):
        assert nodes((x @ w) + (x @ w)) == 2
    with tg.autocast("cpu"):
        first = x @ w
        tg.clear_autocast_cache()
        assert nodes(first + x @ w) == 2
    with tg.autocast("cpu"):
        (x @ w).sum().backward()
    with tg.autocast("cpu"), tg.no_grad():
        w.mul_(2)
        assert (x @ w)[0, 0].item() == 4.0  # nothing is left over from an earlier scope


def _train(lib, lower):
    lib.manual_seed(0)
    rng = np.random.default_rng(3)
    model = lib.nn.Sequential(lib.nn.Conv2d(1, 4, 3), lib.nn.ReLU(), lib.nn.Flatten(), lib.nn.Linear(144, 8), lib.nn.LayerNorm(8), lib.nn.GELU(),
                              lib.nn.Linear(8, 3))
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.tensor(rng.uniform(-0.3, 0.3, tuple(p.shape)).astype(np.float32)))
    optimizer = lib.optim.Adam(model.parameters(), lr=0.01)
    scaler = lib.amp.GradScaler("cpu", init_scale=64.0, enabled=lower == "float16")
    x = lib.tensor(rng.uniform(-1, 1, (8, 1, 8, 8)).astype(np.float32))
    y = lib.tensor(rng.integers(0, 3, 8))
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        with lib.autocast("cpu", getattr(lib, lower)):
            loss = lib.nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("lower", ["bfloat16", "float16"])
def test_training_equals_torch(lower):
    mine, theirs = _train(tg, lower), _train(torch, lower)
    assert mine[-1] < 0.8 * mine[0]
    np.testing.assert_allclose(mine, theirs, rtol=0.03 if lower == "bfloat16" else 0.01, atol=5e-3)


def test_custom_functions():
    class Square(tg.autograd.Function):
        @staticmethod
        @tg.amp.custom_fwd(device_type="cpu", cast_inputs=tg.float32)
        def forward(ctx, x, names):
            ctx.save_for_backward(x)
            Square.seen = (x.dtype, tg.is_autocast_enabled("cpu"), names[0].dtype)
            return x * x

        @staticmethod
        @tg.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            Square.back = tg.is_autocast_enabled("cpu")
            return 2 * ctx.saved_tensors[0] * grad, None

    x = tg.ones(2, dtype=tg.bfloat16, requires_grad=True)
    with tg.autocast("cpu"):
        Square.apply(x, [tg.ones(1, dtype=tg.float16)]).sum().backward()
    assert Square.seen == (tg.float32, False, tg.float32) and Square.back is False and x.grad.tolist() == [2.0, 2.0]
    Square.apply(x, [tg.ones(1, dtype=tg.float16)])
    assert Square.seen == (tg.bfloat16, False, tg.float16)

    class Product(tg.autograd.Function):
        @staticmethod
        @tg.amp.custom_fwd(device_type="cpu")
        def forward(ctx, x):
            Product.seen = tg.is_autocast_enabled("cpu")
            return x @ x

        @staticmethod
        @tg.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            Product.back = (grad.float() @ grad.float()).dtype
            return grad.float()

    x = tg.ones(2, 2, requires_grad=True)
    with tg.autocast("cpu"):
        y = Product.apply(x)
    y.sum().backward()
    assert Product.seen is True and Product.back is tg.bfloat16
    with pytest.raises(ValueError, match="device_type"):
        tg.amp.custom_fwd(device_type=3)


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
def test_recurrent_networks_are_lowered_with_their_weights(kind):
    """PyTorch lowers cuDNN's networks and oneDNN's layers; a second network takes what the first gives."""
    first, second = getattr(tg.nn, kind)(4, 6, bidirectional=True), getattr(tg.nn, kind)(12, 5)
    cell = getattr(tg.nn, kind + "Cell")(4, 6)
    x = tg.randn(3, 2, 4, requires_grad=True)
    with tg.autocast("cpu", dtype=tg.bfloat16):
        y, _ = first(x)
        z, state = second(y)
        packed, _ = first(tg.nn.utils.rnn.pack_padded_sequence(x, [3, 2]))
        step = cell(x[0])
    assert {y.dtype, z.dtype, (state[0] if kind == "LSTM" else state).dtype, packed.data.dtype, (step[0] if kind == "LSTM" else step).dtype} == {tg.bfloat16}
    z.float().sum().backward()
    assert x.grad.dtype == first.weight_ih_l0.grad.dtype == tg.float32 and x.grad.abs().max() > 0
    exact = second(first(x)[0])[0]
    assert (z.float() - exact).abs().max() < 0.05
    with pytest.raises(ValueError, match="does not match weight dtype"):
        first(x.bfloat16())
