"""fully_shard: parameters of awkward shapes, options and methods, tensor parallel beneath, models without values."""

import copy

import numpy as np
import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad import nn
from tapegrad.distributed import checkpoint
from tapegrad.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

FSDP = tg.distributed.fsdp


class Tied(nn.Module):
    """A block that is used twice, a weight that two layers share, a number, a vector of one, a frozen layer, fewer rows than ranks."""

    def __init__(self):
        super().__init__()
        self.into, self.block, self.out = nn.Linear(6, 3), nn.Sequential(nn.Linear(3, 7), nn.Tanh(), nn.Linear(7, 3)), nn.Linear(3, 6, bias=False)
        self.again = nn.Linear(3, 6)
        self.again.weight = self.out.weight
        self.frozen = nn.Linear(3, 3).requires_grad_(False)
        self.scale, self.shift = nn.Parameter(tg.tensor(1.5)), nn.Parameter(tg.tensor([0.25]))

    def forward(self, x):
        h = self.into(x) * self.scale
        for _ in range(2):
            h = h + self.block(h)
        return self.out(h) + self.again(tg.tanh(self.frozen(h))) + self.shift


def rows(step: int, rank: int = 0, n: int = 1):
    x = tg.randn(12, 6, generator=tg.Generator().manual_seed(step), dtype=tg.float64)
    return x[rank * 12 // n:(rank + 1) * 12 // n]


def tied():
    tg.manual_seed(3)
    return Tied().double()


def steps(net, rank: int = 0, n: int = 1, count: int = 3, first: int = 0, optimizer=None):
    optimizer = optimizer or tg.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.03)
    norms = []
    for step in range(first, first + count):
        optimizer.zero_grad()
        x = rows(step, rank, n)
        (net(x) - x).pow(2).mean().backward()
        norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 0.5)))
        optimizer.step()
    return norms, optimizer


def whole(net) -> dict:
    return {name: (p.full_tensor() if isinstance(p, DTensor) else p).detach().numpy() for name, p in net.named_parameters()}


def same(got: dict, expected: dict, rtol: float = 1e-11) -> None:
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=rtol, atol=1e-13, err_msg=name)


KINDS = {"plain": {}, "keep": {"reshard_after_forward": False}, "other dimension": {"shard_placement_fn": lambda p: Shard(-1) if p.ndim == 2 else None},
         "number": {"reshard_after_forward": 2}}


def train_tied(rank: int, n: int, kind: str):
    net = tied()
    FSDP.fully_shard(net.block, **KINDS[kind])
    FSDP.fully_shard(net, **KINDS[kind])
    norms, _ = steps(net, rank, n)
    placements = {name: p.placements for name, p in net.named_parameters()}
    with tg.no_grad():
        out = net(rows(9)).numpy()
    return whole(net), norms, out, placements, net.out.weight is net.again.weight


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [1, 2, 4])
def test_awkward_parameters_train_as_in_one_process(n, kind):
    if n == 1 and kind == "number":
        pytest.skip("there are no two ranks")
    alone = tied()
    norms, _ = steps(alone)
    for found, found_norms, out, placements, one in results(run_ranks(n, train_tied, kind, start="fork")):
        same(found, whole(alone))
        np.testing.assert_allclose(found_norms, norms, rtol=1e-9)
        np.testing.assert_allclose(out, alone(rows(9)).detach().numpy(), rtol=1e-10)
        assert one and placements["scale"] == (Replicate(),) and placements["shift"] == (Shard(0),)
        assert placements["into.weight"] == (Shard(1 if kind == "other dimension" else 0),)


