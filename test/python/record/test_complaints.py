"""What users of other recorders and compilers have complained of in public, one test for each thread: here it is right, or runs eagerly with a reason, and is
never silently stale."""

import gc
import os
import random
import subprocess
import sys
import time
import types
import weakref

import pytest
import tapegrad as tg
from recorded import F, plans, replays, training
from tapegrad import nn


def follows(step, function, calls, least=0, reason=None):
    """The same as eagerly in each call, of which `least` are replayed; or a reason is said."""
    for i, args in enumerate(calls):
        expected, got = function(*args), step(*args)
        assert tg.equal(got, expected), f"call {i}: {step.summary()}"
    assert step._replays.count >= least, step.summary()
    assert reason is None or any(reason in r for r in step._reasons), step.summary()


# --- 1. the first calls take long ---


def test_a_network_that_compiles_for_half_a_minute():
    """pytorch#150706, vincekurtz/hydrax#49: the first calls cost some eager ones here, not seconds."""
    net = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(30)), nn.Linear(8, 3))
    step = tg.record(training(net, tg.optim.Adam(net.parameters())))
    x, y = tg.randn(4, 8), tg.randint(0, 3, (4,))
    start = time.process_time()
    for _ in range(4):
        step(x, y)
    assert replays(step) > 0 and time.process_time() - start < 5


def test_a_loop_that_is_unrolled():
    """jax#1223: not compiled after an hour."""

    def loop(x):
        for _ in range(2000):
            x = x * 0.999 + 0.001
        return x

    start = time.process_time()
    follows(tg.record(loop), loop, [(tg.randn(4),)] * 4, least=1)
    assert time.process_time() - start < 10


# --- 2. it compiles again and again ---


def test_a_name_that_is_another_one_in_each_call():
    """Comfy-Org/ComfyUI#9972: the limit of recompilations is hit over a name."""

    def named(x, options):
        return x * len(options["name"])

    calls = [(tg.randn(3), {"name": "layer" * i}) for i in range(40)]
    step = tg.record(named)
    follows(step, named, calls, reason="other values")
    assert plans(step) <= 16


