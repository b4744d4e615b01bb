"""What a recorded step reads of Python's state, in all the places where a program may keep a number: a change of it is seen."""

import builtins
import collections
import contextvars
import copy
import enum
import os
import threading
import types

import pytest
import tapegrad as tg
from recorded import replays


class Plain:
    pass


class Slotted:
    __slots__ = ("scale",)


def of_class(base, *arguments, on_class=False, **namespace):
    """An object of a class that is derived from `base`, with a number in the class or in the object."""
    cls = type("Mine", (base,), {**namespace, **({"scale": 2.0} if on_class else {})})
    made = cls(*arguments)
    if not on_class:
        made.scale = 2.0
    return lambda x: x * made.scale, lambda: setattr(cls if on_class else made, "scale", 3.0)


class Kind(enum.Enum):
    ONE = 1


def attributes_of_a_tensor():
    t = tg.ones(1)
    t.scale = 2.0
    return lambda x: x * t.scale, lambda: setattr(t, "scale", 3.0)


def a_class_of_tensors():
    class Mine(tg.Tensor):
        scale = 2.0

    t = tg.ones(1).as_subclass(Mine)
    return lambda x: x * t.scale, lambda: setattr(Mine, "scale", 3.0)


def a_metaclass():
    meta = type("Meta", (type,), {"scale": 2.0})
    cls = meta("Mine", (), {})
    return lambda x: x * cls.scale, lambda: setattr(meta, "scale", 3.0)


def another_class_of_an_object():
    first, second = (type("Mine", (), {"scale": scale}) for scale in (2.0, 3.0))
    made = first()
    return lambda x: x * made.scale, lambda: setattr(made, "__class__", second)


def an_attribute_of_a_function():
    def helper():
        pass

    helper.scale = 2.0
    return lambda x: x * helper.scale, lambda: setattr(helper, "scale", 3.0)


def a_default(name, value, change):
    def positional(x, scale=2.0):
        return x * scale

    def by_name(x, *, scale=2.0):
        return x * scale

    f = by_name if name == "__kwdefaults__" else positional
    return lambda x: f(x), lambda: change(f) if change else setattr(f, name, value)


def code_of_a_function():
    def f(x):
        return x * 2.0

    return lambda x: f(x), lambda: setattr(f, "__code__", (lambda x: x * 3.0).__code__)


def a_view_of_a_dictionary(look, read):
    values = {"scale": 2.0}
    seen = look(values)
    return lambda x: x * read(seen), lambda: values.update(scale=3.0)


def the_order_of_a_dictionary():
    values = {"a": 2.0, "b": 3.0}
    return lambda x: x * next(iter(values.values())), lambda: values.update(a=values.pop("a"))


def names_in_a_tuple():
    made = Plain()
    made.first, made.second = 2.0, 1.0

    def f(x):
        for name in ("first", "second"):
            x = x * getattr(made, name)
        return x

    return f, lambda: setattr(made, "first", 3.0)


def all_attributes(read):
    made = Plain()
    made.scale = 2.0
    return lambda x: x * read(made), lambda: setattr(made, "scale", 3.0)


def an_attribute_of_a_thread():
    made = threading.local()
    made.scale = 2.0
    return lambda x: x * made.scale, lambda: setattr(made, "scale", 3.0)


def a_module_without_a_file():
    module = types.ModuleType("without_a_file")
    module.scale = 2.0
    return lambda x: x * module.scale, lambda: setattr(module, "scale", 3.0)


def the_environment(read):
    os.environ["TAPEGRAD_TEST_SCALE"] = "2"
    return lambda x: x * float(read("TAPEGRAD_TEST_SCALE")), lambda: os.environ.update(TAPEGRAD_TEST_SCALE="3")


def a_builtin_that_is_exchanged():
    return lambda x: x * max(2.0, 1.0), lambda: builtins.__dict__.update(max=lambda *_: 3.0)


def a_builtin_that_is_hidden():
    return lambda x: x * max(2.0, 1.0), lambda: globals().update(max=lambda *_: 3.0)


@pytest.fixture(autouse=True)
def put_back():
    largest = max
    yield
    builtins.max = largest
    globals().pop("max", None)
    os.environ.pop("TAPEGRAD_TEST_SCALE", None)


