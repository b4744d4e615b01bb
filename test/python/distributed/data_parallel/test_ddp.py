"""DistributedDataParallel: N processes train what one trains, and what PyTorch's does not do: see test_ddp_peer.py for the rest."""

import copy
import logging
import pickle
import time
import warnings

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.data_parallel.ddp_scenarios import batch, fill, grads, half_used, library, mlp, state, train
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.nn.parallel import DistributedDataParallel

LIB = library("tapegrad")


def close(a, b, tolerance=1e-6):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def same_bits(a, b):
    assert [x.tobytes() for x in a] == [y.tobytes() for y in b]


# --- N processes equal one ---

def network(seed=3):
    model = mlp(LIB)
    fill(LIB, model, seed)
    return model


def whole_batch(step):
    parts = [batch(LIB, step, r) for r in range(3)]
    return tg.cat([x for x, _ in parts]), tg.cat([y for _, y in parts])


def train_share(rank, size, cuts, average, micro):
    """Steps on rows cuts[rank] to cuts[rank + 1] of each batch, in `micro` passes of which the last one is reduced."""
    ddp = DistributedDataParallel(network(), bucket_cap_mb=0.001, average=average) if size else network()
    optimizer = tg.optim.Adam(ddp.parameters(), lr=0.01)
    losses = []
    for step in range(4):
        x, y = (t[cuts[rank]:cuts[rank + 1]] for t in whole_batch(step))
        optimizer.zero_grad()
        for i, (a, b) in enumerate(zip(x.chunk(micro), y.chunk(micro), strict=True)):
            if size and i + 1 < micro:
                with ddp.no_sync():
                    nn.functional.mse_loss(ddp(a), b).backward()
            else:
                loss = nn.functional.mse_loss(ddp(a), b)
                loss.backward()
        optimizer.step()
        losses.append(np.float32(loss.item()))
    return losses, state(ddp)


@pytest.mark.parametrize(("cuts", "average", "micro"), [
    ([0, 12], "ranks", 1), ([0, 6, 12], "ranks", 1), ([0, 4, 8, 12], "ranks", 1), ([0, 6, 12], "ranks", 2),
    ([0, 5, 12], "samples", 1), ([0, 2, 3, 12], "samples", 1)])
def test_processes_equal_one(cuts, average, micro):
    size = len(cuts) - 1
    alone, expected = train_share(0, 0, [0, 12], "ranks", micro)
    found = results(run_ranks(size, train_share, cuts, average, micro))
    for _, weights in found:
        same_bits(weights, found[0][1])
        close(weights, expected, 3e-6)
    if size == 1:
        same_bits([*found[0][0], *found[0][1]], [*alone, *expected])
    if micro == 1:  # the losses are means of parts
        parts = np.diff(cuts) / 12
        close([sum(p * losses[i] for p, (losses, _) in zip(parts, found, strict=True)) for i in range(4)], alone, 1e-5)


def exact_steps(rank, size):
    """Small whole numbers: every sum is exact, so its order does not matter."""
    model = nn.Linear(4, 2)
    with tg.no_grad():
        model.weight.copy_(tg.arange(8.0).view(2, 4) - 3)
        model.bias.zero_()
    ddp = DistributedDataParallel(model) if size else model
    optimizer = tg.optim.SGD(ddp.parameters(), lr=0.5)
    x = tg.tensor([[1.0, 2, 0, 1], [0, 1, 3, 1], [2, 2, 1, 0], [1, 0, 1, 1]])
    for _ in range(2):
        optimizer.zero_grad()
        (ddp(x.chunk(max(1, size))[rank]).sum(1).square().mean() / 4).backward()
        optimizer.step()
    return state(ddp)


@pytest.mark.long
def test_exact_sums_give_the_same_bits():
    expected = exact_steps(0, 0)
    for size in (2, 4):
        for found in results(run_ranks(size, exact_steps)):
            same_bits(found, expected)


def counted(rank, size):
    ddp = DistributedDataParallel(nn.Linear(1, 1, bias=False), average=lambda x: int(x.sum()))
    ddp(tg.full((1, 1), float(1 + 2 * rank))).sum().backward()
    return ddp.module.weight.grad.item()


