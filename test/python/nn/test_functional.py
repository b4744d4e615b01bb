"""What nn.functional adds to the rows of the operator table, and arguments that rows' samples do not reach."""

import math

import numpy as np
import pytest
import tapegrad

torch = pytest.importorskip("torch")
F = tapegrad.nn.functional


def both(*shape):
    t = tapegrad.rand(*shape)
    return t, torch.from_numpy(t.numpy().copy())


@pytest.mark.parametrize("size", [(None, 2), (2, None), (None, None)])
def test_adaptive_pooling_takes_none_for_the_input_size(size):
    ours, theirs = both(1, 2, 4, 5)
    for name in ("adaptive_avg_pool2d", "adaptive_max_pool2d"):
        got, expected = getattr(F, name)(ours, size), getattr(torch.nn.functional, name)(theirs, size)
        assert torch.allclose(torch.from_numpy(got.numpy()), expected)


def test_attention_gives_zeros_where_a_row_sees_nothing():
    q, k, v = (tapegrad.rand(1, 1, 3, 4, requires_grad=True) for _ in range(3))
    mask = tapegrad.tensor([[True, True, True], [False, False, False], [True, False, True]])
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    assert (out[0, 0, 1] == 0).all() and not (out[0, 0, 0] == 0).any()
    out.sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))
    assert (q.grad[0, 0, 1] == 0).all()


def test_attention_with_dropout_keeps_the_expected_value():
    tapegrad.manual_seed(0)
    q, k, v = tapegrad.rand(1, 1, 64, 8), tapegrad.rand(1, 1, 128, 8), tapegrad.ones(1, 1, 128, 8)
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert abs(out.mean().item() - 1.0) < 0.1
    assert out.std().item() > 0.01


def dropped_attention(q, k, v, mask=None, p=0.3, **options):
    tapegrad.manual_seed(3)
    return F.scaled_dot_product_attention(q, k, v, mask, p, **options)


@pytest.mark.parametrize("rows, keys, options", [(5, 7, {}), (4, 4, {"is_causal": True}), (3, 6, {"enable_gqa": True, "scale": 0.4})], ids=str)
@pytest.mark.parametrize("masked", [False, True])
def test_attention_with_dropout_is_that_of_dropped_weights(rows, keys, options, masked):
    """Weights after the softmax are zero, or larger; gradients of both orders; a mask with a gradient drops the same."""
    tapegrad.manual_seed(7)
    heads = 4 if "enable_gqa" in options else 2
    q, k, v = (tapegrad.randn(2, h, n, 3, dtype=tapegrad.float64, requires_grad=True) for h, n in ((heads, rows), (2, keys), (2, keys)))
    mask = None
    if masked and "is_causal" not in options:
        mask = tapegrad.rand(rows, keys) > 0.3
        mask[1] = False
    eye = tapegrad.eye(keys, dtype=tapegrad.float64).expand(2, 2, keys, keys)
    weights = F.scaled_dot_product_attention(q, k, eye, mask, **options)
    dropped = dropped_attention(q, k, eye, mask, **options)
    zero = dropped == 0
    tapegrad.testing.assert_close(dropped[~zero], weights[~zero] / 0.7)
    assert 0 < ((weights > 0) & zero).sum() < weights.numel() / 2
    expected = dropped @ (v if heads == 2 else v.repeat_interleave(2, 1))
    tapegrad.testing.assert_close(dropped_attention(q, k, v, mask, **options), expected)
    assert tapegrad.autograd.gradcheck(lambda *x: dropped_attention(*x, mask, **options), (q, k, v))
    assert tapegrad.autograd.gradgradcheck(lambda *x: dropped_attention(*x, mask, **options), (q, k, v))
    if "is_causal" not in options:
        learned = tapegrad.zeros(rows, keys, dtype=tapegrad.float64) if mask is None else tapegrad.where(mask, 0.0, -float("inf")).double()
        tapegrad.testing.assert_close(dropped_attention(q, k, v, learned.requires_grad_(), **options), expected)


def test_attention_with_everything_dropped():
    q = tapegrad.rand(1, 2, 3, 4, requires_grad=True)
    out = dropped_attention(q, q, q, p=1.0)
    assert (out == 0).all()
    assert (tapegrad.autograd.grad(out.sum(), q)[0] == 0).all()


