"""PowerSGD: gradients of matrices sent as two low-rank factors (Vogels et al., 2019).

M is about P Q^T: every rank computes its P = M Q for a Q that all have, the sum of these is made orthonormal, Q = M^T P is averaged. What is lost
is kept back and added to the next step's gradient (error feedback); the next step begins with this one's Q (warm start). The sums of P
and of what is not compressed run beside the backward; the rest runs when all buckets are waited for.
"""

import logging
import math

from .... import Generator, bmm, cat, empty, float32, float64, linalg, randn
from ....futures import Future
from .default_hooks import _allreduce_fut, _group

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]

_logger = logging.getLogger("tapegrad.distributed")


class PowerSGDState:
    """Settings, and what is carried from step to step, of powerSGD_hook and batched_powerSGD_hook; PyTorch's names.

    In the first start_powerSGD_iter steps gradients are passed on whole. A matrix is compressed where that makes it min_compression_rate
    times smaller.
    """

    __slots__ = ["batch_tensors_with_same_shape", "compression_stats_logging_frequency", "error_dict", "iter", "matrix_approximation_rank",
                 "min_compression_rate", "next_stats_report", "orthogonalization_epsilon", "p_memory_dict", "process_group", "q_memory_dict",
                 "rng", "start_powerSGD_iter", "total_numel_after_compression", "total_numel_before_compression", "use_error_feedback", "warm_start"]

    def __init__(self, process_group, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1000, min_compression_rate: float = 2,
                 use_error_feedback: bool = True, warm_start: bool = True, orthogonalization_epsilon: float = 0, random_seed: int = 0,
                 compression_stats_logging_frequency: int = 10_000, batch_tensors_with_same_shape: bool = False):
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can only be applied "
                             "after the first two iterations in DDP.")
        self.process_group, self.matrix_approximation_rank, self.start_powerSGD_iter = process_group, matrix_approximation_rank, start_powerSGD_iter
        self.min_compression_rate, self.use_error_feedback, self.warm_start = min_compression_rate, use_error_feedback, warm_start
        self.orthogonalization_epsilon, self.batch_tensors_with_same_shape = orthogonalization_epsilon, batch_tensors_with_same_shape
        self.rng = Generator()
        self.rng.manual_seed(random_seed)
        self.error_dict: dict = {}
        self.p_memory_dict: dict = {}
        self.q_memory_dict: dict = {}
        self.iter = self.total_numel_before_compression = self.total_numel_after_compression = self.next_stats_report = 0
        self.compression_stats_logging_frequency = max(1, compression_stats_logging_frequency)

    def __getstate__(self) -> dict:
        state = {name: getattr(self, name) for name in self.__slots__ if name not in ("process_group", "rng")}
        return {**state, "rng": self.rng.get_state()}

    def __setstate__(self, state) -> None:
        from ...distributed_c10d import _get_default_group

        self.process_group, self.rng = _get_default_group(), Generator()
        self.rng.set_state(state["rng"])
        for name, value in state.items():
            if name != "rng":
                setattr(self, name, value)

    def _whole(self, bucket) -> Future | None:
        """The mean of a bucket's gradients as they are, in the steps before the first one in low rank; then None."""
        if self.iter >= self.start_powerSGD_iter:
            return None
        self.maybe_increase_iter(bucket)
        return _allreduce_fut(self.process_group, bucket.buffer())

    def maybe_increase_iter(self, bucket) -> None:
        """Counts a step with its last bucket."""
        if bucket.is_last():
            self.iter += 1

    def compression_stats(self) -> tuple:
        """(how many times fewer elements, elements before, elements after)."""
        before, after = self.total_numel_before_compression, self.total_numel_after_compression
        return before / after if after > 0 else 0, before, after

    def _report(self, bucket) -> None:
        if bucket.is_last() and self.iter >= self.next_stats_report:
            _logger.info("PowerSGD: step %d, %.3g times smaller: %d elements before, %d after", self.iter, *self.compression_stats())
            self.next_stats_report = self.iter + self.compression_stats_logging_frequency

    def _rank_of(self, n: int, m: int) -> int:
        """The rank in which an n x m matrix is passed on; 0: whole."""
        rank = min(n, m, self.matrix_approximation_rank)
        return rank if (n + m) * rank * self.min_compression_rate < n * m else 0

    def _add_errors(self, index: int, flat):
        """Adds what was lost before; a copy of the sum, to see what will be lost now."""
        if not self.use_error_feedback:
            return None
        if index in self.error_dict:
            flat.add_(self.error_dict[index])
        return flat.clone()

    def _keep(self, index: int, exact, flat, ps, qs, bucket) -> None:
        if exact is not None:
            self.error_dict[index] = exact.sub_(flat)
        if self.warm_start:
            self.p_memory_dict[index], self.q_memory_dict[index] = ps, qs
        self.maybe_increase_iter(bucket)


def _orthonormal(matrices, epsilon: float):
    """Orthonormal columns that span the same; a column of zeros stays harmless."""
    wide = matrices if matrices.dtype in (float32, float64) else matrices.float()
    if epsilon:
        wide = wide + epsilon
    return linalg.qr(wide)[0].to(matrices.dtype)


