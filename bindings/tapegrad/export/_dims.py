"""Dynamic sizes: what `dynamic_shapes` says of each argument."""

from __future__ import annotations

import enum

from .. import Tensor


class _Hint(enum.Enum):
    AUTO = "AUTO"
    DYNAMIC = "DYNAMIC"
    STATIC = "STATIC"


class Dim:
    """The name of a size that may change, with the least and the largest value that a program is called with. Dimensions of several
    arguments with one name have one size. `Dim.AUTO` and `Dim.DYNAMIC` name a size by themselves, `Dim.STATIC` is one that stays."""

    AUTO, DYNAMIC, STATIC = _Hint.AUTO, _Hint.DYNAMIC, _Hint.STATIC

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"Dim: expected a name: got {name!r}")
        self.__name__, self.min, self.max = name, 0 if min is None else int(min), None if max is None else int(max)
        if self.max is not None and self.max <= self.min:
            raise ValueError(f"Dim: {name}: min={self.min} is not below max={self.max}")

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}', min={self.min}, max={self.max})"


class Symbols:
    """The sizes that may change: name -> [size in the example, [(input, dimension)], least, largest]."""

    def __init__(self) -> None:
        self.found: dict[str, list] = {}

    def add(self, spec, value, number: int, path: str) -> None:
        """What `spec` says of input `number`, a tensor."""
        if isinstance(spec, (tuple, list)):
            if len(spec) != value.ndim:
                raise ValueError(f"dynamic_shapes: {path} has {value.ndim} dimensions: got {len(spec)} entries")
            spec = dict(enumerate(spec))
        if not isinstance(spec, dict):
            raise ValueError(f"dynamic_shapes: expected a dictionary, a tuple or None for {path}: got {spec!r}")
        for dim, size in spec.items():
            if not isinstance(dim, int) or not -value.ndim <= dim < value.ndim:
                raise ValueError(f"dynamic_shapes: {path} has {value.ndim} dimensions: got dimension {dim!r}")
            self._add(size, value.shape[dim], number, dim % value.ndim, f"dimension {dim} of {path}")

    def _add(self, size, example: int, number: int, dim: int, where: str) -> None:
        if size is None or size is Dim.STATIC:
            return
        if isinstance(size, int) and not isinstance(size, bool):
            if size != example:
                raise ValueError(f"dynamic_shapes: {where} is {example} in the example: got {size}")
            return
        if isinstance(size, _Hint):
            size = Dim(f"size_{example}")  # equal ones are taken for one
        elif isinstance(size, str):
            size = Dim(size)
        elif not isinstance(size, Dim):
            raise ValueError(f"dynamic_shapes: expected a Dim, a name, a number or None for {where}: got {size!r}")
        if example == 0:
            raise ValueError(f"dynamic_shapes: {where} is 0 in the example: give one with elements")
        known = self.found.setdefault(size.__name__, [example, [], size.min, size.max])
        if known[0] != example:
            raise ValueError(f"dynamic_shapes: {size.__name__} is {known[0]} and, in {where}, {example} in the example")
        if example < known[2] or known[3] is not None and example > known[3]:
            raise ValueError(f"dynamic_shapes: {where} is {example}, and {size.__name__} goes from {known[2]} to {known[3]}")
        known[1].append((number, dim))

    def walk(self, spec, tree, numbers: dict[int, int], path: str) -> None:
        """`spec` beside a nested value; `numbers`: which input a tensor is, by its id."""
        if spec is None:
            return
        if isinstance(tree, Tensor):
            self.add(spec, tree, numbers[id(tree)], path)
        elif isinstance(tree, dict) and isinstance(spec, dict):
            for key, inner in spec.items():
                if key not in tree:
                    raise ValueError(f"dynamic_shapes: {path} has no {key!r}")
                self.walk(inner, tree[key], numbers, f"{path}[{key!r}]")
        elif isinstance(tree, (list, tuple)) and isinstance(spec, (list, tuple)) and len(tree) == len(spec):
            for i, inner in enumerate(spec):
                self.walk(inner, tree[i], numbers, f"{path}[{i}]")
        else:
            raise ValueError(f"dynamic_shapes: {path} is a {type(tree).__name__}: got {spec!r}")


def enlarged(inputs: list, symbols: dict[str, list], by: dict[str, int]) -> list:
    """The example inputs with sizes that are larger by some number; elements are those there are, once more."""
    from .. import arange

    made = list(inputs)
    for name, more in by.items():
        size, places, _, _ = symbols[name]
        for number, dim in places:
            made[number] = made[number].index_select(dim, arange(size + more) % size)
    return made
