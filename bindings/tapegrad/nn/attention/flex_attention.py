"""Attention whose scores and mask are given by functions (FlexAttention, Dong et al., 2024).

`score_mod(score, b, h, q_idx, kv_idx)` changes a score, `mask_mod(b, h, q_idx, kv_idx)` says whether a query sees a key. Both are
written for single numbers; here they are called once, with tensors of indices that broadcast to (B, H, Q, K), so they may hold any
operator that broadcasts and indexing of captured tensors. All scores are computed: a block mask chooses what counts, and saves no time.
"""

from __future__ import annotations

import enum
import inspect
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple, TypedDict

from ... import Tensor, arange, argsort, broadcast_to, float32, float64, int8, int32, zeros
from ... import bool as bool_
from ... import where as _where
from ...nn import functional as F  # noqa: N812
from ...utils._pytree import register_pytree_node

__all__ = ["AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask",
           "flex_attention", "noop_mask", "or_masks"]

_DEFAULT_SPARSE_BLOCK_SIZE = 128
# Types that programs name in annotations.
_score_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_mask_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


class FlexKernelOptions(TypedDict, total=False):
    """PyTorch's options of GPU kernels. Any dictionary is accepted, none has an effect."""


class AuxRequest(NamedTuple):
    """What flex_attention returns besides its result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by an AuxRequest; None for the rest."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


class _ModificationType(enum.Enum):
    SCORE_MOD = 1
    MASK_MOD = 2


def _get_mod_type(fn) -> _ModificationType:
    """By the number of arguments without a default."""
    code = getattr(fn, "__code__", None)
    if code is not None:
        n = code.co_argcount - len(fn.__defaults__ or ())
    else:
        n = sum(p.default is inspect.Parameter.empty for p in inspect.signature(fn).parameters.values())
    if n not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {n}")
    return _ModificationType.SCORE_MOD if n == 5 else _ModificationType.MASK_MOD


def noop_mask(batch, head, token_q, token_kv):
    """Every query sees every key."""
    return batch.new_ones((), dtype=bool_)


def _identity(score, batch, head, token_q, token_kv):
    return score


def _sliced_mask_mod_error(batch, head, token_q, token_kv):
    raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")


def _combined(name: str, start: bool, join):
    def combine(*mask_mods):
        if not all(callable(mod) for mod in mask_mods):
            raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

        def mask_mod(b, h, q_idx, kv_idx):
            result = b.new_full((), start, dtype=bool_)
            for mod in mask_mods:
                result = join(result, mod(b, h, q_idx, kv_idx))
            return result

        return mask_mod

    combine.__name__ = combine.__qualname__ = name
    return combine


or_masks = _combined("or_masks", False, lambda a, b: a | b)
or_masks.__doc__ = "The mask_mod that sees what any of the given ones sees."
and_masks = _combined("and_masks", True, lambda a, b: a & b)
and_masks.__doc__ = "The mask_mod that sees what all of the given ones see."


def _places(shape, device):
    """Indices of batch, head, query and key that broadcast to `shape`."""
    return [arange(n, device=device).view([n if i == d else 1 for i in range(4)]) for d, n in enumerate(shape)]


def create_mask(mod_fn, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device=None) -> Tensor:
    """The bool tensor (B, H, Q_LEN, KV_LEN) of a mask_mod, or of what a score_mod does not set to -inf. None means 1."""
    shape = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    places = _places(shape, device)
    if _get_mod_type(mod_fn) == _ModificationType.SCORE_MOD:
        mask = ~broadcast_to(mod_fn(zeros(shape, device=device), *places), shape).isneginf()
    else:
        mask = mod_fn(*places)
    return broadcast_to(mask, shape).contiguous()


# A block mask keeps, per row of blocks, how many blocks there are and which, those first.
def _ordered_to_dense(num_blocks: Tensor, indices: Tensor, columns: int) -> Tensor:
    used = arange(indices.shape[-1], device=indices.device) < num_blocks.unsqueeze(-1)
    dense = zeros((*indices.shape[:-1], columns + 1), dtype=int32, device=indices.device)
    places = _where(used, indices.long(), columns)  # what is not used goes into a column that is cut off
    return dense.scatter_(-1, places, 1)[..., :columns].contiguous()


def _dense_to_ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    dense = dense.to(int32)
    return dense.sum(dim=-1).to(int32), argsort(dense, dim=-1, descending=True, stable=True).to(int32)


def _transpose_ordered(num_blocks: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
    return _dense_to_ordered(_ordered_to_dense(num_blocks, indices, indices.shape[-1]).transpose(-2, -1))


def _cut(num_blocks: Tensor, indices: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """What is left of a mask in its first rows and columns of blocks."""
    dense = _ordered_to_dense(num_blocks, indices, indices.shape[-1])
    return _dense_to_ordered(dense[..., :rows, :columns])


_OTHERS = ("seq_lengths", "BLOCK_SIZE", "mask_mod")  # of a BlockMask, beside tensors
_FIELDS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
           "full_q_num_blocks", "full_q_indices")


class BlockMask:
    """Which blocks of BLOCK_SIZE queries and keys attention has to look at: `kv_indices` (..., rows, columns) lists in each row the
    blocks in which some query sees some key, `kv_num_blocks` (..., rows) how many they are; `full_kv_...` those in which all queries
    see all keys. In the others `mask_mod` decides. The `q_...` tensors say the same by columns."""

    def __init__(self, seq_lengths: tuple[int, int], kv_num_blocks: Tensor, kv_indices: Tensor,
                 full_kv_num_blocks: Tensor | None, full_kv_indices: Tensor | None, q_num_blocks: Tensor | None,
                 q_indices: Tensor | None, full_q_num_blocks: Tensor | None, full_q_indices: Tensor | None,
                 BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE), mask_mod=noop_mask, *,
                 dq_write_order=None, dq_write_order_full=None, dq_kv_order=None, dq_kv_order_spt=None) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        for side, one, other in (("kv", full_kv_num_blocks, full_kv_indices), ("q", full_q_num_blocks, full_q_indices)):
            if (one is None) != (other is None):
                raise AssertionError(f"full_{side}_num_blocks and full_{side}_indices must be both provided or omitted")
        if dq_write_order_full is not None and dq_write_order is None:
            raise ValueError("dq_write_order_full requires dq_write_order")
        self.seq_lengths = seq_lengths
        values = (kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, q_num_blocks, q_indices, full_q_num_blocks,
                  full_q_indices)
        for name, value in zip(_FIELDS, values, strict=True):
            setattr(self, name, value)
        # The order in which a GPU kernel would add up gradients; kept, without effect.
        self.dq_write_order, self.dq_write_order_full = dq_write_order, dq_write_order_full
        self.dq_kv_order, self.dq_kv_order_spt = dq_kv_order, dq_kv_order_spt
        self.BLOCK_SIZE, self.mask_mod = BLOCK_SIZE, mask_mod

    @classmethod
    def from_kv_blocks(cls, kv_num_blocks: Tensor, kv_indices: Tensor, full_kv_num_blocks: Tensor | None = None,
                       full_kv_indices: Tensor | None = None, BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
                       mask_mod=None, seq_lengths: tuple[int, int] | None = None, compute_q_blocks: bool = True, *,
                       dq_write_order=None, dq_write_order_full=None, dq_kv_order=None) -> BlockMask:
        """A mask from its rows; the columns are computed."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        if dq_kv_order is not None and not isinstance(dq_kv_order, (bool, Tensor)):
            raise ValueError("dq_kv_order must be a bool, Tensor, or None")
        columns = full_columns = (None, None)
        if compute_q_blocks:
            columns = _transpose_ordered(kv_num_blocks, kv_indices)
            if full_kv_num_blocks is not None:
                full_columns = _transpose_ordered(full_kv_num_blocks, full_kv_indices)
        size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        is_tensor = isinstance(dq_kv_order, Tensor)
        return cls(seq_lengths, kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices, *columns, *full_columns,
                   BLOCK_SIZE=size, mask_mod=noop_mask if mask_mod is None else mask_mod, dq_write_order=dq_write_order,
                   dq_write_order_full=dq_write_order_full, dq_kv_order=dq_kv_order if is_tensor else None,
                   dq_kv_order_spt=None if is_tensor else dq_kv_order)

    def as_tuple(self, flatten: bool = True) -> tuple:
        """All attributes; lengths and block sizes as single numbers where `flatten`."""
        lengths, sizes = (self.seq_lengths, self.BLOCK_SIZE) if flatten else ((self.seq_lengths,), (self.BLOCK_SIZE,))
        return (*lengths, *(getattr(self, name) for name in _FIELDS), self.dq_write_order, self.dq_write_order_full, self.dq_kv_order,
                self.dq_kv_order_spt, *sizes, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def _with_rows(self, change, mask_mod, seq_lengths) -> BlockMask:
        full = self.full_kv_num_blocks is not None
        rows = change(self.kv_num_blocks, self.kv_indices)
        full_rows = change(self.full_kv_num_blocks, self.full_kv_indices) if full else (None, None)
        return BlockMask.from_kv_blocks(*rows, *full_rows, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=mask_mod, seq_lengths=seq_lengths,
                                        compute_q_blocks=self.q_indices is not None)

    def __getitem__(self, index) -> BlockMask:
        """The mask of some batches, heads and rows of blocks. It cannot be used for attention: its mask_mod would get other indices."""
        index = index if isinstance(index, tuple) else (index,)
        whole = (*index, slice(None), slice(None), slice(None))[:3]
        kept = tuple(slice(i % n, i % n + 1) if isinstance(i, int) and -n <= i < n else i
                     for i, n in zip(whole, self.kv_num_blocks.shape[:3], strict=False))
        return self._with_rows(lambda number, indices: (number[kept], indices[kept]), _sliced_mask_mod_error, self.seq_lengths)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The upper left part for shorter sequences."""
        rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])
        return self._with_rows(lambda number, indices: _cut(number, indices, rows, columns), self.mask_mod, (new_q_len, new_kv_len))

    def to(self, device) -> BlockMask:
        """The same mask with its tensors on `device`."""
        moved = [None if t is None else t.to(device) for t in (getattr(self, name) for name in _FIELDS)]
        return BlockMask(self.seq_lengths, *moved, BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod,
                         dq_write_order=self.dq_write_order, dq_write_order_full=self.dq_write_order_full,
                         dq_kv_order=self.dq_kv_order, dq_kv_order_spt=self.dq_kv_order_spt)

    def numel(self) -> int:
        """The number of pairs of query and key."""
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """How many per cent of the pairs lie in blocks that need not be looked at."""
        blocks = self.kv_num_blocks.sum().item()
        if self.full_kv_num_blocks is not None:
            blocks += self.full_kv_num_blocks.sum().item()
        return 100 * (1 - blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1] / self.numel())

    def to_dense(self) -> Tensor:
        """1 for each block that has to be looked at, else 0 (int32)."""
        dense = _ordered_to_dense(self.kv_num_blocks, self.kv_indices, self.kv_indices.shape[-1])
        if self.full_kv_num_blocks is None:
            return dense
        return dense | _ordered_to_dense(self.full_kv_num_blocks, self.full_kv_indices, self.full_kv_indices.shape[-1])

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A drawing of at most grid_size characters per batch and head: full, partly covered and empty places."""
        dense = self.to_dense().float()
        *batch, rows, columns = dense.shape
        most = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        high, wide = (max(1, -(-n // m)) if m > 0 else 1 for n, m in zip((rows, columns), most, strict=True))
        drawings = []
        for number, place in enumerate(itertools.product(*map(range, batch))):
            if number == limit:
                drawings += ["...", "To print out more, set BlockMask.to_string(limit=N)",
                             "You can also index (BlockMask[batch, head]) to choose a specific batch or head"]
                break
            lines = [f"{place}"]
            for r in range(0, rows, high):
                parts = [dense[place][r:r + high, c:c + wide].mean().item() for c in range(0, columns, wide)]
                lines.append("".join("██" if part == 1 else "  " if part == 0 else "░░" for part in parts))
            drawings.append("\n".join(lines) + "\n")
        return "\n".join(drawings)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string().strip()}\n)"

    def __repr__(self) -> str:
        shapes = "".join(f"    {name}={None if getattr(self, name) is None else getattr(self, name).shape},\n" for name in _FIELDS)
        return (f"BlockMask(\n{shapes}    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n"
                f"    sparsity={self.sparsity():.2f}%,\n    mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}\n)")

    def _seen(self, places, q_len: int, kv_len: int) -> Tensor:
        """Whether a query sees a key, for all of them."""
        def spread(number, indices):
            dense = _ordered_to_dense(number, indices, indices.shape[-1]).bool()
            pairs = dense.repeat_interleave(self.BLOCK_SIZE[0], dim=-2).repeat_interleave(self.BLOCK_SIZE[1], dim=-1)
            return pairs[..., :q_len, :kv_len]

        seen = spread(self.kv_num_blocks, self.kv_indices) & self.mask_mod(*places)
        if self.full_kv_num_blocks is not None:
            seen = seen | spread(self.full_kv_num_blocks, self.full_kv_indices)
        return seen


def _flatten(mask: BlockMask):
    variables = vars(mask)
    tensors = [name for name in variables if name not in _OTHERS]
    return [variables[name] for name in tensors], (tensors, {name: variables[name] for name in _OTHERS})


def _unflatten(values, context) -> BlockMask:
    mask = object.__new__(BlockMask)
    vars(mask).update(zip(context[0], values, strict=True), **context[1])
    return mask


register_pytree_node(BlockMask, _flatten, _unflatten)


def create_block_mask(mask_mod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device=None,
                      BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE, _compile: bool = False,
                      separate_full_blocks: bool = True, compute_dq_write_order: bool = False, dq_kv_order: bool = True) -> BlockMask:
    """The block mask of a mask_mod. B and H None mean that it is the same for all batches and heads. Takes a bool tensor
    (B, H, Q_LEN, KV_LEN) of memory meanwhile."""
    if _get_mod_type(mask_mod) != _ModificationType.MASK_MOD:
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    if not isinstance(dq_kv_order, bool):
        raise ValueError("dq_kv_order must be a bool when using create_block_mask")
    if compute_dq_write_order:
        raise NotImplementedError("create_block_mask: compute_dq_write_order is for a GPU kernel that is not there")
    rows, columns = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    mask = F.pad(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    b, h, q, kv = mask.shape
    seen = mask.view(b, h, q // rows, rows, kv // columns, columns).sum(dim=(3, 5))
    if not separate_full_blocks:
        return BlockMask.from_kv_blocks(*_dense_to_ordered((seen > 0).to(int8)), BLOCK_SIZE=(rows, columns), mask_mod=mask_mod,
                                        seq_lengths=(Q_LEN, KV_LEN))
    full = seen == rows * columns
    return BlockMask.from_kv_blocks(*_dense_to_ordered((seen > 0) & ~full), *_dense_to_ordered(full), BLOCK_SIZE=(rows, columns),
                                    mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN))


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask, enable_gqa: bool) -> None:
    for name, t in (("query", query), ("key", key), ("value", value)):
        if not isinstance(t, Tensor):
            raise TypeError(f"flex_attention: expected a tensor as {name}: got {type(t).__name__}")
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if not (query.dtype == key.dtype == value.dtype):
        raise ValueError(f"Expected query, key, and value to have the same dtype, but got query.dtype: {query.dtype}, "
                         f"key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead.")
    heads, kv_heads = query.size(1), key.size(1)
    if not enable_gqa and heads != kv_heads:
        raise ValueError(f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={kv_heads}. "
                         "Try setting enable_gqa=True for GQA.")
    if enable_gqa and (kv_heads == 0 or heads % kv_heads):
        raise ValueError("Expect number of query heads to be a multiple of kv heads for GQA "
                         f"but got Hq={heads} and Hkv={kv_heads}.")
    if query.size(0) != key.size(0):
        if block_mask is None:
            raise ValueError("Expect query and key/value to have the same batch size, or non-none block_mask, but got "
                             f"block_mask=None, Bq={query.size(0)}, and Bkv={key.size(0)}.")
        if block_mask.kv_num_blocks.size(0) != query.size(0):
            raise ValueError("Expect query and key/value to have the same batch size, or block_mask and query to have the same batch "
                             f"size, but got Bq={query.size(0)}, Bkv={key.size(0)}, B_block_mask={block_mask.kv_num_blocks.size(0)}.")
    if block_mask is None:
        return
    if block_mask.mask_mod is _sliced_mask_mod_error:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask")
    q_len, kv_len = query.size(-2), key.size(-2)
    if q_len > block_mask.shape[-2] or kv_len > block_mask.shape[-1]:
        raise ValueError(f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q_len} and kv_len={kv_len}. "
                         "As the block mask was created for a smaller length than you're using it for, you likely need to create a new "
                         "block mask.")
    if q_len < block_mask.shape[-2] or kv_len < block_mask.shape[-1]:
        raise ValueError(f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q_len} and kv_len={kv_len}. "
                         "As the block mask was created for a larger length than you're using it for, you can either 1. create a new "
                         "block mask with the correct length, or 2. 'adjust' the existing block mask to the correct length by calling "
                         "block_mask._adjust(q_len, kv_len). This essentially 'crops' the block mask to the upper left corner, which "
                         "does not work for all mask_mods!")


