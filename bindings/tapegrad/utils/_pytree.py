"""Nested tuples, lists, dictionaries and named tuples as a flat list of leaves and a description of the nesting."""

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["GetAttrKey", "LeafSpec", "MappingKey", "SequenceKey", "TreeSpec", "arg_tree_leaves", "broadcast_prefix", "key_get", "keystr",
           "register_constant", "register_dataclass", "register_pytree_node", "tree_all", "tree_all_only", "tree_any", "tree_any_only", "tree_flatten",
           "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves", "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only",
           "tree_map_only_", "tree_map_with_path", "tree_structure", "tree_unflatten"]


class _Kind(NamedTuple):
    flatten: Any  # container -> (children, context)
    unflatten: Any  # (children, context) -> container
    keyed: Any = None  # container -> ([(key, child)], context), where children do not simply have numbers

    @property
    def flatten_fn(self):
        return self.flatten

    @property
    def unflatten_fn(self):
        return self.unflatten


@dataclass(frozen=True)
class SequenceKey:
    """Where a value lies in a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence):
        return sequence[self.idx]


@dataclass(frozen=True)
class MappingKey:
    """Where a value lies in a mapping."""

    key: object

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping):
        return mapping[self.key]


@dataclass(frozen=True)
class GetAttrKey:
    """Which attribute of an object a value is."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, owner):
        return getattr(owner, self.name)


def _dict_flatten(d):
    return list(d.values()), list(d.keys())


def _dict_flatten_with_keys(d):
    values, context = _dict_flatten(d)
    return [(MappingKey(k), v) for k, v in zip(context, values, strict=True)], context


def _dict_unflatten(values, context) -> dict:
    return dict(zip(context, values, strict=True))


def _list_flatten(sequence):
    return sequence, None


def _list_flatten_with_keys(sequence):
    return [(SequenceKey(i), v) for i, v in enumerate(sequence)], None


def _list_unflatten(values, context) -> list:
    return list(values)


def _tuple_flatten(sequence):
    return list(sequence), None


_tuple_flatten_with_keys = _list_flatten_with_keys


def _tuple_unflatten(values, context) -> tuple:
    return tuple(values)


def _namedtuple_flatten(value):
    return list(value), type(value)


def _namedtuple_flatten_with_keys(value):
    return [(GetAttrKey(name), v) for name, v in zip(value._fields, value, strict=True)], type(value)


def _namedtuple_unflatten(values, context):
    return context(*values) if hasattr(context, "_fields") else context(values)  # results with names, as of sort


_KINDS: dict[Any, _Kind] = {
    tuple: _Kind(_tuple_flatten, _tuple_unflatten),
    list: _Kind(_list_flatten, _list_unflatten),
    dict: _Kind(_dict_flatten, _dict_unflatten),
    OrderedDict: _Kind(_dict_flatten, lambda c, keys: OrderedDict(zip(keys, c, strict=True))),
    defaultdict: _Kind(lambda x: (list(x.values()), (x.default_factory, list(x))),
                       lambda c, context: defaultdict(context[0], zip(context[1], c, strict=True))),
    deque: _Kind(lambda x: (list(x), x.maxlen), lambda c, maxlen: deque(c, maxlen=maxlen)),
}
_NAMED = _KINDS[namedtuple] = _Kind(_namedtuple_flatten, _namedtuple_unflatten)
# What libraries use of PyTorch's own file.
SUPPORTED_NODES = _KINDS
PyTree = Context = Any


def _get_node_type(tree):
    """What a container is looked up by: its type, for named tuples the function that makes them."""
    if _kind_of(tree) is _NAMED:
        return namedtuple
    return type(tree)


def register_pytree_node(cls, flatten_fn, unflatten_fn, **names) -> None:
    """Makes a class a container: flatten_fn(x) gives (children, context), unflatten_fn(children, context) the container. `flatten_with_keys_fn`
    gives ([(key, child)], context); other `names` are for files of programs and not used."""
    _KINDS[cls] = _Kind(flatten_fn, unflatten_fn, names.get("flatten_with_keys_fn"))


_register_pytree_node = _private_register_pytree_node = register_pytree_node


