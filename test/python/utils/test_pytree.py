"""utils._pytree, against PyTorch's."""

import dataclasses
import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest
import tapegrad as tg
from pairs import same_as_torch
from tapegrad.utils import _pytree

Named = namedtuple("Named", "a b")


@dataclasses.dataclass
class Fields:
    x: object
    y: object = None
    z: int = 3


@dataclasses.dataclass(frozen=True)
class Constant:
    value: int


def registered(lib):
    pytree = importlib.import_module(f"{lib.__name__}.utils._pytree")
    if Fields not in pytree.SUPPORTED_NODES:
        pytree.register_dataclass(Fields)
        pytree.register_constant(Constant)
    return pytree


TREE = {"k": [1, (2, 3)], "n": Named(4, [5]), "o": OrderedDict(a=6), "d": Fields(7), "q": deque([8]), "dd": defaultdict(int, {1: 9}), "c": Constant(1), "e": []}


@same_as_torch
def test_paths(lib):
    p = registered(lib)
    found, spec = p.tree_flatten_with_path(TREE)
    assert all(p.key_get(TREE, path) == value for path, value in found) and p.tree_unflatten([value for _, value in found], spec) == TREE
    return [(p.keystr(path), value) for path, value in found], p.tree_map_with_path(lambda path, x, y: (len(path), x + y), TREE, TREE)


@same_as_torch
def test_questions_of_leaves(lib):
    p, seen = registered(lib), []
    p.tree_map_only_(int, seen.append, [1, "a", (2,)])
    return (seen, p.tree_is_leaf(1), p.tree_is_leaf([]), p.tree_is_leaf([1], is_leaf=lambda x: isinstance(x, list)), list(p.tree_iter(TREE)),
            p.arg_tree_leaves(1, [2], a=(3,)), p.tree_all_only(int, lambda x: x > 0, TREE), p.tree_any_only(str, lambda x: True, TREE),
            p.tree_any(lambda x: isinstance(x, list), [[1]], is_leaf=lambda x: x == [1]))


@same_as_torch
def test_named_tuples_and_results_with_names(lib):
    p = registered(lib)
    result = lib.ones(2).sort()
    return [ask(x) for ask in (p.is_namedtuple, p.is_namedtuple_class, p.is_namedtuple_instance, p.is_structseq, p.is_structseq_class, p.is_structseq_instance)
            for x in (Named, Named(1, 2), (1,), tuple, result, type(result))]


def test_a_class_with_keys_of_its_own():
    class Pair:
        def __init__(self, first, second):
            self.first, self.second = first, second

    _pytree.register_pytree_node(Pair, lambda p: ([p.first, p.second], None), lambda c, _: Pair(*c),
                                 flatten_with_keys_fn=lambda p: ([(_pytree.GetAttrKey("first"), p.first), (_pytree.GetAttrKey("second"), p.second)], None))
    assert [_pytree.keystr(path) for path, _ in _pytree.tree_leaves_with_path([Pair(1, {"a": 2})])] == ["[0].first", "[0].second['a']"]
    with pytest.raises(ValueError, match="field_names must be given"):
        _pytree.register_dataclass(Pair)


def test_members_by_name():
    from tapegrad.nn.utils._named_member_accessor import NamedMemberAccessor, swap_tensor

    model = tg.nn.Sequential(tg.nn.Linear(2, 2), tg.nn.BatchNorm1d(2))
    members, weight = NamedMemberAccessor(model), model[0].weight
    other = tg.zeros(2, 2)
    assert members.swap_tensor("0.weight", other) is weight and model[0].weight is other and members.get_tensor("0.weight") is other
    assert members.swap_tensors_dict({"0.weight": weight, "1.running_mean": tg.ones(2)})[1] == [] and model[0].weight is weight
    with pytest.raises(RuntimeError, match=r"Missing key\(s\): '0.no'"):
        members.swap_tensors_dict({"0.weight": other, "0.no": other})
    assert model[0].weight is weight and not hasattr(model[0], "no")  # all is as it was
    assert members.check_keys(["0.weight", "zzz"]) == (sorted(dict(model.state_dict()).keys() - {"0.weight"}), ["zzz"])
    for call, error in ((lambda: swap_tensor(model, "a.b", other), KeyError), (lambda: swap_tensor(model, "", other), KeyError),
                        (lambda: swap_tensor(model, "0", 3), TypeError), (lambda: swap_tensor(1, "a", other), TypeError),
                        (lambda: swap_tensor(model, "a", other), AttributeError), (lambda: members.get_tensor("0"), TypeError)):
        with pytest.raises(error):
            call()
    members.del_tensor("0.bias")
    assert not hasattr(model[0], "bias")