@pytest.mark.parametrize("randomness", ["different", "same"])
def test_attention_with_dropout_of_many_samples(randomness):
    q, k = tapegrad.randn(3, 1, 2, 5, 4)[:1].expand(3, 1, 2, 5, 4), tapegrad.randn(1, 2, 30, 4)
    out = tapegrad.vmap(lambda x: dropped_attention(x, k, k), randomness=randomness)(q)
    assert tapegrad.equal(out[0], out[1]) == (randomness == "same")
    with pytest.raises(RuntimeError, match="randomness"):
        tapegrad.vmap(lambda x: dropped_attention(x, k, k))(q)


def test_attention_memory_is_linear_in_the_sequence_length():
    n = 4096
    q = tapegrad.rand(1, 1, n, 16)
    tapegrad.cpu.reset_peak_memory_stats()
    before = tapegrad.cpu.memory_allocated()
    F.scaled_dot_product_attention(q, q, q)
    assert tapegrad.cpu.max_memory_allocated() - before < n * n  # a quarter of the bytes of all scores


@pytest.mark.parametrize("call, error", [
    (lambda x: F.interpolate(x), ValueError),
    (lambda x: F.interpolate(x, size=4, scale_factor=2), ValueError),
    (lambda x: F.interpolate(x, size=4, mode="nearest", align_corners=True), ValueError),
    (lambda x: F.interpolate(x, size=4, mode="trilinear"), NotImplementedError),
    (lambda x: F.interpolate(x, size=4, mode="nearest", antialias=True), ValueError),
    (lambda x: F.interpolate(x[0], size=4, mode="linear", antialias=True), ValueError),
    (lambda x: F.interpolate(x, size=4, mode="lanczos"), ValueError),
    (lambda x: F.pixel_shuffle(x, 2), RuntimeError),
    (lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=x, is_causal=True), RuntimeError),
])
def test_wrong_arguments(call, error):
    with pytest.raises(error):
        call(tapegrad.rand(1, 3, 4, 4))


def test_bytes_are_interpolated_with_rounding():
    x = tapegrad.tensor([[[[0, 255], [10, 20]]]], dtype=tapegrad.uint8)
    assert F.interpolate(x, scale_factor=2).dtype == tapegrad.uint8
    got = F.interpolate(x, size=(2, 3), mode="bilinear", align_corners=True)
    assert got.tolist() == [[[[0, math.floor(127.5 + 0.5), 255], [10, 15, 20]]]]


def test_antialias_keeps_infinities_in_their_place():
    x = tapegrad.zeros(1, 1, 1, 12)
    x[..., 11] = math.inf
    assert F.interpolate(x, size=(1, 4), mode="bilinear", antialias=True).tolist() == [[[[0, 0, 0, math.inf]]]]


def test_batch_norm_in_evaluation_takes_a_transposed_gradient():
    """Of one picture whose gradient comes with the channels last: it is an affine map of each channel."""
    x, weights = tapegrad.randn(1, 8, 4, 4, dtype=tapegrad.float64, requires_grad=True), tapegrad.randn(1, 16, 8, dtype=tapegrad.float64)
    norm = tapegrad.nn.BatchNorm2d(8, dtype=tapegrad.float64).eval()
    with tapegrad.no_grad():
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    (norm(x).flatten(2).transpose(1, 2) * weights).sum().backward()
    scale = (norm.running_var + norm.eps).rsqrt()[None, :, None, None]
    assert tapegrad.allclose(norm.bias.grad, weights.sum((0, 1)))
    assert tapegrad.allclose(x.grad, weights.transpose(1, 2).reshape(1, 8, 4, 4) * scale)


@pytest.mark.parametrize("call, message", [
    (lambda x: F.softmax(x), "softmax: the implicit choice of dim is old: give dim"),
    (lambda x: F.softmin(x, _stacklevel=5), "softmin: the implicit choice of dim is old: give dim"),
    (lambda x: F.mse_loss(x, x * 2, size_average=False), "mse_loss: size_average and reduce are old: use reduction='sum'"),
    (lambda x: F.mse_loss(x, x * 2, None, False), "mse_loss: size_average and reduce are old: use reduction='none'")])
def test_arguments_of_old_programs_work_with_a_warning(call, message):
    expected = {"softmax": F.softmax, "softmin": F.softmin}
    x = tapegrad.randn(2, 3)
    name, reduction = message.partition(":")[0], message.partition("'")[2].rstrip("'")
    with pytest.warns(UserWarning) as noted:
        got = call(x)
    assert [str(w.message) for w in noted] == [message] and noted[0].filename == __file__
    assert tapegrad.equal(got, expected[name](x, 1) if name in expected else F.mse_loss(x, x * 2, reduction=reduction))


