"""The nodes, weights and sizes of an ONNX graph while it is made.

A handler is a function of a Builder and of the arguments of a call: tensors are Refs, which have arithmetic; integers that depend on sizes are
Sizes. It gives a Ref, or one for each result. `g.Relu(x)` adds a node of that name."""

from __future__ import annotations

import numpy as np

from .. import Tensor, dtype, float32, int64, result_type
from .. import bool as bool_
from .. import empty as new_tensor
from ._errors import Refused
from ._sizes import Size, unknown

# ONNX's numbers of dtypes, and NumPy's names of those that it has.
DTYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11, "uint32": 12,
          "uint64": 13, "bfloat16": 16}
_SAME_SIZES = frozenset("Abs Cast Ceil Clip Exp Floor Identity Log Neg Not Reciprocal Relu Round Sigmoid Sign Softplus Sqrt Tanh".split())
HANDLERS: dict = {}
TAKES_SIZES: set[str] = set()


def handler(*names: str, sizes: bool = False):
    """Registers a handler; `sizes`: its integers may depend on sizes that may change, else a call with such is refused."""
    def register(function):
        for name in names:
            HANDLERS[name] = function
            if sizes:
                TAKES_SIZES.add(name)
        return function

    return register


def type_of(kind: dtype) -> int:
    """ONNX's number of a dtype; raises Refused."""
    name = str(kind).rpartition(".")[2]
    if name not in DTYPES:
        raise Refused(f"ONNX operators have no {name}")
    return DTYPES[name]


def _operator(op_type: str, swapped: bool = False):
    def apply(self: Ref, other) -> Ref:
        pair = [self, self.g.number(other, self.dtype)][::-1 if swapped else 1]
        return self.g.op(op_type, *pair, kind=self.dtype, shape=_broadcast(pair[0].shape, pair[1].shape))

    return apply


class Ref:
    """A value of the graph: its name, dtype, and sizes (None where they are not needed)."""

    def __init__(self, g: Builder, name: str, kind: dtype, shape=None) -> None:
        self.g, self.name, self.dtype, self.shape = g, name, kind, shape

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def axis(self, dim: int) -> int:
        """The dimension, counted from the front; a number has one dimension."""
        return dim + max(self.ndim, 1) if dim < 0 else dim

    __add__ = __radd__ = _operator("Add")
    __mul__ = __rmul__ = _operator("Mul")
    __sub__, __rsub__ = _operator("Sub"), _operator("Sub", True)
    __truediv__, __rtruediv__ = _operator("Div"), _operator("Div", True)

    def __neg__(self):
        return self.g.op("Neg", self)


def _broadcast(a, b):
    """The sizes that two tensors have together."""
    if a is None or b is None:
        return None
    a, b = [1] * (len(b) - len(a)) + list(a), [1] * (len(a) - len(b)) + list(b)
    return [m if not isinstance(n, Size) and n == 1 or m == n or m is n else n if not isinstance(m, Size) and m == 1 else Size(None) for m, n in zip(a, b, strict=True)]


