"""Sharded optimizers and models: n ranks end with the parameters of one, and keep the share of memory that they should."""

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad import nn


def model(width: int = 12, dtype=tg.float64):
    tg.manual_seed(7)
    return nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Sequential(nn.Linear(width, width), nn.Tanh()), nn.Linear(width, 3)).to(dtype)


def batch(step: int, dtype=tg.float64):
    """Twelve rows; every rank takes its own."""
    g = tg.Generator().manual_seed(100 + step)
    return tg.randn(12, 5, generator=g, dtype=dtype), tg.randn(12, 3, generator=g, dtype=dtype)


def mine(t, rank: int, n: int):
    return t[rank * len(t) // n:(rank + 1) * len(t) // n]


def train_alone(steps: int, clip: float | None = None):
    net = model()
    optimizer = tg.optim.Adam(net.parameters(), lr=0.05)
    norms = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(net(x), y).backward()
        if clip:
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), clip)))
        optimizer.step()
    return {k: v.numpy() for k, v in net.state_dict().items()}, norms


def same(got: dict, expected: dict) -> None:
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-12, atol=1e-14, err_msg=name)


# --- ZeRO, stage 1 ---

def zero_step(net, optimizer, step: int, rank: int, n: int) -> None:
    x, y = batch(step)
    optimizer.zero_grad()
    nn.functional.mse_loss(net(mine(x, rank, n)), mine(y, rank, n)).backward()
    for p in net.parameters():
        dist.all_reduce(p.grad, dist.ReduceOp.AVG)
    optimizer.step()


def train_zero(rank: int, n: int, as_views: bool):
    net = model()
    optimizer = dist.optim.ZeroRedundancyOptimizer(net.parameters(), tg.optim.Adam, parameters_as_bucket_view=as_views, lr=0.05)
    for step in range(4):
        zero_step(net, optimizer, step, rank, n)
    numbers = sum(v.numel() for s in optimizer.optim.state.values() for v in s.values() if v.dim())
    with pytest.raises(RuntimeError, match="consolidate_state_dict"):
        optimizer.state_dict()
    optimizer.consolidate_state_dict(to=0)
    whole = optimizer.state_dict() if rank == 0 else None
    return ({k: v.numpy() for k, v in net.state_dict().items()}, numbers,
            {i: {k: v.numpy() for k, v in s.items()} for i, s in whole["state"].items()} if whole else None)


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("as_views", [False, True])
def test_zero_redundancy_optimizer_equals_one_process(n, as_views):
    expected, _ = train_alone(4)
    alone = model()
    total = 2 * sum(p.numel() for p in alone.parameters())
    found = results(run_ranks(n, train_zero, as_views, start="fork"))
    for parameters, _, _ in found:
        same(parameters, expected)
    counts = [numbers for _, numbers, _ in found]
    largest = max(p.numel() for p in alone.parameters())
    assert sum(counts) == total and max(counts) <= total / n + 2 * largest, counts
    state = found[0][2]
    assert sorted(state) == list(range(6)) and all(s["exp_avg"].size for s in state.values())


def resume_zero(rank: int, n: int):
    net = model()
    optimizer = dist.optim.ZeroRedundancyOptimizer(net.parameters(), tg.optim.Adam, lr=0.05)
    for step in range(4):
        if step == 2:  # another optimizer goes on with the first one's state
            optimizer.consolidate_state_dict(to=0)
            state = [optimizer.state_dict() if rank == 0 else None]
            dist.broadcast_object_list(state)
            optimizer = dist.optim.ZeroRedundancyOptimizer(net.parameters(), tg.optim.Adam, lr=1.0)
            optimizer.load_state_dict(state[0])
            assert optimizer.param_groups[0]["lr"] == 0.05
        zero_step(net, optimizer, step, rank, n)
    return {k: v.numpy() for k, v in net.state_dict().items()}


def test_zero_goes_on_from_a_saved_state():
    expected, _ = train_alone(4)
    for parameters in results(run_ranks(2, resume_zero, start="fork")):
        same(parameters, expected)


# --- fully sharded ---