def test_flags_and_missing_arguments_choose_another_row():
    x = tapegrad.randn(1, 2, 6, 6)
    for name, size in (("max_pool2d", (2, 2, 0, 1, False)), ("adaptive_max_pool2d", (3,))):
        named = getattr(F, name)(x, *size, return_indices=True)
        for got, expected in zip(getattr(F, name)(x, *size, True), named):
            assert tapegrad.equal(got, expected)
        assert tapegrad.equal(getattr(F, name)(x, *size), named[0])
    assert [t.tolist() for t in tapegrad.where(x > 0)] == [t.tolist() for t in tapegrad.where(condition=x > 0)] \
        == [t.tolist() for t in (x > 0).nonzero(as_tuple=True)] == (x > 0).nonzero().T.tolist()
    with pytest.raises(RuntimeError, match="nonzero: out does not go with as_tuple"):
        tapegrad.nonzero(x, out=tapegrad.empty(0, 4, dtype=tapegrad.int64), as_tuple=True)


def test_cross_entropy_of_a_target_that_has_nearly_all():
    """Losses and gradients far below 1 are not rounded to those of the sum over all classes."""
    for ahead in (5.0, 10.0, 16.0, 30.0, 60.0):
        for classes in (2, 700):
            logits = np.zeros((3, classes), np.float32)
            logits[:, 1] = ahead
            x = tapegrad.tensor(logits, requires_grad=True)
            losses = tapegrad.nn.functional.cross_entropy(x, tapegrad.tensor([1, 1, 0]), reduction="none")
            losses.sum().backward()
            others = (classes - 1) * np.exp(-ahead)
            share = others / (1 + others)
            assert losses[0].item() == pytest.approx(np.log1p(others), rel=1e-3, abs=1.2e-7), (ahead, classes)
            assert x.grad[0, 1].item() == pytest.approx(-share, rel=1e-5) and x.grad[0].sum().item() == pytest.approx(0, abs=1e-6 * share)
            assert x.grad[2, 0].item() == pytest.approx(np.exp(-ahead) / (1 + others) - 1, rel=1e-6)
    x = tapegrad.tensor([[0.0, -np.inf], [np.inf, 0.0]], requires_grad=True)
    tapegrad.nn.functional.cross_entropy(x, tapegrad.tensor([0, 1]), reduction="sum").backward()
    assert x.grad[0].tolist() == [0, 0] and x.grad[1].isnan().any()


@pytest.mark.parametrize("offset", [0.0, 25.0, -3000.0])
def test_the_gradient_of_cross_entropy_keeps_its_digits_for_large_logits(offset):
    x = tapegrad.randn(64, 10) * 4 + offset
    target = tapegrad.arange(64) % 10
    gradients = []
    for t in (x.clone(), x.double()):
        F.cross_entropy(t.requires_grad_(), target, reduction="sum").backward()
        gradients.append(t.grad.double())
    assert ((gradients[0] - gradients[1]).abs() / gradients[1].abs()).max() < 3e-6


def test_gradients_of_cross_entropy_in_rows_of_extremes():
    inf = math.inf
    rows = [[-inf, 0.0, 1.0], [0.0, -inf, -inf], [math.nan, 0.0, 1.0], [1e38, -1e38, 3e38]]
    for target in range(3):
        ours, theirs = tapegrad.tensor(rows, requires_grad=True), torch.tensor(rows, requires_grad=True)
        F.cross_entropy(ours, tapegrad.full((4,), target), reduction="sum").backward()
        torch.nn.functional.cross_entropy(theirs, torch.full((4,), target), reduction="sum").backward()
        np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_resampling_keeps_channels_last_as_torch_does(mode, dtype):
    if mode == "area" and dtype == "uint8":
        pytest.skip("PyTorch has no averages of bytes")
    numbers = np.random.default_rng(0).integers(0, 255, (2, 3, 8, 6)).astype(dtype)

    def views(lib):
        x = lib.tensor(numbers).contiguous(memory_format=lib.channels_last)
        return [x, x[:, :, 1:, ::2], x[:1], x[:1][0][None], x[:, :1], x.contiguous(), x.transpose(2, 3), x[:, :, :1, :1]]

    for mine, theirs in zip(views(tapegrad), views(torch), strict=True):
        a, b = (lib.nn.functional.interpolate(x, size=(5, 7), mode=mode) for lib, x in ((tapegrad, mine), (torch, theirs)))
        steps = [[step for step, size in zip(t.stride(), t.shape, strict=True) if size > 1] for t in (a, b)]
        assert steps[0] == steps[1], mine.stride()
        if dtype == "uint8":
            assert (a.short() - tapegrad.from_numpy(b.numpy()).short()).abs().max() <= 1
        else:
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-4)


