"""Recorded steps on a device: replayed by CUDA graphs and call by call, with eager's bits."""

import sys

import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg
from recorded import (
    ROWS,
    Layers,
    assert_same,
    compare,
    in_threads,
    mlp,
    plans,
    refused,
    replays,
    replays_of_row,
    training,
)
from tapegrad import nn

F, cuda = nn.functional, tg.cuda

# What a replay on a device cannot repeat, besides.
REASONS = ("a recorded step has one device", "no recorded call has written", "it calls ")


@pytest.mark.parametrize("record", ROWS, ids=lambda r: r.name)
def test_rows_have_the_bits_of_eager(record):
    counts[record.name] = replays_of_row(record, "cuda", REASONS)


counts: dict = {}


def test_most_rows_are_replayed():
    """Runs after those above."""
    if len(counts) < 100:
        pytest.skip("only some of the rows ran here")
    never = sorted(name for name, (replays, _) in counts.items() if replays == 0)
    assert len(never) < 0.25 * len(counts), never


# --- training steps, with and without graphs ---

OPTIMIZERS = {
    "sgd": lambda p: tg.optim.SGD(p, lr=0.1, momentum=0.9),
    "adam": lambda p: tg.optim.Adam(p, lr=0.01),
    "capturable": lambda p: tg.optim.AdamW(p, lr=0.01, capturable=True),
}


def on_device(make_net, optimizer="adam"):
    def make():
        tg.manual_seed(0)
        net = make_net().cuda()
        return net, OPTIMIZERS[optimizer](net.parameters())

    return make


def data(n=10, size=5):
    tg.manual_seed(1)
    return [(tg.randn(size, 6, device="cuda"), tg.randint(0, 3, (size,), device="cuda")) for _ in range(n)]


def graphs(step):
    return sum(use["graphs"] for use in step._replays.memory())


