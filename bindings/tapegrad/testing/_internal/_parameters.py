"""Tests by parameter: `parametrize`, `subtest`, `decorateIf`, and the making of the tests themselves.

A decorated test carries `parametrize_fn(test, generic_cls, device_cls)`, which yields (function, part of the name, arguments, function from the
arguments to decorators) per test: PyTorch's protocol, which its databases of modules and optimizers implement, too.
"""

import functools
import inspect

from ... import _C
from .common_dtype import is_dtype


def _no_decorators(arguments):
    return []


def wrapped(test):
    """A function of its own around a test, so that what is set on it does not reach the test's other variants."""

    @functools.wraps(test)
    def call(*args, **kwargs):
        return test(*args, **kwargs)

    return call


def compose_parametrize_fns(old_parametrize_fn, new_parametrize_fn):
    """All pairs of the tests of two such functions; the newer, outer one's name comes first."""

    def both(test, generic_cls, device_cls):
        for inner, inner_name, inner_arguments, inner_decorators in list(old_parametrize_fn(test, generic_cls, device_cls)):
            for outer, outer_name, outer_arguments, outer_decorators in new_parametrize_fn(inner, generic_cls, device_cls):
                twice = inner_arguments.keys() & outer_arguments.keys()
                if twice:
                    raise RuntimeError("Parametrization over the same parameter by multiple parametrization decorators is not supported. "
                                       f"For test \"{test.__name__}\", the following parameters are handled multiple times: {twice}")

                def decorators(arguments, first=inner_decorators, second=outer_decorators):
                    return [*first(arguments), *second(arguments)]

                yield outer, "_".join(filter(None, (outer_name, inner_name))), {**inner_arguments, **outer_arguments}, decorators

    return both


class _TestParametrizer:
    """The base of decorators that make several tests of one."""

    def _parametrize_test(self, test, generic_cls, device_cls):
        raise NotImplementedError

    def __call__(self, fn):
        old = getattr(fn, "parametrize_fn", None)
        fn.parametrize_fn = self._parametrize_test if old is None else compose_parametrize_fns(old, self._parametrize_test)
        return fn


class subtest:
    """One entry of `parametrize` with a name or decorators of its own."""

    __slots__ = ("arg_values", "decorators", "name")

    def __init__(self, arg_values, name=None, decorators=None):
        self.arg_values, self.name, self.decorators = arg_values, name, decorators or []


class parametrize(_TestParametrizer):
    """One test per value: @parametrize("x", [1, 2]) or @parametrize("x,y", [(1, 2), subtest((3, 4), name="other")]).

    A name is made of the arguments' names and values, or by `name_fn(*values)`.
    """

    def __init__(self, arg_str, arg_values, name_fn=None):
        self.arg_names = [part.strip() for part in arg_str.split(",") if part]
        self.arg_values, self.name_fn = arg_values, name_fn

    @staticmethod
    def _text(index, name, value) -> str:
        if is_dtype(value):
            return str(value).rpartition(".")[2]
        if isinstance(value, _C.device):
            return str(value)
        if type(value).__name__ in ("OpInfo", "ModuleInfo"):
            return value.formatted_name
        return f"{name}_{value}".replace(".", "_") if isinstance(value, (int, float, str)) else f"{name}{index}"

    def _parametrize_test(self, test, generic_cls, device_cls):
        if not self.arg_names:
            yield test, "", {}, _no_decorators
            return
        index = None
        for index, entry in enumerate(self.arg_values):
            given = entry if isinstance(entry, subtest) else subtest(entry)
            values = list(given.arg_values) if len(self.arg_names) > 1 else [given.arg_values]
            if len(values) != len(self.arg_names):
                raise RuntimeError(f"Expected # values == # arg names, but got: {len(values)} values and {len(self.arg_names)} names for test \"{test.__name__}\"")
            name = given.name or (self.name_fn(*values) if self.name_fn else "_".join(self._text(index, *pair) for pair in zip(self.arg_names, values)))
            yield wrapped(test) if given is entry else test, name, dict(zip(self.arg_names, values)), lambda _, own=given.decorators: own
        if index is None:
            raise ValueError(f"{test}: An empty arg_values was passed to @parametrize. Note that this may result from reuse of a generator.")


class reparametrize(_TestParametrizer):
    """Another decorator's tests, renamed or left out: `adapter_fn(name, arguments)` gives pairs of such, or None."""

    def __init__(self, parametrizer, adapter_fn):
        self.parametrizer, self.adapter_fn = parametrizer, adapter_fn

    def _parametrize_test(self, test, generic_cls, device_cls):
        for made, name, arguments, decorators in self.parametrizer._parametrize_test(test, generic_cls, device_cls):
            for adapted in self.adapter_fn(name, arguments) or ():
                if adapted is not None:
                    yield made, *adapted, decorators


class decorateIf(_TestParametrizer):
    """A decorator for those tests whose arguments fulfil a condition."""

    def __init__(self, decorator, predicate_fn):
        self.decorator, self.predicate_fn = decorator, predicate_fn

    def _parametrize_test(self, test, generic_cls, device_cls):
        yield wrapped(test), "", {}, lambda arguments: [self.decorator] if self.predicate_fn(arguments) else []


def make_test(owner, name: str, test, arguments: dict, decorators, call=None) -> None:
    """Sets a method of a test class: the test with its decorators and arguments; `call(self, test, arguments)` runs it, if given."""
    for decorator in decorators(arguments):
        test = decorator(test)
    if hasattr(owner, name):
        raise AssertionError(f"Redefinition of test {name}")

    @functools.wraps(test)
    def instantiated(self):
        return call(self, test, arguments) if call else test(self, **arguments)

    instantiated.__signature__ = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)])  # for pytest
    setattr(owner, name, instantiated)


def instantiate_parametrized_tests(generic_cls):
    """Replaces the decorated tests of a class by one method per parameter; also a class decorator."""
    for attribute in dir(generic_cls):
        test = getattr(generic_cls, attribute)
        if hasattr(test, "parametrize_fn"):
            delattr(generic_cls, attribute)
            for made, name, arguments, decorators in test.parametrize_fn(test, generic_cls=generic_cls, device_cls=None):
                make_test(generic_cls, f"{test.__name__}_{name}", made, arguments, decorators)
    return generic_cls
