"""Boxes, regions, losses and blocks: against plain formulas written here, and on PyTorch's operators."""

import math

import numpy as np
import pytest
import tapegrad as tg
import vision_twin
from tapegrad.nn import functional as F
from tapegrad.vision import ops

torch = pytest.importorskip("torch")


def boxes(n, seed=0, size=20.0):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, size, (n, 2))
    return np.concatenate([corner, corner + rng.uniform(0.5, size / 2, (n, 2))], 1).astype(np.float32)


def iou(a, b):
    w, h = (max(0.0, min(a[k + 2], b[k + 2]) - max(a[k], b[k])) for k in (0, 1))
    area = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
    return w * h / (area[0] + area[1] - w * h)


def test_iou():
    a, b = boxes(7), boxes(5, 1)
    want = np.array([[iou(p, q) for q in b] for p in a])
    np.testing.assert_allclose(ops.box_iou(tg.tensor(a), tg.tensor(b)).numpy(), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ops.box_area(tg.tensor(a)).numpy(), (a[:, 2] - a[:, 0]) * (a[:, 3] - a[:, 1]), rtol=1e-6)
    whole = tg.tensor([[0, 0, 200, 200]], dtype=tg.uint8)
    assert ops.box_area(whole).item() == 40000  # beyond 8 bits


@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_nms(threshold):
    b = boxes(60)
    scores = np.random.default_rng(3).uniform(0, 1, 60).astype(np.float32)
    scores[10:20] = scores[5]  # ties keep their order
    left = list(np.argsort(-scores, kind="stable"))
    want = []
    while left:
        best = left.pop(0)
        want.append(best)
        left = [i for i in left if not iou(b[best], b[i]) > threshold]
    got = ops.nms(tg.tensor(b), tg.tensor(scores), threshold)
    assert got.dtype is tg.int64
    assert got.tolist() == want
    kinds = np.arange(60) % 3
    together = ops.batched_nms(tg.tensor(b), tg.tensor(scores), tg.tensor(kinds), threshold).tolist()
    apart = sum(([i for i in np.flatnonzero(kinds == k)[ops.nms(tg.tensor(b[kinds == k]), tg.tensor(scores[kinds == k]), threshold).numpy()]]
                 for k in range(3)), [])
    assert sorted(together) == sorted(apart)
    assert together == sorted(together, key=lambda i: (-scores[i], i))
    assert ops.batched_nms(tg.zeros(0, 4), tg.zeros(0), tg.zeros(0), 0.5).tolist() == []
    with pytest.raises(RuntimeError, match="4 columns"):
        ops.nms(tg.zeros(3, 5), tg.zeros(3), 0.5)
    with pytest.raises(RuntimeError, match="one element for each of the 3 boxes"):
        ops.nms(tg.zeros(3, 4), tg.zeros(2), 0.5)


def test_convert_clip_and_remove():
    b = tg.tensor([[1.0, 2.0, 5.0, 10.0]])
    assert ops.box_convert(b, "xyxy", "xywh").tolist() == [[1, 2, 4, 8]]
    assert ops.box_convert(b, "xyxy", "cxcywh").tolist() == [[3, 6, 4, 8]]
    for f in ("xywh", "cxcywh"):
        for g in ("xywh", "cxcywh", "xyxy"):
            assert tg.equal(ops.box_convert(ops.box_convert(b, "xyxy", f), f, g), ops.box_convert(b, "xyxy", g))
    with pytest.raises(ValueError, match="Unsupported Bounding Box"):
        ops.box_convert(b, "xyxy", "xyz")
    assert ops.clip_boxes_to_image(tg.tensor([[-1.0, 2.0, 50.0, 60.0]]), (30, 40)).tolist() == [[0, 2, 40, 30]]
    assert ops.remove_small_boxes(tg.tensor([[0.0, 0, 1, 5], [0, 0, 3, 3]]), 2).tolist() == [1]
    masks = tg.zeros(2, 5, 6)
    masks[0, 1:3, 2:5] = 1
    masks[1, 4, 0] = 1
    assert ops.masks_to_boxes(masks).tolist() == [[2, 1, 4, 2], [0, 4, 0, 4]]


