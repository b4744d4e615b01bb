"""SyncBatchNorm: values, gradients and running statistics of the joined batch, whatever each rank's part of it."""

import numpy as np
import pytest
import tapegrad as tg
from distributed.ranks import results, run_ranks
from tapegrad import nn


def layer(kind, channels, **settings):
    made = kind(channels, **settings)
    if made.affine:
        with tg.no_grad():
            made.weight.copy_(tg.linspace(0.5, 2, channels))
            if made.bias is not None:
                made.bias.copy_(tg.linspace(-1, 1, channels))
    return made


def whole(shape):
    return tg.from_numpy(np.random.RandomState(1).standard_normal(shape).astype(np.float32) * 3 + 1)


def share(rank, size, shape, cuts, settings):
    x = whole(shape)[cuts[rank]:cuts[rank + 1]].requires_grad_()
    weights = whole(shape).flip(0)[cuts[rank]:cuts[rank + 1]]
    made = layer(nn.SyncBatchNorm if size else {2: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)], shape[1], **settings)
    for _ in range(2):
        out = made(x)
    (out * weights).sum().backward()
    found = [out, x.grad, *(p.grad for p in made.parameters()), *(b for b in made.buffers() if b is not None and b.dim())]
    return [t.detach().numpy() for t in found]


@pytest.mark.parametrize(("shape", "cuts", "settings"), [
    ((12, 5), [0, 6, 12], {}), ((7, 3, 4, 5), [0, 2, 5, 7], {}), ((5, 3, 2, 2, 3), [0, 4, 5], {"affine": False}),
    ((9, 4), [0, 0, 3, 9], {"momentum": None}), ((8, 4), [0, 1, 8], {"track_running_stats": False, "bias": False})])
def test_equals_batch_norm_of_the_joined_batch(shape, cuts, settings):
    expected = share(0, 0, shape, [0, shape[0]], settings)
    found = results(run_ranks(len(cuts) - 1, share, shape, cuts, settings))
    parameters = (2 if settings.get("bias", True) else 1) if settings.get("affine", True) else 0
    for i, want in enumerate(expected):
        if i < 2:
            got = np.concatenate([f[i] for f in found])
        elif i < 2 + parameters:
            got = sum(f[i] for f in found)
        else:
            got = found[0][i]
            assert all(f[i].tobytes() == got.tobytes() for f in found)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"result {i}")


def types(rank, size, dtype):
    made = layer(nn.SyncBatchNorm, 3)
    if dtype == "float64":
        made.double()
    x = whole((6, 3))[3 * rank:3 * rank + 3].to(getattr(tg, dtype)).requires_grad_()
    out = made(x)
    out.sum().backward()
    made.eval()
    return str(out.dtype), str(x.grad.dtype), made(x).shape


@pytest.mark.long
def test_types():
    for dtype in ("float16", "bfloat16", "float64"):
        for out, grad, shape in results(run_ranks(2, types, dtype)):
            assert out == grad == f"tapegrad.{dtype}" and shape == (3, 3)


def one_value(rank, size):
    nn.SyncBatchNorm(3)(tg.ones(1 - rank, 3))


def test_one_value_per_channel_is_refused_on_all_ranks():
    for outcome in run_ranks(2, one_value):
        assert outcome.error.startswith("ValueError: Expected more than 1 value per channel when training"), outcome


def in_parallel(rank, size):
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 16, 2))
    with tg.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(tg.from_numpy(np.random.RandomState(i).standard_normal(tuple(p.shape)).astype(np.float32)) * 0.3)
    x = whole((6, 1, 6, 6))
    if size:
        net = nn.parallel.DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(net), bucket_cap_mb=0.0001)
        x = x.chunk(size)[rank]
    optimizer = tg.optim.SGD(net.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return [t.detach().float().numpy() for t in net.state_dict().values()]


def test_data_parallel_with_it_equals_one_process():
    expected = in_parallel(0, 0)
    for found in results(run_ranks(3, in_parallel)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
