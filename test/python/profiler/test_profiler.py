"""tapegrad.profiler and autograd.profiler: what is recorded, tables, traces, schedules."""

import gzip
import json
import threading
import time

import pytest
import tapegrad
from tapegrad import nn
from tapegrad.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


def model():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 4)))


def step(net, x):
    net.zero_grad()
    net(x).square().mean().backward()


def names(prof):
    return [e.name for e in prof.events()]


@pytest.mark.smoke
def test_operators_forward_and_backward():
    net, x = model(), tapegrad.randn(5, 8)
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        step(net, x)
    found = {e.key: e for e in prof.key_averages()}
    assert found["aten::relu"].count == 1 and found["aten::linear"].count == 3  # the last for the gradient of the second one's input
    assert "autograd::engine::evaluate_function: ReluBackward0" in found and "ReluBackward0" in found
    assert all(e.self_cpu_time_total >= 0 and e.cpu_time_total >= e.self_cpu_time_total - 1e-6 for e in found.values())
    for e in prof.events():  # children lie in their parents
        if e.cpu_parent is not None:
            assert e.cpu_parent.time_range.start <= e.time_range.start <= e.time_range.end <= e.cpu_parent.time_range.end
            assert e in e.cpu_parent.cpu_children
    top = sum(e.cpu_time_total for e in prof.events() if e.cpu_parent is None)
    assert prof.events().self_cpu_time_total == pytest.approx(top, rel=1e-6)
    assert prof.events().total_average().count == len(prof.events())


def test_fused_steps_are_in_the_profile():
    net = model()
    for kind in ("SGD", "Adam"):
        optimizer = getattr(tapegrad.optim, kind)(net.parameters(), lr=0.1)
        with profile() as prof:
            step(net, tapegrad.randn(2, 8))
            optimizer.step()
        assert names(prof).count(f"Optimizer.step#{kind}.step") == 1


def test_nothing_is_recorded_outside_and_operators_in_place_and_out():
    x = tapegrad.ones(3)
    with profile() as prof:
        x.add_(1)
        tapegrad.add(x, x, out=tapegrad.empty(3))
        x.view(3, 1)
    x.mul_(2)
    assert [n for n in names(prof) if n != "aten::empty"] == ["aten::add_", "aten::add", "aten::view"]
    assert not tapegrad._C._profiler_running() and x.tolist() == [4.0, 4.0, 4.0]


def test_results_and_errors_are_those_without_a_profiler():
    net, x = model(), tapegrad.randn(5, 8)
    expected = net(x)
    step(net, x)
    gradients = [p.grad.clone() for p in net.parameters()]
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_modules=True) as prof:
        assert net(x).equal(expected)
        step(net, x)
        with pytest.raises(RuntimeError, match="mm|shape|size"):
            tapegrad.ones(2, 3) @ tapegrad.ones(2, 3)
    assert all(p.grad.equal(g) for p, g in zip(net.parameters(), gradients))
    assert all(e.time_range.end >= e.time_range.start for e in prof.events())


def test_shapes_group_and_are_shown():
    a, b = tapegrad.ones(2, 3), tapegrad.ones(3, 4)
    with profile(record_shapes=True) as prof:
        a @ b
        a @ b
        tapegrad.cat([a, a])
        tapegrad.ones(7, 7) @ tapegrad.ones(7, 7)
    (first, *_) = [e for e in prof.events() if e.name == "aten::mm"]
    assert first.input_shapes[:2] == [[2, 3], [3, 4]]
    (cat,) = [e for e in prof.events() if e.name == "aten::cat"]
    assert cat.input_shapes == [[[2, 3], [2, 3]], []] and cat.concrete_inputs == [None, 0]
    rows = [e for e in prof.key_averages(group_by_input_shape=True) if e.key == "aten::mm"]
    assert sorted(e.count for e in rows) == [1, 2]
    assert "Input Shapes" in prof.key_averages(group_by_input_shape=True).table() and "[[2, 3], [3, 4]" in prof.key_averages(True).table()


def test_memory():
    x = tapegrad.ones(1000)
    with profile(profile_memory=True) as prof:
        y = x + x
        with record_function("frees"):
            del y
    found = {e.key: e for e in prof.key_averages()}
    assert found["aten::add"].cpu_memory_usage == 4000 and found["frees"].cpu_memory_usage == -4000
    assert "CPU Mem" in prof.key_averages().table(sort_by="cpu_memory_usage") and "3.91 Kb" in prof.key_averages().table()