def test_further_ious():
    a, b = boxes(6), boxes(6, 1)
    got = {name: getattr(ops, f"{name}_box_iou")(tg.tensor(a), tg.tensor(b)).numpy() for name in ("generalized", "distance", "complete")}
    losses = {name: getattr(ops, f"{name}_box_iou_loss")(tg.tensor(a), tg.tensor(b)).numpy() for name in got}
    for i, p in enumerate(a.astype(float)):
        for j, q in enumerate(b.astype(float)):
            low, high = np.minimum(p[:2], q[:2]), np.maximum(p[2:], q[2:])
            common = np.prod(np.clip(np.minimum(p[2:], q[2:]) - np.maximum(p[:2], q[:2]), 0, None))
            union = np.prod(p[2:] - p[:2]) + np.prod(q[2:] - q[:2]) - common
            hull = np.prod(high - low)
            assert got["generalized"][i, j] == pytest.approx(common / union - (hull - union) / hull, abs=1e-5)
            distance = common / union - np.sum(((p[:2] + p[2:]) / 2 - (q[:2] + q[2:]) / 2) ** 2) / np.sum((high - low) ** 2)
            assert got["distance"][i, j] == pytest.approx(distance, abs=1e-5)
            ratio = [math.atan((c[2] - c[0]) / (c[3] - c[1])) for c in (p, q)]
            v = 4 / math.pi**2 * (ratio[0] - ratio[1]) ** 2
            assert got["complete"][i, j] == pytest.approx(distance - v * v / (1 - common / union + v), abs=1e-4)
    for name in got:
        np.testing.assert_allclose(losses[name], 1 - np.diag(got[name]), atol=1e-5)
    with pytest.raises(ValueError, match="reduction"):
        ops.generalized_box_iou_loss(tg.tensor(a), tg.tensor(b), reduction="x")


def bilinear(picture, y, x):
    """Values (C) at a place, as regions of interest are sampled: clamped inside, 0 far outside."""
    h, w = picture.shape[1:]
    if y < -1 or y > h or x < -1 or x > w:
        return np.zeros(picture.shape[0])
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    i, j = min(int(y), max(h - 2, 0)), min(int(x), max(w - 2, 0))
    a, b = y - i, x - j
    i2, j2 = min(i + 1, h - 1), min(j + 1, w - 1)
    return ((1 - a) * (1 - b) * picture[:, i, j] + (1 - a) * b * picture[:, i, j2] + a * (1 - b) * picture[:, i2, j] + a * b * picture[:, i2, j2])


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("ratio", [2, -1])
def test_roi_align(aligned, ratio):
    rng = np.random.default_rng(0)
    maps = rng.standard_normal((2, 3, 9, 11))
    rois = np.array([[0, 1, 2, 9, 14], [1, 0, 0, 21, 17], [0, -8, -8, 60, 60], [1, 5, 5, 5.2, 5.1], [0, 3, 3, 12, 6]])
    scale, (ph, pw) = 0.5, (2, 3)
    got = ops.roi_align(tg.tensor(maps), tg.tensor(rois), (ph, pw), scale, ratio, aligned).numpy()
    for k, roi in enumerate(rois):
        x1, y1, x2, y2 = roi[1:] * scale - (0.5 if aligned else 0)
        w, h = x2 - x1, y2 - y1
        if not aligned:
            w, h = max(w, 1), max(h, 1)
        ny, nx = (ratio, ratio) if ratio > 0 else (max(1, math.ceil(h / ph)), max(1, math.ceil(w / pw)))
        for i in range(ph):
            for j in range(pw):
                values = [bilinear(maps[int(roi[0])], y1 + h / ph * (i + (a + 0.5) / ny), x1 + w / pw * (j + (b + 0.5) / nx))
                          for a in range(ny) for b in range(nx)]
                np.testing.assert_allclose(got[k, :, i, j], np.mean(values, 0), atol=1e-9)


def test_roi_gradients_and_forms():
    x = tg.randn(1, 2, 6, 6, dtype=tg.float64, requires_grad=True)
    rois = [tg.tensor([[0.5, 0.5, 4.0, 5.0], [1.0, 1.0, 3.0, 2.0]], dtype=tg.float64)]
    assert tg.autograd.gradcheck(lambda t: ops.roi_align(t, rois, 2, 1.0, 2), (x,))
    assert tg.equal(ops.RoIAlign(2, 1.0, 2)(x, rois), ops.roi_align(x, rois, (2, 2), 1.0, 2))
    assert ops.roi_align(x, tg.zeros(0, 5, dtype=tg.float64), 2).shape == (0, 2, 2, 2)
    with pytest.raises(IndexError, match="not below 1"):
        ops.roi_align(x, tg.tensor([[1.0, 0, 0, 1, 1]], dtype=tg.float64), 2)
    with pytest.raises(AssertionError):
        ops.roi_align(x, tg.zeros(3, 4), 2)
    pooled = ops.roi_pool(tg.arange(36.0).reshape(1, 1, 6, 6), tg.tensor([[0.0, 0, 0, 3, 3]]), 2)
    assert pooled.tolist() == [[[[7, 9], [19, 21]]]]
    assert tg.equal(ops.RoIPool(2, 1.0)(tg.arange(36.0).reshape(1, 1, 6, 6), [tg.tensor([[0.0, 0, 3, 3]])]), pooled)