def is_namedtuple_class(cls) -> bool:
    """Whether it is a class of named tuples."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def is_namedtuple_instance(obj) -> bool:
    """Whether it is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj) -> bool:
    """Whether it is a named tuple or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_class(cls) -> bool:
    """Whether it is a class of results with names, as that of `sort`."""
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(getattr(cls, "n_sequence_fields", None), int)


def is_structseq_instance(obj) -> bool:
    """Whether it is a result with names."""
    return is_structseq_class(type(obj))


def is_structseq(obj) -> bool:
    """Whether it is a result with names or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def _keyed(tree, kind: _Kind):
    """The children of a container with where they lie in it."""
    if kind.keyed is not None:
        return kind.keyed(tree)
    children, context = kind.flatten(tree)
    if isinstance(tree, dict):
        keys = map(MappingKey, tree)
    else:
        keys = map(GetAttrKey, tree._fields) if hasattr(tree, "_fields") else map(SequenceKey, range(len(children)))
    return list(zip(keys, children, strict=True)), context


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None) -> None:
    """Makes a dataclass, or a class that is made of its fields as keywords, a container of the fields `field_names` that are
    not None, all by default. Other fields (`drop_field_names` in PyTorch, which compares the two lists) get their defaults."""
    if field_names is None:
        if not dataclasses.is_dataclass(cls):
            raise ValueError(f"register_dataclass: field_names must be given for a class that is no dataclass: got {cls.__name__}")
        field_names = [f.name for f in dataclasses.fields(cls) if f.init]

    def flatten_with_keys(x):
        there = [name for name in field_names if getattr(x, name) is not None]
        return [(GetAttrKey(name), getattr(x, name)) for name in there], there

    def flatten(x):
        children, there = flatten_with_keys(x)
        return [child for _, child in children], there

    register_pytree_node(cls, flatten, lambda values, there: cls(**{**dict.fromkeys(field_names), **dict(zip(there, values, strict=True))}),
                         flatten_with_keys_fn=flatten_with_keys)


def register_constant(cls) -> None:
    """Makes objects of a class parts of the nesting: they have no leaves."""
    register_pytree_node(cls, lambda x: ([], x), lambda _, x: x, flatten_with_keys_fn=lambda x: ([], x))


def _kind_of(value):
    kind = _KINDS.get(type(value))
    if kind is None and isinstance(value, tuple):
        return _NAMED if hasattr(value, "_fields") or hasattr(value, "n_sequence_fields") else None  # these: results with names, as of sort
    return kind


class TreeSpec:
    """The nesting of a tree without its leaves."""

    def __init__(self, type, context, children_specs) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_leaves = sum(child.num_leaves for child in children_specs)

    def is_leaf(self) -> bool:
        """Whether it stands for one leaf."""
        return False

    @property
    def num_children(self) -> int:
        return len(self.children_specs)

    def __eq__(self, other) -> bool:
        return (isinstance(other, TreeSpec) and self.type is other.type and self.context == other.context
                and self.children_specs == other.children_specs)

    def __hash__(self) -> int:
        return hash((self.type, len(self.children_specs)))

    def __repr__(self) -> str:
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"

    def unflatten(self, leaves):
        """The tree with these leaves."""
        return tree_unflatten(leaves, self)


class LeafSpec(TreeSpec):
    """The nesting of a leaf: none."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.num_leaves = 1

    def is_leaf(self) -> bool:
        return True

    def __repr__(self) -> str:
        return "*"


def _flatten(tree, leaves: list, is_leaf) -> TreeSpec:
    kind = None if is_leaf is not None and is_leaf(tree) else _kind_of(tree)
    if kind is None:
        leaves.append(tree)
        return LeafSpec()
    children, context = kind.flatten(tree)
    return TreeSpec(type(tree), context, [_flatten(child, leaves, is_leaf) for child in children])


def tree_flatten(tree, is_leaf=None):
    """(leaves, spec). `is_leaf(x)`: what else counts as a leaf."""
    leaves: list = []
    return leaves, _flatten(tree, leaves, is_leaf)


def tree_leaves(tree, is_leaf=None) -> list:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None) -> TreeSpec:
    """The spec."""
    return tree_flatten(tree, is_leaf)[1]


def tree_unflatten(leaves, treespec):
    """The tree of a spec with these leaves; raises ValueError for a wrong number of them."""
    leaves = list(leaves)
    if not isinstance(treespec, TreeSpec):
        raise TypeError(f"tree_unflatten: expected a TreeSpec: got {type(treespec).__name__}")
    if len(leaves) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: the spec has {treespec.num_leaves} leaves: got {len(leaves)}")
    return _unflatten(iter(leaves), treespec)


def _unflatten(leaves, spec):
    if spec.is_leaf():
        return next(leaves)
    kind = _KINDS.get(spec.type, _NAMED)
    return kind.unflatten([_unflatten(leaves, child) for child in spec.children_specs], spec.context)


def tree_map(func, tree, *rests, is_leaf=None):
    """The tree with func applied to each leaf (and to the leaves of further trees of its nesting)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(rest, is_leaf)[0] for rest in rests]
    return tree_unflatten([func(*values) for values in zip(leaves, *others, strict=True)], spec)


