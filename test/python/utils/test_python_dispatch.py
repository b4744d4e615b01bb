"""TorchDispatchMode, `__torch_dispatch__` and what overrides tells about functions that ask, against PyTorch's."""

import importlib
import inspect

import pytest
import tapegrad as tg
from pairs import same_as_torch

torch = pytest.importorskip("torch")


def dispatch_of(t):
    return importlib.import_module(f"{t.__name__}.utils._python_dispatch")


def seen(t, run):
    """The names of the operators that a mode is given."""
    names = []

    class Logging(dispatch_of(t).TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    with t.no_grad(), Logging():
        run(t)
    return names


def network(t):
    return t.nn.Sequential(t.nn.Linear(6, 8), t.nn.ReLU(), t.nn.Linear(8, 2), t.nn.Sigmoid())


MODEL_INPUT = (3, 6)
BIAS, PLACES = ({t: make(t) for t in (tg, torch)} for make in (lambda t: t.ones(3), lambda t: t.tensor([0, 1])))
RUNS = {
    "arithmetic": lambda t, x: (x + 1, x + x, 2 - x, x * 2, x / x, x ** 2, -x, x > 0, x == x, x.exp(), x.add_(x), x.mul_(2.0), abs(x), 1 + x, x // 2.0, x % 2),
    "functions": lambda t, x: (t.relu(x), t.sigmoid(x), t.tanh(x), t.cat([x, x]), t.stack([x, x]), t.where(x > 0, x, x), t.clamp(x, 0, 1), t.zeros_like(x)),
    "reductions": lambda t, x: (x.sum(), x.sum(1), x.mean(), x.mean(dim=0), x.max(), x.max(1), x.argmax(1), x.amax(0), x.cumsum(0)),
    "views": lambda t, x: (x.t(), x.T, x.mT, x.view(6, 3), x.reshape(-1), x.flatten(), x.transpose(0, 1), x.permute(1, 0), x.unsqueeze(0), x.squeeze(0),
                           x.expand(2, 3, 6), x.detach(), x.clone(), x.split(2)),
    "subscripts": lambda t, x: (x[0], x[:, 1], x[1:, 2:5], x[..., 0], x[None], x[0, None, 1:3], x[x > 0], x[PLACES[t]], x[:, PLACES[t]], x[PLACES[t], PLACES[t]]),
    "products": lambda t, x: (x @ x.t(), x @ x[0], x[0] @ x[0], t.mm(x, x.t()), t.matmul(x.view(1, 3, 6), x.t()), t.bmm(x[None], x.t()[None]), x[0] @ x.t()),
    "linear": lambda t, x: (t.nn.functional.linear(x, x), t.nn.functional.linear(x, x, x[:, 0]), t.nn.functional.linear(x[None], x, BIAS[t])),
    "convolution": lambda t, x: (t.nn.functional.conv1d(x[None], x[:, :4][:, None].expand(3, 3, 4), None, 1, 1), t.nn.functional.conv2d(x[None, None], x[None, None, :2, :2])),
    "dtypes": lambda t, x: (x.to(t.float64), x.double(), x.long(), x.to(x.dtype)),
    "making": lambda t, x: (t.ones(2), t.zeros(2, 2), t.arange(3), t.full((2,), 1.0)),
}


@pytest.mark.parametrize("name", RUNS)
@same_as_torch
def test_a_mode_is_given_pytorchs_operators(t, name):
    x = t.arange(18.0).reshape(MODEL_INPUT) - 4.5
    return seen(t, lambda t: RUNS[name](t, x))


@same_as_torch
def test_a_model_is_seen_operator_by_operator(t):
    model, x = network(t), t.ones(MODEL_INPUT)
    return seen(t, lambda t: model(x))


@same_as_torch
def test_a_mode_counts_products_and_changes_results(t):
    d = dispatch_of(t)
    flops = {}

    class Counting(d.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            packet = func.overloadpacket
            if packet in (t.ops.aten.mm, t.ops.aten.addmm):
                a, b = args[-2:]
                flops[str(packet)] = flops.get(str(packet), 0) + 2 * a.shape[0] * a.shape[1] * b.shape[1]
            return out

    class Doubling(d.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {})) * 2 if func is t.ops.aten.relu.default else func(*args, **(kwargs or {}))

    model, x = network(t), t.ones(MODEL_INPUT)
    with Counting() as mode:
        model(x)
        assert d._get_current_dispatch_mode() is mode
        with d._disable_current_modes():
            model(x)
    with Doubling():
        doubled = t.relu(t.ones(2)).tolist()
    return flops, doubled, d._get_current_dispatch_mode(), t.ops.aten.add.Tensor.name(), repr(t.ops.aten.mm.default), t.ops.aten.mm.default._schema.name


@same_as_torch
def test_modes_nest_and_end_after_an_error(t):
    d, log = dispatch_of(t), []

    class Named(d.TorchDispatchMode):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append((self.name, str(func)))
            return func(*args, **(kwargs or {}))

    with pytest.raises(ValueError), Named("outer"), Named("inner"):
        t.ones(2).exp()
        raise ValueError
    t.ones(2)
    return log


def wrapper(t, log):
    class Wrapper(t.Tensor):
        @staticmethod
        def __new__(cls, inner):
            self = t.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
            self.inner = inner
            return self

        def __init__(self, inner):
            pass

        __torch_function__ = t._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            log.append(str(func))
            unwrap = lambda a: a.inner if isinstance(a, cls) else a  # noqa: E731
            out = func(*[[unwrap(v) for v in a] if isinstance(a, (list, tuple)) else unwrap(a) for a in args], **{k: unwrap(v) for k, v in (kwargs or {}).items()})
            return cls(out) if isinstance(out, t.Tensor) else out

    return Wrapper


@same_as_torch
def test_a_wrapper_without_memory(t):
    log = []
    Wrapper = wrapper(t, log)
    x, w = Wrapper(t.arange(6.0).view(2, 3)), t.ones(3, 3)
    results = [x + 1, 2 * x, x @ w, w @ x.t(), t.nn.functional.linear(x, w), x.sum(0), x[0], x[:, 1:], t.cat([x, x]), x.relu(), x.view(-1), x.to(t.float64)]
    facts = [(tuple(x.shape), x.dim(), str(x.dtype).split(".")[-1], x.device.type, x.requires_grad, len(x), x.numel(), x.stride())]
    return [(type(r).__name__, tuple(r.shape), r.inner.tolist()) for r in results], facts, float(x.sum()), x.max().item(), log


@same_as_torch
def test_a_subclass_with_memory_counts_what_it_is_asked(t):
    calls = []

    class Counting(t.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            calls.append((str(func), [k.__name__ for k in types]))
            return super().__torch_dispatch__(func, types, args, kwargs or {})

    x = t.Tensor._make_subclass(Counting, t.tensor([1.0, 2.0]))
    y = x * 2
    return type(y).__name__, y.tolist(), calls[:1]


@same_as_torch
def test_a_plain_method_is_bound_to_its_tensor(t):
    class Pair(t.Tensor):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append((type(self).__name__, self.mark, str(func)))
            return t.ones(1)

    log, x = [], t.Tensor._make_wrapper_subclass(Pair, (2, 2))
    x.mark = 7
    return t.mm(t.ones(2, 2), x).tolist(), x.exp().tolist(), log


def test_what_is_not_there_says_so():
    class Wrapper(tg.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with pytest.raises(NotImplementedError, match="_make_wrapper_subclass: requires_grad=True is not available"):
        tg.Tensor._make_wrapper_subclass(Wrapper, (2,), requires_grad=True)
    with pytest.raises(TypeError, match="expected a subclass of Tensor"):
        tg.Tensor._make_wrapper_subclass(tg.Tensor, (2,))
    with pytest.raises(NotImplementedError, match="no dispatch keys"):
        dispatch_of(tg).TorchDispatchMode(_dispatch_key="python")
    d = dispatch_of(tg)
    assert not d.is_traceable_wrapper_subclass(tg.ones(2)) and not d.is_traceable_wrapper_subclass(Wrapper)


# --- torch.overrides ---


def test_stand_ins_have_the_signatures_of_their_functions():
    """Where both libraries have a function under a name: as many arguments that must be given."""
    def needed(f):
        kinds = inspect.Parameter
        return [p for p in inspect.signature(f).parameters.values() if p.default is kinds.empty and p.kind is kinds.POSITIONAL_OR_KEYWORD]

    ours = tg.overrides.get_testing_overrides()
    plain = [f for f in ours.values() if all(p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(f).parameters.values())]
    assert len(plain) > 900 and all(f(*[None] * len(needed(f))) == -1 for f in plain)
    names = {tg.overrides.resolve_name(f).partition(".")[2]: f for f in ours}
    theirs = {torch.overrides.resolve_name(f): s for f, s in torch.overrides.get_testing_overrides().items()}
    compared = [(n, len(needed(ours[f])), len(needed(theirs[f"torch.{n}"]))) for n, f in names.items() if f"torch.{n}" in theirs]
    assert len(compared) > 700
    different = [c for c in compared if c[1] != c[2]]
    assert len(different) < len(compared) // 25, different
    assert str(inspect.signature(ours[tg.add])) == "(input, other, *, alpha=1, out=None)"


QUESTIONS = ("is_complex is_floating_point is_nonzero numel sym_int sym_float sym_not sym_max sym_min sym_sum sym_ite nn.init.uniform_ nn.init.normal_ "
             "nn.init.constant_ nn.init.kaiming_uniform_ functional.einsum").split()


@pytest.mark.parametrize("name", QUESTIONS)
@same_as_torch
def test_questions_and_initialisers_ask(t, name):
    asked = []

    class Other:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            asked.append((func is function, len(args), sorted(kwargs or {}), [k.__name__ for k in types]))
            return "mine"

    function = t
    for part in name.split("."):
        function = getattr(function, part)
    count = {"sym_max": 2, "sym_min": 2, "sym_ite": 3, "nn.init.constant_": 2}.get(name, 1)
    args = ["i->", Other()] if name.endswith("einsum") else [[Other()]] if name == "sym_sum" else [Other() for _ in range(count)]
    return function(*args), asked


def test_tensor_methods_written_in_python_ask():
    class Sub(tg.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return tg.overrides.resolve_name(func)

    x = tg.Tensor._make_subclass(Sub, tg.ones(2))
    for call, name in ((lambda: x.type(), "type"), (lambda: x.resize(2), "resize"), (lambda: x.storage(), "storage"), (lambda: x.coalesce(), "coalesce"),
                       (lambda: x.to_dense(), "to_dense"), (lambda: x.pin_memory(), "pin_memory"), (lambda: x.share_memory_(), "share_memory_"),
                       (lambda: x.apply_(abs), "apply_"), (lambda: x.sparse_dim(), "sparse_dim"), (lambda: x.is_nonzero(), "is_nonzero")):
        assert call() == f"tapegrad.Tensor.{name}"
