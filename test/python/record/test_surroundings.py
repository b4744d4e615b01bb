"""Recorded steps and what is around them: errors, threads, copies, hooks, modes, generators, memory that is exchanged, interrupts."""

import copy
import gc
import pickle
import subprocess
import sys
import threading
import time
import weakref

import pytest
import tapegrad as tg
from interpreter.programs import run
from recorded import assert_same, batches, compare, in_threads, mlp, plans, refused, replays, training, warm
from tapegrad import nn

F = nn.functional


# --- the collector of garbage ---


def test_what_runs_while_garbage_is_collected_is_no_part_of_a_step():
    told = []

    def watching(phase, info):
        told.append(time.perf_counter())  # which a step may not call

    def f(x):
        lists = []
        for _ in range(4):
            lists.append([lists])
        return x * 2

    step = tg.record(f)
    threshold = gc.get_threshold()
    gc.callbacks.append(watching)
    gc.set_threshold(2)
    try:
        for i in range(6):
            assert step(tg.full((2,), float(i))).tolist() == [2.0 * i] * 2
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(watching)
    assert replays(step) > 0 and told
    assert sys.getprofile() is None and not any("Observer" in repr(callback) for callback in gc.callbacks)


# --- faults ---


def test_an_error_in_the_step_leaves_it_usable():
    step = tg.record(lambda x, i: x[i] * 2)
    x = tg.arange(4.0)
    for k in range(4):
        assert step(x, tg.tensor([k])).item() == 2.0 * k
    assert replays(step) > 0
    with pytest.raises(IndexError):
        step(x, tg.tensor([9]))
    assert step(x, tg.tensor([3])).item() == 6.0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_errors_while_recording(error):
    fail = [True]

    def f(x):
        y = x * 2
        if fail[0]:
            raise error("stop")
        return y + 1

    step = tg.record(f)
    for _ in range(3):
        with pytest.raises(error):
            step(tg.ones(2))
        assert not tg.record.is_recording()
        assert (tg.ones(2) + 1).tolist() == [2.0, 2.0]
    fail[0] = False
    for _ in range(5):
        assert step(tg.ones(2)).tolist() == [3.0, 3.0]
    assert replays(step) > 0


def test_recorded_functions_call_each_other():
    inner = tg.record(lambda x: x * 2)
    outer = tg.record(lambda x: inner(x) + inner(x + 1))
    for i in range(6):
        assert outer(tg.full((2,), float(i)))[0].item() == 4.0 * i + 2
    assert replays(outer) == 4


def test_threads_share_a_step():
    net = mlp()
    step = tg.record(lambda x: net(x).argmax(1))

    def work(seed):
        with tg.no_grad():
            for x, _ in batches(40, seed=seed):
                assert tg.equal(step(x), net(x).argmax(1))

    in_threads(work, range(4))
    assert replays(step) > 0


def test_memory_is_given_back():
    class Big:
        pass

    def make():
        marker, net = Big(), mlp()
        step = tg.record(training(net, tg.optim.SGD(net.parameters(), lr=0.1)))
        step.marker = marker
        net.step = step  # a circle through the plan's watch
        for x, y in batches(6):
            step(x, y)
        assert replays(step) > 0
        return weakref.ref(marker)

    ref = make()
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_memory_of_recordings_that_wait_is_given_back(calls):
    net = tg.compile(mlp())
    ref = weakref.ref(net)
    for x, y in batches(calls):
        with tg.no_grad():
            net(x)
        out = net(x)
        if calls > 1:
            F.cross_entropy(out, y).backward()
    assert calls > 2 or replays(net.forward) == 0
    del net, out
    gc.collect()
    assert ref() is None


