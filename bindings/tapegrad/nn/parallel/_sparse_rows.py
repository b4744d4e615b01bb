"""Sparse gradients of all ranks added up: each rank sends the rows that it has, and adds all rows in the order of ranks."""

from __future__ import annotations

from ... import cat, empty, int64, no_grad, sparse_coo_tensor, tensor

__all__ = ["reduce_rows"]


class _Rows:
    """What is still to be waited for."""

    def __init__(self, parameter, size: int, works, indices, values, divisor, shadow: bool):
        self.parameter, self.size, self.works, self.indices, self.values = parameter, size, works, indices, values
        self.divisor, self.shadow = divisor, shadow

    def wait(self) -> None:
        """Puts the sum into the parameter's gradient; it stays None where no rank has a row."""
        for work in self.works:
            work.wait()
        indices, values = cat(self.indices, 1), cat(self.values)
        if self.shadow or self.parameter.grad is None and not indices.size(1):
            return
        total = sparse_coo_tensor(indices, values, self.parameter.shape).coalesce()
        self.parameter.grad = total if self.divisor == 1 else sparse_coo_tensor(total.indices(), total.values() / self.divisor, total.shape,
                                                                                is_coalesced=True)


def reduce_rows(parameter, group, op, shadow: bool = False) -> _Rows:
    """Starts the exchange; the result's wait() ends it. op: a mean, or a sum with this rank's factor."""
    from ...distributed import all_gather, all_gather_into_tensor

    n, factor = group.size(), getattr(op, "factor", None)
    with no_grad():
        grad = None if shadow else parameter.grad
        if grad is None:
            indices, values = empty((1, 0), dtype=int64), empty((0, *parameter.shape[1:]), dtype=parameter.dtype)
        else:
            grad = (grad if grad.is_sparse else grad.to_sparse(1)).coalesce()
            indices, values = grad.indices().contiguous(), grad.values().contiguous()
            if factor is not None:
                values = values * factor
        counts = empty(n, dtype=int64)
        all_gather_into_tensor(counts, tensor([indices.size(1)]), group=group)
        counts = counts.tolist()
        all_indices = [empty((1, count), dtype=int64) for count in counts]
        all_values = [empty((count, *values.shape[1:]), dtype=values.dtype) for count in counts]
        works = [all_gather(outputs, mine, group=group, async_op=True) for outputs, mine in ((all_indices, indices), (all_values, values))]
    return _Rows(parameter, n, works, all_indices, all_values, n if factor is None else 1, shadow)
