"""From a program to an ONNX graph, call by call."""

from __future__ import annotations

from functools import partial

from .. import arange, float64, int64, no_grad, zeros
from .. import bool as bool_
from . import _layers, _pointwise, _reduce, _shapes  # noqa: F401 - they register handlers
from ._builder import HANDLERS, TAKES_SIZES, Builder, Ref, type_of
from ._errors import Refused, UnsupportedOperatorError
from ._sizes import Size, around, from_samples

_RANDOM = ("rand", "normal", "bernoulli", "dropout", "uniform", "exponential", "cauchy", "geometric", "multinomial", "poisson", "binomial", "gamma", "empty")
_NEW_SIZES = ("squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "as_strided")  # in place, a tensor has other sizes afterwards
_MOST_FOLDED = 1 << 20


class _Call:
    """A call of a program with its arguments as they are written there."""

    bodies: tuple = ()  # programs, of control flow

    def __init__(self, row) -> None:
        self.function, self.arguments, self.tensors, self.results, self.line, self.fits = row
        self.written: str | None = None
        self.base = self.function
        if self.function.endswith("_out"):
            self.base = self.function.removesuffix("_out")
            self.written = self.tensors[-1][2]
            self.arguments, self.tensors = self.arguments[:-1], self.tensors[:-1]
        elif self.function.endswith("_"):
            self.base, self.written = self.function.removesuffix("_"), self.tensors[0][2]

    @property
    def uses(self) -> list[str]:
        return [value for _, _, value in self.tensors]


class Converter:
    """Makes the graph. Values that a call writes to are computed anew under other names, and with them the views of them that are used later."""

    def __init__(self, g: Builder, program, state: dict, fold: bool) -> None:
        self.g, self.program, self.state = g, program, state
        self.recorded = [s[1] for s in g.symbols]
        rows = program.values()
        self.info = {name: (kind, list(shape)) for name, kind, shape, _ in rows}
        self.memory = dict(zip(self.info, program.memories(), strict=True))
        self.inputs = program.inputs()
        self.constants = {name: t for name, _, _, t in rows if t is not None and name not in self.inputs}
        self.calls = [_Call(row) for row in program.operations()]
        for number, call in enumerate(self.calls):
            call.bodies = program.bodies(number)
        if g.symbols:
            self._changing_sizes()
        self.now: dict[str, Ref] = {}
        self.stale: set[str] = set()
        self.view_of: dict[str, tuple[str, _Call]] = {}
        self.failed: list[str] = []
        if fold:
            self._fold()

    # --- before ---

    def _changing_sizes(self) -> None:
        """Sizes of all values as sums of products: the program runs for a few sizes of its inputs."""
        names = [n for n in self.info if n not in self.constants]
        names = [n for n in names if n in self.inputs or any(n in c.results for c in self.calls)]
        part = self.program.part(self.inputs, names)
        symbols = range(len(self.recorded))
        subsets = [[i >> k & 1 for k in symbols] for i in range(1 << len(symbols))] + [[3] * len(symbols)]
        subsets += [[8 * (i == k) for k in symbols] for i in symbols]  # tells apart sizes behind strides
        unknown: dict[tuple, Size] = {}
        seen = []
        for more in subsets:
            shapes = {n: list(self.info[n][1]) for n in self.inputs}
            for (_, _, places), extra in zip(self.program.symbols(), more, strict=True):
                for number, dim in places:
                    shapes[self.inputs[number]][dim] += extra
            with no_grad():
                seen.append([list(t.shape) for t in part.run([zeros(shapes[n], dtype=self.info[n][0]) for n in self.inputs], False)])
        for i, name in enumerate(names):
            samples = [tuple(s[i][d] for s in seen) for d in range(len(seen[0][i]))]
            dims = [from_samples(list(values), self.recorded) for values in samples]
            dims = [unknown.setdefault(values, Size(None)) if d is None else d for d, values in zip(dims, samples, strict=True)]
            self.info[name] = self.info[name][0], dims

    def _fold(self) -> None:
        """Values that are computed of constants alone, weights apart, are constants."""
        known = {n for n in self.constants if n not in self.state}
        written = {self.memory[c.written] for c in self.calls if c.written}
        known = {n for n in known if self.memory[n] not in written}
        kept, folded = [], []
        for call in self.calls:
            results = [r for r in call.results if r is not None]
            if (call.written or call.fits or not results or not known.issuperset(call.uses) or any(word in call.function for word in _RANDOM)
                    or any(self.memory[r] in written for r in results) or any(isinstance(n, Size) for r in results for n in self.info[r][1])):
                kept.append(call)
                continue
            known.update(results)
            folded += results
        used = {n for call in kept for n in call.uses} | set(self.program.outputs())
        wanted = [n for n in folded if n in used]
        if any(_count(self.info[n][1]) > _MOST_FOLDED for n in wanted):
            return
        if wanted:
            with no_grad():
                made = self.program.part([n for n in self.inputs if self.program.symbols()], wanted).run(
                    [zeros(list(self._example(n)), dtype=self.info[n][0]) for n in self.inputs if self.program.symbols()], False)
            self.constants.update(zip(wanted, made, strict=True))
        self.calls = kept

    def _example(self, name: str):
        return next(shape for n, _, shape, _ in self.program.values() if n == name)

    # --- values ---

    def value(self, name: str) -> Ref:
        """What a value is now."""
        if name in self.stale:
            parent, call = self.view_of[name]
            self.value(parent)
            self.stale.discard(name)
            self._translate(call)
        if name not in self.now:
            self.now[name] = self.g.initializer(name if name in self.state else self.g.fresh(name), self.constants[name])
        return self.now[name]

    def _sized(self, call: _Call) -> list:
        arguments = [list(a) if isinstance(a, list) else a for a in call.arguments]
        for argument, item, recorded, terms in call.fits:
            size = around({0: recorded, **dict(terms)}, self.recorded)
            if item < 0:
                arguments[argument] = size
            else:
                arguments[argument][item] = size
        if call.fits and call.base not in TAKES_SIZES:
            raise Refused("a number among its arguments depends on a size that may change")
        return arguments

    def run(self) -> None:
        """Translates all calls. Raises UnsupportedOperatorError with all that cannot be."""
        self.last = {}
        for i, call in enumerate(self.calls):
            for name in call.uses:
                self.last[name] = i
        for name in self.program.outputs():
            self.last[name] = len(self.calls)
        for place, call in enumerate(self.calls):
            self.place = place
            shared = [v for v in call.uses if any(r is not None and self.memory[r] == self.memory[v] for r in call.results)]
            for result in call.results:
                if result is not None and shared:
                    self.view_of[result] = shared[0], call
            try:
                self._translate(call)
            except (Refused, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
                text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
                self.failed.append(f"{call.function}{call.line.rstrip()}: {text}")
                for name in [*call.results, call.written]:
                    if name is not None:
                        self.now[name] = Ref(self.g, "", *self.info[name])
                        self.stale.discard(name)
        if self.failed:
            raise UnsupportedOperatorError("onnx.export: these calls of the program are not translated:\n" + "\n".join(dict.fromkeys(self.failed)))

    def _translate(self, call: _Call) -> None:
        g = self.g
        translate = partial(self._control, call) if call.bodies else HANDLERS.get(call.base)
        if translate is None or call.written and call.base in _NEW_SIZES:
            raise Refused("there is no ONNX operator for it here")
        arguments = self._sized(call)
        for argument, item, name in call.tensors:
            if item < 0:
                arguments[argument] = self.value(name)
            else:
                arguments[argument][item] = self.value(name)
        names = [call.written] if call.written else [r for r in call.results if r is not None]
        g.function, g.scope = call.base, next((r for r in names if r), call.base)
        g.out = [Ref(g, r or "", *self.info[r]) if r is not None else None for r in ([call.written] if call.written else call.results)]
        for r in names:
            type_of(self.info[r][0])
        made = translate(g, *arguments)
        made = made if isinstance(made, (list, tuple)) else [made]
        for out, ref in zip(g.out, made, strict=True):
            if out is not None:
                self.now[out.name] = Ref(g, g.cast(ref, out.dtype).name, out.dtype, out.shape)
        if call.written:
            self._wrote(call.written)

    # --- control flow ---

    def _body(self, body, inputs: list[Ref]) -> list[Ref]:
        """The results of a body for these values; its nodes come behind those there are."""
        converter = Converter(self.g, body, {}, fold=False)
        converter.now.update(zip(body.inputs(), inputs, strict=True))
        out, function, scope = self.g.out, self.g.function, self.g.scope
        try:
            converter.run()
        except UnsupportedOperatorError as error:
            raise Refused(f"in a body of it: {str(error).partition(chr(10))[2]}") from None
        finally:
            self.g.out, self.g.function, self.g.scope = out, function, scope
        return [converter.value(n) for n in body.outputs()]

    def _control(self, call: _Call, g: Builder, first: list[Ref], second: list[Ref], third: list[Ref]) -> list[Ref]:
        """`cond` as If, whose branches see all values that were computed before; `while_loop` as Loop, with the predicate at the end of a turn."""
        if g.symbols:
            raise Refused("control flow is translated where no size may change")
        kinds = [(ref.dtype, ref.shape) for ref in g.out]
        bodies = call.bodies
        if call.function == "cond":
            pred = g.cast(g.reshape(first[0], []), bool_)
            branches = [g.graph(lambda body=body, more=more: self._body(body, more), []) for body, more in zip(bodies, (second, third), strict=True)]
            return g.several("If", [pred], kinds, then_branch=branches[0], else_branch=branches[1])
        before = self._body(bodies[0], [*first, *second])[0]

        def turn(number: Ref, holds: Ref, *carried: Ref) -> list[Ref]:
            after = self._body(bodies[1], [*carried, *third])
            return [self._body(bodies[0], [*after, *second])[0], *after]

        inputs = [([], int64), ([], bool_), *((shape, kind) for kind, shape in kinds)]
        return g.several("Loop", [None, before, *first], kinds, body=g.graph(turn, inputs))

    # --- writes ---

    def _wrote(self, name: str) -> None:
        """After a value has been computed anew: the tensor that it is a view of, and other views, change with it."""
        others = [n for n in self.memory if n != name and self.memory[n] == self.memory[name] and (n in self.now or n in self.constants)]
        if not any(self.last.get(n, -1) > self.place for n in others):
            return
        base = name
        while base in self.view_of:
            base = self._write_back(base)
        for n in others:
            if self._root(n) != base:
                raise Refused("it writes to memory that two tensors share")
            if n != base and not self._above(n, name):
                self.stale.add(n)

    def _root(self, name: str) -> str:
        while name in self.view_of:
            name = self.view_of[name][0]
        return name

    def _above(self, n: str, name: str) -> bool:
        while name in self.view_of:
            name = self.view_of[name][0]
            if n == name:
                return True
        return False

    def _write_back(self, view: str) -> str:
        """Computes the tensor anew of which `view` is one; returns its name."""
        parent, call = self.view_of[view]
        g, (kind, shape) = self.g, self.info[parent]
        if any(isinstance(n, Size) for n in [*shape, *self.info[view][1]]) or call.fits:
            raise Refused(f"it writes to a view ({call.function}) of a tensor whose sizes may change")
        if self.info[view][1] == shape and call.base in ("_alias", "dropout", "contiguous", "to", "_view_shape", "reshape"):
            self.now[parent] = self.now[view]
            return parent
        places = _call_by_name(call, arange(_count(shape), dtype=float64).reshape(shape), parent)[call.results.index(view)]
        flat = g.ScatterElements(g.reshape(self.value(parent), [_count(shape)]), g.const(places.long().reshape(-1).numpy()),
                                 g.reshape(self.now[view], [_count(self.info[view][1])]), axis=0)
        flat.shape = [_count(shape)]
        self.now[parent] = Ref(g, g.reshape(flat, shape).name, kind, shape)
        return parent


def _call_by_name(call: _Call, x, parent: str):
    """The views that a call makes, of another tensor."""
    from .. import _C, Tensor

    arguments = [x if any(a == i and n == parent for a, _, n in call.tensors) else arg for i, arg in enumerate(call.arguments)]
    if call.function == "_strided_view":
        arguments[2:4] = arguments[4:6]
    names = {"_view_shape": "view", "_slice": "_slice", "_split_size": "split", "_split_sections": "split"}
    name = names.get(call.function, call.function)
    function = getattr(Tensor, name, None) or getattr(_C, name, None)
    if function is None or len(call.tensors) != 1:
        if call.function == "_strided_view":
            return [x.as_strided(arguments[1], arguments[4], arguments[5])]
        raise Refused(f"it writes to what {call.function} gives a view of")
    made = function(*arguments)
    return list(made) if isinstance(made, (list, tuple)) else [made]


def _count(shape) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
