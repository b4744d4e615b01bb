"""Collectives in a world of one process have the results that they have among one, with neither shared memory nor gloo."""

import datetime

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad import nn


@pytest.fixture
def world():
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def run_all(library, d, group=None):
    """Every collective, the tensors after it."""
    x, out = library.arange(4.0), []
    for call in (lambda t: d.all_reduce(t), lambda t: d.all_reduce(t, d.ReduceOp.MAX, group=group), lambda t: d.broadcast(t, 0), lambda t: d.reduce(t, 0)):
        t = x.clone()
        call(t)
        out.append(t)
    for call in (lambda t: d.all_gather([t], x), lambda t: d.all_gather_into_tensor(t, x), lambda t: d.gather(x, [t], 0),
                 lambda t: d.scatter(t, [x], 0)):
        t = library.zeros(4)
        call(t)
        out.append(t)
    objects = [None]
    d.all_gather_object(objects, {"a": 1})
    d.broadcast_object_list(objects, 0)
    work = d.all_reduce(x, async_op=True)
    return [t.tolist() for t in out], objects, bool(work.wait() is not False and work.is_completed()), d.get_rank(), d.get_world_size(), str(d.get_backend())


def test_collectives_are_torch_s(world):
    torch = pytest.importorskip("torch")
    theirs = torch.distributed
    if not theirs.is_available() or theirs.is_initialized():
        pytest.skip("torch without distributed")
    theirs.init_process_group("gloo", store=theirs.HashStore(), rank=0, world_size=1)
    try:
        assert run_all(tg, dist, dist.new_group([0])) == run_all(torch, theirs, theirs.new_group([0]))
        theirs.barrier()
    finally:
        theirs.destroy_process_group()
    dist.barrier()
    dist.monitored_barrier()


def test_more_collectives(world):
    x, y = tg.arange(3.0), tg.zeros(3)
    for call in (lambda: dist.reduce_scatter(y, [x]), lambda: dist.reduce_scatter_tensor(y, x), lambda: dist.all_to_all([y], [x]),
                 lambda: dist.all_to_all_single(y, x, [3], [3])):
        y.zero_()
        call()
        assert y.equal(x)
    out = [None]
    dist.scatter_object_list(out, ["a"], 0)
    assert out == ["a"] and dist.batch_isend_irecv([]) == [] and dist.get_process_group_ranks() == [0]
    dist.gather_object({"b": 2}, out, 0)
    assert out == [{"b": 2}]
    assert dist.new_group([]) is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(dist.GroupMember.NON_GROUP_MEMBER) == -1
    assert dist.group.WORLD is dist.GroupMember.WORLD is not None and dist.group.WORLD.size() == 1
    w = tg.randn(3, requires_grad=True)
    (dist.nn.functional.all_reduce(w) * 2 + dist.nn.functional.all_gather(w)[0]).sum().backward()
    assert w.grad.equal(tg.full((3,), 3.0))
    mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    assert mesh["dp"].size() == 1 and mesh.get_local_rank("tp") == 0 and mesh.ndim == 2 and mesh.get_group("dp") is dist.group.WORLD


def test_mistakes(world, monkeypatch):
    for call, error, text in [
        (lambda: dist.all_reduce([tg.ones(1)]), TypeError, "^Invalid function argument. Expected parameter `tensor` of type torch.Tensor"),
        (lambda: dist.all_gather([tg.ones(1), tg.ones(1)], tg.ones(1)), ValueError, "one entry per process: got 2 in a world of 1"),
        (lambda: dist.broadcast(tg.ones(1), src=1), ValueError, "there is no rank 1"),
        (lambda: dist.send(tg.ones(1), 0), ValueError, "^Invalid destination rank"),
        (lambda: dist.recv(tg.ones(1), 0), ValueError, "^Invalid source rank"),
        (lambda: dist.new_group([0, 1]), ValueError, "the new group's rank should be within the world_size"),
        (lambda: dist.all_reduce(tg.ones(1, dtype=tg.complex64), dist.ReduceOp.MAX), ValueError, "complex tensors"),
        (lambda: dist.init_process_group("gloo", rank=0, world_size=1), ValueError, "initialize the default process group twice"),
        (lambda: dist.Backend("fast"), ValueError, "unknown backend"),
        (lambda: dist.all_gather([tg.ones(2)], tg.ones(3)), ValueError, "output and input must agree"),
    ]:
        with pytest.raises(error, match=text):
            call()
    assert dist.Backend("NCCL") == dist.Backend.NCCL == "nccl"


