"""What libraries above (Lightning, Accelerate) call of torch.distributed and beside it, by its names there."""

import dataclasses
import os

import pytest
import tapegrad as tg
import tapegrad.distributed as dist
from distributed.ranks import results, run_ranks
from tapegrad.distributed.distributed_c10d._available import mpi_is_there
from tapegrad.distributed.launcher.api import LaunchConfig, elastic_launch
from tapegrad.numa.binding import AffinityMode, NumaOptions


def sync(rank, size):
    from tapegrad.distributed.utils import _sync_module_states, _verify_param_shape_across_processes

    model = tg.nn.Sequential(tg.nn.Linear(2, 2), tg.nn.BatchNorm1d(2))
    with tg.no_grad():
        for t in [*model.parameters(), model[1].running_mean, model[1].running_var]:
            t.fill_(rank + 1)
    _sync_module_states(model, dist.group.WORLD, 1024, 1, {"0.bias"})
    found = [model[0].weight.sum().item(), model[0].bias.sum().item(), model[1].running_mean.sum().item()]
    _sync_module_states(model, dist.group.WORLD, 1024, 0, set(), broadcast_buffers=False)
    found += [model[0].bias.sum().item(), model[1].running_mean.sum().item()]
    _verify_param_shape_across_processes(dist.group.WORLD, list(model.parameters()))
    with pytest.raises(RuntimeError, match="tensor 1"):
        _verify_param_shape_across_processes(dist.group.WORLD, [tg.ones(2), tg.ones(2 + rank)])
    return found


def test_all_ranks_get_the_states_of_one():
    assert results(run_ranks(2, sync, start="fork")) == [[8, 2, 4, 2, 4], [8, 4, 4, 2, 4]]


def layers_as_objects(rank, size):
    objects = [tg.nn.Linear(2, 1) if rank == 0 else None]
    with tg.no_grad():
        if rank == 0:
            objects[0].weight.fill_(3)
    dist.broadcast_object_list(objects)
    return type(objects[0]).__name__, objects[0].weight.tolist()


def test_objects_may_be_layers():
    assert results(run_ranks(2, layers_as_objects, start="fork")) == [("Linear", [[3, 3]])] * 2


def reduced_by_name(rank, size):
    ddp = tg.nn.parallel.DistributedDataParallel(tg.nn.Linear(1, 1, bias=False))
    weight, found = ddp.module.weight, []
    for outputs in (lambda x: [], lambda x: [x], lambda x: {"loss": x}):
        weight.grad = None
        with ddp.no_sync():
            losses = [ddp(tg.full((1, 1), rank + 1.0 + i)).sum() for i in range(2)]
        losses[0].backward()
        found.append(weight.grad.item())  # of this rank alone
        ddp.require_backward_grad_sync = ddp.require_forward_param_sync = True
        ddp.reducer.prepare_for_backward(outputs(losses[1]))
        losses[1].backward()
        found.append(weight.grad.item())  # the mean over the ranks of both
    return found


def test_accelerate_has_a_backward_reduced_after_no_sync():
    assert results(run_ranks(2, reduced_by_name, start="fork")) == [[1.0, 4.0] * 3, [2.0, 4.0] * 3]


def test_a_launcher_s_options_may_be_taken_back_until_it_starts():
    config = LaunchConfig(1, 1, 1, numa_options=NumaOptions(AffinityMode.NODE))
    assert any(field.name == "numa_options" for field in dataclasses.fields(config)) and AffinityMode("node") is AffinityMode.NODE
    with pytest.raises(ValueError, match="has no numa_options: got NumaOptions"):
        elastic_launch(config, print)()


def test_mpi_is_available_to_what_mpirun_started(monkeypatch):
    """Accelerate takes MPI where it is available; under another launcher there is none."""
    for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    assert not dist.is_mpi_available()
    monkeypatch.setenv("PMI_SIZE", "2")
    assert dist.is_mpi_available() == mpi_is_there()


def test_the_cpu_is_a_device_of_any_number():
    """Accelerate sets the device "cpu:1" on rank 1 through torch.cpu."""
    tg.cpu.set_device("cpu:1")
    assert tg.cpu.current_device() == "cpu" and tg.cpu.is_initialized() and tg.cpu.Event().query()
    with tg.cpu.stream(tg.cpu.Stream()) as entered:
        assert isinstance(tg.cpu.stream(None), tg.cpu.StreamContext) and entered is not None
    torch = pytest.importorskip("torch")
    assert set(torch.cpu.__all__) <= set(tg.cpu.__all__)
    theirs = torch.cpu.get_capabilities()
    if os.path.exists("/proc/cpuinfo") and theirs.get("architecture") == "x86_64":
        ours = tg.cpu.get_capabilities()
        assert ours and ours == {name: theirs[name] for name in ours}


def test_states_of_an_optimizer_that_has_not_stepped():
    """pytorch/examples' FSDP2 makes them by this name before it loads."""
    from tapegrad.distributed.checkpoint.state_dict import _init_optim_state

    weight = tg.nn.Parameter(tg.ones(2))
    optimizer = tg.optim.Adam([weight])
    _init_optim_state(optimizer)
    assert set(optimizer.state[weight]) == {"step", "exp_avg", "exp_avg_sq"} and weight.tolist() == [1, 1] and weight.grad is None
