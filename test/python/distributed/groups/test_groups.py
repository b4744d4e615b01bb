"""Groups of some ranks, meshes, and who is who in them; collectives with gradients; all compared with torch in the same processes."""

import os
import warnings

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks, run_ranks_with_torch


def both(rank: int, n: int, do):
    """What do(library, its distributed, rank, n) gives with tapegrad and with torch."""
    torch = pytest.importorskip("torch")
    theirs = torch.distributed
    theirs.init_process_group("gloo", init_method="file://" + os.environ["TORCH_STORE"], rank=rank, world_size=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pair = do(tg, dist, rank, n), do(torch, theirs, rank, n)
    theirs.destroy_process_group()
    return pair


def check(n: int, function, tmp_path):
    for ours, theirs in results(run_ranks_with_torch(n, function, environment={"TORCH_STORE": str(tmp_path / "torch")})):
        assert ours == theirs
        assert ours


def raised(f, *args, **kwargs):
    """The class of what a call raises, by its name."""
    try:
        f(*args, **kwargs)
    except Exception as error:
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    return "nothing"


def use_groups(library, d, rank: int, n: int):
    seen = []
    local = d.new_group([0, 1] if rank < 2 else [2, 3], use_local_synchronization=True)
    odd = d.new_group([3, 1])
    last = d.new_group([n - 1, 0, 2], sort_ranks=False)
    for group, members in ((odd, [1, 3]), (last, [n - 1, 0, 2])):
        inside = rank in members
        seen.append((inside, d.get_rank(group), d.get_world_size(group), group == d.GroupMember.NON_GROUP_MEMBER))
        t = library.ones(2) * (rank + 1)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            d.all_reduce(t, group=group)
            seen.append([str(w.message) for w in caught])
        seen.append(t.tolist())
        if not inside:
            continue
        seen += [d.get_process_group_ranks(group), d.get_global_rank(group, 1), d.get_group_rank(group, members[0]), group.rank(), group.size()]
        d.broadcast(t, src=members[-1], group=group)
        seen.append(t.tolist())
        d.broadcast(t.mul_(rank + 2), group_src=0, group=group)
        seen.append(t.tolist())
        seen += [raised(d.broadcast, t, src=members[0], group_src=0, group=group), raised(d.broadcast, t, group=group),
                 raised(d.get_global_rank, group, 7), raised(d.get_group_rank, group, 17), raised(d.broadcast, t, src=55, group=group)]
    mine, groups = d.new_subgroups(2)
    t = library.tensor([float(rank)])
    d.all_reduce(t, d.ReduceOp.MAX, group=mine)
    seen += [t.tolist(), len(groups), d.get_process_group_ranks(mine)]
    mine, groups = d.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    d.all_reduce(t, group=mine)
    seen += [t.tolist(), d.get_process_group_ranks(mine)]
    d.all_reduce(t, group=local)
    seen += [t.tolist(), d.get_process_group_ranks(local)]
    seen += [raised(d.new_group, [0, 0]), raised(d.new_group, [0, 99]), raised(d.new_group, [0], timeout=3), raised(d.new_subgroups, 3),
             raised(d.new_subgroups, 99), raised(d.new_subgroups, 0), raised(d.new_subgroups_by_enumeration, [])]
    d.destroy_process_group(local)
    seen += [raised(d.get_backend, local), raised(d.destroy_process_group, local), d.get_backend(), d.get_backend(mine), d.is_initialized()]
    return seen


def groups_of_both(rank, n):
    return both(rank, n, use_groups)


def test_groups_are_torch_s(tmp_path):
    check(4, groups_of_both, tmp_path)


def split(rank, n):
    group = dist.split_group(split_ranks=[[0, 2], [1, 3]])
    again = dist.split_group(group, split_ranks=[[1]])
    t = tg.tensor([rank])
    dist.all_reduce(t, group=group)
    return t.item(), dist.get_process_group_ranks(group), None if again is None else dist.get_process_group_ranks(again)


def test_split_group():
    assert results(run_ranks(4, split)) == [(2, [0, 2], None), (4, [1, 3], None), (2, [0, 2], [2]), (4, [1, 3], [3])]


def use_meshes(library, d, rank: int, n: int):
    from_mesh = d.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    seen = [from_mesh.mesh.tolist(), repr(from_mesh), from_mesh.get_coordinate(), from_mesh.get_local_rank("tp"), from_mesh.shape,
            from_mesh.size(0), from_mesh.ndim, from_mesh.get_rank()]
    for name in ("dp", "tp"):
        part = from_mesh[name]
        t = library.tensor([rank + 1.0])
        d.all_reduce(t, group=part.get_group())
        seen += [part.mesh.tolist(), repr(part), t.item(), part.get_local_rank(), part.get_coordinate(),
                 d.get_process_group_ranks(from_mesh.get_group(name)), part.mesh_dim_names]
    flat = from_mesh._flatten("all")
    seen += [flat.mesh.tolist(), repr(flat), flat.size(), d.get_process_group_ranks(flat.get_group()), from_mesh._flatten("all") == flat]
    cube = d.init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("a", "b", "c"))
    seen += [cube["a", "c"].mesh.tolist(), cube["a", "b"]._flatten().mesh.tolist(), repr(cube["a", "b"]._flatten()),
             d.get_process_group_ranks(cube["a", "b"]._flatten().get_group()), cube["b"].get_local_rank(), cube["a", "c"]["c"].mesh.tolist()]
    seen += [raised(lambda: cube["c", "a"]), raised(lambda: cube["x"]), raised(cube.get_group), raised(cube.get_group, "x"),
             raised(d.init_device_mesh, "cpu", (3, 2)), raised(d.init_device_mesh, "cpu", (2, 2), mesh_dim_names=("a", "a")),
             raised(d.init_device_mesh, "cpu", (2, 2), mesh_dim_names=("a",)), raised(d.init_device_mesh, "cpu:0", (4,))]
    wide = flat._unflatten(0, (2, 2), ("x", "y"))
    seen += [wide.mesh.tolist(), wide["y"].mesh.tolist(), d.get_process_group_ranks(wide.get_group("x"))]
    given = d.device_mesh.DeviceMesh("cpu", [3, 1, 0, 2])
    t = library.tensor([rank])
    d.broadcast(t, 3, group=given.get_group())
    seen += [t.item(), given.mesh.tolist(), given == d.device_mesh.DeviceMesh("cpu", [3, 1, 0, 2]), given == flat]
    d.barrier()  # torch's gloo loses a rank whose peer leaves while it connects
    some = d.device_mesh.DeviceMesh("cpu", [1, 2])
    d.barrier()
    seen += [some.get_coordinate(), some.mesh.tolist()]
    made = d.device_mesh.DeviceMesh.from_group(from_mesh.get_group("dp"), "cpu", mesh_dim_names=("dp",))
    seen += [made.mesh.tolist(), made.get_local_rank()]
    return seen