def test_starting_a_world(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    assert dist.is_available() and not dist.is_initialized() and dist.group.WORLD is None
    with pytest.raises(ValueError, match="^Default process group has not been initialized"):
        dist.get_rank()
    with pytest.raises(ValueError, match="environment variable RANK expected, but not set"):
        dist.init_process_group("nccl")
    with pytest.raises(ValueError, match="rank must be within the world: got rank=1 and world_size=1$"):
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500", rank=1, world_size=1)
    with pytest.raises(TypeError, match="^Expected timeout argument to be of type datetime.timedelta"):
        dist.init_process_group("gloo", timeout=3, rank=0, world_size=1)
    assert not dist.is_initialized() and dist.get_node_local_rank(3) == 3
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    dist.init_process_group("nccl", timeout=datetime.timedelta(seconds=5))
    assert dist.is_initialized() and dist.get_backend() == "nccl"
    dist.destroy_process_group()
    assert not dist.is_initialized()


def test_stores():
    store = dist.TCPStore("localhost", 0, 1, True)
    store.set("a", "1")
    assert store.get("a") == b"1" and store.add("n", 2) == 2 and store.add("n", 3) == 5 and store.num_keys() == 3  # and PyTorch's own
    prefix = dist.PrefixStore("p", store)
    prefix.set("a", b"2")
    assert store.get("p/a") == prefix.get("a") == b"2" and prefix.check(["a"]) and store.delete_key("a") and not store.check(["a"])
    with pytest.raises(dist.DistStoreError, match="no value for zzz"):
        store.wait(["zzz"], datetime.timedelta(milliseconds=10))


def test_data_parallel_modules(world):
    model = nn.Linear(3, 2)
    parallel = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    assert [*parallel.state_dict()] == ["module.weight", "module.bias"]
    x = tg.randn(5, 3)
    with parallel.no_sync():
        parallel(x).sum().backward()
    before = model.weight.grad.clone()
    parallel(x).sum().backward()
    tg.testing.assert_close(model.weight.grad, 2 * before)
    assert parallel(x).equal(model(x))
    seen = []

    def hook(state, bucket):
        seen.append((state, bucket.is_last(), bucket.buffer().shape))
        return dist.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook(None, bucket)

    parallel.register_comm_hook("state", hook)
    model.zero_grad()
    parallel(x).sum().backward()
    assert seen == [("state", True, (8,))] and model.weight.grad.equal(before.bfloat16().float())
    with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
        nn.parallel.DistributedDataParallel(nn.ReLU())
    with dist.algorithms.Join([parallel]):
        parallel(x)
    optimizer = dist.optim.ZeroRedundancyOptimizer(model.parameters(), optimizer_class=tg.optim.SGD, lr=0.5)
    weight, grad = model.weight.detach().clone(), None
    model.zero_grad()
    model(x).sum().backward()
    grad = model.weight.grad.clone()
    optimizer.step()
    tg.testing.assert_close(model.weight.detach(), weight - 0.5 * grad)
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.5


def test_ddp_needs_a_world():
    with pytest.raises(ValueError, match="^Default process group has not been initialized"):
        nn.parallel.DistributedDataParallel(nn.Linear(1, 1))


def test_scatter_and_gather():
    x = tg.randn(4, 2)
    (part,) = nn.parallel.scatter({"a": [x, 3]}, ["cpu"])
    assert part["a"][0].equal(x) and part["a"][1] == 3
    first, second = nn.parallel.scatter((x, "b"), ["cpu", "cpu"])
    assert first[0].equal(x[:2]) and second == (second[0], "b")
    assert nn.parallel.gather([{"a": first[0]}, {"a": second[0]}], "cpu")["a"].equal(x)
    assert nn.parallel.parallel_apply([nn.Identity()], [x])[0] is x


def test_what_is_not_there_yet_can_be_imported():
    from tapegrad.distributed.fsdp.fully_sharded_data_parallel import StateDictType
    from tapegrad.distributed.pipelining import SplitPoint, pipeline
    from tapegrad.distributed.tensor import DeviceMesh, DTensor
    from tapegrad.distributed.tensor.parallel import parallelize_module

    assert DeviceMesh is dist.DeviceMesh and StateDictType.FULL_STATE_DICT.value == 1 and not isinstance(tg.ones(1), DTensor)
    assert SplitPoint.END.value == 2
    untraced = "models are not traced: make each stage's module yourself and give it to PipelineStage$"
    with pytest.raises(RuntimeError, match="No device mesh is currently active"):
        parallelize_module(nn.Linear(1, 1), None, {})
    with pytest.raises(NotImplementedError, match=f"^distributed.pipelining.pipeline: {untraced}"):
        pipeline(nn.Linear(1, 1), ())
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        dist.rpc.rpc_sync("a", print)