def counted_calls(rank: int, n: int):
    """Groups over which values are gathered, for each option."""
    from tapegrad.distributed.fsdp import _units

    seen: list = []
    real = _units.dist.all_gather_into_tensor

    def counting(*args, group, **kwargs):
        seen.append(group.size())
        return real(*args, group=group, **kwargs)

    _units.dist.all_gather_into_tensor = counting
    found = {}

    def micro_batches(net, number: int = 1):
        seen.clear()
        for i in range(number):
            if number > 1:
                net.set_requires_gradient_sync(i == number - 1)
                net.set_reshard_after_backward(i == number - 1)
            net(rows(i, rank, n)).sum().backward()
        return list(seen)

    def make(**options):
        tg.manual_seed(0)
        net = nn.Sequential(*[nn.Linear(6, 6) for _ in range(3)]).double()
        for layer in net:
            FSDP.fully_shard(layer, **options)
        net = FSDP.fully_shard(net, **options)
        return net, [layer._fsdp_unit for layer in net]

    for name, options in {"default": {}, "keep": {"reshard_after_forward": False}, "number": {"reshard_after_forward": 2},
                          "all": {"reshard_after_forward": n}, "one": {"reshard_after_forward": 1}}.items():
        net, _ = make(**options)
        micro_batches(net)  # the order is known after it
        found[name] = micro_batches(net)
    net, units = make(reshard_after_forward=False)
    micro_batches(net)
    found["accumulated"] = micro_batches(net, 2)
    assert all(u.values is None for u in units)

    # Whole values are those of the pieces, whatever keeps them.
    net.set_reshard_after_backward(False)
    seen.clear()
    for i in range(2):
        net(rows(i, rank, n)).sum().backward()
    found["kept"] = list(seen)
    with tg.no_grad():
        before = net(rows(0)).sum()
        for p in net.parameters():
            p.mul_(0.0)
        after = net(rows(0))
        assert before.item() != 0 and after.abs().sum().item() == 0
        net.load_state_dict({k: tg.ones(v.shape, dtype=v.dtype) for k, v in net.state_dict().items()})
        assert net(rows(0)).abs().sum().item() > 0

    # What is gathered ahead.
    net, units = make()
    net[0].set_modules_to_forward_prefetch([net[1], net[2]])
    net[2].set_modules_to_backward_prefetch([net[1], net[0]])
    ahead = {}
    net[0]._fsdp_unit.enter_forward()
    ahead["forward"] = [u._coming is not None for u in units]
    net[0].reshard()
    x = rows(0).requires_grad_()
    out = net(x)
    out.register_hook(lambda g: None)
    units[2].root.in_backward()
    units[2].gather()
    units[2].root.begin_next(units[2], -1)
    ahead["backward"] = [u._coming is not None for u in units]
    out.sum().backward()
    handle = net[1].unshard(async_op=True)
    begun, standing = units[1]._coming is not None, isinstance(net[1].weight, DTensor)
    handle.wait()
    assert begun and standing and not isinstance(net[1].weight, DTensor)
    net[1].reshard()
    assert isinstance(net[1].weight, DTensor) and units[1].values is None
    return found, ahead["forward"], ahead["backward"]


def test_what_is_gathered_when_and_among_whom():
    for found, forward, backward in results(run_ranks(4, counted_calls, start="fork")):
        # The last layer's values are read in backward, too; the first one's are not, since its input needs no gradient.
        assert found["default"][:3] == [4, 4, 4] and found["default"][3:].count(4) >= 2, found
        assert found["keep"] == found["one"] == [4, 4, 4], found
        assert found["number"][:3] == [4, 4, 4] and set(found["number"][3:]) == {2}, found
        assert found["all"] == found["default"], found
        assert found["accumulated"] == found["kept"] == [4, 4, 4], found
        assert forward == [False, True, True] and backward == [True, True, False]


def train_hybrid(rank: int, n: int, kind: str):
    """Two machines of two ranks, as the launcher says; or gradients that are added up over the copies once for two micro-batches."""
    net = tied()
    if kind == "wrapper":
        net = FSDP.FullyShardedDataParallel(net, sharding_strategy=FSDP.ShardingStrategy.HYBRID_SHARD)
        mesh = next(net.parameters()).device_mesh
        assert mesh.shape == (2, 2) and mesh.mesh_dim_names == ("replicate", "shard") and next(net.parameters()).placements[0] == Replicate()
        norms, _ = steps(net, rank, n)
        return {k: v.numpy() for k, v in net.state_dict().items()}, norms
    FSDP.fully_shard(net, mesh=dist.init_device_mesh("cpu", (2, 2)))
    optimizer = tg.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.03)
    for step in range(3):
        optimizer.zero_grad()
        x = rows(step, rank, n)
        for i, part in enumerate(x.split([1, 2])):
            net.set_requires_all_reduce(i == 1)
            ((net(part) - part).pow(2).mean() * (len(part) / len(x))).backward()
            if i == 0:
                assert all(p.grad is None for p in net.parameters())
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
    return whole(net), []


@pytest.mark.parametrize("kind", ["wrapper", "requires_all_reduce"])
def test_copies_on_machines(kind):
    alone = tied()
    steps(alone)
    for found, _ in results(run_ranks(4, train_hybrid, kind, start="fork", environment={"LOCAL_WORLD_SIZE": "2"})):
        same({k: v for k, v in found.items() if k in whole(alone)}, whole(alone))