def meshes_of_both(rank, n):
    return both(rank, n, use_meshes)


def test_meshes_are_torch_s(tmp_path):
    check(4, meshes_of_both, tmp_path)


def use_gradients(library, d, rank: int, n: int):
    if library is tg:
        from tapegrad.distributed import _functional_collectives as fc
        from tapegrad.distributed.nn import functional as f
    else:
        from torch.distributed import _functional_collectives as fc
        from torch.distributed.nn import functional as f
    seen = []

    def take(make, shape=(4,), only=None):
        x = (library.arange(int(library.tensor(shape).prod())).reshape(shape) + rank * 1.0).requires_grad_()
        out = make(x)
        outs = out if isinstance(out, (tuple, list)) else [out]
        sum((o * (o.detach() * 0.5 + rank + i)).sum() for i, o in enumerate(outs)).backward()
        seen.append(([o.tolist() for o in outs] if only in (None, rank) else [], x.grad.tolist()))

    take(lambda x: f.all_reduce(x))
    take(lambda x: f.broadcast(x, 1))
    take(lambda x: f.reduce(x, 1), only=1)  # elsewhere torch's gloo leaves what it used as scratch
    take(lambda x: f.all_gather(x))
    take(lambda x: f.gather(x, dst=1))
    take(lambda x: f.scatter([x * (i + 1) for i in range(n)], src=1))
    take(lambda x: f.reduce_scatter(library.zeros(4), [x * (i + 1) for i in range(n)]))
    take(lambda x: f.all_to_all([library.zeros(4) for _ in range(n)], [x * (i + 1) for i in range(n)]))
    take(lambda x: f.all_to_all_single(library.zeros(n, 2), x, None, None), (n, 2))
    world = d.group.WORLD
    take(lambda x: fc.wait_tensor(fc.all_reduce(x, "sum", world)))
    take(lambda x: fc.all_gather_single(x, 1, world), (2, 3))
    take(lambda x: fc.reduce_scatter_single(x, "sum", 1, world), (2, 2 * n))
    take(lambda x: fc.all_to_all_single_autograd(x, [r + 1 for r in range(n)], [rank + 1] * n, world), (n * (rank + 1), 2))
    seen.append([t.tolist() for t in fc.all_reduce_coalesced([library.ones(2) * rank, library.ones(3)], "max", world)])
    seen.append(fc.broadcast(library.ones(2) * rank, 1, world).tolist())
    seen.append(fc.permute_tensor(library.ones(2) * rank, [(r + 1) % n for r in range(n)], world).tolist())
    return seen


def gradients_of_both(rank, n):
    return both(rank, n, use_gradients)


@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.long)])
def test_gradients_are_torch_s(n, tmp_path):
    check(n, gradients_of_both, tmp_path)


class Doubling(dist.ProcessGroup):
    """A backend in Python: a world in which all ranks have what this one has."""

    def allreduce(self, tensors, opts=None):
        for t in tensors:
            t.mul_(self.size())
        return dist.Work(tensors)


def test_a_backend_in_python():
    dist.Backend.register_backend("doubling", lambda store, rank, size, timeout: Doubling(store, rank, size), devices=["cpu"])
    dist.init_process_group("doubling", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert dist.get_backend() == dist.Backend.DOUBLING == "doubling" and dist.get_backend_config() == "cpu:doubling"
        dist.group.WORLD._size = 2
        t = tg.ones(2)
        assert dist.all_reduce(t, async_op=True).wait() and t.tolist() == [2, 2]
    finally:
        dist.destroy_process_group()
    with pytest.raises(TypeError, match="creator must give a ProcessGroup: got int$"):
        dist.Backend.register_backend("doubling", lambda *_: 3, devices="cpu")
        dist.init_process_group("doubling", store=dist.HashStore(), rank=0, world_size=1)
    assert not dist.is_initialized()
