"""Layers and examples once more, with what they call recorded and replayed: every layer of the table as a step with its gradients, the examples as they are
under TAPEGRAD_RECORD=1."""

import copy
import importlib
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tapegrad as tg
from recorded import bits_of, replays
from tapegrad import nn

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
from aten.gen.emit_nn_model import load_layers  # noqa: E402

LAYERS = {layer.name: layer for layer in load_layers(ROOT / "nn")}
CASES = [(name, i) for name, layer in LAYERS.items() for i in range(len(layer.get("test")))]


@pytest.fixture(autouse=True)
def _not_from_outside():
    before = tg.record.modules(False)
    yield
    tg.record.modules(before)


# --- layers ---


def inputs_of(sample, seed):
    tg.manual_seed(seed)
    values = [eval(text, {"t": tg}) for text in sample[1:]]  # noqa: S307
    return [tg.randn(value) if isinstance(value, tuple) and all(isinstance(n, int) for n in value) else value for value in values]


def tensors_in(values):
    for value in values if isinstance(values, (tuple, list)) else [values]:
        if isinstance(value, tg.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)


def as_leaf(value):
    if isinstance(value, (tuple, list)):
        return type(value)(as_leaf(v) for v in value)
    return value.detach().clone().requires_grad_() if value.is_floating_point() else value


def step_of(module):
    """Outputs, and gradients of all that is a number: of the first input, which others may be targets of."""

    def step(*inputs):
        first = as_leaf(inputs[0])
        given = inputs[0] * 1 if getattr(module, "inplace", False) else first
        outputs = list(tensors_in(module(given, *inputs[1:])))
        total = sum(o.square().sum() + o.sum() for o in outputs if o.is_floating_point())
        wanted = [t for t in (*tensors_in(first), *module.parameters()) if t.requires_grad and t.is_floating_point()]
        grads = tg.autograd.grad(total, wanted, allow_unused=True) if isinstance(total, tg.Tensor) and total.requires_grad else ()
        return [o.detach() for o in outputs], [g for g in grads if g is not None]

    return step


COUNTS: dict = {}


@pytest.mark.parametrize(("name", "index"), CASES, ids=[f"{n}-{i}" for n, i in CASES])
def test_layers(name, index):
    sample = LAYERS[name].get("test")[index]
    tg.manual_seed(0)
    module = eval(f"nn.{name}{sample[0]}", {"nn": nn, "t": tg})  # noqa: S307
    twin = copy.deepcopy(module)
    eager, step = step_of(twin), tg.record(step_of(module), pure=True)
    for seed in range(8):
        if seed == 5:
            module.eval(), twin.eval()
        inputs, again = inputs_of(sample, seed), inputs_of(sample, seed)
        tg.manual_seed(seed)
        expected = eager(*again)
        after = tg.rand(1)
        step._replays.scribble()
        tg.manual_seed(seed)
        got = step(*inputs)
        assert tg.equal(tg.rand(1), after)
        assert bits_of([got, inputs, *module.buffers()]) == bits_of([expected, again, *twin.buffers()]), f"seed {seed}: {step.summary()}"
    COUNTS[name, index] = step._replays.count
    assert step._replays.count > 0 or step._reasons, step.summary()


def test_most_layers_are_replayed():
    """Runs last: of the layers that this process has seen, nearly all were replayed."""
    if len(COUNTS) < 100:
        pytest.skip("only some of the layers ran here")
    never = sorted(f"{name}-{i}" for (name, i), count in COUNTS.items() if count == 0)
    assert len(never) < 0.05 * len(COUNTS), never


# --- examples ---