def divided(rank: int, n: int):
    net = FSDP.fully_shard(tied())
    net.set_gradient_divide_factor(1.0)
    net(rows(0, rank, n)).sum().backward()
    return {name: p.grad.full_tensor().numpy() for name, p in net.named_parameters() if p.grad is not None}


def test_gradients_divided_by_a_factor_are_sums():
    alone = tied()
    alone(rows(0)).sum().backward()
    for found in results(run_ranks(2, divided, start="fork")):
        same(found, {name: p.grad.numpy() for name, p in alone.named_parameters() if p.grad is not None})


def refused(rank: int, n: int):
    net = tied()
    FSDP.fully_shard(net.out)
    with pytest.raises(ValueError, match="'weight' of Linear is shared with a parameter that another unit has"):
        FSDP.fully_shard(net)
    both = tied()
    FSDP.fully_shard([both.out, both.again])
    FSDP.fully_shard(both)
    norms, _ = steps(both, rank, n)
    with pytest.raises(AssertionError, match="FSDP does not support deepcopy"):
        copy.deepcopy(both)
    with pytest.raises(ValueError, match="is sharded already"):
        FSDP.fully_shard(both)
    for options, error, text in [({"reshard_after_forward": 3}, ValueError, f"it should be a factor of {n}, not 3"),
                                 ({"reshard_after_forward": "no"}, ValueError, "should be a bool or an int"),
                                 ({"shard_placement_fn": lambda p: Shard(2)}, IndexError, r"Shard\(dim=2\) of a parameter of shape"),
                                 ({"shard_placement_fn": lambda p: Replicate()}, NotImplementedError, "must give a Shard or None"),
                                 ({"mesh": dist.DeviceMesh("cpu", [[[0, 1]]])}, ValueError, "expected a mesh of one dimension, or of two")]:
        with pytest.raises(error, match=text):
            FSDP.fully_shard(tied(), **options)
    with pytest.raises(ValueError, match="expected modules that fully_shard was called on: got Linear"):
        both.set_modules_to_forward_prefetch([nn.Linear(1, 1)])
    with pytest.raises(ValueError, match="should be a bool"):
        both.set_reshard_after_forward(2)
    import tapegrad.distributed.tensor.parallel as tp
    from tapegrad.distributed.embedding import ShardedEmbedding

    with pytest.raises(ValueError, match="is a DTensor over the same ranks already: it lies as"):
        FSDP.fully_shard(tp.parallelize_module(nn.Linear(4, 4), dist.init_device_mesh("cpu", (n,)), tp.ColwiseParallel()))
    with pytest.raises(ValueError, match="needs a mesh that was cut from the same mesh"):
        FSDP.fully_shard(tp.parallelize_module(nn.Linear(4, 4), dist.init_device_mesh("cpu", (n, 1), mesh_dim_names=("a", "b"))["b"], tp.ColwiseParallel()))
    table = ShardedEmbedding(5, 4)
    weight = table.weight
    assert FSDP.fully_shard(nn.Sequential(table, nn.Linear(4, 4)))[0].weight is weight
    part = FSDP.fully_shard(nn.Sequential(nn.Linear(2, 2), nn.Tanh()))[:1]
    assert type(part) is nn.Sequential
    replaced = FSDP.fully_shard(nn.Linear(4, 4))
    replaced.weight = nn.Parameter(tg.zeros(4, 4))
    with pytest.raises(RuntimeError, match="'weight' of FSDPLinear was replaced: expected a DTensor parameter"):
        replaced(tg.ones(1, 4))
    return whole(both), norms


def test_what_cannot_be_is_refused_and_modules_in_a_list_share_a_unit():
    alone = tied()
    norms, _ = steps(alone)
    for found, found_norms in results(run_ranks(2, refused, start="fork")):
        same(found, whole(alone))
        np.testing.assert_allclose(found_norms, norms, rtol=1e-9)


# --- models without values, and states ---

