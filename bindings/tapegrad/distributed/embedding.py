"""Tables of embeddings that are larger than the memory of one process: each rank stores a part of the rows."""

from .. import arange, bincount, empty, empty_like, get_default_dtype, int64, no_grad, randn, unique
from ..nn import functional as F
from ..nn.module import Module
from . import distributed_c10d as dist
from ._placements import Shard
from .fsdp._pieces import mesh_of
from .nn.functional import all_to_all_single
from .tensor._dtensor import _parameter
from .tensor._spec import Spec, bounds

__all__ = ["ShardedEmbedding"]

_BLOCK = 1 << 16  # rows that are drawn at a time


class ShardedEmbedding(Module):
    """nn.Embedding whose rows are cut among the ranks of a group. Every rank calls it, with ids of its own, and every rank calls backward.

    Ids (any shape) go to the ranks that have their rows, each once; the rows come back and are put together: (*shape, embedding_dim).
    Gradients go the same way. They are the mean over the ranks, as DistributedDataParallel's of other parameters are, or with
    average=False the sum; give a DistributedDataParallel only what is around this module. Rows are drawn from N(0, 1), the same for any
    number of ranks whose default generators are alike. Its weight is a DTensor: checkpoints and clip_grad_norm_ know of the cut.
    Raises IndexError for ids that the table does not have.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, *, process_group=None, average: bool = True, dtype=None) -> None:
        super().__init__()
        self._cuts_itself = True  # fully_shard leaves it alone
        if num_embeddings < 1 or embedding_dim < 1:
            raise ValueError(f"ShardedEmbedding: sizes must be positive: got {num_embeddings} and {embedding_dim}")
        self.num_embeddings, self.embedding_dim, self.average = num_embeddings, embedding_dim, average
        self.group = process_group if process_group is not None else dist._get_default_group()
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.step = -(-num_embeddings // self.size)  # rows of each rank but the last
        first, last = bounds(num_embeddings, self.size, self.rank)
        dtype = dtype or get_default_dtype()
        with no_grad():
            piece = empty(last - first, embedding_dim, dtype=dtype)
            for begin in range(0, num_embeddings, _BLOCK):
                end = min(begin + _BLOCK, num_embeddings)
                rows = randn(end - begin, embedding_dim, dtype=dtype)
                a, b = max(begin, first), min(end, last)
                if a < b:
                    piece[a - first:b - first] = rows[a - begin:b - begin]
        self.first = first
        spec = Spec(mesh_of(self.group), (Shard(0),), (num_embeddings, embedding_dim))
        self.weight = _parameter(piece, spec, True)

    def extra_repr(self) -> str:
        """The sizes, and how many rows are here."""
        return f"{self.num_embeddings}, {self.embedding_dim}, {len(self.weight.to_local())} rows on rank {self.rank} of {self.size}"

    def forward(self, ids):
        wanted, inverse = unique(ids.reshape(-1), return_inverse=True)  # in order, and so by owner
        if wanted.numel() and not 0 <= int(wanted[0]) <= int(wanted[-1]) < self.num_embeddings:
            raise IndexError(f"ShardedEmbedding: ids must be between 0 and {self.num_embeddings - 1}: got {int(wanted[0])} to {int(wanted[-1])}")
        asked = bincount(wanted // self.step, minlength=self.size) if wanted.numel() else arange(self.size) * 0
        asked_here = empty_like(asked)
        dist.all_to_all_single(asked_here, asked, group=self.group)
        to, come = asked.tolist(), asked_here.tolist()
        ids_here = empty(sum(come), dtype=int64)
        dist.all_to_all_single(ids_here, wanted.long(), come, to, group=self.group)
        rows = F.embedding(ids_here - self.first, self.weight.to_local())
        got = all_to_all_single(empty(sum(to), self.embedding_dim, dtype=rows.dtype), rows, to, come, self.group)
        if self.average and self.size > 1 and got.requires_grad:
            got.register_hook(lambda grad: grad / self.size)
        return got[inverse].reshape(*ids.shape, self.embedding_dim)