def test_regions_of_a_pyramid():
    features = {"0": tg.rand(1, 4, 64, 64), "1": tg.rand(1, 4, 32, 32), "pool": tg.rand(1, 4, 3, 3)}
    rois = [tg.tensor([[0.0, 0.0, 50.0, 50.0], [0.0, 0.0, 250.0, 250.0]])]
    out = ops.MultiScaleRoIAlign(["0", "1"], 3, 2)(features, rois, [(256, 256)])
    scales = (0.25, 0.125)  # both boxes are small: the first map is for sides below 112, the second for the rest
    assert tg.equal(out[0], ops.roi_align(features["0"], [rois[0][:1]], 3, scales[0], 2)[0])
    assert tg.equal(out[1], ops.roi_align(features["1"], [rois[0][1:]], 3, scales[1], 2)[0])


def test_deformable_convolution():
    x, w, b = tg.randn(2, 4, 7, 8), tg.randn(6, 2, 3, 3), tg.randn(6)
    still = tg.zeros(2, 2 * 2 * 9, 4, 4)
    want = F.conv2d(x, w, b, stride=2, padding=1, groups=2)
    tg.testing.assert_close(ops.deform_conv2d(x, still, w, b, stride=2, padding=1), want, rtol=1e-4, atol=1e-4)
    moved = tg.zeros(2, 2 * 9, 7, 8)
    moved[:, 0::2], moved[:, 1::2] = 1, -1  # one row down, one column to the left
    shifted = F.pad(x, [1, 0, 0, 1])[:, :, 1:, :-1]
    got = ops.deform_conv2d(x, moved, w, padding=1)[:, :, 1:-2, 2:-1]
    tg.testing.assert_close(got, F.conv2d(shifted, w, padding=1, groups=2)[:, :, 1:-2, 2:-1], rtol=1e-4, atol=1e-4)
    half = ops.deform_conv2d(x, still, w, stride=2, padding=1, mask=tg.full((2, 2 * 9, 4, 4), 0.5))
    tg.testing.assert_close(half, F.conv2d(x, w, stride=2, padding=1, groups=2) / 2, rtol=1e-4, atol=1e-4)
    layer = ops.DeformConv2d(4, 6, 3, padding=1)
    assert layer(x, tg.zeros(2, 18, 7, 8)).shape == (2, 6, 7, 8)
    with pytest.raises(RuntimeError, match="offset tensor at dimension 1 is not valid"):
        layer(x, tg.zeros(2, 17, 7, 8))


def test_focal_loss():
    rng = np.random.default_rng(0)
    scores, targets = rng.standard_normal((4, 3)), rng.integers(0, 2, (4, 3)).astype(float)
    p = 1 / (1 + np.exp(-scores))
    pt, at = np.where(targets == 1, p, 1 - p), np.where(targets == 1, 0.3, 0.7)
    want = -at * (1 - pt) ** 1.5 * np.log(pt)
    got = ops.sigmoid_focal_loss(tg.tensor(scores), tg.tensor(targets), alpha=0.3, gamma=1.5)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-9)
    assert ops.sigmoid_focal_loss(tg.tensor(scores), tg.tensor(targets), 0.3, 1.5, "sum").item() == pytest.approx(want.sum())
    np.testing.assert_allclose(ops.sigmoid_focal_loss(tg.tensor(scores), tg.tensor(targets), -1, 0).numpy(), -np.log(pt), rtol=1e-9)
    with pytest.raises(ValueError, match="alpha"):
        ops.sigmoid_focal_loss(tg.tensor(scores), tg.tensor(targets), alpha=2)


def test_stochastic_depth_and_drop_block():
    tg.manual_seed(0)
    x = tg.ones(4000, 3, 2, 2)
    rows = ops.stochastic_depth(x, 0.25, "row").flatten(1)
    assert sorted(rows.unique().tolist()) == pytest.approx([0, 4 / 3])
    assert tg.equal(rows, rows[:, :1].expand_as(rows))
    assert abs((rows[:, 0] == 0).float().mean().item() - 0.25) < 0.03
    assert len(ops.stochastic_depth(x, 0.5, "batch").unique()) == 1
    assert ops.StochasticDepth(0.5, "row").eval()(x) is x
    with pytest.raises(ValueError, match="between 0 and 1"):
        ops.stochastic_depth(x, 1.5, "row")
    with pytest.raises(ValueError, match="'batch' or 'row'"):
        ops.stochastic_depth(x, 0.5, "column")
    dropped = ops.drop_block2d(tg.ones(50, 4, 16, 16), 0.2, 3)
    assert 0.1 < (dropped == 0).float().mean().item() < 0.3
    assert dropped.mean().item() == pytest.approx(1, abs=1e-3)


