"""DistributedDataParallel: one model on several processes, each with its own part of the data.

A forward pass tells the native buckets (`_buckets.GradientSync`) that the next backward counts and which results it comes through;
gradients are put together and made equal on all ranks while the backward goes on. In a world of one process without a hook nothing
of this exists and the module is simply called.
"""

import contextlib
import copy
import dataclasses
import inspect
import sys
import time
import weakref

from ... import Tensor, is_grad_enabled
from ..._warn import warn
from ...distributed.algorithms.join import Join, Joinable, JoinHook
from ..module import Module
from . import _agreement
from ._buckets import _FIRST_BYTES, GradientSync
from ._mixed_precision import LowPrecision, _MixedPrecision  # noqa: F401  the second by PyTorch's path

__all__ = ["DistributedDataParallel"]

_CONTEXTS = f"{__name__.partition('.')[0]}.distributed.autograd._contexts"  # loaded where there are backward passes over several workers


def _tensors_of(value, found: list) -> list:
    """The tensors in a result: in lists, tuples, dictionaries, dataclasses."""
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for entry in value.values():
            _tensors_of(entry, found)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            _tensors_of(entry, found)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            _tensors_of(getattr(value, field.name), found)
    return found


def _number_of_samples(*inputs, **kwargs) -> int:
    """The length of the first tensor's first dimension."""
    first = next((t for t in _tensors_of([inputs, kwargs], []) if t.dim()), None)
    return 1 if first is None else first.size(0)


def _check_hook(hook) -> None:
    if not callable(hook):
        raise TypeError("Communication hook must be callable.")
    from ...distributed import GradBucket
    from ...futures import Future

    signature = inspect.signature(hook)
    bucket = signature.parameters.get("bucket")
    if bucket is not None and bucket.annotation not in (inspect.Parameter.empty, GradBucket, "GradBucket", "dist.GradBucket"):
        raise ValueError("Communication hook: bucket annotation should be dist.GradBucket.")
    result = signature.return_annotation
    if result is not inspect.Signature.empty and not (result is Future or "Future" in str(result)):
        raise ValueError("Communication hook: return annotation should be torch.futures.Future[torch.Tensor] or torch._C.Future.")


class _ReducerByName:
    """`ddp.reducer`, which libraries call to have a backward pass reduced that follows forward passes within no_sync()."""

    def __init__(self, ddp):
        self._ddp = ddp

    def prepare_for_backward(self, outputs) -> None:
        """The next backward pass is reduced; `outputs` are tensors that it starts from, as far as they are known."""
        sync = self._ddp._sync
        if sync is not None:
            sync.native.expect(True)
            sync.native.watch(_tensors_of(outputs, []))


