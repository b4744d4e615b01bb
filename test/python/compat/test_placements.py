"""Placements are values: made at import, compared, printed and asked as PyTorch's are."""

import copy
import pickle

import pytest
import tapegrad.distributed.tensor as ours
from tapegrad.distributed.tensor import placement_types

MADE = ["Replicate()", "Shard(0)", "Shard(dim=-1)", "Partial()", "Partial('avg')", "_StridedShard(1, split_factor=2)", "_StridedShard(1)"]


def describe(names, text):
    p = eval(text, vars(names))
    same = [eval(other, vars(names)) == p for other in MADE]
    return (repr(p), str(p), same, p.is_shard(), p.is_shard(0), p.is_shard(1), p.is_replicate(), p.is_partial(), p.is_partial("sum"),
            len({p, eval(text, vars(names))}), isinstance(p, names.Placement), isinstance(p, names.Shard),
            repr(copy.deepcopy(p)), pickle.loads(pickle.dumps(p)) == p)


@pytest.mark.parametrize("text", MADE)
def test_they_are_torch_s(text):
    theirs = pytest.importorskip("torch.distributed.tensor.placement_types")
    assert describe(placement_types, text) == describe(theirs, text)


@pytest.mark.parametrize("text", ["Shard()", "Shard('a')", "Partial(3)", "Replicate(1)"])
def test_what_they_are_not_made_of(text):
    for names in placement_types, pytest.importorskip("torch.distributed.tensor.placement_types"):
        with pytest.raises(TypeError):
            eval(text, vars(names))


def test_they_cannot_be_changed():
    for names in placement_types, pytest.importorskip("torch.distributed.tensor.placement_types"):
        with pytest.raises(AttributeError):
            names.Shard(1).dim = 2
    assert ours.Shard is placement_types.Shard