def test_resampling_keeps_channels_last_in_three_dimensions():
    x = tapegrad.rand(2, 3, 4, 5, 6, requires_grad=True)
    y = tapegrad.nn.functional.interpolate(x.contiguous(memory_format=tapegrad.channels_last_3d), size=(3, 3, 3), mode="trilinear")
    assert y.is_contiguous(memory_format=tapegrad.channels_last_3d)
    y.sum().backward()
    assert x.grad.sum().item() == pytest.approx(2 * 3 * 27)


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_linear_with_a_sparse_weight_takes_inputs_of_any_shape(layout):
    dense, bias = tapegrad.rand(5, 4, dtype=tapegrad.float64), tapegrad.rand(5, dtype=tapegrad.float64)
    weight = getattr(dense, layout)()
    for shape in ((4,), (3, 4), (2, 3, 4), (0, 4), (2, 0, 4)):
        x = tapegrad.rand(shape, dtype=tapegrad.float64, requires_grad=True)
        y, expected = tapegrad.nn.functional.linear(x, weight, bias), tapegrad.nn.functional.linear(x, dense, bias)
        assert y.shape == expected.shape and y.allclose(expected)
        assert tapegrad.autograd.grad(y.sum(), x)[0].allclose(tapegrad.autograd.grad(expected.sum(), x)[0])
    with pytest.raises(RuntimeError, match="a sparse operand needs matrices"):
        tapegrad.nn.functional.linear(tapegrad.rand(2, 2, 4).to_sparse(), dense.float())


def test_names_of_torch_for_gradients_and_dimensions():
    x = tapegrad.ones(2, requires_grad=True)
    x._grad = tapegrad.full((2,), 3.0)
    assert x.grad.tolist() == [3, 3] and x._grad is x.grad
    del x._grad
    assert x.grad is None
    assert [getattr(tapegrad.nn, f"InstanceNorm{d}d")(2)._get_no_batch_dim() for d in (1, 2, 3)] == [2, 3, 4]


def test_the_weighted_mean_of_huber_loss_divides_by_the_number():
    for weight in ([1.0, 2, 3, 4], [0.0, 0, 0, 0]):
        ours, theirs = (lib.nn.functional.huber_loss(lib.arange(4.0), lib.zeros(4), weight=lib.tensor(weight)) for lib in (tapegrad, torch))
        assert float(ours) == float(theirs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("beta", [1e-30, 1e-40, 1e-45, 5e-324])
def test_smooth_l1_loss_of_a_beta_whose_reciprocal_overflows(beta, dtype):
    found = []
    for lib in (tapegrad, torch):
        x = lib.tensor([0.0, 1, -2, math.inf, 1e-3], dtype=getattr(lib, dtype), requires_grad=True)
        loss = lib.nn.functional.smooth_l1_loss(x, lib.zeros(5, dtype=x.dtype), reduction="none", beta=beta)
        loss.backward(lib.ones_like(loss))
        found.append((loss.tolist(), x.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_gradient_of_softmax_over_long_columns(name):
    """Few columns, of which as many rows as fit lie in one vector; not full at the end."""
    for shape in ((1000, 8), (37, 2), (3, 101, 16), (33, 4), (32, 16)):
        for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-13), ("bfloat16", 1e-2)):
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
            g = torch.cos(torch.arange(x.numel()).double()).reshape(shape)
            found = []
            for t in (tapegrad, torch):
                v = t.tensor(x.tolist(), dtype=getattr(t, dtype), requires_grad=True)
                y = getattr(t.nn.functional, name)(v, -2)
                y.backward(t.tensor(g.tolist(), dtype=getattr(t, dtype)))
                found.append(v.grad.double().numpy())
            np.testing.assert_allclose(*found, rtol=tolerance, atol=tolerance)