def test_samples_may_be_counted_by_a_function():
    assert results(run_ranks(2, counted)) == [pytest.approx((1 * 1 + 3 * 3) / 4)] * 2


# --- backward passes ---

def twice(rank, size):
    ddp = DistributedDataParallel(network())
    x, y = batch(LIB, 0, rank)
    loss = nn.functional.mse_loss(ddp(x), y)
    loss.backward(retain_graph=True)
    once = grads(ddp)
    loss.backward()  # adds the mean again
    both = grads(ddp)
    outside = tg.autograd.grad(ddp(x).sum(), list(ddp.parameters()))  # of this rank alone
    return once, both, [g.numpy() for g in outside], grads(ddp)


def test_a_second_backward_is_reduced_and_autograd_grad_is_not():
    a, b = results(run_ranks(2, twice))
    close(a[0], b[0], 0)
    close(a[1], [2 * g for g in a[0]])
    close(a[1], b[1], 0)
    assert not np.allclose(a[2][0], b[2][0])
    close(a[3], a[1], 0)


def views(rank, size):
    ddp = DistributedDataParallel(network())
    found = []
    for step in range(12):
        ddp.zero_grad()
        x, y = batch(LIB, step, rank)
        nn.functional.mse_loss(ddp(x), y).backward()
        found.append([p.grad.untyped_storage().data_ptr() for p in ddp.parameters()])
    kept = ddp.module[0].weight.grad
    before = kept.clone()
    ddp.zero_grad()
    x, y = batch(LIB, 9, rank)
    nn.functional.mse_loss(ddp(x), y).backward()
    # Memory that the other rank still reads is not used again at once.
    reused = len(set(map(tuple, found[2:]))) < 10
    return [len(set(f)) for f in found], reused, kept.equal(before), ddp.module[0].weight.grad.equal(before)


def test_gradients_are_views_of_buckets_and_kept_ones_stay():
    for counts, reused, kept, changed in results(run_ranks(2, views)):
        assert counts == [1] * 12 and reused and kept and not changed


