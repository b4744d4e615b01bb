"""Splitting of batches into micro-batches, and merging of their results."""

from ... import Tensor, cat
from ...utils import _pytree

__all__ = ["TensorChunkSpec", "merge_chunks", "split_args_kwargs_into_chunks"]


class TensorChunkSpec:
    """Along which dimension a tensor is cut."""

    def __init__(self, split_dim: int):
        self.split_dim = split_dim

    def __repr__(self) -> str:
        return f"TensorChunkSpec({self.split_dim})"

    @staticmethod
    def from_tuple(chunk_dims) -> tuple:
        """One for each of some dimensions."""
        return _pytree.tree_map(TensorChunkSpec, tuple(chunk_dims))

    @staticmethod
    def from_dict(chunk_dims: dict) -> dict:
        """One for each of some dimensions, by name."""
        return _pytree.tree_map(TensorChunkSpec, dict(chunk_dims))


class _Replicate:
    """The same for each micro-batch."""


def split(value, spec, chunks: int) -> list:
    """A value's pieces; ValueError for a tensor of fewer rows than pieces. What is no tensor goes to each."""
    leaves, tree = _pytree.tree_flatten(value)
    if spec is None or isinstance(spec, (TensorChunkSpec, _Replicate)) or spec is _Replicate:
        specs = [spec] * len(leaves)
    else:
        specs = _pytree.tree_leaves(spec, is_leaf=lambda s: isinstance(s, (TensorChunkSpec, _Replicate)))
        if len(specs) != len(leaves):
            raise ValueError(f"pipeline: expected a chunk spec for each of {len(leaves)} values: got {len(specs)}")
    pieces = []
    for x, how in zip(leaves, specs, strict=True):
        if not isinstance(x, Tensor) or isinstance(how, _Replicate) or how is _Replicate:
            pieces.append([x] * chunks)
            continue
        dim = how.split_dim if how is not None else 0
        if x.dim() == 0:
            raise ValueError("pipeline: a tensor without dimensions cannot be cut into micro-batches\nmake it a number")
        if x.shape[dim] < chunks:
            raise ValueError(f"pipeline: {x.shape[dim]} rows cannot be cut into {chunks} micro-batches: got a tensor of shape {list(x.shape)}")
        pieces.append(list(x.tensor_split(chunks, dim)))
    return [_pytree.tree_unflatten([p[i] for p in pieces], tree) for i in range(chunks)]


def split_args_kwargs_into_chunks(args, kwargs, chunks: int, args_chunk_spec=None, kwargs_chunk_spec=None) -> tuple[list, list]:
    """Arguments and keywords of each micro-batch: tensors are cut along their first dimension or as the specs say, pieces differ by one
    row at most."""
    kwargs = kwargs or {}
    if kwargs_chunk_spec is not None:
        named = [{} for _ in range(chunks)]
        for key, value in kwargs.items():
            for into, piece in zip(named, split(value, kwargs_chunk_spec.get(key), chunks), strict=True):
                into[key] = piece
    else:
        named = split(dict(kwargs), None, chunks)
    return split(tuple(args), args_chunk_spec, chunks), named


def merge_chunks(chunks: list, chunk_spec=None):
    """Results of micro-batches as one: tensors are joined along their first dimension or as the spec says; of others the first counts."""
    leaves = [_pytree.tree_flatten(c) for c in chunks]
    count = len(leaves[0][0])
    specs = [None] * count if chunk_spec is None else _pytree.tree_leaves(chunk_spec, is_leaf=lambda s: isinstance(s, TensorChunkSpec))
    merged = []
    for i in range(count):
        values = [x[0][i] for x in leaves]
        dim = specs[i].split_dim if isinstance(specs[i], TensorChunkSpec) else 0
        merged.append(cat(values, dim) if isinstance(values[0], Tensor) and values[0].dim() else values[0])
    return _pytree.tree_unflatten(merged, leaves[0][1])