def test_copies_and_pickles():
    net = mlp()
    tg.compile(net)
    x = tg.randn(2, 6)
    with tg.no_grad():
        for _ in range(4):
            expected = net(x)
        assert replays(net.forward) > 0
        other = copy.deepcopy(net)
        assert tg.equal(other(x), expected)
        other[0].weight.zero_()
        for _ in range(4):
            assert not tg.equal(other(x), expected) and tg.equal(net(x), expected)
        again = pickle.loads(pickle.dumps(net))
        for _ in range(4):
            assert tg.equal(again(x), expected)
    assert list(net.state_dict()) == list(mlp().state_dict())


def test_compile_as_pytorch_s():
    net = mlp()
    assert tg.compile(net) is net and isinstance(net.forward, tg.record.RecordedStep)
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        tg.compile(lambda x: x, mode="fastest")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        tg.compile(lambda x: x, mode="default", options={})
    with pytest.raises(TypeError):
        tg.compile(3)

    def f(x):
        return x + len(x.nonzero())

    with pytest.raises(RuntimeError, match="reads a value"):
        tg.record(f, fullgraph=True)(tg.ones(2))
    step = tg.compile(f, fullgraph=True)  # what PyTorch takes may be what runs eagerly here
    for _ in range(4):
        assert step(tg.ones(2)).tolist() == [3, 3]
    assert any("reads a value" in reason for reason in step._reasons)

    class Model:
        def __init__(self, scale):
            self.scale = scale

        @tg.compile
        def double(self, x):
            return x * self.scale

    a, b = Model(2), Model(3)
    for _ in range(5):
        assert a.double(tg.ones(1)).item() == 2 and b.double(tg.ones(1)).item() == 3
    a.scale = 5
    assert a.double(tg.ones(1)).item() == 5
    g = tg.compile(lambda x: x + 1)
    for _ in range(4):
        g(tg.ones(1))
    assert replays(g) == 2
    with tg.compiler.set_stance("force_eager"):
        g(tg.ones(1))
    assert replays(g) == 2
    tg.compiler.reset()
    assert plans(g) == 0 and g(tg.ones(1)).item() == 2


def test_python_numbers_made_into_tensors():
    step = tg.record(lambda x: x + tg.tensor([1.0, 2.0]) * tg.tensor(3.0) + tg.arange(2) + tg.ones(2))
    for i in range(5):
        assert step(tg.full((2,), float(i))).tolist() == [i + 4.0, i + 8.0]
    assert replays(step) == 3


def test_many_signatures_do_not_grow_without_end():
    step = tg.record(lambda x: x + 1)
    for n in list(range(1, 40)) * 3:
        assert step(tg.zeros(n)).shape == (n,)
    assert plans(step) <= 16


def test_arguments_that_are_other_objects_in_each_call_are_given_up():
    class Batch:
        def __init__(self, x):
            self.x = x

    step = tg.record(lambda b: b.x + 1)
    for i in range(60):
        assert step(Batch(tg.full((2,), float(i)))).tolist() == [i + 1.0] * 2
    assert replays(step) == 0 and "in each call" in step.summary()


# --- what lies beyond the function ---


def test_seeds_and_states_of_generators(caplog):
    def seeds(x):
        tg.manual_seed(3)
        return x + tg.rand(2)

    refused(seeds, tg.ones(2), caplog=caplog, why="seeds a random generator")
    saved = tg.get_rng_state()

    def sets(x):
        tg.set_rng_state(saved)
        return x + tg.rand(2)

    tg.rand(1)
    refused(sets, tg.ones(2), caplog=caplog, why="state of a random generator")


def test_checkpoints_draw_their_numbers_once_more():
    from tapegrad.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(6, 16), nn.Linear(16, 3), nn.Dropout(0.5)

        def forward(self, x):
            h = checkpoint(lambda t: self.drop(self.a(t)).relu(), x, use_reentrant=False)
            return self.b(self.drop(h))

    def make():
        tg.manual_seed(0)
        net = Net()
        return net, tg.optim.SGD(net.parameters(), lr=0.1)

    compare(make, batches())
    a, _ = make()
    b = tg.compile(copy.deepcopy(a))
    for i, (x, y) in enumerate(batches(12)):
        after = []
        for net in (a, b):
            tg.manual_seed(i)
            net.zero_grad()
            loss = F.cross_entropy(net(x), y)
            tg.rand(2)  # other numbers between the passes
            loss.backward()
            after.append(tg.rand(2))
        assert_same(a, b, f"step {i}") if i else None
        assert tg.equal(*after), i
    assert replays(b.forward) > 3, b.forward.summary()


