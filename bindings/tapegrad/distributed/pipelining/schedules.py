"""In which order a stage runs its micro-batches forward and backward.

GPipe (Huang et al. 2019, arXiv:1811.06965): all forward, then all backward. 1F1B (Narayanan et al. 2019, PipeDream): as soon as the first
micro-batches have come through, one backward after each forward, so that a stage keeps no more micro-batches than there are stages.
"""

from ... import is_grad_enabled
from .microbatch import merge_chunks, split, split_args_kwargs_into_chunks

__all__ = ["PipelineScheduleSingle", "Schedule1F1B", "ScheduleGPipe"]


class PipelineScheduleSingle:
    """A schedule of one stage on each rank.

    Args:
        stage: this rank's.
        n_microbatches: into how many pieces a batch is cut; the same on all ranks.
        loss_fn(output, target): of one micro-batch, used on the last stage; without it there is no backward pass. All ranks give one.
        args_chunk_spec, kwargs_chunk_spec, output_merge_spec: TensorChunkSpec for each value; default: along the first dimension.
        scale_grads: whether gradients are divided by n_microbatches, as for a loss that is a mean.

    Raises ValueError for a number of micro-batches below 1.
    """

    def __init__(self, stage, n_microbatches: int, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None, output_merge_spec=None,
                 scale_grads: bool = True):
        if n_microbatches < 1:
            raise ValueError(f"{type(self).__name__}: expected one micro-batch at least: got {n_microbatches}")
        self._stage, self._n_microbatches, self._loss_fn, self.scale_grads = stage, n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec, self._output_merge_spec = args_chunk_spec, kwargs_chunk_spec, output_merge_spec
        self._has_backward = loss_fn is not None

    def _order(self):
        """Pairs of a direction and a micro-batch."""
        raise NotImplementedError

    def step(self, *args, target=None, losses: list | None = None, return_outputs: bool = True, loss_kwargs: dict | None = None, **kwargs):
        """One batch: forward and, with a loss, backward. Gradients add up in the parameters' .grad.

        Args:
            args: the batch, on the first stage.
            kwargs: keywords of this stage's module, a whole batch.
            target: for the loss, on the last stage.
            losses: a list that gets the micro-batches' losses, on the last stage.
            return_outputs: whether the last stage gives the results.

        The results of all micro-batches as one on the last stage, else None. Raises what a stage raises, RuntimeError (StageFailed) on
        the other stages then (without a backward pass: on those that are not done yet); the next step may follow. Raises RuntimeError where gradients are off, TypeError where losses is no list.
        """
        if self._has_backward and not is_grad_enabled():
            raise RuntimeError("step() requires gradients to be enabled for backward computation; it should not be used under torch.no_grad() "
                               "context. Please call eval() instead.")
        stage, n = self._stage, self._n_microbatches
        stage.has_backward = self._has_backward
        stage.clear()
        stage.step_number += 1
        try:
            if losses is not None and not isinstance(losses, list):
                raise TypeError(f"losses must be a list but got a {type(losses)}")
            found = self._run(args, kwargs, target, loss_kwargs or {})
        except Exception as error:
            stage.tell_failure(error, n)
            stage.clear()
            raise
        outputs, stage.output_chunks = stage.output_chunks, []
        if stage.is_last:
            if losses is not None and self._loss_fn is not None:
                losses.clear()
                losses.extend(found)
            if return_outputs:
                return merge_chunks(outputs, self._output_merge_spec)
        return None

    def eval(self, *args, target=None, losses: list | None = None, **kwargs):
        """step() without a backward pass."""
        before, self._has_backward = self._has_backward, False
        try:
            return self.step(*args, target=target, losses=losses, **kwargs)
        finally:
            self._has_backward = before

    def _run(self, args, kwargs, target, loss_kwargs) -> list:
        stage, n = self._stage, self._n_microbatches
        pieces, named = split_args_kwargs_into_chunks(args if stage.is_first else (), kwargs, n, self._args_chunk_spec if stage.is_first else None,
                                                      self._kwargs_chunk_spec)
        wants_loss = stage.is_last and self._loss_fn is not None
        if wants_loss and target is None and self._has_backward:
            raise ValueError(f"{type(self).__name__}.step: the last stage needs a target for the loss")
        wants_loss = wants_loss and target is not None
        targets = split(target, None, n) if wants_loss else None
        losses: list = [None] * n
        done = 0
        for direction, i in self._order():
            if direction == "forward":
                out = stage.forward_one(i, n, pieces[i], named[i])
                if stage.is_last:
                    stage.output_chunks.append(out)
                    if wants_loss:
                        losses[i] = self._loss_fn(out, targets[i], **loss_kwargs)
            else:
                done += 1
                stage.backward_one(i, n, losses[i], last=done == n)
        if self._has_backward and self.scale_grads:
            stage.scale_grads(n)
        if self._has_backward:
            stage.agree_on_end(n)
        return losses


class ScheduleGPipe(PipelineScheduleSingle):
    """All micro-batches forward, then all backward."""

    def _order(self):
        yield from (("forward", i) for i in range(self._n_microbatches))
        if self._has_backward:
            yield from (("backward", i) for i in range(self._n_microbatches))


class Schedule1F1B(PipelineScheduleSingle):
    """One backward after each forward, once the first ones have come through. ValueError for fewer micro-batches than stages."""

    def __init__(self, stage, n_microbatches: int, loss_fn=None, args_chunk_spec=None, kwargs_chunk_spec=None, output_merge_spec=None,
                 scale_grads: bool = True):
        super().__init__(stage, n_microbatches, loss_fn, args_chunk_spec, kwargs_chunk_spec, output_merge_spec, scale_grads)
        if n_microbatches < stage.num_stages:
            raise ValueError(f"Number of microbatches ({n_microbatches}) must be greater than or equal to the number of stages ({stage.num_stages}).")

    def _order(self):
        n = self._n_microbatches
        ahead = min(n, self._stage.num_stages - self._stage.stage_index) if self._has_backward else n
        yield from (("forward", i) for i in range(ahead))
        for i in range(n if self._has_backward else 0):
            yield "backward", i
            if ahead + i < n:
                yield "forward", ahead + i