def test_blocks():
    block = ops.Conv2dNormActivation(3, 8, kernel_size=(3, 5), stride=2, dilation=(2, 1))
    assert block(tg.rand(1, 3, 10, 10)).shape == (1, 8, 5, 5)
    assert [type(m).__name__ for m in block] == ["Conv2d", "BatchNorm2d", "ReLU"]
    assert block[0].bias is None and ops.Conv2dNormActivation(3, 8, norm_layer=None)[0].bias is not None
    mlp = ops.MLP(4, [8, 2], dropout=0.1)
    assert [type(m).__name__ for m in mlp] == ["Linear", "ReLU", "Dropout", "Linear", "Dropout"]
    assert list(ops.SqueezeExcitation(8, 2).state_dict()) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert ops.Permute([0, 2, 1])(tg.rand(1, 2, 3)).shape == (1, 3, 2)
    frozen, norm = ops.FrozenBatchNorm2d(3), tg.nn.BatchNorm2d(3)
    norm(tg.randn(8, 3, 4, 4) * 3 + 1)
    frozen.load_state_dict(norm.state_dict())
    x = tg.rand(2, 3, 4, 4)
    tg.testing.assert_close(frozen(x), norm.eval()(x))
    assert not list(frozen.parameters()) and repr(frozen) == "FrozenBatchNorm2d(3, eps=1e-05)"


def test_feature_pyramid():
    tg.manual_seed(0)
    pyramid = ops.FeaturePyramidNetwork([3, 5], 4)
    fine, coarse = tg.rand(1, 3, 8, 8), tg.rand(1, 5, 4, 4)
    out = pyramid({"a": fine, "b": coarse})
    inner = [pyramid.inner_blocks[i][0](x) for i, x in enumerate((fine, coarse))]
    tg.testing.assert_close(out["b"], pyramid.layer_blocks[1][0](inner[1]))
    upwards = inner[1].repeat_interleave(2, 2).repeat_interleave(2, 3)
    tg.testing.assert_close(out["a"], pyramid.layer_blocks[0][0](inner[0] + upwards))
    from tapegrad.vision.ops.feature_pyramid_network import LastLevelMaxPool

    more = ops.FeaturePyramidNetwork([3, 5], 4, LastLevelMaxPool())({"a": fine, "b": coarse})
    assert list(more) == ["a", "b", "pool"] and tg.equal(more["pool"], more["b"][:, :, ::2, ::2])
    assert "inner_blocks.0.0.weight" in pyramid.state_dict() and pyramid.inner_blocks[0][0].bias.abs().max().item() == 0


def test_gradients_equal_pytorchs():
    """The sources on PyTorch's operators give the same values and gradients."""
    theirs = vision_twin.vision("ops")
    rng = np.random.default_rng(0)
    a, b = boxes(5), boxes(5, 1)
    rois = np.concatenate([np.array([[0], [1], [0], [1], [0]]), a], 1).astype(np.float32)
    maps, offset = rng.standard_normal((2, 3, 9, 9)).astype(np.float32), rng.standard_normal((2, 18, 9, 9)).astype(np.float32)
    weight = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    calls = [(lambda o, x, y: o.complete_box_iou_loss(x, y, "sum"), (a, b)), (lambda o, x, y: o.generalized_box_iou(x, y).sum(), (a, b)),
             (lambda o, x, y: o.roi_align(x, y, 3, 0.4, -1, True).square().sum(), (maps, rois)),
             (lambda o, x, y, z: o.deform_conv2d(x, y, z, padding=1).square().sum(), (maps, offset, weight)),
             (lambda o, x, y: o.roi_pool(x, y, 2, 0.4).square().sum(), (maps, rois))]
    for call, arrays in calls:
        results = []
        for library, o in ((tg, ops), (torch, theirs)):
            inputs = [library.from_numpy(v.copy()).requires_grad_(i != 1 or v.shape != rois.shape) for i, v in enumerate(arrays)]
            value = call(o, *inputs)
            value.backward()
            results.append([value.detach().numpy(), *(t.grad.numpy() for t in inputs if t.grad is not None)])
        assert len(results[0]) == len(results[1]) >= 2
        for got, want in zip(*results, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * abs(want).max())
