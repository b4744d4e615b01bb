"""Module's semantics: each scenario runs with tapegrad and with torch and must give the same plain data."""

import copy
import gc
import pickle
import weakref
from collections import OrderedDict

import pytest
import tapegrad
from pairs import same_as_torch

torch = pytest.importorskip("torch")

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def outcome(function, *args, **kwargs):
    """The result, or the kind and text of the exception."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        text = str(error).replace("tapegrad", "torch").replace("torch.nn.container", "torch.nn.modules.container")
        return (type(error).__name__, text)


def net(t):
    nn = t.nn

    class Block(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.fc = nn.Linear(n, n)
            self.act = nn.ReLU()
            self.register_buffer("scale", t.ones(n))
            self.register_buffer("scratch", t.zeros(2), persistent=False)

        def forward(self, x):
            return self.act(self.fc(x)) * self.scale

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(3) for _ in range(3)])
            self.heads = nn.ModuleDict({"a": nn.Linear(3, 1), "b": nn.Sequential(nn.Linear(3, 2), nn.Tanh())})
            self.free = nn.Parameter(t.ones(2, 2))
            self.plain = 5
            self.missing = None

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return self.heads["a"](x), self.heads["b"](x)

    return Net()


@scenario
def signatures(torch):
    import inspect

    class Own(torch.nn.Module):
        def __call__(self, x, *, y=1):
            return x

    class Inherited(Own):
        pass

    return [str(inspect.signature(m)) for m in (torch.nn.Linear(1, 1), torch.nn.Sequential(), Own(), Inherited(), torch.nn.ReLU())]


@scenario
def meta_modules_cannot_move(torch):
    return [outcome(torch.nn.Linear(1, 1, device="meta").to, "cpu"), str(torch.nn.Linear(1, 1, device="meta").to("meta").weight.device),
            outcome(lambda: "Cannot copy out of meta tensor; no data!" in outcome(torch.ones(2, device="meta").cpu)[1]),
            outcome(lambda: "Cannot copy out of meta tensor; no data!" in outcome(torch.ones(2).copy_, torch.ones(2, device="meta"))[1])]


@scenario
def text(t):
    nn = t.nn
    shown = [repr(net(t)), repr(nn.Sequential()), repr(nn.ModuleList()), repr(nn.ModuleDict()),
             repr(nn.Sequential(OrderedDict([("one", nn.Linear(1, 2)), ("two", nn.ReLU())]))),
             repr(nn.ModuleList([nn.Linear(1, 2), nn.Linear(1, 2), nn.ReLU()])), str(nn.Module())]
    return shown


@scenario
def names(t):
    m = net(t)
    return {
        "parameters": [n for n, _ in m.named_parameters()],
        "here": [n for n, _ in m.named_parameters(recurse=False)],
        "prefixed": [n for n, _ in m.named_parameters(prefix="x")],
        "buffers": [n for n, _ in m.named_buffers()],
        "modules": [(n, type(x).__name__) for n, x in m.named_modules()],
        "children": [n for n, _ in m.named_children()],
        "state": list(m.state_dict()),
        "metadata": {k: dict(v) for k, v in m.state_dict()._metadata.items()},
        "dir": [n for n in dir(m) if n in ("blocks", "free", "forward", "plain", "heads")],
        "count": sum(p.numel() for p in m.parameters()),
        "sub": type(m.get_submodule("heads.b.0")).__name__,
        "root": m.get_submodule("") is m,
        "parameter": m.get_parameter("blocks.1.fc.weight") is m.blocks[1].fc.weight,
        "buffer": m.get_buffer("blocks.1.scale") is m.blocks[1].scale,
    }


@scenario
def look_up_errors(t):
    m = net(t)
    return [outcome(m.get_submodule, "nope"), outcome(m.get_submodule, "plain"), outcome(m.get_parameter, "blocks.0.nope"),
            outcome(m.get_parameter, "blocks.0.scale"), outcome(m.get_buffer, "free"), outcome(getattr, m, "nope")]


@scenario
def shared_parameters(t):
    nn = t.nn
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    m[1].weight = m[0].weight
    m.add_module("again", m[0])
    return ([n for n, _ in m.named_parameters()], [n for n, _ in m.named_parameters(remove_duplicate=False)],
            [n for n, _ in m.named_modules()], [n for n, _ in m.named_modules(remove_duplicate=False)], list(m.state_dict()))


@scenario
def registration_errors(t):
    nn = t.nn
    m = nn.Linear(2, 2)

    class Early(nn.Module):
        def __init__(self, what):
            if what == "parameter":
                self.p = nn.Parameter(t.ones(1))
            elif what == "module":
                self.m = nn.Linear(1, 1)
            else:
                self.register_buffer("b", t.ones(1))

    results = [
        outcome(m.register_buffer, "a.b", t.ones(1)), outcome(m.register_buffer, "", t.ones(1)),
        outcome(m.register_buffer, "forward", t.ones(1)), outcome(m.register_buffer, "x", 3),
        outcome(m.register_parameter, "a.b", None), outcome(m.register_parameter, "", None),
        outcome(m.register_parameter, "forward", None), outcome(m.register_parameter, 1, None),
        outcome(m.add_module, "a.b", None), outcome(m.add_module, "", None), outcome(m.add_module, "x", 3),
        outcome(setattr, m, "weight", t.ones(1)), outcome(setattr, m, "weight", 3),
        outcome(setattr, nn.Sequential(nn.ReLU()), "0", 3), outcome(setattr, nn.BatchNorm1d(2), "running_mean", 3),
        outcome(Early, "parameter"), outcome(Early, "module"), outcome(Early, "buffer"),
        outcome(lambda: nn.Module(1)), outcome(lambda: nn.Module(x=1)), outcome(lambda: nn.Module()(1)),
    ]
    return [(r[0], r[1].replace("torch.FloatTensor", "torch.Tensor")) if isinstance(r, tuple) else str(r) for r in results]


@scenario
def assignment(t):
    nn = t.nn
    m = nn.Module()
    log = []

    def state():
        log.append((sorted(m._parameters), sorted(m._buffers), sorted(m._modules),
                    sorted(k for k in m.__dict__ if not k.startswith("_") and k != "training")))

    m.x = 3
    state()
    m.x = nn.Parameter(t.ones(1))
    state()
    m.x = None
    state()
    del m.x
    m.x = nn.Linear(1, 1)
    state()
    m.x = nn.Parameter(t.ones(1))
    state()
    del m.x
    m.register_buffer("x", t.zeros(2), persistent=False)
    state()
    m.x = t.ones(3)
    log.append((list(m.x.shape), list(m.state_dict())))
    m.x = None
    state()
    del m.x
    m.y = nn.Buffer(t.ones(2))
    m.z = nn.Buffer(t.ones(2), persistent=False)
    state()
    log.append(list(m.state_dict()))
    log.append(outcome(delattr, m, "nope"))
    return log


@scenario
def loading_errors(t):
    nn = t.nn
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    state = m.state_dict()
    state["1.weight"] = t.ones(4)
    state["extra"] = t.ones(1)
    state["0.deep.er"] = t.ones(1)
    del state["0.bias"]
    state["1.bias"] = "text"
    results = [outcome(m.load_state_dict, state), outcome(m.load_state_dict, [1])]
    other = nn.Sequential(nn.Linear(2, 3))
    keys = other.load_state_dict(nn.Linear(2, 3).state_dict(), strict=False)
    results += [keys.missing_keys, keys.unexpected_keys, repr(other.load_state_dict(other.state_dict()))]
    return results


@scenario
def loading(t):
    nn = t.nn
    a, b = net(t), net(t)
    with t.no_grad():
        for i, p in enumerate(a.parameters()):
            p.fill_(float(i))
    weight = b.blocks[0].fc.weight
    b.load_state_dict(a.state_dict())
    kept = b.blocks[0].fc.weight is weight
    copied = [p.sum().item() for p in b.parameters()]
    given = a.state_dict()
    b.load_state_dict(given, assign=True)
    assigned = b.blocks[0].fc.weight is not weight and isinstance(b.blocks[0].fc.weight, nn.Parameter)
    a.state_dict()["free"].fill_(7.0)  # state_dict shares memory
    old = nn.BatchNorm1d(2)
    state = OrderedDict((k, v) for k, v in old.state_dict().items() if "num" not in k)
    return [kept, copied, assigned, a.free.sum().item(), str(old.load_state_dict(state)),
            a.state_dict(keep_vars=True)["free"].requires_grad, a.state_dict()["free"].requires_grad,
            list(a.state_dict(prefix="p."))[:2]]


@scenario
def state_hooks(t):
    nn = t.nn
    log = []
    m = nn.Sequential(nn.Linear(1, 1))
    m.register_state_dict_pre_hook(lambda module, prefix, keep: log.append(("pre", prefix, keep)))
    m[0].register_state_dict_post_hook(lambda module, state, prefix, meta: log.append(("post", sorted(state), prefix, meta)))
    m.register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: log.append(("load", sorted(state), prefix)))
    m.register_load_state_dict_post_hook(lambda module, keys: log.append(("loaded", list(keys.missing_keys))))
    m._register_state_dict_hook(lambda module, state, prefix, meta: OrderedDict(renamed=state["0.weight"]))
    m.load_state_dict({"0.weight": t.ones(1, 1), "0.bias": t.ones(1)})
    return log, list(m.state_dict())


@scenario
def extra_state(t):
    class Counting(t.nn.Module):
        count = 0

        def get_extra_state(self):
            return {"count": self.count}

        def set_extra_state(self, state):
            self.count = state["count"]

    a, b = t.nn.Sequential(Counting()), t.nn.Sequential(Counting())
    a[0].count = 4
    b.load_state_dict(a.state_dict())
    return list(a.state_dict()), b[0].count, outcome(b.load_state_dict, {}), outcome(t.nn.ReLU().load_state_dict, {"_extra_state": 1})


@scenario
def forward_hooks(t):
    nn = t.nn
    log = []
    m = nn.Sequential(nn.Identity(), nn.Identity())
    x = t.ones(2)
    h1 = m[0].register_forward_pre_hook(lambda mod, args: (args[0] * 2,))
    h2 = m[0].register_forward_pre_hook(lambda mod, args: args[0] + 1, prepend=True)
    h3 = m[1].register_forward_hook(lambda mod, args, out: log.append(("seen", args[0].tolist(), out.tolist())))
    h4 = m.register_forward_hook(lambda mod, args, kwargs, out: out + 10, with_kwargs=True)
    results = [m(x).tolist()]
    for h in (h1, h2, h3, h4):
        h.remove()
    results.append(m(x).tolist())
    h = m.register_forward_pre_hook(lambda mod, args, kwargs: ((args[0] * 3,), kwargs), with_kwargs=True)
    results.append(m(x).tolist())
    h.remove()
    with m.register_forward_hook(lambda mod, args, out: out * 5):
        results.append(m(x).tolist())
    results.append(m(x).tolist())
    m.register_forward_pre_hook(lambda mod, args, kwargs: 3, with_kwargs=True)
    results.append(outcome(m, x))
    return results, log


@scenario
def always_hooks(t):
    class Bad(t.nn.Module):
        def forward(self, x):
            raise ValueError("bad")

    log = []
    m = Bad()
    m.register_forward_hook(lambda mod, args, out: log.append("sometimes"))
    m.register_forward_hook(lambda mod, args, out: log.append(("always", out)), always_call=True)
    return outcome(m, t.ones(1)), log


@scenario
def full_backward_hooks(t):
    nn = t.nn
    log = []
    m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    with t.no_grad():
        for p in m.parameters():
            p.fill_(0.5)

    def note(name):
        def hook(mod, grad_in, grad_out):
            log.append((name, [None if g is None else g.tolist() for g in grad_in], [g.tolist() for g in grad_out]))
        return hook

    m[0].register_full_backward_hook(note("first"))
    m[1].register_full_backward_hook(note("second"))
    m[1].register_full_backward_pre_hook(lambda mod, grad: log.append(("pre", [g.tolist() for g in grad])))
    x = t.ones(1, 2, requires_grad=True)
    m(x).sum().backward()
    first = x.grad.tolist()
    x.grad = None
    m[1].register_full_backward_hook(lambda mod, grad_in, grad_out: tuple(g * 2 for g in grad_in))
    m[1].register_full_backward_pre_hook(lambda mod, grad: tuple(g * 3 for g in grad))
    m(x).sum().backward()
    return log, first, x.grad.tolist(), m[1].weight.grad.tolist()


@scenario
def backward_hook_without_input_gradient(t):
    import warnings

    log = []
    m = t.nn.Linear(2, 1)
    m.register_full_backward_hook(lambda mod, grad_in, grad_out: log.append(([g for g in grad_in], [g.tolist() for g in grad_out])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        m(t.ones(1, 2)).sum().backward()
    return log, m.weight.grad.tolist(), outcome(m.register_backward_hook, print)


@scenario
def global_hooks(t):
    from importlib import import_module

    module = import_module(f"{t.__name__}.nn.modules.module")
    log = []
    h = module.register_module_forward_hook(lambda mod, args, out: log.append(type(mod).__name__))
    h2 = module.register_module_forward_pre_hook(lambda mod, args: log.append("pre " + type(mod).__name__))
    m = t.nn.Sequential(t.nn.ReLU(), t.nn.Tanh())
    m(t.ones(1))
    h.remove()
    h2.remove()
    m(t.ones(1))
    return log


@scenario
def modes(t):
    m = net(t)
    m.eval()
    off = [x.training for x in m.modules()]
    m.blocks[1].train()
    mixed = [x.training for x in m.modules()]
    m.requires_grad_(False)
    frozen = [p.requires_grad for p in m.parameters()]
    m.requires_grad_(True)
    m(t.ones(1, 3))[0].sum().backward()
    m.zero_grad(set_to_none=False)
    zeroed = [None if p.grad is None else p.grad.abs().sum().item() for p in m.parameters()]
    m.zero_grad()
    return off, mixed, frozen, zeroed, [p.grad for p in m.parameters()], outcome(m.train, 1)


@scenario
def apply_and_cast(t):
    m = net(t)
    order = []
    m.apply(lambda x: order.append(type(x).__name__))
    weight = m.blocks[0].fc.weight
    m.heads["a"].register_buffer("steps", t.zeros(1, dtype=t.int64))
    m.double()
    kinds = [str(v.dtype).replace("tapegrad", "torch") for v in m.state_dict().values()]
    same = m.blocks[0].fc.weight is weight
    m.to(t.float32)
    m(t.ones(1, 3))[0].sum().backward()
    m.to("cpu", t.float64)
    grads = sorted({str(p.grad.dtype).replace("tapegrad", "torch") for p in m.parameters() if p.grad is not None})
    return order, kinds, same, grads, outcome(m.to, t.int64), str(m.half().free.dtype).rpartition(".")[2], \
        str(m.to(t.ones(1)).free.dtype).rpartition(".")[2]


@scenario
def copies(t):
    m = net(t)
    m.blocks[0].fc.weight.grad = t.ones(3, 3)
    c = copy.deepcopy(m)
    s = copy.copy(m)
    x = t.ones(1, 3)
    equal = [a.tolist() == b.tolist() for a, b in zip(m(x), c(x), strict=True)]
    linear = pickle.loads(pickle.dumps(t.nn.Sequential(t.nn.Linear(2, 2), t.nn.BatchNorm1d(2)).eval()))
    return (equal, c.free is m.free, s.free is m.free, [n for n, _ in c.named_parameters()] == [n for n, _ in m.named_parameters()],
            c.blocks[0].fc.weight.grad, repr(linear), linear.training, isinstance(linear[0].weight, t.nn.Parameter))


@scenario
def sequential(t):
    nn = t.nn
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    results = [len(m), type(m[1]).__name__, repr(m[:2]), repr(m[-1]), outcome(lambda: m[3]), outcome(lambda: m[-4])]
    m.append(nn.Tanh())
    m.insert(1, nn.Identity())
    del m[0]
    m[0] = nn.Sigmoid()
    results += [repr(m), repr(m + nn.Sequential(nn.ReLU())), repr(m.pop(-1)), repr(m.extend([nn.ELU()])),
                repr(nn.Sequential(nn.ReLU()) * 2), outcome(lambda: m * 0), outcome(lambda: m + 3),
                [type(x).__name__ for x in m]]
    del m[1:]
    results.append(repr(m))
    return results


@scenario
def module_list(t):
    nn = t.nn
    m = nn.ModuleList([nn.Linear(1, 1)])
    m.append(nn.ReLU())
    m.extend([nn.Tanh(), nn.Sigmoid()])
    m += [nn.ELU()]
    m.insert(0, nn.Identity())
    m[1] = nn.Dropout()
    results = [repr(m), len(m), repr(m[1:3]), repr(m[-1]), outcome(lambda: m[9]), [n for n, _ in m.named_children()]]
    del m[0]
    results += [repr(m), repr(m.pop(0)), repr(m + [nn.ReLU()]), outcome(m.extend, 3), outcome(m, t.ones(1))[0], nn.ReLU() in m]
    return results


@scenario
def module_dict(t):
    nn = t.nn
    m = nn.ModuleDict([["a", nn.Linear(1, 1)], ["b", nn.ReLU()]])
    m["c"] = nn.Tanh()
    m.update({"d": nn.ELU(), "a": nn.Sigmoid()})
    results = [repr(m), len(m), list(m), "a" in m, list(m.keys()), [type(x).__name__ for x in m.values()]]
    del m["b"]
    results += [repr(m.pop("c")), repr(m), outcome(lambda: m["zz"]), outcome(m.update, 3), outcome(m.update, [["a"]])]
    m.clear()
    return [*results, len(m)]


@scenario
def parameter_containers(t):
    nn = t.nn
    m = nn.ParameterList([t.ones(2), nn.Parameter(t.zeros(1, 3))])
    m.append(t.ones(1))
    d = nn.ParameterDict({"b": t.ones(2), "a": nn.Parameter(t.zeros(1))})
    d["c"] = t.ones(1)
    outer = nn.Module()
    outer.l = m
    outer.d = d
    return [len(m), [list(p.shape) for p in m], isinstance(m[0], nn.Parameter), list(outer.state_dict()), list(d), list(d.keys()),
            outcome(lambda: m[5]), outcome(lambda: d["nope"]), d.get("nope", 4), list((d | {"z": t.ones(1)}).keys()),
            outcome(m, 1), outcome(d, 1), d.pop("a").shape == (1,), len(d)]


@scenario
def call_super_init(t):
    class Mixed(t.nn.Linear):
        def forward(self, x, scale=1, *, shift=0):
            return super().forward(x) * scale + shift

    m = Mixed(2, 2)
    with t.no_grad():
        m.weight.fill_(1.0)
        m.bias.fill_(0.0)
    return m(t.ones(1, 2), 2, shift=1).tolist(), m(x=t.ones(1, 2)).tolist(), outcome(m)[0]


@scenario
def parameters_look(t):
    p = t.nn.Parameter(t.tensor([1.0, 2.0]))
    q = t.nn.Parameter(t.ones(1), requires_grad=False)
    return (repr(p), repr(q), isinstance(p, t.Tensor), p.requires_grad, p.is_leaf, type(p + 1).__name__, type(p.data).__name__,
            type(copy.deepcopy(p)).__name__, len(p), t.nn.Parameter().shape == (0,))


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda f: f.__name__)
def test_same_as_torch(run):
    assert run(tapegrad) == run(torch)


def test_paths_of_classes():
    from tapegrad.nn.modules.batchnorm import BatchNorm2d, _BatchNorm
    from tapegrad.nn.modules.conv import _ConvNd
    from tapegrad.nn.modules.module import Module
    from tapegrad.nn.parameter import Parameter

    nn = tapegrad.nn
    assert isinstance(nn.BatchNorm2d(1), _BatchNorm) and BatchNorm2d is nn.BatchNorm2d
    assert isinstance(nn.Conv2d(1, 1, 1), _ConvNd)
    assert Module is nn.Module and Parameter is nn.Parameter
    assert nn.modules.loss.MSELoss is nn.MSELoss and nn.modules.activation.ReLU is nn.ReLU


def test_attribute_access_is_quick():
    m = tapegrad.nn.Linear(2, 2)
    m.extra = 3
    assert m.extra == 3 and m.weight is m._parameters["weight"]


def test_object_setattr_goes_past_the_module_s_own():
    outer, inner = tapegrad.nn.Module(), tapegrad.nn.Linear(1, 1)
    object.__setattr__(outer, "hidden", inner)
    assert outer.hidden is inner and not list(outer.parameters())
    outer.shown = inner
    super(tapegrad.nn.Module, outer).__setattr__("other", tapegrad.nn.Linear(1, 1))
    assert [name for name, _ in outer.named_children()] == ["shown", "other"]
    object.__delattr__(outer, "hidden")
    del outer.shown
    assert not hasattr(outer, "hidden") and not hasattr(outer, "shown")


def test_subclasses_tell_their_other_bases():
    from typing import Generic, TypeVar

    nn, T = tapegrad.nn, TypeVar("T")
    seen = []

    class Listed:
        def __init_subclass__(cls, *, tag=None, **kwargs):
            super().__init_subclass__(**kwargs)
            seen.append((cls.__name__, tag))

    class Of(nn.Module, Generic[T]):
        pass

    class Named(nn.Linear, Listed, tag="x"):
        pass

    assert Of.__parameters__ == (T,) and Of[int]().training and seen == [("Named", "x")] and Named(2, 3)(tapegrad.ones(1, 2)).shape == (1, 3)
    with pytest.raises(TypeError, match="takes no keyword arguments"):

        class Wrong(nn.Module, tag=3):
            pass


@pytest.mark.parametrize("pre", [False, True], ids=["full", "pre"])
@same_as_torch
def test_arguments_without_a_gradient_stay_as_they_are_under_full_backward_hooks(t, pre):
    seen = []

    class Product(t.nn.Module):
        def forward(self, a, b, count):
            seen.append((a.requires_grad, b.requires_grad, count.requires_grad))
            if t.is_grad_enabled():
                b += 0  # its own memory: allowed
            return a.detach(), a * b, b * 1

    module = Product()
    register = module.register_full_backward_pre_hook if pre else module.register_full_backward_hook
    register(lambda m, *grads: seen.append([[None if g is None else g.tolist() for g in side] for side in grads]))
    x = t.ones(2, requires_grad=True)
    for given in ((x, x.detach().clone(), t.tensor(3)), (x.detach(), x.detach().clone(), t.tensor(3))):
        results = module(*given)
        seen.append([r.requires_grad for r in results])
        if results[1].requires_grad:
            results[1].sum().backward()
    with t.no_grad():
        module(*given)
    return seen


HOOKS = {
    "state_dict_pre": lambda m: m.register_state_dict_pre_hook(lambda *a: None), "state_dict_post": lambda m: m.register_state_dict_post_hook(lambda *a: None),
    "_state_dict": lambda m: m._register_state_dict_hook(lambda *a: None), "load_pre": lambda m: m.register_load_state_dict_pre_hook(lambda *a: None),
    "_load_pre": lambda m: m._register_load_state_dict_pre_hook(lambda *a: None),
    "_load_pre_with_module": lambda m: m._register_load_state_dict_pre_hook(lambda *a: None, with_module=True),
    "load_post": lambda m: m.register_load_state_dict_post_hook(lambda *a: None), "forward": lambda m: m.register_forward_hook(lambda *a: None),
    "forward_pre": lambda m: m.register_forward_pre_hook(lambda *a: None), "full_backward": lambda m: m.register_full_backward_hook(lambda *a: None),
    "full_backward_pre": lambda m: m.register_full_backward_pre_hook(lambda *a: None), "backward": lambda m: m.register_backward_hook(lambda *a: None),
}


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize("used", [False, True])
def test_a_module_with_hooks_is_freed_without_the_collector(kind, used):
    module = tapegrad.nn.Linear(2, 2)
    HOOKS[kind](module)
    module = copy.deepcopy(module)
    if used:
        module.load_state_dict(module.state_dict())
        module(tapegrad.ones(2, requires_grad=True)).sum().backward()
    alive = weakref.ref(module)
    gc.disable()
    try:
        del module
        assert alive() is None
    finally:
        gc.enable()


def test_a_load_hook_with_its_module_survives_copies_and_pickles():
    seen = []
    for copied in (copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m))):
        module = tapegrad.nn.Linear(2, 2)
        module.register_load_state_dict_pre_hook(note_module)
        other = copied(module)
        NOTED.clear()
        other.load_state_dict(tapegrad.nn.Linear(2, 2).state_dict())
        seen.append((len(NOTED), NOTED[0] is (module if copied is copy.copy else other)))
    assert seen == [(1, True)] * 3


NOTED = []


def note_module(module, *args):
    NOTED.append(module)


def test_a_replica_shares_what_it_has_but_its_parameters_and_tables():
    class Net(tapegrad.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.weight, self.cache = tapegrad.nn.Linear(2, 2), tapegrad.nn.Parameter(tapegrad.ones(2)), {}
            self.register_buffer("mean", tapegrad.zeros(2))

    net = Net()
    replica = net._replicate_for_data_parallel()
    assert type(replica) is Net and replica._is_replica and replica.cache is net.cache and replica.mean is net.mean and replica.first is net.first
    assert not replica._parameters and [name for name, _ in net.named_parameters()] == ["weight", "first.weight", "first.bias"]
    replica.mean, replica.first = tapegrad.ones(2), None
    assert net.mean.sum() == 0 and isinstance(net.first, tapegrad.nn.Linear) and not hasattr(net, "_is_replica")
