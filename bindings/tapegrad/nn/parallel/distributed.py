"""DistributedDataParallel: one model on several processes, of which there is one."""

from __future__ import annotations

import contextlib
import copy
import itertools

from ..module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """Calls the module; gradients are the mean over all processes, which is this process's own.

    The names in the state are PyTorch's, `module.` first. `register_comm_hook` is called with all gradients in one bucket at
    the end of each backward pass. Raises ValueError without `distributed.init_process_group`, RuntimeError for a module
    without parameters that need gradients.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim: int = 0, broadcast_buffers: bool = True, init_sync: bool = True,
                 process_group=None, bucket_cap_mb=None, find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False, delay_all_reduce_named_params=None,
                 param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None, skip_all_reduce_unused_params=False):
        from ...distributed import distributed_c10d

        super().__init__()
        group = distributed_c10d._group(process_group if device_mesh is None else device_mesh.get_group(0))
        if not any(p.requires_grad for p in module.parameters()):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameters that require a gradient.")
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        self.module = module
        self.device_ids = list(device_ids) if device_ids else None
        self.output_device, self.dim, self.process_group = output_device, dim, group
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = True
        self._hooks_of_gradients: list = []

    def forward(self, *inputs, **kwargs):
        """module(*inputs, **kwargs)."""
        result = self.module(*inputs, **kwargs)
        if self._hooks_of_gradients and self.require_backward_grad_sync:
            self._when_backward_ends(result)
        return result

    @contextlib.contextmanager
    def no_sync(self):
        """A context in which gradients are only added up, as they are anyway."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextlib.contextmanager
    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False):
        """A context for processes with different numbers of inputs."""
        yield

    def join_hook(self, **kwargs):
        """What this does in distributed.algorithms.join.Join: nothing."""
        from ...distributed.algorithms.join import JoinHook

        return JoinHook()

    def register_comm_hook(self, state, hook) -> None:
        """hook(state, bucket) gives a future of what becomes of all gradients, as one vector."""
        if not callable(hook):
            raise TypeError("Communication hook must be callable.")
        if self._hooks_of_gradients:
            raise RuntimeError("register_comm_hook: a hook is registered already")
        self._hooks_of_gradients.append((state, hook))

    def _when_backward_ends(self, result) -> None:
        from ...autograd import Variable
        from ..utils.rnn import PackedSequence

        todo, queued = [result], []

        def run_hooks():
            queued.clear()
            self._pass_on()

        def first_gradient(grad):
            if not queued:
                queued.append(True)
                Variable._execution_engine.queue_callback(run_hooks)

        while todo:
            value = todo.pop()
            if isinstance(value, dict):
                todo.extend(value.values())
            elif isinstance(value, (list, tuple)) or isinstance(value, PackedSequence):
                todo.extend(value)
            elif getattr(value, "requires_grad", False):
                value.register_hook(first_gradient)

    def _pass_on(self) -> None:
        from ... import cat, no_grad
        from ...distributed import GradBucket

        having = [p for p in self.module.parameters() if p.grad is not None]
        for (state, hook), (_, params) in itertools.product(self._hooks_of_gradients, _by_dtype(having).items()):
            with no_grad():
                flat = cat([p.grad.reshape(-1) for p in params])
                parts = list(flat.split([p.numel() for p in params]))
                bucket = GradBucket(0, flat, [part.view_as(p) for part, p in zip(parts, params)], params, True)
                new = hook(state, bucket).wait()
                new = new[0] if isinstance(new, (list, tuple)) else new
                for p, part in zip(params, new.split([p.numel() for p in params])):
                    p.grad.copy_(part.view_as(p))

    def __getstate__(self):
        state = copy.copy(self.__dict__)
        state.pop("process_group", None)
        return state

    def __setstate__(self, state):
        from ...distributed import distributed_c10d

        super().__setstate__(state)
        self.process_group = distributed_c10d._group()


def _by_dtype(params) -> dict:
    kinds: dict = {}
    for p in params:
        kinds.setdefault(p.dtype, []).append(p)
    return kinds