class Failing(nn.Module):
    """Raises in backward when told to."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.fails = nn.Linear(6, 6), nn.Linear(6, 3), False

    def forward(self, x):
        h = self.a(x)
        if self.fails:
            h.register_hook(self._fail)
        return self.b(h)

    def _fail(self, grad):
        raise ValueError("backward fails here")


def failing(rank, size, who):
    model = Failing()
    fill(LIB, model)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.00001)
    caught = []
    for step in range(4):
        model.fails = step == 2 and (who is None or who == rank)
        ddp.zero_grad()
        x, y = batch(LIB, step, rank)
        try:
            nn.functional.mse_loss(ddp(x), y).backward()
        except Exception as error:
            caught.append((step, type(error).__name__, str(error)))
    return caught, grads(model)


def test_a_backward_that_fails_on_all_ranks_leaves_nothing_behind():
    (caught, first), (_, second) = results(run_ranks(2, failing, None))
    assert [c[:2] for c in caught] == [(2, "ValueError")]
    close(first, second, 0)
    model = Failing()
    fill(LIB, model)
    x, y = zip(*[batch(LIB, 3, r) for r in range(2)], strict=True)
    nn.functional.mse_loss(model(tg.cat(x)), tg.cat(y)).backward()
    close(first, grads(model))


def test_a_backward_that_fails_on_one_rank_is_told_to_all():
    found = run_ranks(2, failing, 1, limit=20)
    (first, _), (second, _) = results(found)
    assert second[0][:2] == (2, "ValueError")
    assert first[0][0] == 2 and first[0][1] in ("RuntimeError", "DistBackendError")
    assert second[1][0] == 3 and second[1][1] in ("RuntimeError", "DistBackendError")
    assert max(o.seconds for o in found) < 20


def reentrant(rank, size, static):
    from tapegrad.utils.checkpoint import checkpoint

    layer = nn.Linear(6, 6)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = layer, nn.Linear(6, 1)

        def forward(self, x):
            x = x.clone().requires_grad_()
            for _ in range(2):
                x = checkpoint(layer, x, use_reentrant=True)
            return self.out(x)

    ddp = DistributedDataParallel(Twice(), static_graph=static)
    ddp(batch(LIB, 0, rank)[0]).sum().backward()


def test_a_gradient_that_comes_twice_needs_a_static_graph():
    for outcome in run_ranks(2, reentrant, False):
        assert "Expected to mark a variable ready only once" in outcome.error
    results(run_ranks(2, reentrant, True))


def double(rank, size):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ddp = DistributedDataParallel(network())
        x, y = batch(LIB, 0, rank)
        nn.functional.mse_loss(ddp(x), y).backward(create_graph=True)
    return grads(ddp), [str(w.message) for w in caught if "create_graph" in str(w.message) and "reduced" in str(w.message)]


def test_create_graph_warns():
    (a, said), (b, _) = results(run_ranks(2, double))
    close(a, b, 0)
    assert len(said) == 1


def unused(rank, size):
    said = []
    model = half_used(LIB)
    fill(LIB, model)
    ddp = DistributedDataParallel(model)
    found = []
    for step in range(3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ddp.zero_grad()
            x, y = batch(LIB, step, rank)
            nn.functional.mse_loss(ddp(x, step == 1 and rank == 0), y).backward()
        said += [str(w.message) for w in caught if "DistributedDataParallel" in str(w.message)]
        found.append(grads(model))
    return found, said


def test_unused_parameters_are_named_once():
    (a, said), (b, _) = results(run_ranks(2, unused))
    assert len(said) == 1
    assert said[0].startswith("DistributedDataParallel: no gradient came for left.weight, left.bias on rank 0: they count as zero here")
    assert a[0][2] is None and a[2][3] is None
    close(a[1], b[1], 0)
    assert np.abs(b[1][2]).max() > 0


# --- what is checked ---

def build(rank, size, which):
    models = {"shape": lambda: nn.Linear(3, 4 + rank), "count": lambda: nn.Linear(3, 4, bias=rank == 0),
              "dtype": lambda: nn.Linear(3, 4).to(tg.float64 if rank else tg.float32)}
    DistributedDataParallel(models[which]())


@pytest.mark.parametrize(("which", "text"), [
    ("shape", "weight in this process with sizes .* appears not to match sizes of the same param in process 0: rank 1 has \\[5, 3\\]"),
    ("count", "Rank 0 has 2 params, while rank 1 has inconsistent 1 params.\nonly rank 0 has bias"),
    ("dtype", "rank 1 has \\[4, 3\\] of tapegrad.float64, rank 0 \\[4, 3\\] of tapegrad.float32")])
def test_models_that_differ_are_refused_on_all_ranks(which, text):
    import re

    for outcome in run_ranks(2, build, which):
        assert re.search(text, outcome.error), outcome


def drifting(rank, size, drifts):
    ddp = DistributedDataParallel(network(), check_drift=2)
    optimizer = tg.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(6):
        x, y = batch(LIB, step, rank)
        optimizer.zero_grad()
        nn.functional.mse_loss(ddp(x), y).backward()
        optimizer.step()
        if drifts and step == 2 and rank == 1:
            with tg.no_grad():
                ddp.module[2].bias[3] += 1e-6
    return step


def test_drift_is_noticed_and_named():
    assert results(run_ranks(3, drifting, False)) == [5, 5, 5]
    for outcome in run_ranks(3, drifting, True):
        assert outcome.error == ("RuntimeError: DistributedDataParallel: the ranks no longer hold the same model: after step 4, 2.bias of rank 1 "
                                 "differs from the others'; 1 of 6 tensors differ"), outcome


def slow(rank, size):
    records = []
    logger = logging.getLogger("tapegrad.distributed")
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    logger.addHandler(handler)
    ddp = DistributedDataParallel(network(), report_stragglers=5)
    for _ in range(11):
        if rank == 1:
            time.sleep(0.03)
        train(LIB, ddp, rank, 1)
    return records, ddp._stragglers.report


def test_the_rank_that_others_wait_for_is_named():
    found = results(run_ranks(3, slow))
    assert all(report["rank"] == 1 and report["seconds"] > 0.05 for _, report in found)
    assert "rank 1 is the slowest: in the last 5 steps the other ranks waited" in found[0][0][0]
    assert not found[1][0]


# --- copies, settings ---

def copies(rank, size):
    ddp = DistributedDataParallel(network(), bucket_cap_mb=0.001)
    train(LIB, ddp, rank, 1)
    found = []
    for other in (copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp))):
        losses = train(LIB, other, rank, 2)
        found.append((losses, state(other)))
    own = dist.new_group()
    with pytest.raises(RuntimeError, match="only supported when using DDP with the default process group"):
        pickle.dumps(DistributedDataParallel(network(), process_group=own))
    data = ddp._get_ddp_logging_data()
    return found, data["world_size"], data["iteration"], data["has_rebuilt_buckets"], len(data["bucket_sizes"].split(","))


def test_copies_and_pickles_train_on():
    a, b = results(run_ranks(2, copies))
    for (found, *data), rank in ((a, 0), (b, 1)):
        same_bits(found[0][1], found[1][1])
        same_bits(found[0][1], a[0][0][1])
        assert data == [2, 1, 1, 2], rank


def with_buffer_hook(rank, size):
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    ddp = DistributedDataParallel(model)
    seen = []
    ddp._register_buffer_comm_hook("state", lambda state, buffers: seen.append((state, sorted(buffers))))
    ddp(batch(LIB, 0, rank)[0]).sum().backward()
    return seen, model[1].running_mean.tolist()


def test_a_hook_of_buffers_takes_the_place_of_their_broadcast():
    (seen, mean), (_, other) = results(run_ranks(2, with_buffer_hook))
    assert seen == [("state", ["1.num_batches_tracked", "1.running_mean", "1.running_var"])]
    assert mean != other


@pytest.fixture
def world_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_arguments(world_of_one):
    for wrong, kind, text in [
            (dict(average="all"), ValueError, "average must be 'ranks', 'samples' or a function: got 'all'"),
            (dict(device_ids=[0, 1]), ValueError, "device_ids can only be None or contain a single element."),
            (dict(device_ids=[0]), ValueError, "device_ids and output_device arguments only work with"),
            (dict(param_to_hook_all_reduce=1), ValueError, "need to be set at the same time")]:
        with pytest.raises(kind, match=text):
            DistributedDataParallel(nn.Linear(1, 1), **wrong)
    ddp = DistributedDataParallel(nn.Linear(1, 1))
    with pytest.raises(TypeError, match="Communication hook must be callable."):
        ddp.register_comm_hook(None, 1)
    with pytest.raises(ValueError, match="bucket annotation should be dist.GradBucket."):
        ddp.register_comm_hook(None, wrong_hook)


def wrong_hook(state, bucket: int):
    return bucket


def test_one_process_does_nothing_of_its_own(world_of_one):
    model = network()
    ddp = DistributedDataParallel(model, find_unused_parameters=True)
    alone = copy.deepcopy(model)
    same_bits(train(LIB, ddp, 0), train(LIB, alone, 0))
    same_bits(state(model), state(alone))
    assert [*ddp.state_dict()][0] == "module.0.weight" and ddp._sync is None


def delayed_reduction(rank, size):
    found = []
    for delays in (False, True):
        tg.manual_seed(rank)
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
        with tg.no_grad():
            for i, p in enumerate(model.parameters()):
                p.copy_(tg.arange(p.numel()).reshape(p.shape) * 0.01 + 0.1 * i + rank)  # rank 0's go to all
        named = list(model.named_parameters())
        more = {"delay_all_reduce_named_params": named[2:], "param_to_hook_all_reduce": named[0][1]} if delays else {}
        ddp = nn.parallel.DistributedDataParallel(model, **more)
        optimizer = tg.optim.SGD(ddp.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            ddp(tg.arange(24.0).reshape(4, 6).sin() + rank + step).square().mean().backward()
            optimizer.step()
        found.append([p.detach().numpy().copy() for p in model.parameters()])
    return found


def test_delayed_reductions_give_the_same_parameters():
    for plain, delayed in results(run_ranks(2, delayed_reduction, start="fork")):
        for a, b in zip(plain, delayed, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