@pytest.mark.parametrize("zero", ["optimizer", "zeros", "after", "never"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training(optimizer, zero):
    step = compare(on_device(mlp, optimizer), data(), zero=zero, clip=0.5)
    assert graphs(step) > 0, step.summary()
    assert "launches of graphs" in step.summary()
    step = compare(on_device(mlp, optimizer), data(), zero=zero, graphs=False)
    assert graphs(step) == 0


@pytest.fixture
def made_on_device():
    before = tg.get_default_device()
    tg.set_default_device("cuda")
    yield
    tg.set_default_device(before)


def test_layers_with_state_and_random_numbers(made_on_device):
    step = compare(on_device(Layers), data())
    assert graphs(step) > 0 and step._replays.memory()[0]["apart"] == 0, step.summary()


@pytest.mark.parametrize("memory", [0.5, None])
def test_memory_budgets_and_random_calls_that_are_made_again(made_on_device, memory):
    def net():
        return nn.Sequential(nn.Linear(6, 64), nn.GELU(), nn.Dropout(0.3), nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 3))

    compare(on_device(net), data(size=80), memory=memory, zero="after")


def test_the_learning_rate_is_read_in_each_replay():
    def build(net, optimizer):
        plain = training(net, optimizer)

        def step(x, y):
            return plain(x, y)

        rates = iter(range(1, 100))

        def scheduled(x, y):
            optimizer.param_groups[0]["lr"] = 0.01 * next(rates)
            return step(x, y)

        return step, scheduled

    (a, first), (b, second) = on_device(mlp)(), on_device(mlp)()
    eager = build(a, first)[1]
    step, scheduled = build(b, second)
    recorded = tg.record(step)
    for i, (x, y) in enumerate(data()):
        second.param_groups[0]["lr"] = 0.01 * (i + 1)
        assert tg.equal(recorded(x, y), eager(x, y)), i
        assert_same(a, b, f"step {i}")
    assert replays(recorded) > 5 and graphs(recorded) > 0


@pytest.mark.parametrize("make_net", [mlp, Layers])
def test_compiled_models(made_on_device, make_net):
    """Two parts, whose gradients are lent: cleared, added up over two passes, and held by somebody."""
    (a, first), (b, second) = on_device(make_net)(), on_device(make_net)()
    tg.compile(b)
    held: list = []
    for i, (x, y) in enumerate(data(24)):
        for net, optimizer in ((a, first), (b, second)):
            tg.manual_seed(100 + i)
            F.cross_entropy(net(x), y).backward()
            if i >= 18:
                held.append(([p.grad for p in net.parameters()], i))
            if i % 2 or i < 10:
                optimizer.step()
                optimizer.zero_grad()
        assert_same(a, b, f"pass {i}")
    assert replays(b.forward) > 10 and graphs(b.forward) > 0, b.forward.summary()


def test_backward_twice_and_values_that_were_exchanged():
    net, other = mlp().cuda(), mlp().cuda()
    other.load_state_dict(net.state_dict())
    tg.compile(net)
    for i, (x, y) in enumerate(data()):
        for m in (net, other):
            loss = F.cross_entropy(m(x), y)
            if i > 5:
                loss.backward(retain_graph=True)
            loss.backward()
        assert_same(net, other, f"pass {i}")
        net.zero_grad(), other.zero_grad()
    assert graphs(net.forward) > 0
    out = net(x)
    with tg.no_grad():
        net[2].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# --- arguments and results ---

def test_arguments_are_copied_to_their_places_and_back():
    def work(x, y):
        z = (x * 2 + y).relu()
        y.mul_(3).add_(z)
        return z.sum(), z, y[:1]

    step = tg.record(work)
    big = tg.randn(40, 7, device="cuda")
    views = [lambda: big[i:i + 4].clone() for i in range(8)] + [lambda: big.clone()[2:30:7], lambda: big.clone()[5:33:7]] * 8
    for i, make in enumerate(views):
        x, y = tg.randn(4, 7, device="cuda"), make()
        mine, z = y.clone(memory_format=tg.preserve_format), work(x, reference := y.clone())
        if y.stride() != mine.stride():
            mine = tg.empty_strided(y.shape, y.stride(), device="cuda").copy_(y)
        got = step(x, mine)
        assert all(tg.equal(p, q) for p, q in zip(got, z)) and tg.equal(mine, reference), i
        assert got[2].data_ptr() == mine.data_ptr()
    assert replays(step) > 4 and graphs(step) > 0, step.summary()


def test_what_lies_between_the_elements_of_an_argument_stays():
    step = tg.record(lambda x: (x.mul_(2), x.add_(1))[0])
    for i in range(8):
        whole = tg.arange(24.0, device="cuda").view(6, 4) + i
        expected = whole.clone()
        expected[:, 1:3] = expected[:, 1:3] * 2 + 1
        step(whole[:, 1:3])
        assert tg.equal(whole, expected), i
    assert graphs(step) > 0 and replays(step) > 4


def test_arguments_that_share_memory_or_repeat_it():
    step = tg.record(lambda x, y: (x.mul_(2), y + x)[1] * 3)
    for i in range(8):
        base = tg.arange(10.0, device="cuda") + i
        want = base.clone()
        expected = (want[2:6].mul_(2), want[:4] + want[2:6])[1] * 3
        assert tg.equal(step(base[2:6], base[:4]), expected) and tg.equal(base, want), i
    assert graphs(step) > 0 and replays(step) > 4
    step = tg.record(lambda x: (x + 1) * 2)
    for i in range(8):
        x = tg.full((1,), float(i), device="cuda").expand(5)
        assert tg.equal(step(x), (x + 1) * 2)
        window = (tg.arange(6.0, device="cuda") + i).as_strided((3, 4), (1, 1))
        assert tg.equal(step(window), (window + 1) * 2)
    assert graphs(step) == 2


def test_results_belong_to_the_caller():
    step = tg.record(lambda x: (x * 2, x.sum() + 1))
    kept = []
    for i in range(10):
        x = tg.full((4,), float(i), device="cuda")
        kept.append((x, step(x)))
    for x, (a, b) in kept:
        assert tg.equal(a, x * 2) and tg.equal(b, x.sum() + 1)
    kept[4][1][0].add_(7)
    assert tg.equal(kept[5][1][0], kept[5][0] * 2)
    assert graphs(step) == 1 and replays(step) > 5


def test_gradients_that_somebody_holds():
    """Lent memory that has not come back is not written."""
    net, other = mlp().cuda(), mlp().cuda()
    other.load_state_dict(net.state_dict())

    def build(m):
        optimizer = tg.optim.SGD(m.parameters(), lr=0.1)
        return training(m, optimizer)

    step, eager = tg.record(build(net)), build(other)
    held = []
    for i, (x, y) in enumerate(data(14)):
        assert tg.equal(step(x, y), eager(x, y))
        assert_same(net, other, f"step {i}")
        if i % 3 == 0:
            held.append([(p.grad, p.grad.clone()) for p in net.parameters()])
    assert all(tg.equal(p, q) for grads in held for p, q in grads)
    assert "still held" in step.summary() and graphs(step) > 0


def test_other_sizes_have_graphs_of_their_own():
    net = mlp().cuda()
    step = tg.record(lambda x: net(x).softmax(-1))
    with tg.no_grad():
        for size in [3, 3, 3, 5, 5, 5, 3, 5, 8, 8, 8, 0, 0, 0, 0]:
            x = tg.randn(size, 6, device="cuda")
            assert tg.equal(step(x), net(x).softmax(-1)), size
    assert plans(step) >= 3 and graphs(step) >= 3, step.summary()


# --- what stays as it is, with a reason ---

@pytest.mark.parametrize("why, work", {
    "item reads a value on cuda:0": lambda x: x * x.sum().item(),
    "bool reads a value": lambda x: x * 2 if x.sum() > 0 else x,
    "uses cuda:0 and cpu: a recorded step has one device": lambda x: (x * 2).cpu() + 1,
    "it uses cuda:0 and cpu": lambda x: x.cpu().to("cuda") * 2,
    "it calls cuda.synchronize": lambda x: (x * 2, cuda.synchronize())[0],
    "and cpu: a recorded step has one device": lambda x: x * tg.tensor([1.0, 2, 3, 4], device="cuda"),
}.items(), ids=lambda v: v if isinstance(v, str) else "")
def test_reasons(why, work, caplog):
    x = tg.arange(4.0, device="cuda")
    for result in refused(lambda x: work(x), x, caplog=caplog, why=why if "bool" not in why else "reads a value"):
        assert tg.equal(result.cpu(), work(x).cpu())


def test_a_step_inside_of_the_programs_own_graph():
    step = tg.record(lambda x: (x * 2 + tg.rand(4, device="cuda")).relu())
    x = tg.arange(4.0, device="cuda")
    for _ in range(5):
        step(x)
    before = replays(step)
    graph = cuda.CUDAGraph()
    tg.manual_seed(3)
    with cuda.graph(graph):
        y = step(x)
    drawn = []
    for _ in range(3):
        graph.replay()
        drawn.append(y.tolist())
    tg.manual_seed(3)
    assert drawn == [(x * 2 + tg.rand(4, device="cuda")).relu().tolist() for _ in range(3)] and replays(step) == before


def test_checkpoints_draw_once_more():
    from tapegrad.utils.checkpoint import checkpoint

    class Checkpointed(nn.Linear):
        def forward(self, x):
            return checkpoint(lambda x: F.dropout(F.linear(x, self.weight, self.bias), 0.4).tanh(), x, use_reentrant=False)

    compare(on_device(lambda: nn.Sequential(Checkpointed(6, 8), nn.Dropout(0.3), nn.Linear(8, 3))), data(), least=0)


def test_autocast_and_scaled_losses_on_a_device():
    def build(net, optimizer):
        scaler = tg.amp.GradScaler("cuda", init_scale=8.0, growth_interval=3)

        def step(x, y):
            optimizer.zero_grad()
            with tg.autocast("cuda", dtype=tg.bfloat16):
                loss = F.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        return step

    compare(on_device(mlp, "capturable"), data(), build=build, least=0)

    def plain(net, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            with tg.autocast("cuda", dtype=tg.bfloat16):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    assert graphs(compare(on_device(mlp), data(), build=plain)) > 0


# --- streams, threads, lifetimes, faults ---

def test_replays_on_several_streams_take_turns():
    net = mlp().cuda()
    step = tg.record(lambda x: net(x).softmax(-1) + tg.rand(5, 3, device="cuda"))
    streams = [cuda.current_stream(), cuda.Stream(), cuda.Stream()]
    with tg.no_grad():
        for i in range(15):
            x = tg.randn(5, 6, device="cuda")
            cuda.synchronize()
            with cuda.stream(streams[i % 3]):
                tg.manual_seed(i)
                got = step(x)
                tg.manual_seed(i)
                expected = net(x).softmax(-1) + tg.rand(5, 3, device="cuda")
                assert tg.equal(got, expected), i
    assert replays(step) > 8 and graphs(step) == 1


def test_two_threads_replay_one_step():
    net = mlp().cuda()
    step = tg.record(lambda x: net(x).softmax(-1).log())
    xs = [tg.randn(5, 6, device="cuda") for _ in range(8)]
    with tg.no_grad():
        expected = [net(x).softmax(-1).log() for x in xs]
        for x in xs[:4]:
            step(x)

    def work(n):
        with tg.no_grad():
            for k in range(40):
                assert tg.equal(step(xs[(n + k) % 8]), expected[(n + k) % 8])

    in_threads(work, range(3))
    assert graphs(step) == 1


def test_memory_comes_back_with_the_step():
    import gc

    gc.collect()
    cuda.synchronize()
    before = cuda.memory_allocated()
    for _ in range(3):
        x = tg.randn(300, 300, device="cuda")
        step = tg.record(lambda x: (x @ x + tg.rand(300, 300, device="cuda")).relu().sum(0))
        for _ in range(5):
            kept = step(x)
        assert graphs(step) == 1
        del step  # while its last replay may not have run
        gc.collect()
        assert kept.shape == (300,) and kept.isfinite().all()
        del kept, x
    gc.collect()
    cuda.synchronize()
    assert cuda.memory_allocated() == before


def test_memory_of_graphs_that_are_gone_serves_others():
    x = tg.randn(64, device="cuda")
    cuda.empty_cache()
    total = cuda.mem_get_info()[1]
    cuda.set_per_process_memory_fraction(min(1.0, (cuda.memory_reserved() + (24 << 20)) / total))
    try:
        for _ in range(40):
            step = tg.record(lambda x: (x.sort().values.cumsum(0) + tg.rand(64, device="cuda")).sort().values)
            for _ in range(3):
                step(x)
            assert graphs(step) == 1, step.summary()
    finally:
        cuda.set_per_process_memory_fraction(1.0)


def test_no_memory_for_graphs():
    """The plan fits and what graphs need besides does not: call by call, with the line."""
    n = 3 << 20
    work = lambda x: (x * 2 + 1).mul_(3)  # noqa: E731
    step = tg.record(work)
    x = tg.ones(n, device="cuda")
    step(x), step.reset()
    total = cuda.mem_get_info()[1]
    for share in (0.06, 0.08, 0.1, 0.14, 0.2, 0.4, 1.0):
        cuda.empty_cache()
        cuda.set_per_process_memory_fraction(min(1.0, cuda.memory_reserved() / total + share))
        try:
            step = tg.record(work)
            for i in range(6):
                try:
                    got = step(x + i)
                except tg.OutOfMemoryError:
                    break  # eager has none, either
                assert got[0].item() == ((1 + i) * 2 + 1) * 3
                del got
        finally:
            cuda.set_per_process_memory_fraction(1.0)
    assert graphs(step) == 1


def test_an_error_of_a_kernel_leaves_the_step_usable():
    table = tg.randn(4, 3, device="cuda")
    step = tg.record(lambda i: table[i] * 2 + 1)
    good = tg.tensor([1, 3, 0], device="cuda")
    for _ in range(5):
        step(good)
    with pytest.raises(IndexError, match="out of bounds"):
        step(tg.tensor([1, 9, 0], device="cuda"))
        cuda.synchronize()
    assert tg.equal(step(good), table[good] * 2 + 1) and graphs(step) == 1


def test_a_step_on_the_host_runs_no_more_python_where_there_is_a_device():
    """What runs is observed and walked over in a recording: asking whether a graph is captured was a fifth of it."""
    tg.ones(1, device="cuda")
    net = nn.Linear(3, 2)
    seen = []
    for optimizer in (tg.optim.Adam(net.parameters()), tg.optim.Adafactor(net.parameters()), tg.optim.SGD(net.parameters(), lr=0.1)):
        net(tg.rand(4, 3)).sum().backward()
        optimizer.step()
        sys.setprofile(lambda frame, event, _: seen.append(frame.f_code) if event == "call" else None)
        try:
            optimizer.step()
        finally:
            sys.setprofile(None)
    assert seen and not [code for code in seen if "/cuda/" in code.co_filename or "importlib" in code.co_filename]