def train_sharded(rank: int, n: int, kind: str, clip: float | None, accumulate: bool):
    from tapegrad.distributed.fsdp import FullyShardedDataParallel as FSDP
    from tapegrad.distributed.fsdp import fully_shard
    from tapegrad.distributed.fsdp.wrap import ModuleWrapPolicy

    net = model()
    if kind == "fully_shard":
        fully_shard(net[2])
        fully_shard(net)
    elif kind == "keep":
        fully_shard(net, reshard_after_forward=False)
    else:
        net = FSDP(net, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}))
    pieces = sum(p.to_local().numel() for p in net.parameters())
    optimizer = tg.optim.Adam(net.parameters(), lr=0.05)
    norms = []
    for step in range(4):
        x, y = batch(step)
        optimizer.zero_grad()
        x, y = mine(x, rank, n), mine(y, rank, n)
        if accumulate:
            half = len(x) // 2
            with net.no_sync():
                (nn.functional.mse_loss(net(x[:half]), y[:half]) / 2).backward()
            (nn.functional.mse_loss(net(x[half:]), y[half:]) / 2).backward()
        else:
            nn.functional.mse_loss(net(x), y).backward()
        if clip:
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), clip)))
        optimizer.step()
    if kind == "wrapper":
        whole = net.state_dict()
    else:
        whole = {name: p.full_tensor() if hasattr(p, "full_tensor") else p for name, p in net.named_parameters()}
    with tg.no_grad():
        again = net(batch(9)[0]).numpy()
    return {k: v.detach().numpy() for k, v in whole.items()}, pieces, norms, again


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", ["fully_shard", "keep", "wrapper"])
def test_a_sharded_model_trains_as_one_process_does(n, kind):
    expected, norms = train_alone(4, clip=0.3)
    total = sum(p.numel() for p in model().parameters())
    for parameters, pieces, found_norms, _ in results(run_ranks(n, train_sharded, kind, 0.3, False, start="fork")):
        same(parameters, expected)
        np.testing.assert_allclose(found_norms, norms, rtol=1e-6)
        assert pieces <= total / n + 40, (pieces, total)  # rows are not cut


def test_gradients_add_up_without_synchronisation():
    expected, _ = train_alone(4)
    for parameters, *_ in results(run_ranks(2, train_sharded, "wrapper", None, True, start="fork")):
        same(parameters, expected)


def memory_of_a_pass(rank: int, n: int):
    """Whole values that live between forward and backward."""
    from tapegrad.distributed.fsdp import fully_shard
    from tapegrad.distributed.fsdp._units import units_of

    net = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    loss = net(tg.randn(2, 64)).sum()
    held = sum(u.values is not None for u in units_of(net))
    loss.backward()
    return held, sum(u.values is not None for u in units_of(net)), [tuple(p.grad.to_local().shape) for p in net.parameters()]


def test_whole_parameters_are_freed_between_forward_and_backward():
    for held, after, shapes in results(run_ranks(2, memory_of_a_pass, start="fork")):
        assert held <= 1 and after == 0
        assert shapes == [(32, 64), (32,)] * 4


def mixed(rank: int, n: int):
    from tapegrad.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    net = model(dtype=tg.float32)
    fully_shard(net, mp_policy=MixedPrecisionPolicy(param_dtype=tg.bfloat16, reduce_dtype=tg.float32))
    out = net(batch(0, tg.float32)[0])
    out.float().sum().backward()
    return str(out.dtype), {str(p.dtype) for p in net.parameters()}, {str(p.grad.dtype) for p in net.parameters()}


def test_mixed_precision_computes_in_16_bits_and_keeps_32():
    for dtype, kept, grads in results(run_ranks(2, mixed, start="fork")):
        assert dtype.endswith("bfloat16") and kept == grads == {"tapegrad.float32"}


def states(rank: int, n: int):
    """A state of pieces, one of whole values, and parameters that come to life after they were cut."""
    from tapegrad.distributed.fsdp import fully_shard
    from tapegrad.distributed.tensor import DTensor

    net = fully_shard(model())
    before = {k: v.full_tensor().numpy() for k, v in net.state_dict().items()}
    assert all(isinstance(v, DTensor) for v in net.state_dict().values())
    with tg.device("meta"):
        later = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Sequential(nn.Linear(12, 12), nn.Tanh()), nn.Linear(12, 3)).to(tg.float64)
    later = fully_shard(later).to_empty(device="cpu")
    assert all(isinstance(p, DTensor) for p in later.parameters())
    later.load_state_dict({k: tg.from_numpy(v) for k, v in before.items()})  # whole values
    first = later(batch(0)[0])
    net.load_state_dict(later.state_dict())  # pieces
    again = net(batch(0)[0])
    net.unshard()
    whole = [tuple(p.shape) for p in net.parameters() if not isinstance(p, DTensor)]
    net.reshard()
    return before, first.detach().numpy(), again.detach().numpy(), whole, tuple(net[0].weight.to_local().shape)