class DistributedDataParallel(Module, Joinable):
    """Calls the module; gradients are the mean over all processes of the group, computed while the backward goes on.

    Arguments are PyTorch's. Gradients are always views of the buckets in which they are sent (a gradient that the program keeps is left to
    it); parameters that a rank does not use count as zero there, with either value of `find_unused_parameters`: False warns once and
    names them. Every backward through a result is reduced, a second one through a retained graph, too.

    mixed_precision: a `_MixedPrecision(param_dtype, reduce_dtype, buffer_dtype)` of `nn.parallel.distributed`: parameters and inputs are cast for
        the forward pass, gradients for the sums over the ranks, buffers once. Parameters and their gradients keep their dtype.
    average: "ranks"; "samples" weights each rank's gradients by its number of samples (the first dimension of its first input, summed over
        the forward passes since the last reduction), so that with losses that are means N processes do what one would with all samples;
        or a function of the inputs that gives that number.
    check_drift: every so many steps the bits of all parameters and buffers are compared; RuntimeError names the first that differ.
    report_stragglers: every so many steps rank 0 logs which rank the others wait for, where it costs them more than a tenth of their time.

    Raises ValueError without `distributed.init_process_group`, RuntimeError for a module without parameters that need gradients and
    where the ranks' models differ in names, shapes or dtypes.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim: int = 0, broadcast_buffers: bool | None = None, init_sync: bool = True,
                 process_group=None, bucket_cap_mb=None, find_unused_parameters: bool = False, check_reduction: bool = False,
                 gradient_as_bucket_view: bool = False, static_graph: bool = False, delay_all_reduce_named_params=None,
                 param_to_hook_all_reduce=None, mixed_precision=None, device_mesh=None, skip_all_reduce_unused_params: bool = False,
                 bucket_cap_mb_list: list | None = None, batched_grad_copy: bool = False, forward_sync_buffers: bool | None = None, *,
                 average="ranks", check_drift: int = 0, report_stragglers: int = 0):
        super().__init__()
        Joinable.__init__(self)
        if process_group is not None and device_mesh is not None:
            raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
        if device_mesh is not None and device_mesh.ndim != 1:
            raise RuntimeError(f"Only 1D device mesh is supported, but got {device_mesh}.")
        if (delay_all_reduce_named_params is None) != (param_to_hook_all_reduce is None):
            raise ValueError("delay_all_reduce_named_params and param_to_hook_all_reduce need to be set at the same time.")
        if not callable(average) and average not in ("ranks", "samples"):
            raise ValueError(f"DistributedDataParallel: average must be 'ranks', 'samples' or a function: got {average!r}")
        from ...distributed.distributed_c10d import _get_default_group

        self.process_group = device_mesh.get_group(0) if device_mesh is not None else process_group or _get_default_group()
        self.parameters_to_ignore = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        delayed = list(delay_all_reduce_named_params or ())
        self.parameters_to_ignore.update(n for n, _ in delayed)
        named = [(n, p) for n, p in module.named_parameters() if n not in self.parameters_to_ignore]
        if not delayed and not any(p.requires_grad for _, p in named):
            raise RuntimeError("DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.")
        self._check_devices(device_ids, output_device, [*named, *delayed])
        if check_reduction:
            warn("The `check_reduction` argument in `DistributedDataParallel` module is deprecated. Please avoid using it.", FutureWarning)
        if broadcast_buffers is not None and forward_sync_buffers is not None:
            warn("DistributedDataParallel: of `broadcast_buffers` and `forward_sync_buffers`, its new name, the latter counts", FutureWarning)
        self.module, self.dim, self.device = module, dim, (named or delayed)[0][1].device
        sync = forward_sync_buffers if forward_sync_buffers is not None else broadcast_buffers is not False
        self.forward_sync_buffers = self.broadcast_buffers = sync
        self.find_unused_parameters, self.gradient_as_bucket_view = find_unused_parameters, gradient_as_bucket_view
        self.require_backward_grad_sync = self.require_forward_param_sync = True
        self.bucket_bytes_cap = int((25 if bucket_cap_mb is None else bucket_cap_mb) * 1024 * 1024)
        self._caps = [_FIRST_BYTES, self.bucket_bytes_cap] if bucket_cap_mb is None else [self.bucket_bytes_cap]
        if bucket_cap_mb_list:
            self._caps = [int(mb * 1024 * 1024) for mb in bucket_cap_mb_list]
        self._average, self._check_drift, self._report_stragglers = average, check_drift, report_stragglers
        self.static_graph = False
        self._hook_of_gradients = self._hook_of_buffers = None
        self.mixed_precision = mixed_precision
        self._low = None if mixed_precision is None else LowPrecision(module, mixed_precision, self.parameters_to_ignore)
        self._build()
        if init_sync and self.process_group.size() > 1:
            _agreement.check_same_model([(n, p) for n, p in named if p.requires_grad], self.process_group)
            states = [p for _, p in named]
            if forward_sync_buffers is not None or broadcast_buffers is not False:
                states += self._buffers_to_sync()
            _agreement.broadcast_from(states, 0, self.process_group)
        self._delayed = None
        if delayed and self.process_group.size() > 1:
            self._delayed = _DelayedReduction(self, delayed, param_to_hook_all_reduce)
        if static_graph:
            self._set_static_graph()

    def _check_devices(self, device_ids, output_device, named) -> None:
        if device_ids is not None and len(device_ids) > 1:
            raise ValueError("device_ids can only be None or contain a single element.")
        devices = {p.device for _, p in named}
        types = {d.type for d in devices}
        self.is_multi_device_module = len(devices) > 1
        if len(types) != 1:
            raise ValueError("DistributedDataParallel's input module must be on the same type of devices, but input module parameters locate in "
                             f"{types}.")
        (self.device_type,) = types
        self.device_ids = self.output_device = None
        if not device_ids or self.device_type == "cpu" or self.is_multi_device_module:
            if device_ids or output_device:
                raise ValueError("DistributedDataParallel device_ids and output_device arguments only work with single-device/multiple-device GPU "
                                 f"modules or CPU modules, but got device_ids {device_ids}, output_device {output_device}, and module parameters "
                                 f"{devices}.")
        else:
            self.device_ids = list(device_ids)
            self.output_device = device_ids[0] if output_device is None else output_device

    def _build(self) -> None:
        """What is not part of the state: buckets, hooks, counts."""
        self._sync = self._stragglers = None
        self._checked = 0
        self._named = [(n, p) for n, p in self.module.named_parameters() if p.requires_grad and n not in self.parameters_to_ignore]
        if self._named and (self.process_group.size() > 1 or self._hook_of_gradients is not None):
            sparse_weights = {id(p) for m in self.module.modules() if getattr(m, "sparse", False) is True for p in m.parameters(recurse=False)}
            self._sync = GradientSync(self.process_group, self._named, [id(p) in sparse_weights for _, p in self._named], self._caps,
                                      "ranks" if self._average == "ranks" else "samples", not self.find_unused_parameters)
            self._sync.hook = self._hook_of_gradients
            self._sync.dtype = getattr(self.mixed_precision, "reduce_dtype", None)
            if self.static_graph:
                self._sync.native.learn()
            if self._report_stragglers and self.process_group.size() > 1:
                self._stragglers = _agreement.Stragglers(self.process_group, self._report_stragglers)

    @property
    def _module_parameters(self) -> list:
        return [p for n, p in self.module.named_parameters() if n not in self.parameters_to_ignore]

    def _named_buffers(self) -> list:
        return [(n, b) for n, b in self.module.named_buffers() if n not in self.parameters_to_ignore]

    def _buffers_to_sync(self) -> list:
        return [b for _, b in self._named_buffers()]

    @property
    def reducer(self) -> _ReducerByName:
        """PyTorch's reducer, as far as libraries call it."""
        return _ReducerByName(self)

    # One step.
    def forward(self, *inputs, **kwargs):
        """module(*inputs, **kwargs)."""
        inputs, kwargs, recorded = self._enter_forward(inputs, kwargs)
        return self._leave_forward((self._low or self.module)(*inputs, **kwargs), recorded)

    def _enter_forward(self, inputs: tuple, kwargs: dict) -> tuple:
        """What happens before the module's own forward pass: its arguments, and whether it is recorded."""
        if self.device_ids:
            from .scatter_gather import scatter_kwargs

            (inputs,), (kwargs,) = scatter_kwargs(inputs, kwargs, self.device_ids)
        recorded = is_grad_enabled()
        if self._delayed is not None and recorded:
            self._delayed.before_forward()
        if self._sync is not None:
            self._before(recorded and self.require_backward_grad_sync)
            if self._average != "ranks" and recorded:
                self._sync.samples += (self._average if callable(self._average) else _number_of_samples)(*inputs, **kwargs)
        return inputs, kwargs, recorded

    def _leave_forward(self, result, recorded: bool):
        if self._sync is None:
            return result
        if recorded and self.require_backward_grad_sync:
            self.require_forward_param_sync = True
            self._sync.native.expect(True)
            current = getattr(sys.modules.get(_CONTEXTS), "current", None)  # None, too, where another thread is importing it
            if current is not None and current() is not None:
                current().reduces = True
            self._sync.native.watch([result] if type(result) is Tensor else _tensors_of(result, []))
        else:
            self.require_forward_param_sync = False
            if recorded:
                self._sync.native.expect(False)
        return result

    def _before(self, synchronised: bool) -> None:
        """What the ranks do together before a forward pass."""
        sync, joining = self._sync, self._join_config.enable
        count = Join.notify_join_context(self)
        sent = self.will_sync_module_buffers()
        if sent:
            begin = time.perf_counter()
            self._sync_buffers()
            sync.waited += time.perf_counter() - begin
        if not joining:
            sync.divisor = None
            if synchronised and sync.steps != self._checked:
                self._now_and_then(sync.steps, sent and self._hook_of_buffers is None)
            return
        active = self._backward_is_reduced(synchronised)
        if count is not None:
            count.wait()
            active = int(count.result()[0].item())
        sync.divisor = None if self._divide_by_initial_world_size else active

    def _now_and_then(self, step: int, same_buffers: bool) -> None:
        self._checked = step
        if self._stragglers is not None:
            self._stragglers.after_step(step, self._sync.waited)
        if self._check_drift and step % self._check_drift == 0:
            _agreement.check_drift([*self._named, *(self._named_buffers() if same_buffers else ())], self.process_group, step)

    def _backward_is_reduced(self, yes: bool) -> int:
        """How many ranks will reduce the gradients of this step: within join, those without input ask for it."""
        from ... import tensor
        from ...distributed import all_reduce

        flag = tensor([float(yes)])
        all_reduce(flag, group=self.process_group)
        return int(flag.item())

    @contextlib.contextmanager
    def no_sync(self):
        """A context in which gradients are only added up on each rank; the first backward after it reduces what was added up."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    # Buffers.
    def will_sync_module_buffers(self) -> bool:
        """Whether the next forward pass sends rank 0's buffers to all."""
        return self.require_forward_param_sync and self.forward_sync_buffers and self.process_group.size() > 1 and bool(self._buffers_to_sync())

    def _sync_buffers(self) -> None:
        root = 0
        if self._join_config.enable:
            root = self._find_common_rank(self.process_group.rank(), True)
        if self._hook_of_buffers is None:
            _agreement.broadcast_from(self._buffers_to_sync(), root, self.process_group)
            return
        state, hook = self._hook_of_buffers
        for future in hook(state, dict(self._named_buffers())) or ():
            future.wait()

    def _find_common_rank(self, rank: int, is_candidate: bool) -> int:
        """The highest rank that is a candidate."""
        from ... import tensor
        from ...distributed import ReduceOp, all_reduce

        highest = tensor([rank if is_candidate else -1])
        all_reduce(highest, ReduceOp.MAX, group=self.process_group)
        if highest.item() < 0:
            raise ValueError("DistributedDataParallel: no rank of the group is a candidate")
        return int(highest.item())

    # Hooks and settings.
    def register_comm_hook(self, state, hook) -> None:
        """hook(state, bucket) gives a future of what becomes of a bucket's gradients; it takes the place of the mean over ranks."""
        _check_hook(hook)
        if self._hook_of_gradients is not None:
            raise RuntimeError("register_comm_hook or register_builtin_comm_hook can only be called once.")
        self._hook_of_gradients = (state, hook)
        if self._sync is None:
            self._build()
        if self._sync is not None:  # all reductions may be delayed
            self._sync.hook = self._hook_of_gradients

    def _register_builtin_comm_hook(self, comm_hook_type) -> None:
        from ...distributed.algorithms.ddp_comm_hooks import default_hooks

        name = getattr(comm_hook_type, "name", str(comm_hook_type))
        self.register_comm_hook(self.process_group, getattr(default_hooks, "fp16_compress_hook" if "FP16" in name else "allreduce_hook"))

    def _register_buffer_comm_hook(self, state, hook, comm_hook_location=None) -> None:
        """hook(state, {name: buffer}) takes the place of the broadcast of buffers before each forward pass."""
        if not callable(hook):
            raise AssertionError(f"hook must be callable, got {type(hook).__name__}")
        self._hook_of_buffers = (state, hook)

    def _set_static_graph(self) -> None:
        """The model does the same in every step: gradients that come several times in one backward are counted in the first one."""
        if not self.static_graph:
            self.static_graph = True
            if self._sync is not None:
                self._sync.native.learn()

    @staticmethod
    def _set_params_and_buffers_to_ignore_for_model(module, params_and_buffers_to_ignore) -> None:
        """These names of the module's are left alone by a DistributedDataParallel made later."""
        module._ddp_params_and_buffers_to_ignore = params_and_buffers_to_ignore

    def _get_ddp_logging_data(self) -> dict:
        """Numbers about this model, by PyTorch's names."""
        sync = self._sync
        params = [p for p in self._module_parameters if p.requires_grad]
        sizes = [sum(params[i].numel() * params[i].element_size() for i in bucket) for bucket in sync.buckets] if sync else []
        return {"world_size": self.process_group.size(), "rank": self.process_group.rank(), "module_name": type(self.module).__name__,
                "iteration": sync.steps if sync else 0, "num_parameter_tensors": len(params),
                "total_parameter_size_bytes": sum(p.numel() * p.element_size() for p in params),
                "dtypes": ", ".join(sorted({str(p.dtype).rpartition(".")[2] for p in params})), "backend_name": self.process_group.name(),
                "bucket_cap_bytes": self.bucket_bytes_cap, "bucket_sizes": ", ".join(map(str, sizes)), "broadcast_buffers": int(self.broadcast_buffers),
                "find_unused_parameters": int(self.find_unused_parameters), "gradient_as_bucket_view": int(self.gradient_as_bucket_view),
                "static_graph": int(self.static_graph), "has_rebuilt_buckets": int(bool(sync and sync.rebuilt)),
                "comm_hook": getattr(self._hook_of_gradients[1], "__qualname__", "") if self._hook_of_gradients else "",
                "waited_seconds": sync.waited if sync else 0.0}

    # Uneven inputs.
    @contextlib.contextmanager
    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True, throw_on_early_termination: bool = False):
        """A context for ranks with different numbers of inputs: those that are done take part in the others' steps with zeros."""
        with Join([self], enable, throw_on_early_termination, divide_by_initial_world_size=divide_by_initial_world_size):
            yield

    def join_hook(self, **kwargs) -> JoinHook:
        """What this does in distributed.algorithms.join.Join."""
        return _DDPJoinHook(self, kwargs.get("divide_by_initial_world_size", True))

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return self.process_group

    # Copies and files.
    def __getstate__(self):
        from ...distributed.distributed_c10d import _get_default_group

        if self.process_group is not _get_default_group():
            raise RuntimeError("DDP Pickling/Unpickling are only supported when using DDP with the default process group. That is, when you have "
                               "called init_process_group and have not passed process_group argument to DDP constructor")
        state = copy.copy(self.__dict__)
        for name in ("process_group", "_sync", "_stragglers", "_named", "_delayed"):
            state.pop(name, None)
        return {**state, "_hook_of_gradients": None, "_hook_of_buffers": None}

    def __setstate__(self, state):
        from ...distributed.distributed_c10d import _get_default_group

        super().__setstate__(state)
        self.process_group = _get_default_group()
        self._delayed = None
        self._build()


