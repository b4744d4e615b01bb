"""Control flow in recorded steps: `cond` and `while_loop` as one call each, whose bodies are recorded steps of their own.

While a step is recorded, the functions run as they are. What a replay calls later are copies of them, in which the tensors of their closures
are arguments: tensors of the step lie elsewhere in each replay. Such bodies run without gradients. Where gradients flow, or a body reaches
tensors of the step in another way, the calls of the body become calls of the step, which is valid while its predicates have the same values.
"""

from __future__ import annotations

import dis
import functools
import types
import weakref

from .. import _C, Tensor, is_grad_enabled, no_grad, strided
from .._root.recording import state
from ..record import RecordedStep
from ..record._watch import reachable
from ..utils._pytree import tree_flatten, tree_unflatten
from .trees import check_alike
from .while_loop import predicate

_VALUES = (int, float, complex, str, bytes, bool, type(None))


class _Place:
    """Where a tensor stands in the closure of a template."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Token:
    """What equal functions have in common: their code, and what their closures hold but tensors. Keeps what it names by identity."""

    def __init__(self, kept: list) -> None:
        self.kept = kept


_tokens: weakref.WeakValueDictionary = weakref.WeakValueDictionary()


def _stores(code) -> bool:
    """Whether a function, or one in it, writes to a variable of an enclosing function."""
    return (any(i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval in code.co_freevars for i in dis.get_instructions(code))
            or any(isinstance(const, types.CodeType) and _stores(const) for const in code.co_consts))


class Template:
    """Functions without the tensors of their closures, which are `tensors` here. Their variables of enclosing functions are as they are now: those
    of the step have other values once it goes on. `whole` says whether they can be copied so."""

    def __init__(self, functions: tuple) -> None:
        self.tensors: list[Tensor] = []
        self._kept: list = []
        self.functions = tuple(self._replace(function, self._place, ()) for function in functions)
        self.whole = all(self._is_whole(function, ()) for function in functions)
        key = tuple(self._key(function) for function in self.functions)
        self.token = _tokens.get(key)
        if self.token is None:
            _tokens[key] = self.token = _Token(self._kept)
        del self._kept

    def _place(self, value):
        if isinstance(value, Tensor):
            number = next((i for i, t in enumerate(self.tensors) if t is value), len(self.tensors))
            if number == len(self.tensors):
                self.tensors.append(value)
            return _Place(number)
        return value

    @staticmethod
    def _is_whole(value, outer: tuple) -> bool:
        """Whether a function neither holds itself nor writes to variables of enclosing functions."""
        if not isinstance(value, (types.FunctionType, types.MethodType, functools.partial, tuple, list, dict)):
            return True
        if id(value) in outer:
            return False
        outer = (*outer, id(value))
        if isinstance(value, types.FunctionType):
            if not value.__closure__:
                return True
            if _stores(value.__code__):
                return False
            try:
                parts = [cell.cell_contents for cell in value.__closure__]
            except ValueError:  # not set yet
                return False
        else:
            parts = ([value.__func__] if isinstance(value, types.MethodType) else [value.func, value.args, value.keywords] if isinstance(value, functools.partial)
                     else list(value.values()) if isinstance(value, dict) else value)
        return all(Template._is_whole(part, outer) for part in parts)

    @staticmethod
    def _replace(value, leaf, outer: tuple):
        """A function with variables of its own, or a nesting of tuples, lists and dictionaries, with what `leaf` gives in the places of tensors."""
        if id(value) in outer:
            return value
        inner = functools.partial(Template._replace, leaf=leaf, outer=(*outer, id(value)))
        if type(value) in (tuple, list):
            items = [inner(item) for item in value]
            return value if all(a is b for a, b in zip(items, value)) else type(value)(items)
        if type(value) is dict:
            items = {key: inner(item) for key, item in value.items()}
            return value if all(items[key] is value[key] for key in value) else items
        if isinstance(value, types.MethodType):
            function = inner(value.__func__)
            return value if function is value.__func__ else types.MethodType(function, value.__self__)
        if isinstance(value, functools.partial):
            parts = inner((value.func, value.args, value.keywords))
            return value if parts[0] is value.func and parts[1] is value.args and parts[2] is value.keywords else functools.partial(parts[0], *parts[1], **parts[2])
        if not isinstance(value, types.FunctionType):
            return leaf(value)
        cells = []
        for cell in value.__closure__ or ():
            try:
                content = inner(cell.cell_contents)
            except ValueError:  # not set yet
                cells.append(cell)
                continue
            cells.append(types.CellType(content))
        defaults = inner(value.__defaults__)
        keywords = inner(value.__kwdefaults__)
        if not cells and defaults is value.__defaults__ and keywords is value.__kwdefaults__:
            return value
        made = types.FunctionType(value.__code__, value.__globals__, value.__name__, defaults, tuple(cells))
        made.__kwdefaults__, made.__dict__ = keywords, dict(value.__dict__)
        return made

    def _key(self, value, outer: tuple = ()):
        """What is compared of a function: by value where it is a value, else by identity."""
        if isinstance(value, _Place):
            return "place", value.number
        if isinstance(value, _VALUES):
            return type(value), repr(value)
        self._kept.append(value)
        if id(value) not in outer:
            outer = (*outer, id(value))
            if type(value) in (tuple, list):
                return type(value), tuple(self._key(item, outer) for item in value)
            if type(value) is dict:
                return dict, tuple((self._key(key, outer), self._key(item, outer)) for key, item in value.items())
            if isinstance(value, types.MethodType):
                return "method", id(value.__self__), self._key(value.__func__, outer)
            if isinstance(value, functools.partial):
                return "partial", *(self._key(part, outer) for part in (value.func, value.args, value.keywords))
            if isinstance(value, types.FunctionType):
                cells = []
                for cell in value.__closure__ or ():
                    try:
                        cells.append(self._key(cell.cell_contents, outer))
                    except ValueError:
                        cells.append("empty")
                self._kept.append(value.__code__)
                return "function", id(value.__code__), id(value.__globals__), tuple(cells), self._key(value.__defaults__, outer), self._key(value.__kwdefaults__, outer)
        return "object", id(value)


def _with(function, tensors):
    """The function of a template with tensors in their places."""
    return Template._replace(function, lambda value: tensors[value.number] if isinstance(value, _Place) else value, ())


def _is_one_call(inputs: list, template: Template) -> bool:
    """Whether bodies can be called anew in each replay: they read no tensors of the step but those that are given to them, and need no gradients."""
    if not template.whole or not all(t.device.type == "cpu" and t.layout is strided and not _C._vmap_level(t) for t in inputs):
        return False
    reached = reachable(template.functions)
    if isinstance(reached, str) or any(_C._is_of_step(t) for t in reached):
        return False
    return not (is_grad_enabled() and any(t.requires_grad for t in (*inputs, *reached)))


class _Calls:
    """What a step calls at its turn: the first time, while it is recorded, `first`; from then on `again`."""

    def __init__(self, first, again) -> None:
        self.first, self.again = first, again

    def __call__(self, values: list) -> list:
        if (first := self.first) is not None:
            self.first = None  # it holds tensors of the step
            return first()
        return self.again(values)


def _call(name: str, template: Template, inputs: list, first, again) -> list:
    with no_grad():
        return _C._nested_call(name, (template.token,), inputs, _Calls(first, again))


def _step(function, name: str, *bound):
    """A recorded step of the positional arguments behind `bound`; functions among these are watched."""
    return RecordedStep(functools.partial(function, *bound), pure=state.pure, name=name)


class _Form:
    """The structure of results, and what in them is no tensor, as they were when the call was recorded."""

    def __init__(self) -> None:
        self.structure, self.values = None, None

    def tensors(self, what: str, result) -> list:
        """The tensors of a result. Raises RuntimeError where it has another form."""
        leaves, structure = tree_flatten(result)
        values = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]
        if self.structure is None:
            self.structure, self.values = structure, values
        if structure != self.structure or values != self.values:
            raise RuntimeError(f"Unmatched output spec from torch.{what} branches: tree_spec {structure} of {values} vs tree_spec {self.structure} of "
                               f"{self.values} when the step was recorded.")
        return [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def result(self, tensors: list):
        """The result with these tensors."""
        tensors = iter(tensors)
        return tree_unflatten([next(tensors) if kept is None else kept[0] for kept in self.values], self.structure)


def _branch(function, structure, form: _Form, *tensors):
    count = structure.num_leaves
    return form.tensors("cond", _with(function, tensors[count:])(*tree_unflatten(list(tensors[:count]), structure)))


def cond(pred, true_fn, false_fn, operands):
    """cond in a step that is recorded."""
    leaves, structure = tree_flatten(operands)
    template = Template((true_fn, false_fn))
    inputs = [*leaves, *template.tensors]
    if not _is_one_call(inputs, template):
        return (true_fn if _C._decide("cond", pred) else false_fn)(*operands)
    form = _Form()
    steps = {chosen: _step(_branch, f"the {'true' if chosen else 'false'} branch of cond", function, structure, form)
             for chosen, function in zip((True, False), template.functions, strict=True)}
    tensors = _call("cond", template, [pred, *inputs], lambda: form.tensors("cond", (true_fn if bool(pred) else false_fn)(*operands)),
                    lambda values: steps[bool(values[0])](*values[1:]))
    return form.result(tensors)


def _turn(cond_fn, body_fn, structure, *tensors):
    count = structure.num_leaves
    carried = tree_unflatten(list(tensors[:count]), structure)
    leaves = tree_flatten(_with(body_fn, tensors[count:])(*carried))[0]
    check_alike(leaves, list(tensors[:count]), "body_fn_output", "carried_inputs")
    return [predicate(_with(cond_fn, tensors[count:])(*tree_unflatten(leaves, structure))), *leaves]


def while_loop(pred, cond_fn, body_fn, carried, loop):
    """while_loop in a step that is recorded, after cond_fn gave `pred`; `loop(holds)` runs it, with holds() for the truth of a predicate."""
    leaves, structure = tree_flatten(carried)
    template = Template((cond_fn, body_fn))
    inputs = [*leaves, *template.tensors]
    if not all(isinstance(leaf, Tensor) for leaf in leaves) or not _is_one_call(inputs, template):
        return loop(lambda pred: _C._decide("while_loop", pred) if isinstance(pred, Tensor) else pred)
    count = len(leaves)
    step = _step(_turn, "a turn of while_loop", *template.functions, structure)
    form = _Form()

    def first() -> list:
        return form.tensors("while_loop", loop(bool))

    def again(values: list) -> list:
        turn, captured = values[: 1 + count], values[1 + count:]
        while turn[0]:
            turn = step(*turn[1:], *captured)
        return turn[1:]

    return form.result(_call("while_loop", template, [pred, *inputs], first, again))