def test_states_of_pieces_and_of_whole_values():
    expected = {k: v.numpy() for k, v in model().state_dict().items()}
    for before, first, again, shapes, cut in results(run_ranks(2, states, start="fork")):
        same(before, expected)
        np.testing.assert_allclose(first, model()(batch(0)[0]).detach().numpy(), rtol=1e-13)
        np.testing.assert_array_equal(first, again)
        assert shapes[0] == (12, 5) and cut == (6, 5)


def peak_of_steps(rank: int, n: int, kind: str):
    """Most bytes of tensors in memory during a training step: of five steps the least, since a group's thread may let go of what it has
    sent a moment late. Activations are a few kilobytes."""
    from tapegrad.distributed.fsdp import fully_shard

    before = tg.cpu.memory_allocated()
    net = nn.Sequential(*[nn.Linear(512, 512, bias=False) for _ in range(8)])
    if kind == "fsdp":
        for layer in net:
            fully_shard(layer)
        optimizer = tg.optim.Adam(fully_shard(net).parameters())
    else:
        optimizer = dist.optim.ZeroRedundancyOptimizer(net.parameters(), tg.optim.Adam)
    peaks = []
    for _ in range(5):
        tg.cpu.reset_peak_memory_stats()
        optimizer.zero_grad()
        net(tg.ones(4, 512)).sum().backward()
        if kind == "zero":
            for p in net.parameters():
                dist.all_reduce(p.grad)
        optimizer.step()
        peaks.append(tg.cpu.max_memory_allocated() - before)
    return min(peaks[1:])  # the order of the units is known after the first step


@pytest.mark.parametrize("kind", ["fsdp", "zero"])
def test_a_rank_needs_the_memory_that_sharding_promises(kind):
    n, whole, unit = 4, 8 * 512 * 512 * 4, 512 * 512 * 4
    # Values, gradients and Adam's two states: all cut, beside whole values and gradients of a unit and of the next one; or the states cut.
    promised = 4 * whole / n + 4 * unit if kind == "fsdp" else 2 * whole + 2 * whole / n
    for peak in results(run_ranks(n, peak_of_steps, kind, start="fork")):
        assert peak <= 1.1 * promised, (peak / promised, peak / whole)


def train_copies(rank: int, n: int, kind: str):
    """Two copies of a model, each cut in two; or a model of which the last layer is left alone."""
    from tapegrad.distributed.fsdp import FullyShardedDataParallel as FSDP
    from tapegrad.distributed.fsdp import ShardingStrategy, fully_shard
    from tapegrad.distributed.fsdp.wrap import ModuleWrapPolicy
    from tapegrad.distributed.tensor import DTensor

    net = model()
    last = list(net[3].parameters())
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards")) if n == 4 else None
    wrap = {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear}), "device_mesh": mesh}
    if kind == "mesh":
        fully_shard(net[2], mesh=mesh)
        fully_shard(net, mesh=mesh)
    elif kind == "ignored_params":
        fully_shard(net, ignored_params=set(last))
    elif kind == "ignored_modules":
        net = FSDP(net, ignored_modules=[net[3]], **wrap)
    else:
        net = FSDP(net, sharding_strategy=ShardingStrategy[kind], **wrap)
    optimizer = tg.optim.Adam(net.parameters(), lr=0.05)
    for step in range(3):
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(net(mine(x, rank, n)), mine(y, rank, n)).backward()
        if kind.startswith("ignored"):
            assert not any(isinstance(p, DTensor) for p in last)
            for p in last:
                dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        nn.utils.clip_grad_norm_(net.parameters(), 0.3)
        optimizer.step()
    pieces = sum(p.to_local().numel() for p in net.parameters() if isinstance(p, DTensor))
    with tg.no_grad():
        return net(batch(9)[0]).numpy(), pieces