PLACES = {
    "slot of a class with a dictionary": lambda: of_class(Plain, __slots__=("scale",)),
    "inherited slot": lambda: of_class(Slotted, __slots__=()),
    "inherited slot, and a dictionary": lambda: of_class(Slotted),
    **{f"{base.__name__}, {'its class' if on_class else 'itself'}": lambda base=base, on_class=on_class: of_class(base, on_class=on_class)
       for base in (list, dict, tuple, set, frozenset, int, float, str, bytes, collections.OrderedDict) for on_class in (False, True)},
    "named tuple": lambda: of_class(collections.namedtuple("Base", "a"), 1, on_class=True),
    "member of an enum": lambda: (setattr(Kind.ONE, "scale", 2.0), (lambda x: x * Kind.ONE.scale, lambda: setattr(Kind.ONE, "scale", 3.0)))[1],
    "tensor": attributes_of_a_tensor,
    "class of tensors": a_class_of_tensors,
    "metaclass": a_metaclass,
    "__class__": another_class_of_an_object,
    "function": an_attribute_of_a_function,
    "__defaults__": lambda: a_default("__defaults__", (3.0,), None),
    "__kwdefaults__": lambda: a_default("__kwdefaults__", {"scale": 3.0}, None),
    "item of __kwdefaults__": lambda: a_default("__kwdefaults__", None, lambda f: f.__kwdefaults__.update(scale=3.0)),
    "__code__": code_of_a_function,
    "mapping proxy": lambda: a_view_of_a_dictionary(types.MappingProxyType, lambda seen: seen["scale"]),
    "values of a dictionary": lambda: a_view_of_a_dictionary(dict.values, sum),
    "order": the_order_of_a_dictionary,
    "names in a tuple": names_in_a_tuple,
    "vars": lambda: all_attributes(lambda made: sum(vars(made).values())),
    "__dict__": lambda: all_attributes(lambda made: sum(made.__dict__.values())),
    "thread": an_attribute_of_a_thread,
    "module": a_module_without_a_file,
    "os.environ": lambda: the_environment(lambda name: os.environ[name]),
    "os.getenv": lambda: the_environment(os.getenv),
    "builtin, exchanged": a_builtin_that_is_exchanged,
    "builtin, hidden": a_builtin_that_is_hidden,
}
EAGER = ("slot", "thread")  # what is no entry of any dictionary cannot be watched


@pytest.mark.parametrize("place", PLACES)
def test_a_change_is_seen(place):
    f, change = PLACES[place]()
    step, x = tg.record(f), tg.ones(2)
    for _ in range(5):
        assert step(x).tolist() == [2.0, 2.0]
    assert (replays(step) > 0) != any(word in place for word in EAGER), step.summary()
    change()
    assert step(x).tolist() == [3.0, 3.0]


def test_what_is_looked_at_runs_no_code_of_the_program():
    """isinstance asks for __class__, which may be a property that clears the list that is looked at."""
    asked = []

    class Odd:
        @property
        def __class__(self):
            asked.append(values.clear())
            return int

    values = []
    values.extend([Odd(), [1.0], Odd()])
    step = tg.record(lambda x: x * len(values))
    for _ in range(5):
        step(tg.ones(2))
    assert step(tg.ones(2)).tolist() == [len(values)] * 2


def test_no_class_property_of_the_program_runs():
    class Hidden:
        scale = 2.0

        @property
        def __class__(self):
            raise SystemExit("the program's own code ran")

    hidden = Hidden()
    step = tg.record(lambda x: x * hidden.scale)
    for _ in range(4):
        assert step(tg.ones(2)).tolist() == [2, 2]
    Hidden.scale = 3.0
    assert step(tg.ones(2)).tolist() == [3, 3]


# --- context variables ---


def test_context_variables_are_compared_and_must_be_what_they_were():
    variable = contextvars.ContextVar("scale", default=1)

    def inside(x):
        token = variable.set(5)
        try:
            return x * variable.get()
        finally:
            variable.reset(token)

    step = tg.record(inside)
    for i in range(6):
        assert step(tg.full((2,), float(i)))[0].item() == 5 * i and variable.get() == 1
    assert replays(step) > 2

    step = tg.record(lambda x: x * variable.get())
    for i in range(18):
        variable.set(i // 6 + 1)
        assert step(tg.full((2,), float(i)))[0].item() == i * (i // 6 + 1)
    assert replays(step) > 6

    listed = contextvars.ContextVar("listed")
    listed.set([1])
    step = tg.record(lambda x: x * listed.get()[0])
    for i in range(12):
        listed.get()[0] = i // 6
        assert step(tg.full((2,), float(i)))[0].item() == i * (i // 6)
    assert replays(step) > 2

    def counts(x):
        variable.set(variable.get() + 1)
        return x * variable.get()

    variable.set(0)
    step = tg.record(counts)
    for i in range(6):
        assert step(tg.ones(2))[0].item() == i + 1
    assert any("it leaves the context variable scale with another value" in reason for reason in step._reasons) and replays(step) == 0


def test_native_methods_of_classes_that_derive_of_ours():
    """super().__getattr__ of a module, and what copy.copy and deepcopy ask of a plain object."""
    class Net(tg.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = tg.nn.Linear(2, 2)

        def __getattr__(self, name):
            return super().__getattr__(name)

        def forward(self, x):
            return self.layer(x) * copy.deepcopy(options).scale

    class Options:
        scale = 3
    options = Options()
    net = Net()
    step = tg.record(net.forward)
    with tg.no_grad():
        for _ in range(6):
            x = tg.randn(2, 2)
            assert tg.equal(step(x), net.forward(x))
    assert replays(step) > 2, step.summary()