def test_lines_and_modules():
    net, x = model(), tapegrad.randn(5, 8)
    with profile(with_stack=True, with_modules=True) as prof:
        step(net, x)
    relu, backward = ([e for e in prof.events() if e.name == n][0] for n in ("aten::relu", "ReluBackward0"))
    assert relu.module_path == backward.module_path == "Sequential.1"
    assert relu.stack[0].endswith(": step") and __file__ in relu.stack[0] and relu.stack[1].endswith(": test_lines_and_modules")
    assert backward.stack == relu.stack  # backward belongs to the line of the forward call
    modules = {e.key: e for e in prof.module_averages()}
    assert {"Sequential.0", "Sequential.1", "Sequential.2.0"} <= set(modules)
    inner = [e for e in prof.events() if e.module_path == "Sequential.0" and e.kind != 3]
    assert modules["Sequential.0"].self_cpu_time_total == pytest.approx(sum(e.self_cpu_time_total for e in inner))
    lines = {e.key.rpartition(":")[2] for e in prof.line_averages()}
    assert " step" in lines
    assert any(e.name == "nn.Module: Linear_0" for e in prof.events())
    rows = prof.key_averages(group_by_stack_n=2)
    assert "Source Location" in rows.table(max_src_column_width=200) and "test_profiler.py" in rows.table()
    table = prof.module_averages().table(sort_by="self_cpu_time_total", row_limit=3)
    assert len([line for line in table.splitlines() if line.startswith("Sequential")]) == 3


def test_table():
    with profile() as prof:
        for _ in range(3):
            tapegrad.ones(4).exp().sum()
    text = prof.key_averages().table(sort_by="count", row_limit=2, header="mine")
    assert text.startswith("mine\n") and "Self CPU %" in text and "# of Calls" in text and "Self CPU time total: " in text
    assert text.count("aten::") == 2
    assert "ms" in prof.key_averages().table(time_unit="ms")
    assert str(prof.key_averages()).count("aten::") == len(prof.key_averages())
    with pytest.raises(AttributeError, match="sort_by"):
        prof.key_averages().table(sort_by="nothing")
    with pytest.raises(ValueError, match="time_unit"):
        prof.key_averages().table(time_unit="h")
    assert tapegrad.profiler.EventList().table() == ""


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_chrome_trace(tmp_path, ending):
    net, x = model(), tapegrad.randn(5, 8)
    path = str(tmp_path / f"trace.{ending}")
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        with record_function("forward and backward"):
            step(net, x)
    prof.add_metadata("who", "me")
    prof.add_metadata_json("settings", "[1, 2]")
    prof.export_chrome_trace(path)
    with (gzip.open if ending.endswith("gz") else open)(path, "rt") as file:
        trace = json.load(file)
    assert trace["who"] == "me" and trace["settings"] == [1, 2]
    complete = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(complete) == len(prof.events())
    by_name = {e["name"]: e for e in complete}
    assert by_name["forward and backward"]["cat"] == "user_annotation" and by_name["nn.Module: Linear_0"]["cat"] == "python_function"
    assert by_name["aten::relu"]["args"]["Input Dims"] == [[5, 16]] and by_name["aten::relu"]["args"]["Input type"] == ["float32"]
    arrows = [e for e in trace["traceEvents"] if e.get("cat") == "fwdbwd"]
    assert len([e for e in arrows if e["ph"] == "s"]) == len([e for e in arrows if e["ph"] == "f"]) > 0
    assert any(e["ph"] == "C" for e in trace["traceEvents"])


def test_stacks_for_flame_graphs(tmp_path):
    x = tapegrad.ones(200, 200)
    with profile(with_stack=True) as prof:
        for _ in range(20):
            x @ x
    path = tmp_path / "stacks.txt"
    prof.export_stacks(str(path), "self_cpu_time_total")
    stack, _, count = path.read_text().splitlines()[0].rpartition(" ")
    assert int(count) > 0 and stack.endswith(";aten::mm") or "aten::" in stack
    with pytest.raises(ValueError, match="metric"):
        prof.export_stacks(str(path), "nothing")


def test_schedule():
    action = schedule(wait=1, warmup=1, active=2, repeat=2, skip_first=1)
    wanted = ["NONE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"] + ["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"] + ["NONE", "NONE"]
    assert [action(k).name for k in range(11)] == wanted
    with pytest.raises(AssertionError):
        schedule(wait=-1, warmup=0, active=1)
    with pytest.warns(UserWarning, match="warmup"):
        assert schedule(wait=0, warmup=0, active=1)(3) is ProfilerAction.RECORD_AND_SAVE
    torch_profiler = pytest.importorskip("torch").profiler
    for skip_first_wait in (0, 1):
        options = {"wait": 2, "warmup": 1, "active": 3, "repeat": 2, "skip_first": 3, "skip_first_wait": skip_first_wait}
        ours, theirs = schedule(**options), torch_profiler.schedule(**options)
        assert [ours(k).name for k in range(25)] == [theirs(k).name for k in range(25)]


