"""Sparse gradients of all ranks added up. Each rank sends the rows that it has, ids and values in one message, and adds all rows in the
order of ranks. Where the ranks have more rows together than the table, values go as a dense table, and ids alone as rows."""

from ... import cat, empty, int64, no_grad, sparse_coo_tensor, tensor, uint8, zeros

__all__ = ["reduce_rows"]


def _packed(ids, values):
    """Bytes of ids and values; the ids' end lies where any dtype may begin."""
    flat = ids.reshape(-1)
    if flat.size(0) % 2:
        flat = cat([flat, flat.new_zeros(1)])
    return cat([flat.view(uint8), values.reshape(-1).view(uint8)]) if values is not None and values.numel() else flat.view(uint8)


def _unpacked(data, count: int, like):
    """The ids, of one row, and the values of _packed."""
    ids, rest = data[:8 * count].view(int64), data[8 * (count + count % 2):]
    return ids.unsqueeze(0), rest.view(like.dtype).reshape(count, *like.shape[1:])


class _Rows:
    """What is still to be waited for."""

    def __init__(self, parameter, counts, works, data, dense, divisor, shadow: bool):
        self.parameter, self.counts, self.works, self.data, self.dense = parameter, counts, works, data, dense
        self.divisor, self.shadow = divisor, shadow

    def wait(self) -> None:
        """Puts the sum into the parameter's gradient; it stays None where no rank has a row."""
        for work in self.works:
            work.wait()
        if self.shadow or self.parameter.grad is None and not any(self.counts):
            return
        with no_grad():
            if self.dense is not None:
                ids = cat([part[:8 * count].view(int64) for part, count in zip(self.data, self.counts, strict=True)]).unique()
                total = sparse_coo_tensor(ids.unsqueeze(0), self.dense[ids], self.parameter.shape, is_coalesced=True)
            else:
                parts = [_unpacked(part, count, self.parameter) for part, count in zip(self.data, self.counts, strict=True)]
                total = sparse_coo_tensor(cat([ids for ids, _ in parts], 1), cat([values for _, values in parts]), self.parameter.shape).coalesce()
            self.parameter.grad = total if self.divisor == 1 else sparse_coo_tensor(total.indices(), total.values() / self.divisor, total.shape,
                                                                                    is_coalesced=True)


def reduce_rows(parameter, group, op, shadow: bool = False) -> _Rows:
    """Starts the exchange; the result's wait() ends it. op: a mean, or a sum with this rank's factor."""
    from ...distributed import all_gather, all_gather_into_tensor, all_reduce

    n, factor, device = group.size(), getattr(op, "factor", None), parameter.device
    with no_grad():
        grad = None if shadow else parameter.grad
        if grad is None:
            ids, values = empty((1, 0), dtype=int64, device=device), parameter.new_empty((0, *parameter.shape[1:]))
        else:
            grad = (grad if grad.is_sparse else grad.to_sparse(1)).coalesce()
            ids, values = grad.indices(), grad.values()
            if factor is not None:
                values = values * factor
        counts = empty(n, dtype=int64)
        all_gather_into_tensor(counts, tensor([ids.size(1)]), group=group)
        counts = counts.tolist()
        dense, works, row = None, [], parameter[:1].numel() * parameter.element_size()
        if sum(counts) > parameter.shape[0]:
            dense = zeros(parameter.shape, dtype=parameter.dtype, device=device)
            dense[ids[0]] = values
            works.append(all_reduce(dense, group=group, async_op=True))
            values, row = None, 0
        data = [empty(8 * (count + count % 2) + count * row, dtype=uint8, device=device) for count in counts]
        works.append(all_gather(data, _packed(ids, values), group=group, async_op=True))
    return _Rows(parameter, counts, works, data, dense, n if factor is None else 1, shadow)
