"""Periodic checks of DistributedDataParallel: whether all ranks hold the same model, and which rank the others wait for.

All functions are collectives: every rank of the group calls them at the same place.
"""

import logging
import time
import zlib

from ... import float64, int64, no_grad, tensor, uint8, zeros

__all__ = ["Stragglers", "broadcast_from", "check_drift", "check_same_model"]


def check_same_model(named, group) -> None:
    """RuntimeError on all ranks, with the parameter's name, where names, shapes or dtypes differ."""
    from ...distributed import all_gather_object

    mine = [(name, tuple(p.shape), str(p.dtype)) for name, p in named]
    all_ranks: list = [None] * group.size()
    all_gather_object(all_ranks, mine, group=group)
    first = all_ranks[0]
    for rank, other in enumerate(all_ranks):
        if len(first) != len(other):
            raise RuntimeError(f"DDP expects same model across all ranks, but Rank 0 has {len(first)} params, while rank {rank} has inconsistent "
                               f"{len(other)} params.{_only_here(first, other, rank)}")
        for (name, shape, dtype), (its_name, its_shape, its_dtype) in zip(first, other, strict=True):
            if name != its_name:
                raise RuntimeError(f"DDP expects same model across all ranks: the parameter {name} of rank 0 is called {its_name} on rank {rank}")
            if shape != its_shape or dtype != its_dtype:
                raise RuntimeError(f"DDP expects same model across all ranks: {name} in this process with sizes {list(mine_of(mine, name))} "
                                   "appears not to match sizes of the same param in process 0: "
                                   f"rank {rank} has {list(its_shape)} of {its_dtype}, rank 0 {list(shape)} of {dtype}")


def mine_of(mine, name: str) -> tuple:
    """The shape of the parameter of a name."""
    return next((shape for n, shape, _ in mine if n == name), ())


def _only_here(first, other, rank: int) -> str:
    a, b = {entry[0] for entry in first}, {entry[0] for entry in other}
    return "".join(f"\nonly rank {r} has {', '.join(sorted(names))}" for r, names in ((0, a - b), (rank, b - a)) if names)


def broadcast_from(tensors, root: int, group) -> None:
    """The tensors of one rank of the group for all, in one call per dtype and device."""
    from ...distributed import BroadcastOptions

    kinds: dict = {}
    for t in tensors:
        kinds.setdefault((t.dtype, t.device), []).append(t.detach())
    options = BroadcastOptions()
    options.rootRank = root
    with no_grad():
        for work in [group.broadcast(same, options) for same in kinds.values()]:
            work.wait()


def _checksum(t) -> int:
    t = t.detach()
    if t._is_any_sparse:
        t = t.to_dense()
    flat = t.cpu().contiguous().reshape(-1)
    return zlib.crc32(flat.view(uint8).numpy()) if flat.numel() else 0


def check_drift(named, group, step: int) -> None:
    """RuntimeError on all ranks when a tensor's bits are not the same on all of them; names the first one and the ranks."""
    from ...distributed import all_gather

    named = list(named)
    mine = tensor([_checksum(t) for _, t in named], dtype=int64)
    sums = [zeros(len(named), dtype=int64) for _ in range(group.size())]
    all_gather(sums, mine, group=group)
    columns = list(zip(*(s.tolist() for s in sums), strict=True))
    different = [i for i, column in enumerate(columns) if len(set(column)) > 1]
    if not different:
        return
    column = columns[different[0]]
    usual = max(column, key=lambda value: (column.count(value), value == column[0]))
    ranks = [rank for rank, value in enumerate(column) if value != usual]
    raise RuntimeError(f"DistributedDataParallel: the ranks no longer hold the same model: after step {step}, {named[different[0]][0]} of "
                       f"{'ranks' if len(ranks) > 1 else 'rank'} {', '.join(map(str, ranks))} differs from the others'; "
                       f"{len(different)} of {len(columns)} tensors differ")


class Stragglers:
    """Tells every `interval` steps, on rank 0, which rank the others wait for, where that costs more than a tenth of the time."""

    def __init__(self, group, interval: int):
        self.group, self.interval = group, interval
        self.begin, self.waited, self.report = time.perf_counter(), 0.0, None

    def after_step(self, step: int, waited: float) -> None:
        """waited: seconds that this rank has waited in all its synchronisations."""
        if step % self.interval:
            return
        from ...distributed import all_gather

        now = time.perf_counter()
        mine = tensor([waited - self.waited, now - self.begin], dtype=float64)
        rows = [zeros(2, dtype=float64) for _ in range(self.group.size())]
        all_gather(rows, mine, group=self.group)
        self.begin, self.waited = now, waited
        waits = [row[0].item() for row in rows]
        slowest, total = waits.index(min(waits)), max(row[1].item() for row in rows)
        lost = (sum(waits) - waits[slowest]) / max(1, len(waits) - 1)
        self.report = {"rank": slowest, "seconds": lost, "share": lost / total if total else 0.0, "steps": self.interval}
        if self.group.rank() == 0 and lost > 0.1 * total:
            logging.getLogger("tapegrad.distributed").warning(
                "DistributedDataParallel: rank %d is the slowest: in the last %d steps the other ranks waited %.3g s for it on average, %.0f %% of "
                "their time", slowest, self.interval, lost, 100 * lost / total)