def _first_qs(state, shapes, like) -> list:
    """Random orthonormal matrices, the same on all ranks and others in every step."""
    return [_orthonormal(randn(*shape, generator=state.rng).to(like.dtype).to(like.device), state.orthogonalization_epsilon) for shape in shapes]


def _low_rank(state, index: int, batches, ranks, rest, buffer, exact, bucket) -> Future:
    """The mean of batches of matrices (in place), as factors, and of vectors, whole."""
    group = _group(state.process_group)
    n = group.size()
    qs = state.q_memory_dict.get(index) if state.warm_start else None
    if qs is None:
        qs = _first_qs(state, [(b.size(0), b.size(2), rank) for b, rank in zip(batches, ranks, strict=True)], buffer)
    else:
        qs = [_orthonormal(q, state.orthogonalization_epsilon) for q in qs]
    ps = [bmm(b, q) for b, q in zip(batches, qs, strict=True)]
    whole = cat([t.reshape(-1) for t in rest]) if rest else empty(0, dtype=buffer.dtype, device=buffer.device)
    whole_mean, flat_ps = _allreduce_fut(group, whole), cat([p.reshape(-1) for p in ps] or [whole[:0]])
    from ... import all_reduce

    sum_of_ps = all_reduce(flat_ps, group=group, async_op=True).get_future()

    def finish(_):
        for t, mean in zip(rest, whole_mean.wait().split([t.numel() for t in rest]) if rest else (), strict=True):
            t.copy_(mean.view_as(t))
        sum_of_ps.wait()
        summed = [_orthonormal(flat.view(p.shape), state.orthogonalization_epsilon)
                  for flat, p in zip(flat_ps.split([p.numel() for p in ps]) if ps else (), ps, strict=True)]
        mine = [bmm(b.transpose(1, 2), p) for b, p in zip(batches, summed, strict=True)]
        flat_qs = cat([q.reshape(-1) for q in mine] or [whole[:0]])
        all_reduce(flat_qs, group=group)
        flat_qs.div_(n)
        means = [flat.view(q.shape) for flat, q in zip(flat_qs.split([q.numel() for q in mine]) if mine else (), mine, strict=True)]
        for b, p, q in zip(batches, summed, means, strict=True):
            b.copy_(bmm(p, q.transpose(1, 2)))
        return summed, means

    return sum_of_ps.then(finish)


def powerSGD_hook(state: PowerSGDState, bucket) -> Future:
    """The mean of the gradients: of matrices in low rank, of the rest whole."""
    buffer, index = bucket.buffer(), bucket.index()
    if (whole := state._whole(bucket)) is not None:
        return whole
    exact = state._add_errors(index, buffer)
    kinds, rest = {}, []
    for place, gradient in enumerate(bucket.gradients()):
        matrix = gradient.reshape(gradient.size(0), -1) if gradient.dim() else gradient.reshape(1, 1)
        rank = state._rank_of(*matrix.shape)
        state.total_numel_before_compression += matrix.numel()
        state.total_numel_after_compression += sum(matrix.shape) * rank or matrix.numel()
        if rank:
            kinds.setdefault((*matrix.shape, rank, 0 if state.batch_tensors_with_same_shape else place), []).append((gradient, matrix))
        else:
            rest.append(gradient)
    state._report(bucket)
    batches = [cat([m.unsqueeze(0) for _, m in same]) for same in kinds.values()]
    future = _low_rank(state, index, batches, [kind[2] for kind in kinds], rest, buffer, exact, bucket)

    def put_back(future):
        ps, qs = future.value()
        for batch, same in zip(batches, kinds.values(), strict=True):
            for approximation, (gradient, _) in zip(batch, same, strict=True):
                gradient.copy_(approximation.reshape(gradient.shape))
        state._keep(index, exact, buffer, ps, qs, bucket)
        return buffer

    return future.then(put_back)


def batched_powerSGD_hook(state: PowerSGDState, bucket) -> Future:
    """The mean of a bucket's gradients, all as one square matrix in low rank: quicker and less exact than powerSGD_hook."""
    buffer, index = bucket.buffer(), bucket.index()
    if (whole := state._whole(bucket)) is not None:
        return whole
    n = buffer.numel()
    side = math.ceil(math.sqrt(n))
    square = empty(side * side, dtype=buffer.dtype, device=buffer.device)
    square[:n].copy_(buffer)
    square[n:].zero_()
    rank = min(side, state.matrix_approximation_rank)
    state.total_numel_before_compression += n
    state.total_numel_after_compression += 2 * side * rank
    state._report(bucket)
    exact = state._add_errors(index, square)
    future = _low_rank(state, index, [square.view(1, side, side)], [rank], [], buffer, exact, bucket)

    def put_back(future):
        ps, qs = future.value()
        state._keep(index, exact, square, ps, qs, bucket)
        return buffer.copy_(square[:n])

    return future.then(put_back)
