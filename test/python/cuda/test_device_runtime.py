"""Allocator, streams, pinned copies and graphs of the device that the process has: a real one where TAPEGRAD_GPU asks for
it (`make gpu-check`), a simulated one where test_simulated.py starts this file. What is counted holds for both.
"""

import gc
import os
import random
import threading

import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg

cuda = tg.cuda
if not cuda.is_available():
    pytest.skip("no CUDA device and no simulated one", allow_module_level=True)

SIMULATED = bool(os.environ.get("TAPEGRAD_CUDA_SIMULATE"))
UNIT = 1 << (10 if SIMULATED else 16)  # elements; what takes a simulated device long is its arithmetic


@pytest.fixture(autouse=True)
def clean():
    gc.collect()
    cuda.synchronize()
    cuda.empty_cache()
    yield
    gc.collect()
    cuda.synchronize()


def test_memory_is_whole_after_random_allocations_on_several_streams():
    """Every live tensor holds what was written to it, whatever was made and freed around it."""
    choose = random.Random(5)
    streams = [cuda.default_stream(), cuda.Stream(), cuda.Stream(priority=-1)]
    before, live = cuda.memory_allocated(), []
    for step in range(300 if SIMULATED else 3000):
        if live and choose.random() < 0.45:
            tensor, value, made_on = live.pop(choose.randrange(len(live)))
            other = choose.choice(streams)
            other.wait_stream(made_on)
            with cuda.stream(other):  # on another stream than its own, and freed while that may still run
                extremes = tensor.amin(), tensor.amax()
                del tensor
                assert (float(extremes[0]), float(extremes[1])) == (value, value), step
        else:
            stream = choose.choice(streams)
            with cuda.stream(stream):
                size = choose.choice([1, 7, 1000, UNIT, 9 * UNIT + 3])
                live.append((tg.full((size,), float(step), device="cuda"), float(step), stream))
    live.clear()
    del extremes
    cuda.synchronize()
    gc.collect()
    assert cuda.memory_allocated() == before


def descend(model):
    with tg.no_grad():
        for p in model.parameters():
            p.sub_(p.grad, alpha=0.1)
            p.grad = None


def test_a_training_step_allocates_nothing_after_the_first():
    model = tg.nn.Sequential(tg.nn.Linear(40, 64), tg.nn.ReLU(), tg.nn.LayerNorm(64), tg.nn.Linear(64, 5)).to("cuda")
    x, y = tg.randn(32, 40).to("cuda"), tg.randint(0, 5, (32,)).to("cuda")
    counts = []
    for _ in range(5):
        tg.nn.functional.cross_entropy(model(x), y).backward()
        descend(model)
        cuda.synchronize()
        counts.append(cuda.memory_stats()["num_device_alloc"])
    assert counts[1:] == counts[1:2] * 4, counts