def tree_map_(func, tree, *rests, is_leaf=None):
    """func applied to each leaf, for what it does; the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(type_or_types, func, tree=None, is_leaf=None):
    """The tree with func applied to the leaves of a type."""
    return tree_map(lambda x: func(x) if isinstance(x, type_or_types) else x, tree, is_leaf=is_leaf)


def tree_map_only_(type_or_types, func, tree, is_leaf=None):
    """func applied to the leaves of a type, for what it does; the tree itself."""
    tree_map_only(type_or_types, func, tree, is_leaf)
    return tree


def tree_all(predicate, tree, is_leaf=None) -> bool:
    """Whether it holds for all leaves."""
    return all(predicate(leaf) for leaf in tree_leaves(tree, is_leaf))


def tree_any(predicate, tree, is_leaf=None) -> bool:
    """Whether it holds for a leaf."""
    return any(predicate(leaf) for leaf in tree_leaves(tree, is_leaf))


def tree_all_only(type_or_types, predicate, tree, is_leaf=None) -> bool:
    """Whether it holds for all leaves of a type."""
    return all(predicate(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_any_only(type_or_types, predicate, tree, is_leaf=None) -> bool:
    """Whether it holds for a leaf of a type."""
    return any(predicate(leaf) for leaf in tree_leaves(tree, is_leaf) if isinstance(leaf, type_or_types))


def tree_is_leaf(tree, is_leaf=None) -> bool:
    """Whether it is no container, or `is_leaf(tree)`."""
    return bool(is_leaf is not None and is_leaf(tree)) or _kind_of(tree) is None


def tree_iter(tree, is_leaf=None):
    """An iterator over the leaves."""
    return iter(tree_leaves(tree, is_leaf))


def arg_tree_leaves(*args, **kwargs) -> list:
    """The leaves of arguments."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_leaves(value)]


def _with_paths(tree, path: tuple, is_leaf):
    if tree_is_leaf(tree, is_leaf):
        yield path, tree
        return
    for key, child in _keyed(tree, _kind_of(tree))[0]:
        yield from _with_paths(child, (*path, key), is_leaf)


def tree_leaves_with_path(tree, is_leaf=None) -> list:
    """[(path, leaf)]: a path is a tuple of SequenceKey, MappingKey and GetAttrKey."""
    return list(_with_paths(tree, (), is_leaf))


def tree_flatten_with_path(tree, is_leaf=None):
    """([(path, leaf)], spec)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """The tree with func(path, leaf, ...) for each leaf, and for the leaves of further trees of its nesting."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [tree_flatten(rest, is_leaf)[0] for rest in rests]
    return tree_unflatten([func(path, leaf, *more) for (path, leaf), *more in zip(found, *others, strict=True)], spec)


def keystr(kp) -> str:
    """A path as text: "['weight'][0].grad"."""
    return "".join(map(str, kp))


def key_get(obj, kp):
    """What a path leads to in a tree."""
    for key in kp:
        obj = key.get(obj)
    return obj


def broadcast_prefix(prefix, spec: TreeSpec, is_leaf=None):
    """One value per leaf of the spec from a tree whose nesting is the beginning of it; None where it is not."""
    if spec.is_leaf():
        return [prefix] if _kind_of(prefix) is None or (is_leaf and is_leaf(prefix)) else None
    kind = _kind_of(prefix)
    if kind is None:
        return [prefix] * spec.num_leaves
    children, context = kind.flatten(prefix)
    if type(prefix) is not spec.type or context != spec.context or len(children) != spec.num_children:
        return None
    result: list = []
    for child, child_spec in zip(children, spec.children_specs, strict=True):
        part = broadcast_prefix(child, child_spec, is_leaf)
        if part is None:
            return None
        result += part
    return result


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    return broadcast_prefix(tree, treespec, is_leaf)