def test_a_flag_of_an_optimizer():
    """pytorch#97711."""
    nets = [nn.Linear(6, 3) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = [tg.optim.SGD(n.parameters(), lr=0.1) for n in nets]
    step, eager = tg.record(training(nets[0], optimizers[0])), training(nets[1], optimizers[1])
    for i in range(20):
        for o in optimizers:
            o.param_groups[0]["maximize"] = i % 2 == 1
            o.param_groups[0]["lr"] = 0.1 / (i + 1)
        x, y = tg.randn(4, 6), tg.randint(0, 3, (4,))
        assert tg.equal(step(x, y), eager(x, y)) and tg.equal(nets[0].weight, nets[1].weight), i
    assert replays(step) > 10  # the options are read in each replay


def test_sizes_that_are_other_ones_in_each_call():
    """jax#2521, pytorch#119640: a graph for each size, without end. Here 48 of them, and then few: the other calls run eagerly."""

    def mean(x):
        return (x * x).sum(0) / x.size(0)

    step = tg.record(mean)
    follows(step, mean, [(tg.randn(n, 3),) for n in [5, 5, 5, *range(1, 60)]], least=45)
    assert plans(step) <= 16 and step._replays.made <= 50


# --- 3. graphs break ---


def test_a_whole_training_step_is_one_graph():
    """pytorch#120814, #98461, #100604: backward(), zero_grad() and step() break graphs; ml-explore/mlx#629: the model and the optimizer's state in one."""
    net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    step = tg.compile(training(net, tg.optim.AdamW(net.parameters()), clip=1.0), fullgraph=True)
    for _ in range(6):
        step(tg.randn(5, 6), tg.randint(0, 3, (5,)))
    assert replays(step) >= 3 and plans(step) == 1


# --- 4. silently wrong ---


class Scale(nn.Module):
    factor = 2.0

    def __init__(self):
        super().__init__()
        self.offset = 1.0
        self.register_buffer("table", tg.arange(0, 3).float())
        self.key = object()

    def forward(self, x):
        return x * self.factor + self.offset + self.table + (1 if self.key is Scale.wanted else 0)


Scale.wanted = None


def set_class_attribute(module, i):
    Scale.factor = 2.0 + i


def set_identity(module, i):
    Scale.wanted = module.key if i % 2 else None


CHANGES = {
    "module attribute, pytorch#124717": lambda module, i: setattr(module, "offset", float(i)),
    "class attribute, pytorch#176851": set_class_attribute,
    "__dict__, pytorch#197859": lambda module, i: module.__dict__.update(offset=float(i)),
    "exchanged buffer, pytorch#115774": lambda module, i: setattr(module, "table", tg.full((3,), float(i))),
    "identity, pytorch#196173": set_identity,
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("what", CHANGES)
def test_state_that_python_read_once(what, compiled):
    Scale.factor, Scale.wanted = 2.0, None
    module = Scale()
    call = tg.compile(module) if compiled else tg.record(lambda x: module(x))
    step = module.forward if compiled else call
    for i in range(4):
        for _ in range(5):
            x = tg.randn(3)
            with tg.no_grad():
                assert tg.equal(call(x), Scale.forward(module, x)), f"{i}: {step.summary()}"
        CHANGES[what](module, i)
    assert step._replays.count > 3, step.summary()


# --- 5. memory that is one and should be two ---


def test_one_buffer_returned_twice():
    """tinygrad#7020, #2417."""
    step = tg.record(lambda x: (x + 1, x + 1, (x + 1) * 2))
    kept = [step(tg.full((4,), float(i))) for i in range(6)]
    kept[5][0].fill_(-1)
    for i, (a, b, c) in enumerate(kept):
        assert b.tolist() == [i + 1] * 4 and c.tolist() == [2 * i + 2] * 4 and (i == 5 or a.tolist() == [i + 1] * 4)
    assert replays(step) > 2 and len({t.data_ptr() for results in kept for t in results}) == 18


def test_arguments_in_a_list():
    """tinygrad#10850: they are dropped without a word."""

    def total(xs, more):
        return sum(x * (i + 1) for i, x in enumerate(xs)) + more["last"][0]

    calls = [([tg.randn(3) for _ in range(3)], {"last": (tg.randn(3),)}) for _ in range(8)]
    follows(tg.record(total), total, calls, least=5)


def test_gradients_of_replays():
    """tinygrad#16571: a plan of memory gave wrong gradients, in replays alone."""
    nets = [nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)) for _ in range(4))) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())

    def gradients(net):
        def step(x):
            net.zero_grad()
            net(x).square().mean().backward()

        return step

    step, eager = tg.record(gradients(nets[0])), gradients(nets[1])
    for _ in range(8):
        x = tg.randn(10, 16)
        step._replays.scribble()
        step(x), eager(x)
        assert all(tg.equal(p.grad, q.grad) for p, q in zip(nets[0].parameters(), nets[1].parameters(), strict=True))
    assert replays(step) > 4


# --- 6. sizes that change ---


def test_sums_of_another_size():
    """ml-explore/mlx#3201: sums without sizes stay those of the first call."""

    def total(x):
        return x.sum() * x.numel() + x.sum(0).numel()

    follows(tg.record(total), total, [(tg.ones(n, 2),) for n in (3, 3, 3, 5, 1, 9, 3)], least=3)


def test_a_size_that_decides():
    """pytorch#196385: another branch for another size."""

    def branch(x):
        return x * 2 if x.size(0) > 4 else x - x.shape[0]

    follows(tg.record(branch), branch, [(tg.ones(n),) for n in (3, 3, 3, 5, 5, 5, 4, 6, 1)], least=3)


# --- 7. random numbers ---


def test_random_numbers_are_eager_s():
    """pytorch#141645: they differ by design; #192635: an order of calls changed the masks of dropout."""

    def noisy(x):
        a = F.dropout(x, 0.5)
        return F.dropout(x * 2, 0.3) + tg.rand(4) + a, tg.randperm(4)

    step = tg.record(noisy)
    for seed in range(8):
        found = []
        for call in (noisy, step):
            tg.manual_seed(seed)
            found.append([*call(tg.ones(4)), tg.rand(2)])
        assert all(tg.equal(a, b) for a, b in zip(*found, strict=True))
    assert replays(step) > 4


def test_python_s_random_numbers_are_no_constants(caplog):
    """pytorch#196437: Python's `random` froze."""
    step = tg.record(lambda x: x * random.random())
    random.seed(3)
    expected = [random.random() for _ in range(8)]
    random.seed(3)
    assert [step(tg.ones(1, dtype=tg.float64)).item() for _ in range(8)] == expected
    assert replays(step) == 0 and any("random" in r for r in step._reasons), step.summary()