def test_out_of_memory_is_an_error_and_nothing_more():
    free, total = cuda.mem_get_info()
    kept = tg.full((UNIT,), 3.0, device="cuda")
    for _ in range(3):
        with pytest.raises(tg.OutOfMemoryError, match="tried to allocate"):
            tg.empty(2 * total, dtype=tg.uint8, device="cuda")
    assert float(kept.sum()) == 3.0 * UNIT
    big = tg.empty(free // 2, dtype=tg.uint8, device="cuda")  # what was tried and not had is not kept
    assert big.numel() == free // 2
    del big
    cuda.empty_cache()


def test_pieces_of_several_sizes_leave_room_for_one_large_piece():
    """Freed memory of any sizes is put together again: 80 % of what is free can be had at once."""
    free, _ = cuda.mem_get_info()
    share = free // 2
    count = 40
    pieces = [tg.empty(share // count, dtype=tg.uint8, device="cuda") for _ in range(count)]
    del pieces[::2]
    gc.collect()
    keep = [p for i, p in enumerate(pieces) if i % 4 == 0]
    del pieces
    gc.collect()
    left = free - sum(p.numel() for p in keep)
    assert tg.empty(int(left * 0.8), dtype=tg.uint8, device="cuda").numel() > 0
    del keep
    cuda.empty_cache()


def test_memory_of_a_graph_outlives_its_last_replay():
    """Replays run on any stream, and nothing notes what they use: memory of a graph that is gone is unmapped behind them."""
    x, stream, kept = tg.ones(UNIT, device="cuda"), cuda.Stream(), tg.zeros(UNIT, device="cuda")
    for _ in range(3):
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            y = x * 2
            kept.add_(y + 1)
        del y
        cuda.synchronize()
        with cuda.stream(stream):
            graph.replay()
        graph.reset()
        cuda.empty_cache()
    cuda.synchronize()
    assert float(kept.min()) == float(kept.max()) == 9


def test_copies_from_pinned_memory_overlap_nothing_that_they_need():
    results = []
    for i in range(20):
        host = tg.full((UNIT,), float(i)).pin_memory()
        assert host.is_pinned()
        results.append(host.to("cuda", non_blocking=True))
        del host
    for i, r in enumerate(results):
        back = tg.empty(UNIT).pin_memory()
        back.copy_(r, non_blocking=True)
        cuda.current_stream().synchronize()
        assert float(back.min()) == float(back.max()) == i


def test_streams_wait_for_each_other_and_events_measure():
    a, b = cuda.Stream(), cuda.Stream()
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    with cuda.stream(a):
        start.record()
        x = tg.ones(UNIT, device="cuda")
        for _ in range(20):
            x = x * 1.5
        end.record()
    b.wait_stream(a)
    with cuda.stream(b):
        assert float((x - 1.5**20).abs().max()) <= 1e-3
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_threads_have_streams_of_their_own():
    wrong = []

    def work(seed):
        with cuda.stream(cuda.Stream()):
            for i in range(20):
                x = tg.full((UNIT,), float(seed + i), device="cuda")
                if float((x + 1).amax()) != seed + i + 1:
                    wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong


def test_a_captured_step_equals_the_eager_one():
    def make():
        tg.manual_seed(3)
        return tg.nn.Sequential(tg.nn.Linear(16, 32), tg.nn.Tanh(), tg.nn.Linear(32, 4)).to("cuda")

    batches = [(tg.randn(8, 16), tg.randn(8, 4)) for _ in range(4)]

    def step(model, x, y):
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        descend(model)
        return loss

    model = make()
    eager = []
    for x, y in batches:
        eager.append(float(step(model, x.to("cuda"), y.to("cuda"))))
    model = make()
    x, y = tg.zeros(8, 16, device="cuda"), tg.zeros(8, 4, device="cuda")
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    start = {k: v.clone() for k, v in model.state_dict().items()}
    with cuda.stream(side):
        step(model, x, y)
    cuda.current_stream().wait_stream(side)
    model.load_state_dict(start)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        loss = step(model, x, y)
    model.load_state_dict(start)
    graphed = []
    for a, b in batches:
        x.copy_(a), y.copy_(b)
        graph.replay()
        graphed.append(float(loss))
    assert graphed == eager


@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 1e-14), ("bfloat16", 1e-2), ("float16", 2e-3), ("complex64", 2e-6)])
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (3, 5, 7), (33, 17, 65), (64, 1, 100), (1, 129, 4)])
def test_products_of_every_layout(m, n, k, dtype, tolerance):
    """Transposed, sliced and batched matrices, with and without a bias, against float64 on the host."""
    kind = getattr(tg, dtype)
    wide = tg.complex128 if kind.is_complex else tg.float64
    a, b, bias = (tg.randn(*s, dtype=wide).to(kind) for s in ((m, k), (k, n), (n,)))
    layouts = [lambda t: t, lambda t: t.t().contiguous().t(), lambda t: tg.cat([t, t], 1)[:, : t.shape[1]]]

    def near(got, expected, scale):
        assert got.device.type == "cuda" and got.dtype == kind
        assert float((got.cpu().to(wide) - expected).abs().max()) <= tolerance * scale

    scale = 1 + float((a.to(wide).abs() @ b.to(wide).abs()).max())
    product = a.to(wide) @ b.to(wide)
    for left in layouts:
        for right in layouts:
            x, y = left(a.to("cuda")), right(b.to("cuda"))
            near(x @ y, product, scale)
            near(tg.nn.functional.linear(x, y.t(), bias.to("cuda")), product + bias.to(wide), scale + 4)
            near(tg.addmm(bias.to("cuda"), x, y, beta=0.5, alpha=2.0), 2 * product + 0.5 * bias.to(wide), 2 * scale + 4)
    batch = tg.stack([a, a * 2]).to("cuda")
    near(batch @ b.to("cuda").expand(2, k, n), tg.stack([product, (a * 2).to(wide) @ b.to(wide)]), 2 * scale)
    assert (batch @ b.to("cuda")).tolist() == (batch @ b.to("cuda")).tolist()
