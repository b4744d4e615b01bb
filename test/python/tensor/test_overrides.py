"""`__torch_function__`: subclasses, other types and modes that take the place of operators, against PyTorch's."""

import copy
import functools
import inspect
import pickle
import re
import threading
from pathlib import Path

import numpy as np
import pytest
import tapegrad as tg
from pairs import same_as_torch

torch = pytest.importorskip("torch")


def kinds(value):
    """The types in a result, and its numbers."""
    if isinstance(value, (tuple, list)) and not isinstance(value, (tg.Size, torch.Size)):
        return [kinds(v) for v in value]
    if isinstance(value, (tg.Tensor, torch.Tensor)):
        return type(value).__name__, np.round(np.asarray(value.detach().tolist(), float), 4).tolist()
    return type(value).__name__


CALLS = {
    "operators": lambda t, s, b: [s + 1, 1 + s, 1 - s, b + s, s @ b, 2 ** s, s / b, -s, abs(s), s == b, s > 0, s // 1, s % 2],
    "functions": lambda t, s, b: [t.add(b, s), t.stack([s, b]), t.cat((b, s)), t.where(s > 0, s, b), t.einsum("i,i->", s, b), t.zeros_like(s)],
    "methods": lambda t, s, b: [s.sum(), s.view(2, 1), s.clone(), s.to(t.float64), s.new_zeros(2), s.detach(), s.type(t.int64)],
    "several results": lambda t, s, b: [list(t.split(s, 1)), s.max(0).values, t.sort(s)[0], list(s.unbind()), list(s)],
    "subscripts and properties": lambda t, s, b: [s[0], s[s > 1], s.data, s.shape, s.dtype, s.real, s.view(1, 2).mT, s.numel(), s.dim()],
    "functional": lambda t, s, b: [t.nn.functional.relu(s), t.nn.functional.linear(s, b), t.nn.functional.cross_entropy(s[None], t.tensor([0]))],
    "numbers": lambda t, s, b: [s.tolist(), s.sum().item(), float(s.sum()), len(s), bool(s.sum() > 0)],
    "in place": lambda t, s, b: [s.clone().mul_(2), t.add(s, b, out=t.empty(2)), s.clone().fill_(3)],
    "parameters": lambda t, s, b: [t.nn.Parameter(b) + 1, t.nn.Parameter(b) + s, t.nn.Linear(2, 2)(s).shape],
}


@pytest.mark.parametrize("name", CALLS)
@same_as_torch
def test_results_are_of_the_subclass(t, name):
    class Sub(t.Tensor):
        pass

    return kinds(CALLS[name](t, t.tensor([1.0, 2.0]).as_subclass(Sub), t.ones(2)))


@same_as_torch
def test_gradients_of_a_subclass(t):
    class Sub(t.Tensor):
        pass

    x = t.tensor([1.0, 2.0]).as_subclass(Sub).requires_grad_()
    y = (x * 3).sum()
    y.backward()
    return [type(v).__name__ for v in (x, y, x.detach())], x.grad.tolist(), x.is_leaf, y.grad_fn is not None, repr(x.detach())


class Scalar:
    """The diagonal tensor of PyTorch's page on extending: one number on the diagonal, of which only some functions know."""

    handled = None  # by library

    def __init__(self, n, value):
        self.n, self.value = n, value

    def tensor(self, t):
        return self.value * t.eye(self.n)


def scalar_tensor(t):
    handled = {}

    class ScalarTensor(Scalar):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func not in handled or not all(issubclass(k, (t.Tensor, ScalarTensor)) for k in types):
                return NotImplemented
            return handled[func](*args, **(kwargs or {}))

    def implements(function):
        def register(f):
            handled[function] = functools.wraps(function)(f)
            return f
        return register

    @implements(t.mean)
    def mean(input):
        return float(input.value) / input.n

    @implements(t.add)
    def add(input, other):
        if isinstance(input, ScalarTensor) and isinstance(other, ScalarTensor):
            return ScalarTensor(input.n, input.value + other.value)
        left, right = (x.tensor(t) if isinstance(x, ScalarTensor) else x for x in (input, other))
        return t.add(left, right)

    handled[t.Tensor.add] = add
    return ScalarTensor


@same_as_torch
def test_a_type_that_is_no_tensor(t):
    kind = scalar_tensor(t)
    d, b = kind(2, 3), t.ones(2, 2)
    with pytest.raises(TypeError, match="ScalarTensor") as error:
        t.mul(d, 3)
    assert "__torch_function__" in str(error.value)
    return t.mean(d), t.add(d, d).value, t.add(b, d).tolist(), (b + d).tolist(), t.overrides.is_tensor_like(d), t.overrides.is_tensor_like(3)


@same_as_torch
def test_metadata_goes_along(t):
    class MetadataTensor:
        def __init__(self, data, metadata=None):
            self._t, self._metadata = t.as_tensor(data), metadata

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            metadatas = tuple(a._metadata for a in args if hasattr(a, "_metadata"))
            args = [getattr(a, "_t", a) for a in args]
            return cls(func(*args, **(kwargs or {})), metadata=metadatas[0])

    m = MetadataTensor([[1.0], [2.0]], metadata={"owner": "Ministry of Silly Walks"})
    plain = t.tensor([[1.0, 2.0]])
    return [(r._t.tolist(), r._metadata["owner"]) for r in (t.add(plain, m), t.mul(m, plain), plain + m, t.sum(m, dim=0), t.matmul(m, plain))]


@same_as_torch
def test_subclasses_come_before_their_bases_and_say_no(t):
    log = []

    def hook(cls, func, types, args=(), kwargs=None):
        log.append((cls.__name__, [k.__name__ for k in types]))
        return NotImplemented if cls.__name__ != "Base" else len(args)

    Base = type("Base", (t.Tensor,), {"__torch_function__": classmethod(hook)})
    Derived = type("Derived", (Base,), {})
    Other = type("Other", (), {"__torch_function__": classmethod(hook)})
    base, derived, other = t.ones(2).as_subclass(Base), t.ones(2).as_subclass(Derived), Other()
    answer = [t.add(other, base), t.add(base, derived), base + derived, t.stack([base, derived])]
    with pytest.raises(TypeError):
        t.add(derived, other)
    with pytest.raises(TypeError):
        t.ones(2) * other
    return answer, log


def test_two_subclasses_that_know_nothing_of_each_other():

    def run(t):
        A, B = type("A", (t.Tensor,), {}), type("B", (t.Tensor,), {})
        with pytest.raises(TypeError):
            t.ones(2).as_subclass(A) + t.ones(2).as_subclass(B)
        C = type("C", (A,), {})
        return type(t.ones(2).as_subclass(A) + t.ones(2).as_subclass(C)).__name__

    assert run(tg) == run(torch) == "C"


def logging_mode(t, log):
    class LoggingMode(t.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append((func.__name__, len(args), sorted(kwargs or {})))
            return func(*args, **(kwargs or {}))

    return LoggingMode()


@same_as_torch
def test_a_mode_sees_every_call(t):
    log = []
    before = t.ones(2)
    with logging_mode(t, log):
        x = t.ones(2)
        y = x + 1
        z = t.add(x, y, alpha=2)
        z.shape, z.T if z.dim() == 2 else None
        z.sum().item()
        x[0], x.mul_(2)
        t.zeros(2, requires_grad=True)
        assert before.view(1, 2).mT.is_contiguous()
        t.stack([x, y])
    before + 1
    return log, y.tolist(), z.tolist(), x.tolist()


@same_as_torch
def test_modes_nest_and_reach_the_next(t):
    log = []

    class Mode(t.overrides.TorchFunctionMode):
        def __init__(self, name):
            self.name = name

        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append((self.name, func.__name__, [k.__name__ for k in types]))
            if self.name == "twice":
                return func(*args, **(kwargs or {})) * 2
            return func(*args, **(kwargs or {}))

    class Sub(t.Tensor):
        pass

    s = t.ones(2).as_subclass(Sub)
    with Mode("outer"), Mode("twice") as inner:
        assert t.overrides._get_current_function_mode() is inner
        a = t.add(s, 1)
        with t._C.DisableTorchFunctionSubclass():
            b = t.add(s, 1)
        with t._C.DisableTorchFunction():
            c = t.add(s, 1)
    assert t.overrides._get_current_function_mode() is None
    with t._C.DisableTorchFunctionSubclass():
        d = t.add(s, 1)
    return log, [kinds(v) for v in (a, b, c, d)]


def test_a_mode_belongs_to_its_thread_and_ends_after_an_error():
    log, seen = [], []

    class Failing(tg.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise KeyError("no")

    with logging_mode(tg, log):
        thread = threading.Thread(target=lambda: seen.append((tg.ones(2) + 1).tolist()))
        thread.start()
        thread.join()
        assert log == [] and seen == [[2.0, 2.0]]
        with pytest.raises(KeyError), Failing():
            tg.ones(2)
        tg.ones(2)
    assert [name for name, _, _ in log] == ["ones"]
    with pytest.raises(RuntimeError, match="no mode is on"):
        tg._C._pop_function_mode()
    with pytest.raises(NotImplementedError, match="needs a __torch_function__"), tg.overrides.TorchFunctionMode():
        tg.ones(2)
    assert (tg.ones(2) + 1).tolist() == [2.0, 2.0]


@same_as_torch
def test_functions_of_the_user_take_part(t):
    o = t.overrides
    calls = []

    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append((func.__name__, args, kwargs))
            return "duck"

    duck = Duck()

    def own(a, b=None):
        if o.has_torch_function((a, b)):
            return o.handle_torch_function(own, (a, b), 1, b=2)
        return "own"

    @o.wrap_torch_function(lambda a: (a,))
    def wrapped(a):
        return "wrapped"

    class Unasked:
        __torch_function__ = t._C._disabled_torch_function_impl

    asked = [o.has_torch_function_unary(x) for x in (duck, t.ones(1), t.nn.Parameter(t.ones(1)), Unasked(), 3, None)]
    return (own(duck), own(3), own(1, duck), wrapped(duck), wrapped(3), asked, o.has_torch_function_variadic(1, duck), o.has_torch_function([]),
            [name for name, _, _ in calls], calls[0][1:], calls[1][1:])


def test_what_overrides_tells():
    o = tg.overrides
    functions = o.get_overridable_functions()
    assert tg.add in functions[tg] and tg.nn.functional.relu in functions[tg.nn.functional] and tg.linalg.svd in functions[tg.linalg]
    assert tg.Tensor.add in functions[tg.Tensor] and tg.Tensor.shape.__get__ in functions[tg.Tensor]
    assert {tg.ones, tg.rand} <= o.get_ignored_functions() and tg.add not in o.get_ignored_functions()
    assert o.get_default_nowrap_functions() == {tg.Tensor.grad.__get__, tg.Tensor._base.__get__}
    for name in ("add", "Tensor.add", "linalg.svd", "nn.functional.gelu"):
        assert o.resolve_name(functools.reduce(getattr, name.split("."), tg)) == f"tapegrad.{name}"
    assert o.resolve_name(tg.Tensor.shape.__get__) == "tapegrad.Tensor.shape.__get__" and o.resolve_name(len) is None
    assert o.is_tensor_method_or_property(tg.Tensor.add) and o.is_tensor_method_or_property(tg.Tensor.T.__get__)
    assert not o.is_tensor_method_or_property(tg.add)


def test_overridable_functions_call_the_type():
    """Every function that is listed as asking does ask, called with the type in place of its first argument."""
    class Duck:
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return self

    duck, stubs = Duck(), (Path(tg.__file__).parent / "_stubs/root.pyi").read_text()
    first = dict(reversed(re.findall(r"^def (\w+)\(\w+: ([^,)=]+)", stubs, re.M)))  # the type of each function's first argument
    asking = [f for f in tg.overrides.get_overridable_functions()[tg] if type(f) is type(len) and first.get(f.__name__) == "Tensor"]
    assert len(asking) > 200 and [f.__name__ for f in asking if f(duck) is not duck] == []


@same_as_torch
def test_properties_and_setters_ask(t):
    log = []

    class Sub(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(getattr(func, "__name__", "?"))
            return super().__torch_function__(func, types, args, kwargs)

    s = t.ones(2, 2).as_subclass(Sub)
    log.clear()
    s.requires_grad = True
    results = [type(s.mT).__name__, s.shape[0], s.is_leaf, type(s.grad).__name__]
    s.data = t.zeros(2, 2)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        s[0] = 1
    s.requires_grad = False
    s[0] = 1
    return results, log, s.tolist()


def test_redispatch_skips_one_question():
    o, log = tg.overrides, []

    class Sub(tg.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            log.append(func.__name__)
            return o.redispatch_function(func, types, args, kwargs)

    def twice_plus(a):
        if o.has_torch_function((a,)):
            return o.handle_torch_function(twice_plus, (a,), a)
        return a * 2 + 1

    result = twice_plus(tg.ones(2).as_subclass(Sub))
    assert log == ["twice_plus", "mul"] and result.tolist() == [3.0, 3.0]


def test_subclasses_with_what_they_hold_are_pickled_and_copied():
    x = tg.ones(2).as_subclass(Kept)
    x.note = "n"
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert type(y) is Kept and y.note == "n" and y.tolist() == [1.0, 1.0]


class Kept(tg.Tensor):
    pass


def test_a_hook_that_is_no_hook_is_an_error():
    class Broken:
        __torch_function__ = 3

    with pytest.raises(TypeError):
        tg.add(Broken(), 1)
    assert np.asarray(tg.ones(2) + 1).tolist() == [2.0, 2.0]


# Functions that are written in Python in one of the libraries or both.
WRITTEN = ("where nonzero unique unique_consecutive tensordot nuclear_norm atleast_1d atleast_2d svd_lowrank detach get_device is_signed narrow_copy "
           "detach_copy histogramdd feature_dropout batch_norm embedding conv_tbc grid_sampler norm_except_dim kl_div "
           "nn.functional.softmax nn.functional.log_softmax nn.functional.softmin nn.functional.gumbel_softmax nn.functional.cross_entropy "
           "nn.functional.mse_loss nn.functional.ctc_loss nn.functional.triplet_margin_loss nn.functional.max_pool2d "
           "nn.functional.adaptive_avg_pool2d nn.functional.adaptive_max_pool1d nn.functional.fractional_max_pool2d nn.functional.unfold "
           "nn.functional.multi_head_attention_forward nn.functional.triplet_margin_with_distance_loss").split()


def found(t, name):
    for part in name.split("."):
        t = getattr(t, part)
    return t


@pytest.mark.parametrize("name", WRITTEN)
def test_functions_written_in_python_ask(name):
    dummy = torch.overrides.get_testing_overrides()[found(torch, name)]
    needed = [p for p in inspect.signature(dummy).parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]

    def run(t):
        asked = []

        class Other:
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                asked.append((func == found(t, name), [k.__name__ for k in types]))
                return "mine"

        class Mode(t.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                asked.append(("mode", func == found(t, name)))
                return "the mode's"

        other = [Other() for _ in needed] or [Other()]
        answer = found(t, name)(*other)
        with Mode():
            return answer, found(t, name)(*other), asked, t.overrides.resolve_name(found(t, name)).rpartition(".")[2]

    assert run(tg) == run(torch)
    listed = tg.overrides.get_overridable_functions()
    assert found(tg, name) in listed[found(tg, name.rpartition(".")[0]) if "." in name else tg]


@same_as_torch
def test_functions_written_in_python_keep_a_subclass(t):
    class Sub(t.Tensor):
        pass

    f, s = t.nn.functional, t.tensor([[1.0, 0.0], [2.0, 3.0]]).as_subclass(Sub)
    return kinds([f.softmax(s, -1), f.cross_entropy(s, t.tensor([0, 1])), f.max_pool1d(s, 2), f.adaptive_avg_pool1d(s[None], 1),
                  t.where(s > 0, s, 0.0), t.nonzero(s), list(t.nonzero(s, as_tuple=True)), t.unique(s), t.tensordot(s, s), t.einsum("ij->i", s), t.einsum(s, [0, 1], [1]), t.atleast_2d(s[0]),
                  t.detach(s), t.narrow_copy(s, 0, 0, 1), f.mse_loss(input=s, target=t.ones(2, 2))])


def test_warnings_of_functions_that_ask_name_the_caller():
    x = tg.ones(2, 3)
    for call in (lambda: tg.nn.functional.softmax(x), lambda: tg.nn.functional.mse_loss(x, x, reduce=False)):
        with pytest.warns(UserWarning) as seen:
            call()
        assert seen[0].filename == __file__


def _wrapper(t):
    class Wrapper(t.Tensor):
        __slots__ = ["log"]

        @staticmethod
        def __new__(cls, inner):
            made = t.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner, made.log = inner, ["made"]
            return made

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            result = func(*[a.inner if isinstance(a, cls) else a for a in args], **(kwargs or {}))
            return cls(result) if isinstance(result, t.Tensor) else result

        def __repr__(self):
            return super().__repr__(tensor_contents=f"inner={self.inner.tolist()}")

    return Wrapper


@pytest.mark.parametrize("kind", ["subclass", "wrapper"])
@same_as_torch
def test_a_parameter_of_a_subclass_is_one_of_that_subclass(t, kind):
    class Sub(t.Tensor):
        def new_empty(self, *shape):  # PyTorch's deepcopy asks for it
            return t.empty(*shape).as_subclass(Sub)

    cls = Sub if kind == "subclass" else _wrapper(t)
    data = t.ones(2).as_subclass(Sub) if kind == "subclass" else cls(t.ones(2))
    parameter = t.nn.Parameter(data)
    module = t.nn.Module()
    module.weight = parameter
    module.list = t.nn.ParameterList([data])
    copied = copy.deepcopy(parameter)
    asked = [isinstance(p, t.nn.Parameter) for p in (parameter, data, copied, parameter + 1, parameter.detach(), t.ones(1), t.nn.Parameter(t.ones(1)), 3)]
    return (asked, kinds([type(p) is cls for p in (parameter, copied, parameter + 1, t.nn.Parameter(parameter))]), parameter.requires_grad,
            data.requires_grad, copied.requires_grad, [name for name, _ in module.named_parameters()], repr(parameter), sorted(module.state_dict()))


@same_as_torch
def test_a_parameter_needs_a_detach_that_keeps_its_subclass(t):
    class Plain(t.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            with t._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

    with pytest.raises(RuntimeError, match=r"from an instance of type Plain requires that detach\(\) returns an instance of the same type"):
        t.nn.Parameter(t.ones(2).as_subclass(Plain))

    class Own(t.nn.Parameter):
        pass

    own = Own(t.ones(1))
    return isinstance(own, t.nn.Parameter), isinstance(own, Own), isinstance(t.nn.Parameter(t.ones(1)), Own), issubclass(Own, t.nn.Parameter)


@same_as_torch
def test_a_copy_of_a_wrapper_has_its_slots(t):
    wrapper = _wrapper(t)(t.arange(2.0))
    wrapper.note = {"a": [1]}
    copied = copy.deepcopy(wrapper)
    return (copied.inner.tolist(), copied.inner is wrapper.inner, copied.log, copied.log is wrapper.log, copied.note, copied.note is wrapper.note, repr(copied))


@same_as_torch
def test_what_makes_plain_tensors_of_a_subclass_does_not_ask_it(lib):
    seen = []

    class Asked(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            result = super().__torch_function__(func, types, args, kwargs or {})
            return result.as_subclass(cls) if isinstance(result, lib.Tensor) else result  # as MONAI's, which copies metadata by plain tensors

    x = lib.ones(2, 3, requires_grad=True).as_subclass(Asked)
    plain = x.as_subclass(lib.Tensor)
    made = [plain, lib.tensor(x.detach()), lib.tensor(x.detach(), dtype=lib.float64), lib.as_tensor(x, dtype=lib.float64)]
    seen = [name for name in seen if name not in ("detach", "__get__")]
    return [type(t) is lib.Tensor for t in made[:3]], seen, plain.requires_grad, plain.grad_fn is not None, plain.data_ptr() == x.data_ptr()