def flex_attention(query: Tensor, key: Tensor, value: Tensor, score_mod=None, block_mask: BlockMask | None = None,
                   scale: float | None = None, enable_gqa: bool = False, return_lse: bool = False, kernel_options=None, *,
                   return_aux: AuxRequest | None = None):
    """softmax(score_mod(query key^T scale)) value, where `block_mask` lets queries see keys.

    query (B, H, Q, E), key (B, Hkv, K, E), value (B, Hkv, K, Ev), the result (B, H, Q, Ev). `scale` is 1 / sqrt(E) where None; with
    `enable_gqa` H may be a multiple of Hkv. Scores are float32 (float64 for float64). A query that sees no key gets zeros.
    `return_aux` adds an AuxOutput with the logarithm of the sum of exponentials and the largest score of each query (B, H, Q);
    `return_lse` the first of them alone.
    """
    _check(query, key, value, block_mask, enable_gqa)
    if return_lse and return_aux is not None:
        raise ValueError("Cannot specify both return_lse and return_aux. return_lse is deprecated, please use "
                         "return_aux=AuxRequest(lse=True) instead.")
    times = query.size(1) // key.size(1)
    if times > 1:
        key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
    exact = float64 if query.dtype == float64 else float32
    scores = query.to(exact) @ key.to(exact).transpose(-2, -1) * (1.0 / math.sqrt(query.size(-1)) if scale is None else scale)
    places = _places(scores.shape, scores.device)
    if score_mod is not None:
        scores = broadcast_to(score_mod(scores, *places), scores.shape)
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask._seen(places, query.size(-2), key.size(-2)), -math.inf)
    most = scores.amax(dim=-1, keepdim=True)
    blind = most.isneginf()
    weights = scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)
    result = weights.to(query.dtype) @ value
    if not return_lse and return_aux is None:
        return result
    lse = scores.masked_fill(blind, 0.0).logsumexp(dim=-1).masked_fill(blind.squeeze(-1), -math.inf)
    if return_lse:
        return result, lse
    return result, AuxOutput(lse if return_aux.lse else None, most.squeeze(-1) if return_aux.max_scores else None)