def test_hooks_of_parameters_in_a_whole_step():
    net = mlp()
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
    step, seen = tg.record(training(net, optimizer)), []
    data = batches(16)
    for x, y in data[:6]:
        step(x, y)
    assert replays(step) > 0
    handle = net[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum()))
    for x, y in data[6:10]:
        step(x, y)
    assert len(seen) == 4
    handle.remove()
    before = replays(step)
    for x, y in data[10:]:
        step(x, y)
    assert len(seen) == 4 and replays(step) > before


def test_hooks_of_all_modules_and_of_optimizers():
    net = mlp()
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
    step, seen = tg.record(training(net, optimizer)), []
    for x, y in batches(6):
        step(x, y)
    assert replays(step) > 0
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: seen.append(type(m).__name__))
    try:
        for x, y in batches(4):
            step(x, y)
        assert seen.count("Sequential") == 4
    finally:
        handle.remove()
    handle = optimizer.register_step_post_hook(lambda o, a, k: seen.append("step"))
    for x, y in batches(4):
        step(x, y)
    assert seen.count("step") == 4
    handle.remove()


def test_modes_around_it():
    step = tg.record(lambda x: (x / 0).sum())
    x = tg.ones(2)
    warm(step, x)
    seen = []

    class Mode(tg.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    with Mode():
        step(x)
    assert seen
    before = replays(step)
    with tg.autograd.detect_anomaly(), tg.profiler.profile() as profile:
        step(x)
    assert replays(step) == before and any("sum" in e.key for e in profile.key_averages())
    step(x)
    assert replays(step) == before + 1


def test_memory_of_a_weight_is_exchanged():
    w = tg.ones(4)
    step = tg.record(lambda x: x + w.sum())
    x = tg.zeros(1)
    warm(step, x)
    w.resize_(4096)
    w.fill_(2)
    assert step(x).item() == 8192
    w.data = tg.full((2,), 3.0)
    for _ in range(4):
        assert step(x).item() == 6


def test_memory_beyond_an_argument():
    step = tg.record(lambda x: tg.as_strided(x, (4,), (1,)) + 1)
    base = tg.arange(8.0)
    for i in range(4):
        assert step(base[i:i + 2]).tolist() == [i + 1.0, i + 2.0, i + 3.0, i + 4.0]
    with pytest.raises(RuntimeError):
        step(tg.zeros(2))  # which has no more memory
    assert replays(step) == 0


def test_another_thread_within_the_step(caplog):
    out = tg.zeros(2)

    def f(x):
        t = threading.Thread(target=lambda: out.add_(x))
        t.start()
        t.join()
        return out + 1

    step = tg.record(f)
    for i in range(5):
        assert step(tg.ones(2)).tolist() == [i + 2.0] * 2
    assert replays(step) == 0


def test_state_that_changes_in_each_call_is_given_up():
    net = mlp()
    step = tg.record(lambda x: net(x).detach())
    with tg.no_grad():
        for i in range(60):
            net.round = i
            step(tg.ones(2, 6))
    assert "again and again" in step.summary()


COLLECTIVE = """
import sys
import tapegrad as tg
import tapegrad.distributed as dist
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)

@tg.record
def step(x):
    y = x * 2
    dist.all_reduce(y)
    return y

for i in range(6):
    assert step(tg.full((2,), float(i + dist.get_rank()))).tolist() == [4.0 * i + 2] * 2
assert step._replays.count == 0 and "collective" in step.summary(), step.summary()
dist.barrier()
dist.destroy_process_group()
"""


def test_collectives_are_refused(tmp_path):
    ranks = [subprocess.Popen([sys.executable, "-c", COLLECTIVE, str(tmp_path / "store"), str(rank)]) for rank in range(2)]
    assert [rank.wait(timeout=60) for rank in ranks] == [0, 0]


INTERRUPTED = """
import _thread, signal, threading
import tapegrad as tg

armed, interrupted = False, 0

def handler(number, frame):
    if armed:
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, handler)
net = tg.nn.Linear(512, 512)
step = tg.record(lambda x: net(net(net(x))).detach())
x = tg.randn(256, 512)
with tg.no_grad():
    expected = net(net(net(x)))
    for _ in range(4):
        step(x)
    for _ in range(20):
        timer = threading.Timer(0.002, _thread.interrupt_main)
        timer.start()
        try:
            armed = True
            for _ in range(50):
                step(x)
            armed = False
        except KeyboardInterrupt:
            armed = False
            interrupted += 1
        timer.join()
        assert tg.equal(step(x), expected)
    before = step._replays.count
    assert tg.equal(step(x), expected) and step._replays.count == before + 1, step.summary()
print(interrupted)
"""


def test_interrupts_leave_it_usable():
    assert int(run(INTERRUPTED, timeout=100)) > 5


def test_objects_that_run_code_when_they_are_looked_at():
    from unittest.mock import MagicMock

    class Nosy:
        looked = 0

        def __init__(self):
            self.scale = 2.0

        def __getattr__(self, name):
            Nosy.looked += 1
            raise RuntimeError(f"nobody may ask for {name}")

    nosy, mock = Nosy(), MagicMock()
    step = tg.record(lambda x: x * nosy.scale)
    for _ in range(5):
        assert step(tg.ones(2)).tolist() == [2.0, 2.0]
    assert replays(step) > 0 and Nosy.looked == 0
    nosy.scale = 3.0
    assert step(tg.ones(2)).tolist() == [3.0, 3.0]
    step = tg.record(lambda x: (mock.seen(1), x + 1)[1])
    for _ in range(5):
        assert step(tg.ones(2)).tolist() == [2.0, 2.0]
    assert mock.seen.call_count == 5


def test_threads_record_one_function():
    net = mlp()
    step = tg.record(lambda x: net(x).detach() + SHIFT[0])

    def work(seed):
        with tg.no_grad():
            for i, (x, _) in enumerate(batches(60, size=1 + seed, seed=seed)):
                if i % 7 == seed:
                    SHIFT[0] += 0  # another object, the same value
                assert tg.equal(step(x), net(x) + SHIFT[0])

    in_threads(work, range(5))


SHIFT = [1.5]


class Registry(dict):
    """A container of the program's own."""


REGISTRY = Registry(scale=2.0)


def test_programs_that_ask_whether_they_are_compiled_read_no_values():
    @tg.compile
    def f(x):
        if not tg.compiler.is_compiling() and len(x.nonzero()) == 0:
            return x
        return x.abs() * REGISTRY.get("scale")

    x = tg.tensor([1.0, -2.0])
    for _ in range(8):
        assert tg.equal(f(x), x.abs() * 2)
    assert " 5 replays" in f.summary() and not tg.compiler.is_compiling() and not tg.compiler.is_exporting()
    program = tg.export.export(lambda x: x * 2 if tg.compiler.is_exporting() and tg.jit.is_tracing() else x.sum().item(), (x,)).module()
    assert tg.equal(program(x), x * 2)


def test_a_step_that_sets_a_profiler():
    """It would end what notes the code that runs."""
    def profiling(x):
        sys.setprofile(None)
        return x * 2

    step = tg.record(profiling)
    for _ in range(4):
        assert step(tg.ones(2)).tolist() == [2.0, 2.0]
    assert replays(step) == 0 and "it sets a profiler of Python" in step.summary()
    assert sys.getprofile() is None and not any("Observer" in repr(callback) for callback in gc.callbacks)