class _DelayedReduction:
    """Parameters of which the gradients lie in one buffer, reduced when the gradient of another parameter comes."""

    def __init__(self, ddp, named: list, trigger):
        from ... import zeros

        self.parameters = [p for _, p in named]
        kinds = {(p.dtype, p.device) for p in self.parameters}
        if len(kinds) != 1:
            raise ValueError("DistributedDataParallel: delay_all_reduce_named_params must have one dtype and device: got "
                             f"{sorted(map(str, kinds))}")
        ((dtype, device),) = kinds
        self.buffer = zeros(sum(p.numel() for p in self.parameters), dtype=dtype, device=device)
        self.views, offset = [], 0
        for p in self.parameters:
            self.views.append(self.buffer[offset:offset + p.numel()].view(p.shape))
            offset += p.numel()
        _agreement.check_same_model(named, ddp.process_group)
        _agreement.broadcast_from(self.parameters, 0, ddp.process_group)
        reference = weakref.ref(ddp)

        def reduce(gradient):
            owner = reference()
            if owner is not None and owner.require_backward_grad_sync:
                from ...distributed import ReduceOp, all_reduce

                all_reduce(self.buffer, ReduceOp.AVG, group=owner.process_group)
            return gradient

        trigger.register_hook(reduce)

    def before_forward(self) -> None:
        """Gradients are added up in the buffer, since they are there in place."""
        if all(p.grad is None for p in self.parameters):
            self.buffer.zero_()
        for p, view in zip(self.parameters, self.views, strict=True):
            if p.grad is None:
                p.grad = view.zero_()


class _DDPJoinHook(JoinHook):
    def __init__(self, ddp, divide_by_initial_world_size: bool):
        self.ddp = ddp
        ddp._divide_by_initial_world_size = divide_by_initial_world_size

    def main_hook(self) -> None:
        ddp = self.ddp
        sync = ddp._sync
        if sync is None:
            return
        if ddp.will_sync_module_buffers():
            root = ddp._find_common_rank(ddp.process_group.rank(), False)
            if ddp._hook_of_buffers is None:
                _agreement.broadcast_from(ddp._buffers_to_sync(), root, ddp.process_group)
        ddp.require_forward_param_sync = reduced = ddp._backward_is_reduced(False) > 0
        if reduced:
            sync.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        ddp = self.ddp
        if ddp.process_group.size() > 1:
            root = ddp._find_common_rank(ddp.process_group.rank(), is_last_joiner)
            states = ddp._module_parameters + (ddp._buffers_to_sync() if ddp.forward_sync_buffers else [])
            _agreement.broadcast_from(states, root, ddp.process_group)