@pytest.mark.parametrize("kind", ["mesh", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2", "ignored_params", "ignored_modules"])
def test_copies_of_shards_and_ignored_parameters_train_as_one_process_does(kind):
    ignored = kind.startswith("ignored")
    parameters, _ = train_alone(3, clip=0.3)
    alone = model()
    alone.load_state_dict({k: tg.from_numpy(v) for k, v in parameters.items()})
    cut = sum(p.numel() for p in (alone[:3] if ignored else alone).parameters())
    for out, pieces in results(run_ranks(2 if ignored else 4, train_copies, kind, start="fork")):
        np.testing.assert_allclose(out, alone(batch(9)[0]).detach().numpy(), rtol=1e-11)
        assert abs(pieces - cut / 2) <= 20, (pieces, cut)


class Faulty(nn.Module):
    """Raises where it is told to, in forward or in backward."""

    fails = ""

    def forward(self, x):
        if self.fails == "forward":
            raise KeyError("mine")
        if self.fails == "backward":
            x = x * 1

            def raising(grad):
                raise KeyError("mine")

            x.register_hook(raising)
        return x


def train_with_failures(rank: int, n: int, sharded: bool):
    from tapegrad.distributed.fsdp import fully_shard

    tg.manual_seed(0)
    faulty = Faulty()
    net = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Sequential(nn.Linear(7, 7), nn.Tanh()), faulty, nn.Sequential(nn.Linear(7, 3))).double()
    if sharded:
        fully_shard(net[2])
        fully_shard(net[4])
        fully_shard(net)
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
    raised = 0
    for step, fails in enumerate(["", "backward", "", "forward", "backward", ""]):
        faulty.fails = fails
        optimizer.zero_grad()
        try:
            net(batch(step)[0]).sum().backward()
        except KeyError:
            raised += 1
            with tg.no_grad():  # and the parameters change before the next step
                for p in net.parameters():
                    p.mul_(0.5)
            continue
        optimizer.step()
    assert raised == 3
    return {name: (p.full_tensor() if sharded else p).detach().numpy() for name, p in net.named_parameters()}


def test_training_goes_on_after_a_step_that_failed():
    expected = train_with_failures(0, 1, False)
    for parameters in results(run_ranks(2, train_with_failures, True, start="fork")):
        same(parameters, expected)


# --- optimizers that do not treat each element alone ---

def train_whole_steps(rank: int, n: int, kind: str, sharded: bool):
    """With an optimizer whose steps need whole parameters. Every rank has its rows, the loss is that of all rows; with Muon each has all
    rows, since its iteration in bfloat16 makes of gradients that differ in the last bit numbers that differ by 2^-8."""
    net = model()
    part = (lambda t, *_: t) if kind == "Muon" else mine
    if sharded:
        dist.fsdp.fully_shard(net[2])
        dist.fsdp.fully_shard(net)
    params = [p for p in net.parameters() if p.ndim == 2] if kind == "Muon" else list(net.parameters())
    optimizer = getattr(tg.optim, kind)(params, **({"lr": 0.1, "max_iter": 4, "line_search_fn": "strong_wolfe"} if kind == "LBFGS" else {"lr": 0.05}))
    losses = []
    for step in range(3):
        x, y = batch(step)

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(net(part(x, rank, n)), part(y, rank, n))
            loss.backward()
            loss = loss.detach()
            if sharded:
                dist.all_reduce(loss, dist.ReduceOp.AVG)
            return loss

        losses.append(float(optimizer.step(closure)))
        if step == 0:  # a state goes through a dictionary
            state = optimizer.state_dict()
            optimizer = type(optimizer)(params, lr=0.5)
            optimizer.load_state_dict(state)
    return losses, {k: (v.full_tensor() if sharded else v).detach().numpy() for k, v in net.named_parameters()}


@pytest.mark.parametrize("kind", ["Muon", "Adafactor", "LBFGS"])
def test_optimizers_whose_steps_need_whole_parameters(kind):
    expected, parameters = train_whole_steps(0, 1, kind, False)
    for losses, found in results(run_ranks(2, train_whole_steps, kind, True, start="fork")):
        np.testing.assert_allclose(losses, expected, rtol=1e-9)
        for name, value in parameters.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-7, atol=1e-9, err_msg=name)