# Short forms, and how many calls are replayed at least. The recommender has gradients that are sparse, the graph's network is trained and judged in turn, and
# is recorded for one of both at a time.
EXAMPLES = {
    "gpt": (["--steps", "50", "--layers", "1", "--width", "32", "--length", "16", "--sample", "40"], 60),
    "lstm": (["--steps", "30", "--width", "32", "--words", "300", "--layers", "1", "--length", "10"], 20),
    "vae": (["--epochs", "1", "--width", "32", "--codes", "4"], 60),
    "cartpole": (["--rounds", "3"], 50),
    "recommender": (["--users", "60", "--films", "40", "--ratings", "2000", "--epochs", "3", "--batch-size", "100"], 1),
    "graph": (["--steps", "20", "--nodes", "300", "--labels", "5", "--near", "4"], 0),
    "diffusion": (["--steps", "20", "--width", "8", "--batch-size", "8", "--denoise", "4", "--judged", "10"], 10),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name, tmp_path, monkeypatch):
    """The same results, and the same bytes of all weights and states in the checkpoint."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("PIL")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    module = importlib.import_module(name)
    arguments, least = EXAMPLES[name]
    found, steps = [], set()
    for recorded in (False, True):
        tg.record.modules(recorded)
        if recorded:
            monkeypatch.setattr(tg.record._step, "_all", steps)
        tg.manual_seed(5)
        file = tmp_path / f"{recorded}.tape"
        result = module.main([*arguments, "--quiet", "--picture", "", "--checkpoint", str(file)])
        found.append((repr(result), file.read_bytes()))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]
    assert steps and sum(step._replays.count for step in steps) >= least, "\n".join(step.summary() for step in steps)


# --- record.modules ---


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.inner(x))


def is_compiled(module) -> bool:
    return isinstance(module.__dict__.get("forward"), tg.record.RecordedStep)


def test_the_module_that_is_called_is_compiled():
    net, twin = Block(), Block()
    twin.load_state_dict(net.state_dict())
    assert tg.record.modules(True) is False and tg.record.modules(True) is True
    x = tg.randn(5, 3)
    for _ in range(6):
        with tg.no_grad():
            got = net(x)
    assert is_compiled(net) and not is_compiled(net.inner) and not is_compiled(net.out) and replays(net.forward) > 2
    assert list(net.state_dict()) == list(twin.state_dict()) and str(net) == str(twin)
    net.inner(x)
    assert is_compiled(net.inner)  # the program calls it itself
    assert tg.record.modules(False) is True
    assert tg.equal(got, twin(x)) and not is_compiled(twin)
    assert tg.equal(pickle.loads(pickle.dumps(net))(x), got) and tg.equal(copy.deepcopy(net)(x), got)


def test_errors_leave_the_next_call_a_first_one():
    tg.record.modules(True)
    net = Block()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            net(tg.randn(5, 7))
    other = Block()
    other(tg.randn(5, 3))
    assert is_compiled(net) and is_compiled(other)

    class Interrupted(nn.Module):
        def forward(self, x):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Interrupted()(tg.ones(1))
    third = Block()
    third(tg.randn(5, 3))
    assert is_compiled(third)
    with pytest.raises(NotImplementedError):
        nn.Module()(tg.ones(1))


def test_calls_of_one_s_own():
    tg.record.modules(True)

    class Twice(Block):
        def __call__(self, x):
            return super().__call__(super().__call__(x))

    net = Twice()
    assert tg.equal(net(tg.ones(1, 3)), net.forward(net.forward(tg.ones(1, 3)))) and is_compiled(net)
    exported = Block()
    tg.export.export(exported, (tg.ones(2, 3),))
    recorded = Block()
    step = tg.record(lambda x: recorded(x).detach() * 2)
    with tg.no_grad():
        for _ in range(5):
            step(tg.ones(2, 3))
    assert not is_compiled(exported) and not is_compiled(recorded) and replays(step) > 1  # part of another recording


def test_shallow_copies_and_replicas_have_forwards_of_their_own():
    net = tg.compile(nn.Linear(2, 2), options={"memory": 0.5})
    x = tg.ones(1, 2)
    with tg.no_grad():
        for _ in range(4):
            net(x)
        for other in (copy.copy(net), net._replicate_for_data_parallel(), copy.copy(copy.copy(net))):
            other.__dict__["_parameters"] = {}
            other.weight, other.bias = nn.Parameter(tg.eye(2)), nn.Parameter(tg.zeros(2))
            for _ in range(5):
                assert tg.equal(other(x), x)
            assert is_compiled(other) != hasattr(other, "_is_replica") and (not is_compiled(other) or (replays(other.forward) > 1 and other.forward.budget == 0.5))
        assert tg.equal(net(x), nn.functional.linear(x, net.weight, net.bias)) and replays(net.forward) > 1
    deep = copy.deepcopy(net)
    assert deep.forward.function.__self__ is deep
    given = nn.Linear(2, 2)
    given.forward = tg.record(lambda x: x * 2)  # no method of the module
    assert copy.copy(given).forward is given.forward


def test_each_thread_has_calls_of_its_own():
    tg.record.modules(True)
    inside, go = threading.Event(), threading.Event()

    class Waits(nn.Module):
        def forward(self, x):
            inside.set()
            go.wait(30)
            return x + 1

    thread = threading.Thread(target=Waits(), args=(tg.ones(1),))
    thread.start()
    inside.wait(30)
    net = Block()
    net(tg.ones(1, 3))
    go.set()
    thread.join()
    assert is_compiled(net)


def test_the_variable_of_the_environment():
    program = "import tapegrad as tg; net = tg.nn.Linear(2, 2); [net(tg.ones(1, 2)).sum().backward() for _ in range(8)]; print(net.__dict__.get('forward'))"
    for value, expected in (("1", "RecordedStep(Linear: 1 plans)"), ("0", "None")):
        ran = subprocess.run([sys.executable, "-c", program], env={**os.environ, "TAPEGRAD_RECORD": value}, capture_output=True, text=True, timeout=120)
        assert ran.stdout.strip() == expected, ran.stderr