def test_steps_and_handlers(tmp_path):
    ready = []
    with profile(schedule=schedule(wait=1, warmup=1, active=2, repeat=2), on_trace_ready=lambda p: ready.append((p.step_num, names(p)))) as prof:
        for k in range(10):
            tapegrad.ones(k + 1).exp()
            prof.step()
    assert [n for n, _ in ready] == [4, 8]
    for _, found in ready:
        assert found.count("aten::exp") == 2 and len([n for n in found if n.startswith("ProfilerStep#")]) == 2
    handler = tapegrad.profiler.tensorboard_trace_handler(str(tmp_path / "logs"), "worker", use_gzip=True)
    with profile(on_trace_ready=handler):
        tapegrad.ones(2).exp()
    (file,) = (tmp_path / "logs").iterdir()
    assert file.name.startswith("worker.") and file.name.endswith(".pt.trace.json.gz")
    with gzip.open(file, "rt") as text:
        assert json.load(text)["traceEvents"]


def test_record_function():
    @record_function("decorated")
    def f(x):
        return x.exp()

    with profile() as prof:
        with record_function("outer"), record_function("inner"):
            f(tapegrad.ones(2))
    f(tapegrad.ones(2))  # costs nothing without a profiler
    (outer,) = [e for e in prof.events() if e.name == "outer"]
    assert outer.cpu_children[0].name == "inner" and outer.is_user_annotation
    assert [e.name for e in prof.events()].count("decorated") == 1
    assert tapegrad.autograd.profiler.record_function is record_function


def test_one_profiler_at_a_time_and_errors():
    with profile() as prof:
        with pytest.raises(RuntimeError, match="a profiler runs already"):
            profile().start()
        with pytest.raises(AssertionError, match="nothing is recorded"):
            prof.events()
    with pytest.raises(AssertionError, match="activities"):
        profile(activities=[])
    with pytest.warns(UserWarning, match="CUDA is not available"):
        profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with pytest.raises(NotImplementedError):
        prof.export_memory_timeline("x.html")
    prof.stop()  # a second time: nothing happens
    with pytest.raises(ValueError):
        with profile() as prof:
            raise ValueError("the program's")
    assert not tapegrad._C._profiler_running()


def test_threads_that_start_meanwhile_take_part():
    before, go, done = threading.Event(), threading.Event(), threading.Event()

    def works(n):
        tapegrad.ones(n).exp()

    def ran_before():
        before.set()
        go.wait()
        tapegrad.profiler.attach()
        tapegrad.ones(3).cos()
        done.set()

    early = threading.Thread(target=ran_before)
    early.start()
    before.wait()
    with profile() as prof:
        threads = [threading.Thread(target=works, args=(k,)) for k in (1, 2)]
        for t in threads:
            t.start()
        go.set()
        for t in threads:
            t.join()
        done.wait()
        tapegrad.ones(3).sin()
    early.join()
    by_name = {}
    for e in prof.events():
        by_name.setdefault(e.name, set()).add(e.thread)
    assert len(by_name["aten::exp"]) == 2 and len(by_name["aten::cos"]) == 1
    assert by_name["aten::sin"].isdisjoint(by_name["aten::exp"] | by_name["aten::cos"])


def test_stopped_within_a_scope_and_from_another_thread():
    prof = profile()
    prof.start()
    with record_function("open"):
        tapegrad.ones(2).exp()
        prof.stop()
    (open_one,) = [e for e in prof.events() if e.name == "open"]
    assert open_one.cpu_time_total > 0
    stop, running = threading.Event(), threading.Event()

    def busy():
        while not stop.is_set():
            tapegrad.ones(2).exp()
            running.set()

    for _ in range(5):
        running.clear()
        with profile() as prof:
            worker = threading.Thread(target=busy)
            worker.start()
            running.wait()
        stop.set()
        worker.join()
        stop.clear()
        assert "aten::exp" in names(prof)


def test_functions_with_a_backward_of_their_own_and_hooks():
    class Double(tapegrad.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = tapegrad.ones(3, requires_grad=True)
    with profile() as prof:
        y = Double.apply(x)
        y.register_hook(lambda g: g.neg())
        y.sum().backward()
    found = names(prof)
    assert "DoubleBackward" in found and "aten::neg" in found
    neg = [e for e in prof.events() if e.name == "aten::neg"][0]
    assert neg.cpu_parent.name == "autograd::engine::evaluate_function: DoubleBackward"


def test_flops():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Flatten(), nn.Linear(8 * 36, 5))
    with profile(with_flops=True) as prof:
        net(tapegrad.randn(2, 3, 6, 6))
    total = sum(e.flops or 0 for e in prof.key_averages() if e.key in ("aten::convolution", "aten::linear"))
    assert total == 2 * 2 * 8 * 36 * 27 + 2 * 2 * 288 * 5
    assert "Total KFLOPs" in prof.key_averages().table()