def come_to_life(rank: int, n: int, way: str):
    """Two steps, a state of whole tensors, a model on meta that takes it, two more steps."""
    options = checkpoint.StateDictOptions(full_state_dict=True, cpu_offload=True)
    net = tied()
    FSDP.fully_shard(net.block)
    FSDP.fully_shard(net)
    _, optimizer = steps(net, rank, n, 2)
    state = checkpoint.get_model_state_dict(net, options=options)
    optim_state = checkpoint.get_optimizer_state_dict(net, optimizer, options=options)
    assert bool(state) is bool(optim_state) is (rank == 0)
    with tg.device("meta"):
        later = Tied().double()
    FSDP.fully_shard(later.block)
    FSDP.fully_shard(later)
    with pytest.raises(RuntimeError, match=r"should be materialized from meta device before training, but the following were still on meta device: \['"):
        later(rows(0))
    box = [state]
    dist.broadcast_object_list(box)
    if way == "from rank 0":
        keys = checkpoint.set_model_state_dict(later, state, options=checkpoint.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
        assert not keys.missing_keys and not keys.unexpected_keys
    elif way == "assign":
        own = later.state_dict()
        cut = {k: nn.Parameter(distribute_tensor(v, own[k].device_mesh, own[k].placements), own[k].requires_grad) for k, v in box[0].items()}
        cut["frozen.weight"].requires_grad_(False)
        cut["frozen.bias"].requires_grad_(False)
        later.load_state_dict(cut, assign=True)
    else:
        later.to_empty(device="cpu")
        for m in later.modules():
            if hasattr(m, "reset_parameters"):
                m.reset_parameters()
        later.load_state_dict(box[0])
    assert all(isinstance(p, DTensor) and not p.is_meta for p in later.parameters()) and later.out.weight is later.again.weight
    again = tg.optim.AdamW([p for p in later.parameters() if p.requires_grad], lr=0.5)
    checkpoint.set_optimizer_state_dict(later, again, optim_state,
                                        options=checkpoint.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    assert again.param_groups[0]["lr"] == 0.03
    steps(later, rank, n, 2, 2, again)
    with pytest.raises(ValueError, match="full_state_dict must be True when broadcast_from_rank0 is True."):
        checkpoint.set_model_state_dict(later, {}, options=checkpoint.StateDictOptions(broadcast_from_rank0=True))
    with pytest.raises(RuntimeError, match="missing: scale, .*; unexpected: other"):
        checkpoint.set_model_state_dict(later, {"other": tg.ones(1)})
    later.unshard()
    assert isinstance(later.state_dict()["into.weight"], DTensor)
    later.reshard()
    return whole(later)


@pytest.mark.parametrize("way", ["from rank 0", "assign", "to_empty"])
def test_models_on_meta_go_on_from_a_state_of_whole_tensors(way):
    alone = tied()
    steps(alone, count=4)
    for n in (1, 3):
        for found in results(run_ranks(n, come_to_life, way, start="fork")):
            same(found, whole(alone))


# --- tensor parallel beneath ---

def train_grid(rank: int, n: int, folder: str):
    """A model that two ranks share, each share cut among two more."""
    import tapegrad.distributed.tensor.parallel as tp

    def make():
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        tg.manual_seed(5)
        net = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 6), nn.LayerNorm(6)).double()
        tp.parallelize_module(net, mesh["tp"], {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()})
        return FSDP.fully_shard(net, mesh=mesh["dp"])

    net = make()
    weight = net[0].weight
    assert weight.device_mesh.mesh_dim_names == ("dp", "tp") and str(weight.placements) == "(_StridedShard(dim=0, sf=2), Shard(dim=0))"
    before = weight.full_tensor().detach()
    row = [0, 3, 5, 8][rank % 2 * 2 + rank // 2]
    assert weight.to_local().equal(before[row:[3, 5, 8, 10][rank % 2 * 2 + rank // 2]]), "tensor parallel cuts first"
    assert distribute_tensor(before, weight.device_mesh, weight.placements).to_local().equal(weight.to_local())
    assert (weight.detach() * 2).sum().full_tensor().item() == pytest.approx(before.sum().item() * 2)
    assert (weight + weight).full_tensor().equal(before * 2) and weight.t().full_tensor().equal(before.t()) and weight[1].full_tensor().equal(before[1])
    norms, _ = steps(net, rank // 2, 2)
    checkpoint.save({"net": net.state_dict()}, checkpoint_id=folder)
    other = make()
    state = {"net": other.state_dict()}
    checkpoint.load(state, checkpoint_id=folder)
    other.load_state_dict(state["net"])
    same({k: v for k, v in whole(other).items() if k.startswith("0.")}, {k: v for k, v in whole(net).items() if k.startswith("0.")})
    return whole(net), norms


def test_a_model_cut_in_two_ways_trains_as_in_one_process(tmp_path):
    tg.manual_seed(5)
    alone = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 6), nn.LayerNorm(6)).double()
    norms, _ = steps(alone)
    for found, found_norms in results(run_ranks(4, train_grid, str(tmp_path), start="fork")):
        same(found, whole(alone))
        np.testing.assert_allclose(found_norms, norms, rtol=1e-9)


def at_two_places(rank: int, n: int):
    layer = nn.Linear(4, 4)
    net = FSDP.fully_shard(nn.ModuleDict({"a": layer, "b": layer}))
    state = {k: tg.full(v.shape, 2.0) for k, v in net.state_dict().items()}
    assert len(state) == 4
    net.load_state_dict(state)
    found = checkpoint.get_model_state_dict(net, options=checkpoint.StateDictOptions(full_state_dict=True))
    net.unshard()
    assert all(isinstance(v, DTensor) for v in net.state_dict().values())
    return {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in state.items()}


def test_a_module_at_two_places_has_both_names_in_states():
    assert all(results(run_ranks(2, at_two_places, start="fork")))


def changed_while_whole(rank: int, n: int):
    net = FSDP.fully_shard(tied())
    expected = {k: v.full_tensor() * 2 for k, v in net.state_dict().items()}
    net.unshard()
    net.load_state_dict(expected)
    assert all(v.full_tensor().equal(expected[k]) for k, v in net.state_dict().items())
    net.unshard()
    net.float()
    assert {str(p.dtype) for p in net.parameters()} == {"tapegrad.float32"} and all(isinstance(p, DTensor) for p in net.parameters())
    x = rows(0, rank, n).float()
    net(x).sum().backward()
    assert {str(p.grad.dtype) for p in net.parameters() if p.requires_grad} == {"tapegrad.float32"}
    return True


@pytest.mark.parametrize("n", [1, 2])
def test_a_module_whose_parameters_are_whole_takes_states_and_casts(n):
    assert all(results(run_ranks(n, changed_while_whole, start="fork")))


def scaled(rank: int, n: int, kind: str):
    """One rank's piece of a gradient is infinite in the second step."""
    from tapegrad.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    net = FSDP.fully_shard(tied())
    optimizer = tg.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
    scaler = (ShardedGradScaler if kind == "ShardedGradScaler" else tg.amp.GradScaler)("cpu", init_scale=8.0)
    scales = []
    for step in range(3):
        optimizer.zero_grad()
        x = rows(step, rank, n)
        scaler.scale((net(x) - x).pow(2).mean()).backward()
        if step == 1 and rank == n - 1:
            net.block[0].weight.grad.to_local().fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return whole(net), scales


@pytest.mark.parametrize("kind", ["GradScaler", "ShardedGradScaler"])
def test_all_ranks_leave_a_step_out_where_one_finds_an_infinite_gradient(kind):
    alone = tied()
    optimizer = tg.optim.SGD([p for p in alone.parameters() if p.requires_grad], lr=0.1)
    for step in (0, 2):
        optimizer.zero_grad()
        (alone(rows(step)) - rows(step)).pow(2).mean().backward()
        optimizer.step()
    for found, scales in results(run_ranks(2, scaled, kind, start="fork")):
        assert scales == [8.0, 4.0, 4.0]
        same(found, whole(alone))


def stepping_in_backward(rank: int, n: int):
    """Each parameter's optimizer steps when its gradient is there, and frees it."""
    net = tied()
    FSDP.fully_shard(net.block)
    FSDP.fully_shard(net)
    handles = []
    for p in net.parameters():
        if p.requires_grad:
            optimizer = tg.optim.SGD([p], lr=0.1)

            def hook(q, optimizer=optimizer, p=p):
                assert q is p and isinstance(q.grad, DTensor)
                optimizer.step()
                optimizer.zero_grad()

            handles.append(p.register_post_accumulate_grad_hook(hook))
    for step in range(3):
        x = rows(step, rank, n)
        (net(x) - x).pow(2).mean().backward()
        assert all(p.grad is None for p in net.parameters())
    for handle in handles:
        handle.remove()
    net(rows(0)).sum().backward()
    assert all(p.grad is not None for p in net.parameters() if p.requires_grad)
    return whole(net)


def test_optimizers_that_step_in_the_midst_of_backward():
    alone = tied()
    optimizer = tg.optim.SGD([p for p in alone.parameters() if p.requires_grad], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        (alone(rows(step)) - rows(step)).pow(2).mean().backward()
        optimizer.step()
    for found in results(run_ranks(2, stepping_in_backward, start="fork")):
        same(found, whole(alone))
