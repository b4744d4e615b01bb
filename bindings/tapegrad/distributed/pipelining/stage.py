"""PipelineStage: a part of a model that one rank runs, between those before and after it."""

import contextlib

from ... import Tensor, enable_grad, no_grad
from ... import autograd as _autograd
from ...nn import Module
from .. import distributed_c10d as c10d
from ..tensor import DTensor
from ._messages import Neighbour

__all__ = ["PipelineStage"]


class PipelineStage:
    """Stage `stage_index` of `num_stages`.

    Args:
        submodule: this stage's part of the model; takes what the one before it gives, a tensor or a tuple of tensors.
        stage_index: also this process's rank in the group.
        num_stages: the size of the group.
        device: where the stage runs; the module is moved there.
        input_args, output_args, output_grads, input_grads: examples; not needed, since shapes come along with what is sent.
        group: the group of the stages; the world.

    Raises TypeError where the submodule is none, ValueError for a wrong stage or place, NotImplementedError for several stages on a rank.
    """

    def __init__(self, submodule, stage_index: int, num_stages: int, device, input_args=None, output_args=None, output_grads=None,
                 input_grads=None, group=None, dw_builder=None, get_mesh=None):
        if not isinstance(submodule, Module):
            raise TypeError(f"PipelineStage: expected a Module: got {type(submodule).__name__}")
        if not 0 <= stage_index < num_stages:
            raise ValueError(f"Stage index {stage_index} is out of range of {num_stages}")
        if dw_builder is not None:
            raise NotImplementedError("PipelineStage: dw_builder belongs to zero-bubble schedules, which are not supported")
        self.group = c10d._group_or_default_group(group)
        self.group_rank, self.group_size = c10d.get_rank(self.group), c10d.get_world_size(self.group)
        if self.group_size > num_stages:
            raise RuntimeError(f"Pipeline group size {self.group_size} cannot be larger than number of stages {num_stages}")
        if self.group_size < num_stages:
            raise NotImplementedError(f"PipelineStage: {num_stages} stages on {self.group_size} ranks: several stages on one rank are not supported\n"
                                      "use as many ranks as stages")
        if self.group_rank != stage_index:
            raise ValueError(f"PipelineStage: stage {stage_index} must be on rank {stage_index} of the group: this is rank {self.group_rank}")
        self.submod = submodule.to(device)
        self.stage_index, self.num_stages, self.device = stage_index, num_stages, device
        self.has_backward = False
        self.before = None if self.is_first else Neighbour(self.group, stage_index - 1, device)
        self.after = None if self.is_last else Neighbour(self.group, stage_index + 1, device)
        self.step_number = 0
        self.clear()

    @property
    def is_first(self) -> bool:
        """Whether batches come in here."""
        return self.stage_index == 0

    @property
    def is_last(self) -> bool:
        """Whether results come out here."""
        return self.stage_index == self.num_stages - 1

    def clear(self) -> None:
        """Forgets what is left of a step."""
        self.output_chunks: list = []
        self._kept: dict = {}  # micro-batch: what came in, what went out

    clear_runtime_states = clear

    def _about(self, direction: str, index: int, chunks: int) -> dict:
        return {"step": self.step_number, "direction": direction, "micro-batch": index, "of": chunks, "trains": self.has_backward}

    def forward_one(self, index: int, chunks: int, args: tuple, kwargs: dict):
        """The result of one micro-batch, which goes on to the next stage."""
        if not self.is_first:
            received, flags = self.before.receive(self._about("forward", index, chunks))
            args = tuple(t.requires_grad_(flag) for t, flag in zip(received, flags, strict=True))
        with enable_grad() if self.has_backward else no_grad():
            self._sync(False)
            out = self.submod(*args, **kwargs)
        results = out if isinstance(out, (tuple, list)) else (out,)
        if not self.is_last:
            wrong = [type(t).__name__ for t in results if not isinstance(t, Tensor) or isinstance(t, DTensor)]
            if wrong:
                raise TypeError(f"PipelineStage: stage {self.stage_index} must give a tensor or a tuple of plain tensors for the next one: got {wrong}")
            about = self._about("forward", index, chunks)
            about["flags"] = [bool(t.requires_grad) and self.has_backward for t in results]
            self.after.send(about, results)
        if self.has_backward:
            self._kept[index] = args, results
        return out

    def backward_one(self, index: int, chunks: int, loss=None, last: bool = False) -> None:
        """The gradients of one micro-batch, from the loss or from the next stage; those of what came in go to the stage before."""
        args, results = self._kept.pop(index)
        self._sync(last)
        if self.is_last:
            if loss.requires_grad:
                loss.backward()
        else:
            grads, _ = self.after.receive(self._about("backward", index, chunks))
            pairs = [(t, g) for t, g in zip(results, grads, strict=True) if g is not None and t.requires_grad]
            if pairs:
                _autograd.backward([t for t, _ in pairs], [g for _, g in pairs])
        if not self.is_first:
            self.before.send(self._about("backward", index, chunks), [t.grad if t.requires_grad else None for t in args])

    def _sync(self, last: bool) -> None:
        """Sharded parameters: gradients stay whole and add up until the last micro-batch."""
        for module in self.submod.modules() if self.has_backward else ():
            if getattr(module, "_fsdp_unit", None) is not None:
                module._fsdp_unit.syncs = last

    def scale_grads(self, grad_scale_factor: int) -> None:
        """Divides the gradients of all parameters by a number."""
        if grad_scale_factor != 1:
            with no_grad():
                for p in self.submod.parameters():
                    if p.grad is not None:
                        p.grad.div_(grad_scale_factor)

    def agree_on_end(self, chunks: int) -> None:
        """The first stage is done last: a word goes from it to the last one, so that a step has failed on all stages or on none."""
        if not self.is_first:
            self.before.receive(self._about("end", chunks, chunks))
        if not self.is_last:
            self.after.send(self._about("end", chunks, chunks), [])

    def tell_failure(self, error: BaseException, chunks: int) -> None:
        """Tells the neighbours that this step will not go on."""
        text = str(error) if type(error).__name__ == "StageFailed" else f"stage {self.stage_index} failed: {type(error).__name__}: {error}"
        for neighbour in (self.before, self.after):
            if neighbour is not None:
                with contextlib.suppress(Exception):  # it may be gone: what is raised here is why
                    neighbour.send({"step": self.step_number, "failed": text[:4000]}, [])