def test_the_older_interface():
    p = tapegrad.autograd.profiler
    with p.profile(record_shapes=True, with_stack=True) as prof:
        tapegrad.ones(2, 3).exp()
    assert isinstance(prof.function_events, p.EventList) and prof.self_cpu_time_total > 0
    assert "aten::exp" in prof.table() and "aten::exp" in str(prof) and prof.total_average().count == len(prof.function_events)
    with pytest.raises(RuntimeError, match="reentrant"):
        prof.__enter__()
    with p.profile(enabled=False) as off:
        tapegrad.ones(2).exp()
    assert repr(off) == "<unfinished profile>"
    with pytest.raises(RuntimeError, match="didn't finish"):
        off.key_averages()
    for markers in (p.emit_nvtx, p.emit_itt):
        with pytest.raises(RuntimeError, match=markers.__name__):
            markers().__enter__()
        with markers(enabled=False):
            pass
    from tapegrad.autograd.profiler_util import FunctionEvent

    assert FunctionEvent is tapegrad.profiler.FunctionEvent


def test_logs_of_several_blocks_keep_order_shapes_and_parents():
    a, b = tapegrad.ones(2, 3), tapegrad.ones(4)
    tapegrad._C._profiler_start(True, False, False, False)
    for _ in range(20_000):
        tapegrad.add(a, 1)
        tapegrad.neg(b)
    ((_, dropped, events),), _ = tapegrad._C._profiler_stop()
    assert dropped == 0 and len(events) == 40_000
    assert [e[1] for e in events] == ["add", "neg"] * 20_000
    assert all(e[9][0][1] == ([2, 3] if e[1] == "add" else [4]) for e in events)
    assert all(e[6] == -1 and e[3] >= e[2] for e in events)
    assert all(x[2] <= y[2] for x, y in zip(events, events[1:]))


def test_times_are_those_of_the_clock():
    with profile() as prof:
        with record_function("sleeps"):
            time.sleep(0.05)
    (event,) = [e for e in prof.events() if e.name == "sleeps"]
    assert 50_000 <= event.time_range.elapsed_us() < 500_000
    before = time.monotonic_ns()
    tapegrad._C._profiler_start(False, False, False, False)
    tapegrad.ones(3)
    ((_, _, events),), _ = tapegrad._C._profiler_stop()
    assert before - 1_000_000 <= events[0][2] <= events[-1][3] <= time.monotonic_ns() + 1_000_000


def test_a_session_ends_while_another_thread_writes():
    x, leave = tapegrad.ones(3, requires_grad=True), threading.Event()

    def work():
        while not leave.is_set():
            tapegrad._C._profiler_attach()
            (x * 2).sum().backward()
            with record_function("part"):
                tapegrad.cat([x.detach(), x.detach()])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        seen = 0
        for _ in range(8):
            with profile(record_shapes=True, profile_memory=True, with_stack=True, with_modules=True) as prof:
                time.sleep(0.001)
            others = [e for e in prof.events() if e.thread != threading.get_native_id()]
            assert all(e.time_range.end >= e.time_range.start for e in prof.events())
            for e in others:
                assert e.cpu_parent is None or e.cpu_parent.thread == e.thread
                assert e.name != "aten::cat" or e.input_shapes == [[[3], [3]], []]
            seen += len(others)
        assert seen > 0
    finally:
        leave.set()
        thread.join()


def test_ranges_by_operators_and_whether_a_profiler_runs():
    assert not tapegrad.autograd._profiler_enabled()
    with tapegrad.autograd.profiler.profile() as prof:
        assert tapegrad.autograd._profiler_enabled()
        handle = tapegrad.ops.profiler._record_function_enter("part", None)
        x = tapegrad.ones(2) * 2
        tapegrad.ops.profiler._record_function_exit(handle)
    assert not tapegrad.autograd._profiler_enabled() and x.tolist() == [2, 2]
    (part,) = [e for e in prof.function_events if e.name == "part"]
    assert "aten::mul" in [e.name for e in part.cpu_children]


def test_events_are_nested_by_their_times():
    from tapegrad.autograd.profiler import EventList, FunctionEvent

    spans = [(1, 0, 1), (1, 1, 2), (0, 0, 4), (0, 1, 2), (0, 1, 3), (0, 5, 6)]
    events = EventList(FunctionEvent(id=i, node_id=0, name="", thread=thread, start_us=a, end_us=b) for i, (thread, a, b) in enumerate(spans))
    events._populate_cpu_children()
    assert [[child.id for child in e.cpu_children] for e in events] == [[], [], [4], [], [3], []]
    assert [e.cpu_parent and e.cpu_parent.id for e in events] == [None, None, None, 4, 2, None]