class Builder:
    """Nodes in order and initialisers. `out` has dtype and sizes of the results of the call that is being translated."""

    def __init__(self, onnx, symbols: list[tuple[str, int, list]], version: int) -> None:
        self._onnx = onnx
        self.symbols, self.version = symbols, version
        self.nodes: list = []
        self.tensors: dict[str, object] = {}
        self.inputs: list[Ref] = []
        self.out: list[Ref] = []
        self.scope = self.function = ""
        self._taken: dict[str, int] = {}
        self._made: dict = {}

    # --- nodes ---

    def fresh(self, base: str) -> str:
        """A name that no other value has."""
        count = self._taken.get(base)
        self._taken[base] = 1 if count is None else count + 1
        return base if count is None else self.fresh(f"{base}/{count}")

    def op(self, op_type: str, *inputs, kind: dtype | None = None, outputs: int = 1, shape=None, **attributes):
        """A node; its result has the dtype of the first input but for `kind`. Attributes that are None are left out."""
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        kind = kind or (inputs[0].dtype if inputs else float32)
        shape = inputs[0].shape if shape is None and op_type in _SAME_SIZES else shape
        names = [self.fresh(f"{self.scope}/{op_type}") for _ in range(outputs)]
        self.nodes.append(self._onnx.helper.make_node(op_type, [x.name if x is not None else "" for x in inputs], names, name=self.fresh(f"node/{names[0]}"),
                                                      **{k: v for k, v in attributes.items() if v is not None}))
        made = [Ref(self, n, kind, shape) for n in names]
        return made[0] if outputs == 1 else made

    def several(self, op_type: str, inputs: list, kinds: list, **attributes) -> list[Ref]:
        """A node with results of these dtypes and sizes."""
        made = self.op(op_type, *inputs, kind=kinds[0][0], outputs=len(kinds), **attributes)
        return [Ref(self, ref.name, kind, shape) for ref, (kind, shape) in zip(made if isinstance(made, list) else [made], kinds, strict=True)]

    def graph(self, fill, inputs: list):
        """A graph within the graph, of what fill(*inputs) computes of values of these sizes and dtypes, and of all values that are there."""
        outer, self.nodes = self.nodes, []
        known = {key: made for key, made in self._made.items() if key[0] in ("size", "symbol")}
        try:
            given = [Ref(self, self.fresh("operand"), kind, shape) for shape, kind in inputs]
            computed = fill(*given)
            results = [Ref(self, self.fresh("result"), ref.dtype, ref.shape) for ref in computed]
            for ref, result in zip(computed, results, strict=True):
                self.nodes.append(self._onnx.helper.make_node("Identity", [ref.name], [result.name], name=self.fresh(f"node/{result.name}")))
            info = [[self._onnx.helper.make_tensor_value_info(r.name, type_of(r.dtype), list(r.shape)) for r in refs] for refs in (given, results)]
            return self._onnx.helper.make_graph(self.nodes, self.fresh("body"), *info)
        finally:
            self.nodes = outer
            self._made = {key: made for key, made in self._made.items() if key[0] not in ("size", "symbol")} | known  # nodes within are seen there alone

    def __getattr__(self, op_type: str):
        if not op_type[0].isupper():
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self.op(op_type, *inputs, **attributes)

    # --- constants ---

    def initializer(self, name: str, t: Tensor) -> Ref:
        """A tensor under this name."""
        self.tensors[name] = self.tensor_proto(name, t)
        return Ref(self, name, t.dtype, list(t.shape))

    def tensor_proto(self, name: str, t: Tensor):
        number = type_of(t.dtype)
        t = t.detach().contiguous()
        data = t.view(_int16()) if number == DTYPES["bfloat16"] else t
        return self._onnx.TensorProto(name=name, data_type=number, dims=list(t.shape), raw_data=data.numpy().tobytes())

    def const(self, values, kind: dtype = int64) -> Ref:
        """Numbers as an initialiser: one for equal ones."""
        array = np.asarray(values)
        key = (array.shape, str(kind), array.tobytes(), str(array.dtype))
        if key not in self._made:
            from .. import tensor

            name = self.fresh("constant")
            self._made[key] = self.initializer(name, tensor(array.tolist(), dtype=kind).reshape(list(array.shape)))
        return self._made[key]

    def number(self, x, kind: dtype) -> Ref:
        """A Ref of this dtype: of a Ref, a number, or a Size."""
        if isinstance(x, Ref):
            return self.cast(x, kind)
        if isinstance(x, Size):
            return self.cast(self.scalar(x), kind)
        if isinstance(x, complex):
            raise Refused("ONNX operators have no complex numbers")
        return self.const(x, kind)

    def cast(self, x: Ref, kind: dtype) -> Ref:
        return x if x.dtype is kind else self.op("Cast", x, kind=kind, to=type_of(kind))

    def cast_all(self, kind: dtype, *values) -> list[Ref]:
        return [self.number(x, kind) for x in values]

    def common(self, x, y) -> dtype:
        """The dtype that an operator computes these two in, as promotion says."""
        return result_type(*[new_tensor([0] * len(v.shape), dtype=v.dtype) if isinstance(v, Ref) else 0 if isinstance(v, Size) else v for v in (x, y)])

    # --- sizes ---

    def scalar(self, x) -> Ref:
        """An int64 of no dimension."""
        if not isinstance(x, Size):
            return self.const(int(x))
        return self.Squeeze(self.ints([x]), self.const([0]))

    def ints(self, numbers) -> Ref:
        """A vector of int64, with what depends on sizes computed in the graph."""
        if not any(isinstance(n, Size) for n in numbers):
            return self.const(np.array([int(n) for n in numbers], np.int64))
        parts: list[Ref] = []
        plain: list[int] = []
        for n in [*numbers, None]:
            if plain and (n is None or isinstance(n, Size)):
                parts.append(self.const(plain))
                plain = []
            if isinstance(n, Size):
                parts.append(self._size(n))
            elif n is not None:
                plain.append(int(n))
        return parts[0] if len(parts) == 1 else self.Concat(*parts, axis=0)

    def _size(self, size: Size) -> Ref:
        if ("size", size) in self._made:
            return self._made["size", size]
        total = None
        for bits, factor in sorted(size._known().items()):
            product = None if factor != 1 and bits or not bits else self._symbol(bits.bit_length() - 1)
            product = self.const([factor]) if product is None else product
            for k in range(len(self.symbols)):
                if bits >> k & 1 and not (factor == 1 and k == bits.bit_length() - 1):
                    product = product * self._symbol(k)
            total = product if total is None else total + product
        self._made["size", size] = total
        return total

    def _symbol(self, k: int) -> Ref:
        if ("symbol", k) not in self._made:
            number, dim = self.symbols[k][2][0]
            self._made["symbol", k] = self.op("Shape", self.inputs[number], kind=int64, start=dim, end=dim + 1)
        return self._made["symbol", k]

    def dim(self, x: Ref, dim: int):
        """A size of a tensor: a number, a Size, or a vector of one int64 that is computed when the model runs."""
        dim = x.axis(dim)
        return self.op("Shape", x, kind=int64, start=dim, end=dim + 1) if unknown(x.shape[dim]) else x.shape[dim]

    def reshape(self, x: Ref, shape) -> Ref:
        """To these sizes. Leading ones that stay are copied, and one more may be unknown."""
        shape = list(shape)
        if x.shape is not None and shape == list(x.shape):
            return x
        changing = [i for i, n in enumerate(shape) if isinstance(n, Size)]
        written = list(shape)
        if changing and 0 not in shape:
            for i in range(min(len(shape), len(x.shape or ()))):
                if shape[i] is not x.shape[i] and shape[i] != x.shape[i]:
                    break
                if isinstance(shape[i], Size):
                    written[i] = 0
                    changing.remove(i)
            if len(changing) == 1:
                written[changing[0]] = -1
        return self.op("Reshape", x, self.ints(written), shape=shape, allowzero=1 if 0 in shape else None)

    def expand(self, x: Ref, shape) -> Ref:
        """Broadcasts to these sizes; those that x has already need not be known."""
        have = [1] * (len(shape) - x.ndim) + list(x.shape)
        if list(shape) == list(x.shape):
            return x
        return self.op("Expand", x, self.ints([1 if h == n or h is n else n for h, n in zip(have, shape, strict=True)]), shape=list(shape))

    def slice(self, x: Ref, starts, ends, axes, steps=None) -> Ref:
        return self.Slice(x, self.ints(starts), self.ints(ends), self.ints(axes), self.ints(steps) if steps and any(s != 1 for s in steps) else None)

    def transpose(self, x: Ref, order) -> Ref:
        order = [x.axis(d) for d in order]
        if order == sorted(order):
            return x
        return self.op("Transpose", x, perm=order, shape=[x.shape[d] for d in order])

    def unsqueeze(self, x: Ref, *dims: int) -> Ref:
        shape = None if x.shape is None else list(x.shape)
        for d in dims if shape is not None else ():
            shape.insert(d, 1)
        return self.op("Unsqueeze", x, self.const(list(dims)), shape=shape)

    def squeeze(self, x: Ref, *dims: int) -> Ref:
        shape = None if x.shape is None else [n for d, n in enumerate(x.shape) if d not in dims]
        return self.op("Squeeze", x, self.const(list(dims)), shape=shape)

    def where(self, condition, x, y, kind: dtype) -> Ref:
        return self.op("Where", self.number(condition, bool_), *self.cast_all(kind, x, y), kind=kind)


def _int16() -> dtype:
    from .. import int16

    return int16