def test_a_seed_from_the_clock():
    """jax#1141: a key that was made from the time froze."""

    def keyed(x):
        generator = tg.Generator().manual_seed(time.time_ns())
        return x + tg.rand(4, generator=generator)

    step = tg.record(keyed)
    made = [tuple(step(tg.zeros(4)).tolist()) for _ in range(8)]
    assert len(set(made)) == 8 and replays(step) == 0 and step._reasons


# --- 8. memory of arguments ---


def test_arguments_are_neither_copied_nor_kept():
    """pytorch#83490: graphs hold copies of their arguments; #137318: arguments of kernels are changed instead."""
    step = tg.record(lambda x: (x * 2 + 1).sum())
    for _ in range(4):
        step(tg.ones(1 << 16))
    x = tg.ones(1 << 16)
    seen = weakref.ref(x)
    assert step(x).item() == 3 * (1 << 16) and replays(step) > 1
    assert step._replays.plans()[0][1] <= 1 << 18  # the sum's operand, and no copy of the argument
    del x
    gc.collect()
    assert seen() is None


# --- 9. a compiler on the user's machine ---


def test_no_compiler_is_looked_for(tmp_path):
    """pytorch#92745, pytorch/FBGEMM#1910, #152172."""
    program = """
import tapegrad as tg
net = tg.nn.Sequential(tg.nn.Linear(4, 4), tg.nn.GELU())
step = tg.compile(lambda x: (net(x) * 2 + 1).tanh().detach(), fullgraph=True)
with tg.no_grad():
    for _ in range(5):
        assert tg.equal(step(tg.ones(2, 4)), (net(tg.ones(2, 4)) * 2 + 1).tanh())
chain = tg.compile(lambda x: ((x * 2 + 1) * x - 3).abs())
for _ in range(5):
    chain(tg.ones(100_000))
print(step._replays.count, chain._replays.count)
"""
    where = {k: v for k, v in os.environ.items() if k not in ("CC", "CXX", "PATH", "HOME", "TMPDIR")}
    ran = subprocess.run([sys.executable, "-c", program], env={**where, "PATH": str(tmp_path), "TMPDIR": "/nowhere", "HOME": "/nowhere"}, cwd=tmp_path,
                         capture_output=True, text=True, timeout=120)
    assert ran.stdout.split() == ["3", "3"], ran.stderr
    assert not list(tmp_path.iterdir())  # nor is anything written


# --- 10. wrappers ---


def test_names_of_the_state_stay():
    """pytorch#101107, #185752: `_orig_mod.` in state dictionaries."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    names = list(net.state_dict())
    compiled = tg.compile(net)
    assert compiled is net and list(compiled.state_dict()) == names and isinstance(compiled, nn.Sequential)
    for _ in range(4):
        compiled(tg.randn(3, 2)).sum().backward()
    assert list(compiled.state_dict()) == names
    fresh = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    fresh.load_state_dict(compiled.state_dict())


def test_a_compiled_module_is_asked_as_before():
    """pytorch#159831: `compiled["a"]` fails."""
    both = tg.compile(nn.ModuleDict({"a": nn.Linear(2, 2)}))
    assert both["a"].in_features == 2 and "a" in both and len(both) == 1
    stack = tg.compile(nn.Sequential(nn.Linear(2, 3), nn.Tanh()))
    assert isinstance(stack[0], nn.Linear) and len(stack) == 2 and isinstance(stack.forward, types.MethodType | tg.record.RecordedStep)


def test_a_decorated_gelu():
    """mlx#687: what users like, a chain of operators from one decorator."""

    @tg.compile
    def gelu(x):
        return 0.5 * x * (1 + (0.7978845608 * (x + 0.044715 * x**3)).tanh())

    follows(gelu, gelu.function, [(tg.randn(50_000),)] * 5, least=3)
    assert min(calls for calls, _, _ in gelu._replays.plans()) <= 3  # the result's memory, and a chain


def test_a_model_is_served_without_its_code(tmp_path):
    """SavedModel: files that are served without Python's code."""
    program = tg.export.export(nn.Sequential(nn.Linear(3, 2), nn.Softmax(-1)).eval(), (tg.ones(1, 3),))
    tg.export.save(program, tmp_path / "model.pt2")
    loader = f"import tapegrad as tg; print(tg.export.load({str(tmp_path / 'model.pt2')!r}).module()(tg.ones(1, 3)).sum().item())"
    ran = subprocess.run([sys.executable, "-c", loader], capture_output=True, text=True, timeout=120)
    assert abs(float(ran.stdout) - 1) < 1e-6, ran.stderr
