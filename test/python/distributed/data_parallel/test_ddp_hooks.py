"""Hooks of DistributedDataParallel of which PyTorch has none, or none with the same numbers: error feedback, PowerSGD, bytes."""

import pickle

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.data_parallel.ddp_scenarios import batch, fill, grads, half_used, library, mlp, state
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    default_hooks,
    powerSGD_hook,
    register_ddp_comm_hook,
)
from tapegrad.nn.parallel import DistributedDataParallel

LIB = library("tapegrad")


def network(**settings):
    model = mlp(LIB)
    fill(LIB, model)
    return DistributedDataParallel(model, **settings)


def gradients(ddp, rank, step):
    ddp.zero_grad()
    x, y = batch(LIB, step, rank)
    nn.functional.mse_loss(ddp(x), y).backward()
    return grads(ddp)


def feedback(rank, size, dtype):
    """Sums of 40 equal gradients: without a hook, rounded, and rounded with error feedback; buckets change in the midst."""
    dtype = getattr(tg, dtype)
    sums = []
    for make in (None, lambda: (None, default_hooks.bf16_compress_hook if dtype is tg.bfloat16 else default_hooks.fp16_compress_hook),
                 lambda: (default_hooks.ErrorFeedback(dtype=dtype), default_hooks.error_feedback_hook)):
        ddp = network(bucket_cap_mb=0.001)
        if make is not None:
            ddp.register_comm_hook(*make())
        total = [0.0] * 6
        for _ in range(40):
            total = [t + g.astype(np.float64) for t, g in zip(total, gradients(ddp, rank, 0), strict=True)]
        sums.append(total)
    return sums


@pytest.mark.long
def test_error_feedback_loses_nothing_in_the_long_run():
    for dtype, unit in (("bfloat16", 2.0**-8), ("float16", 2.0**-11)):
        for exact, rounded, fed_back in results(run_ranks(2, feedback, dtype)):
            off = [max(np.abs(a - b).max() for a, b in zip(exact, other, strict=True)) for other in (rounded, fed_back)]
            largest = max(np.abs(a).max() for a in exact)
            assert off[1] < 3 * unit * largest / 40  # what is kept back at the end: a rounding or two of one step
            assert off[0] > 4 * off[1], (dtype, off)


def test_error_feedback_wants_16_bits():
    import pytest

    with pytest.raises(ValueError, match="ErrorFeedback: dtype must be float16 or bfloat16: got tapegrad.float32"):
        default_hooks.ErrorFeedback(dtype=tg.float32)


def power(rank, size, batched, together):
    """A gradient of rank 1 is passed on exactly; of others the mean of what is sent converges to it with error feedback."""
    hook = powerSGD_hook.batched_powerSGD_hook if batched else powerSGD_hook.powerSGD_hook
    model = nn.Linear(30, 20, bias=False)
    ddp = DistributedDataParallel(model)
    powers = powerSGD_hook.PowerSGDState(None, 1, start_powerSGD_iter=2, batch_tensors_with_same_shape=together)
    ddp.register_comm_hook(powers, hook)
    x = tg.from_numpy(np.random.RandomState(4).standard_normal(30).astype(np.float32))
    exact = (x * 1.5).expand(20, 30).numpy()
    off = []
    for _ in range(5):
        ddp.zero_grad()
        ddp(x * (1 + rank)).sum().backward()
        off.append(float(np.abs(model.weight.grad.numpy() - exact).max()))
    return off, powers.compression_stats(), model.weight.grad.numpy()


def test_power_sgd_passes_a_matrix_of_rank_one_on_exactly():
    for together in (False, True):
        (off, counts, a), (_, _, b) = results(run_ranks(2, power, False, together))
        assert max(off) < 1e-5 and counts == (12.0, 1800, 150)
        np.testing.assert_array_equal(a, b)
    (off, counts, a), (_, _, b) = results(run_ranks(2, power, True, False))
    assert max(off[:2]) < 1e-5 and counts[0] > 10
    np.testing.assert_array_equal(a, b)


def power_training(rank, size, hook, warm):
    from tapegrad.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as module

    ddp = network(bucket_cap_mb=0.001)
    powers = module.PowerSGDState(None, 2, start_powerSGD_iter=3, min_compression_rate=1, warm_start=warm)
    ddp.register_comm_hook(powers, default_hooks.fp16_compress_wrapper(getattr(module, hook)) if hook.endswith("+") else getattr(module, hook))
    optimizer = tg.optim.SGD(ddp.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        x, y = batch(LIB, 0, rank)
        loss = nn.functional.mse_loss(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    again = pickle.loads(pickle.dumps(powers))
    assert again.iter == powers.iter and again.process_group is dist.group.WORLD
    return losses, state(ddp)


@pytest.mark.long
def test_power_sgd_trains():
    for hook, warm in (("powerSGD_hook", True), ("powerSGD_hook", False), ("batched_powerSGD_hook", True)):
        (losses, a), (_, b) = results(run_ranks(2, power_training, hook, warm))
        assert losses[-1] < 0.7 * losses[0], (hook, losses[::10])
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def in_bytes(rank, size, kind):
    plain = gradients(network(), rank, 0)
    ddp = network()
    register_ddp_comm_hook(DDPCommHookType[kind], ddp)
    return plain, gradients(ddp, rank, 0)


def test_gradients_as_bytes():
    for kind in ("QUANTIZE_PER_TENSOR", "QUANTIZE_PER_CHANNEL"):
        (plain, a), (_, b) = results(run_ranks(2, in_bytes, kind))
        flat = np.concatenate([g.ravel() for g in plain])
        off = max(np.abs(x - y).max() for x, y in zip(plain, a, strict=True))
        assert 0 < off < 4 * np.abs(flat).max() / 255
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def builtin(rank, size):
    from types import SimpleNamespace

    results = []
    for name in ("ALLREDUCE", "FP16_COMPRESS"):
        ddp = network()
        ddp._register_builtin_comm_hook(SimpleNamespace(name=name))
        results.append(gradients(ddp, rank, 0))
    ddp = network()
    register_ddp_comm_hook(DDPCommHookType.NOOP, ddp)
    return *results, gradients(ddp, rank, 0), gradients(network(), rank, 0)


def test_hooks_by_name():
    found = results(run_ranks(2, builtin))
    for whole, half, _, plain in found:
        for a, b, c in zip(whole, half, plain, strict=True):
            np.testing.assert_allclose(a, c, rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(b, c, rtol=1e-2, atol=1e-3)
    assert not np.allclose(found[0][2][0], found[1][2][0])  # NOOP leaves each rank its own


def with_unused(rank, size):
    model = half_used(LIB)
    fill(LIB, model)
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    ddp.register_comm_hook(None, default_hooks.allreduce_hook)
    found = []
    for step in range(3):
        ddp.zero_grad()
        ddp(batch(LIB, step, rank)[0], step == 1 and rank == 0).sum().backward()
        found.append(grads(model))
    return found


def test_unused_parameters_with_a_hook():
    a, b = results(run_ranks(2, with_unused))
    assert a[0][2] is None and b[0][2] is None and a[2][3] is None
    np.testing.assert_array_equal(a[1][2], b[1][2])
    assert np.abs(b[1][2]).max() > 0
