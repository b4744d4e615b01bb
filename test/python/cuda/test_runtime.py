"""Devices, streams, events, memory and graphs of tapegrad.cuda, on a simulated device where there is no GPU.

The package loads its CUDA library once, so the tests run in a process of their own with the environment that they need.
"""

import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest
import tapegrad as tg


def simulated(program, devices=2, memory=512, check=True, **environment):
    """What a program prints on simulated devices."""
    env = {**os.environ, "TAPEGRAD_CUDA_SIMULATE": str(devices), "TAPEGRAD_CUDA_SIMULATE_MEMORY": str(memory), **environment}
    head = "import tapegrad as tg\nimport tapegrad.cuda as cuda\nfrom pytest import raises\n"
    done = subprocess.run([sys.executable, "-c", head + textwrap.dedent(program)], env=env, capture_output=True, text=True, timeout=120)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout if check else done


def test_devices():
    simulated("""
        assert cuda.is_available() and cuda.device_count() == 2 and not cuda.is_initialized()
        assert cuda.current_device() == 0
        with cuda.device(1):
            assert cuda.current_device() == 1 and tg.empty(1, device="cuda").device == tg.device("cuda:1")
            with cuda.device(-1), cuda.device(None):
                assert cuda.current_device() == 1
        assert cuda.current_device() == 0 and cuda.is_initialized()
        cuda.set_device("cuda:1")
        assert cuda.current_device() == 1
        p = cuda.get_device_properties(0)
        assert (p.major, p.minor) == cuda.get_device_capability(0) == (9, 0) and p.total_memory == 512 << 20
        assert p.multi_processor_count == 4 and "simulated" in cuda.get_device_name()
        assert cuda.can_device_access_peer(0, 1) and cuda.is_bf16_supported()
        for bad, error in ((2, RuntimeError), ("cpu", ValueError), (1.5, TypeError)):
            with raises(error, match="cuda"):
                cuda.set_device(bad)
        with raises(RuntimeError, match="device index out of range: cuda:7, there are 2"):
            tg.empty(1, device="cuda:7")
        free, total = cuda.mem_get_info()
        assert total == 512 << 20 and 0 < free <= total
        assert tg.accelerator.is_available() and str(tg.accelerator.current_accelerator()) == "cuda"
    """)


def test_without_a_device_everything_says_so():
    simulated("""
        assert not cuda.is_available() and cuda.device_count() == 0 and cuda.memory_stats() == {}
        for f in (cuda.current_device, cuda.synchronize, cuda.Stream, cuda.Event, cuda.mem_get_info):
            with raises(RuntimeError, match="there is no CUDA device: TAPEGRAD_CUDA_SIMULATE asks for no device"):
                f()
    """, devices=0)


def test_streams_and_events():
    simulated("""
        import threading
        assert cuda.current_stream() == cuda.default_stream() and cuda.current_stream().cuda_stream == 0
        s, t = cuda.Stream(), cuda.Stream(priority=-1)
        assert s != t and s == s and hash(s) == hash(cuda.Stream(stream_id=s.stream_id, device_index=0)) and s.priority == 0
        assert t.priority == -1 and cuda.Stream(priority=-100).priority == -5 and cuda.Stream.priority_range() == (0, -5)
        assert len({cuda.Stream() for _ in range(100)}) <= 32
        with cuda.stream(s):
            assert cuda.current_stream() == s
            with cuda.stream(None), t:
                assert cuda.current_stream() == t
            assert cuda.current_stream() == s
            seen = []
            thread = threading.Thread(target=lambda: seen.append(cuda.current_stream()))
            thread.start(), thread.join()
            assert seen == [cuda.default_stream()]
        other = cuda.Stream(device=1)
        with cuda.stream(other):
            assert cuda.current_device() == 1 and cuda.current_stream() == other and cuda.current_stream(0) == cuda.default_stream(0)
        assert cuda.current_device() == 0
        e, f = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        assert e.query() and e.device is None
        e.record(s), f.record(s)
        assert not f.query() or True
        f.synchronize()
        assert 0 <= e.elapsed_time(f) < 1000 and e.query()
        t.wait_stream(s), t.wait_event(f), f.wait(t), t.synchronize()
        assert s.query() and t.query()
        assert s.record_event().query() in (True, False)
        for wrong in (lambda: cuda.Event().elapsed_time(e), lambda: cuda.Event(True).elapsed_time(e)):
            with raises(ValueError, match="elapsed_time"):
                wrong()
        with raises(RuntimeError, match="the event is of cuda:0, the stream of cuda:1"):
            e.record(other)
        x = cuda.ExternalStream(s.cuda_stream)
        assert x == s and x.query()
        i = cuda.Event(interprocess=True)
        i.record(s)
        assert len(i.ipc_handle()) == 64
        with raises(RuntimeError, match="keeps no time"):
            cuda.Event(enable_timing=True, interprocess=True)
    """)


def test_memory():
    simulated("""
        x = tg.empty(1000, 1000, device="cuda")
        assert x.device == tg.device("cuda:0") and x.is_cuda and x.get_device() == 0
        assert cuda.memory_allocated() == 4063232 == cuda.max_memory_allocated() and cuda.memory_reserved() == 4 << 20
        address = x.data_ptr()
        del x
        assert cuda.memory_allocated() == 0 and cuda.memory_reserved() == 4 << 20
        assert tg.empty(1000, 1000, device="cuda").data_ptr() == address
        cuda.reset_peak_memory_stats()
        assert cuda.max_memory_allocated() == 0
        cuda.empty_cache()
        assert cuda.memory_reserved() == 0
        kept = [tg.empty(1 << 18, device="cuda") for _ in range(3)]  # the line that holds the memory
        try:
            tg.empty(1 << 30, device="cuda")
        except tg.OutOfMemoryError as e:
            text = str(e)
        assert "tried to allocate 4.00 GiB on cuda:0: 512.00 MiB in all" in text, text
        assert "3.00 MiB  100.0 %  in 3 blocks  <string>:16" in text, text
        assert cuda.memory_stats()["num_ooms"] == 1
        assert tg.empty(10, device="cuda:1").device.index == 1 and cuda.memory_allocated(1) == 0
        cuda.set_per_process_memory_fraction(0.01)
        with raises(tg.OutOfMemoryError, match="at most 1 % of the device may be taken"):
            tg.empty(8 << 20, dtype=tg.uint8, device="cuda")
        assert "Allocated memory" in cuda.memory_summary()
        p = cuda.caching_allocator_alloc(100)
        assert p and cuda.memory_allocated() == (3 << 20) + 512
        cuda.caching_allocator_delete(p)
        kept[0].record_stream(cuda.Stream())
    """)


def test_garbage_in_cycles_is_freed_before_memory_runs_out():
    simulated("""
        class Node: pass
        for _ in range(4):
            n = Node()
            n.me, n.data = n, tg.empty(200 << 20, dtype=tg.uint8, device="cuda")
        assert cuda.memory_stats()["num_ooms"] == 0
    """)


def test_keys_of_memory_stats_are_torch_s():
    out = simulated("""
        tg.empty(1, device="cuda"), tg.empty(1).pin_memory()
        print(*cuda.memory_stats()), print(*cuda.host_memory_stats()), print(*cuda.memory_stats_as_nested_dict())
    """).splitlines()
    keys = set(out[0].split())
    expected = {f"{what}.{pool}.{which}" for pool in ("all", "small_pool", "large_pool") for which in ("current", "peak", "allocated", "freed")
                for what in ("allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes", "active_bytes",
                             "inactive_split_bytes", "requested_bytes")}
    expected |= {f"{what}.{which}" for what in ("oversize_allocations", "oversize_segments") for which in ("current", "peak", "allocated", "freed")}
    expected |= {"num_alloc_retries", "num_ooms", "max_split_size", "num_sync_all_streams", "num_device_alloc", "num_device_free"}
    assert keys == expected
    assert {"allocated_bytes.current", "active_bytes.peak", "num_host_alloc"} <= set(out[1].split())
    assert "allocated_bytes" in out[2].split()


def test_snapshots(tmp_path):
    simulated(f"""
        import json
        cuda.memory._record_memory_history()
        a = [tg.empty(1 << 20, device="cuda") for _ in range(5)]  # line 4
        del a[1:3]
        segments = cuda.memory_snapshot()
        blocks = [b for s in segments for b in s["blocks"]]
        assert sum(b["size"] for b in blocks if b["state"] == "active_allocated") == cuda.memory_allocated() == 3 * (4 << 20)
        assert blocks[0]["frames"] == [{{"filename": "<string>", "line": 7, "name": ""}}], blocks[0]
        assert segments[0]["is_expandable"] and segments[0]["segment_type"] == "large"
        s = cuda.memory._snapshot()
        actions = [e["action"] for e in s["device_traces"][0]]
        assert actions.count("alloc") == 5 and actions.count("free_completed") == 2 and "segment_alloc" in actions
        cuda.memory._dump_snapshot({str(tmp_path / 's.json')!r}), cuda.memory._dump_snapshot({str(tmp_path / 's.html')!r})
        assert json.load(open({str(tmp_path / 's.json')!r}))["segments"][0]["address"] == segments[0]["address"]
        page = open({str(tmp_path / 's.html')!r}).read()
        data = page.split("type='application/json' id=data>")[1].split("</script>")[0]
        assert json.loads(data)["device_traces"][0] == s["device_traces"][0]
        cuda.memory._record_memory_history(None)
        assert cuda.memory._snapshot()["device_traces"][0] == []
    """)


@pytest.mark.parametrize("conf", ["expandable_segments:False", "backend:plain", "garbage_collection_threshold:0.5"])
def test_options_of_the_allocator(conf):
    simulated("""
        for i in range(1, 30):
            tg.empty(i << 20, device="cuda")
        assert cuda.memory_allocated() == 0 and cuda.memory_reserved() <= 512 << 20
    """, TAPEGRAD_CUDA_ALLOC_CONF=conf)


def test_a_wrong_option_is_named():
    done = simulated("tg.empty(1, device='cuda')", check=False, TAPEGRAD_CUDA_ALLOC_CONF="expandable:yes")
    assert done.returncode == 1 and "got 'expandable:yes'" in done.stderr and "ValueError" in done.stderr


def test_pinned_memory():
    simulated("""
        x = tg.arange(12.).reshape(3, 4)
        p = x.pin_memory()
        assert p.is_pinned() and not x.is_pinned() and p.pin_memory() is p and tg.equal(p, x)
        assert tg.equal(x.t().pin_memory(), x.t()) and x.t().pin_memory().is_contiguous()
        assert p[1:].is_pinned()
        del p
        assert cuda.host_memory_stats()["active_bytes.current"] == 0 and cuda.host_memory_stats()["allocated_bytes.current"] > 0
        before = cuda.host_memory_stats()["num_host_alloc"]
        x.pin_memory()
        assert cuda.host_memory_stats()["num_host_alloc"] == before
        cuda.memory.host_memory_empty_cache()
        assert cuda.host_memory_stats()["allocated_bytes.current"] == 0
    """)


@pytest.mark.parametrize("schedule", ["lazy", "random:1"])
def test_pinned_memory_outlives_the_copies_from_it(schedule):
    simulated("""
        results = []
        for i in range(20):
            host = tg.full((300,), float(i)).pin_memory()
            results.append(host.to("cuda", non_blocking=True))
            del host  # the next one must not take its place before the copy has run
        assert [r.cpu().tolist() for r in results] == [[float(i)] * 300 for i in range(20)]
        host = tg.zeros(4).pin_memory()
        x = host.to("cuda")
        host.fill_(7)  # after a copy that waits
        assert x.cpu().tolist() == [0.0] * 4
    """, TAPEGRAD_CUDA_SIMULATE_SCHEDULE=schedule)


def test_loader_pins_its_batches():
    simulated("""
        from tapegrad.utils.data import DataLoader, TensorDataset
        data = TensorDataset(tg.arange(8.), tg.arange(8))
        for pin in (True, False):
            for x, y in DataLoader(data, batch_size=4, pin_memory=pin):
                assert x.is_pinned() == y.is_pinned() == pin and tg.equal(x, y.float())
    """)


def test_graphs():
    simulated("""
        g = cuda.CUDAGraph()
        for wrong, text in ((g.replay, "nothing has been captured"), (g.capture_begin, "the default stream cannot be captured"),
                            (g.capture_end, "no capture was begun"), (g.pool, "nothing has been captured")):
            with raises(RuntimeError, match=text):
                wrong()
        with cuda.graph(g):
            assert cuda.is_current_stream_capturing() and cuda.current_stream() != cuda.default_stream()
            x = tg.empty(1000, device="cuda")
        assert not cuda.is_current_stream_capturing() and cuda.current_stream() == cuda.default_stream()
        assert [s["segment_pool_id"] for s in cuda.memory_snapshot()] == [g.pool()]
        g.replay(), cuda.synchronize()
        h = cuda.CUDAGraph()
        with cuda.graph(h, pool=g.pool()):
            pass
        assert h.pool() == g.pool()
        del x
        h.reset(), g.reset(), cuda.empty_cache()
        assert cuda.memory_reserved() == 0
        with raises(RuntimeError, match="not permitted when stream is capturing"):
            with cuda.graph(cuda.CUDAGraph()):
                cuda.synchronize()  # spoils it
        assert cuda.current_stream() == cuda.default_stream()
    """)


def test_pinning_needs_a_device():
    if tg.cuda.is_available():
        pytest.skip("there is a GPU")
    x = tg.ones(3)
    assert x.pin_memory() is x and not x.is_pinned()


def test_pools():
    simulated("""
        pool = cuda.MemPool()
        with cuda.use_mem_pool(pool):
            x = tg.empty(1 << 20, device="cuda")
        y = tg.empty(1 << 20, device="cuda")
        assert [s["segment_pool_id"] for s in pool.snapshot()] == [pool.id] and len(cuda.memory_snapshot()) == 2
        del x
        cuda.empty_cache()
        assert len(pool.snapshot()) == 1  # kept for the pool
        del pool
        cuda.empty_cache()
        assert len(cuda.memory_snapshot()) == 1
    """)


def test_sync_debug_mode():
    simulated("""
        assert cuda.get_sync_debug_mode() == 0
        cuda.set_sync_debug_mode("warn")
        assert cuda.get_sync_debug_mode() == 1
        cuda.set_sync_debug_mode(0)
        with raises(RuntimeError, match="expected one of default, warn, error: got 'loud'"):
            cuda.set_sync_debug_mode("loud")
    """)


def test_every_place_that_waits_is_known():
    """The driver's waits are behind wait_for_value and note_wait, which name the line; the others wait on purpose (functions.cpp, event.cpp), because
    memory is short (the allocators), because measuring was asked for (cudnn/calls.h), or for what is being given up (settle in shared.cpp)."""
    root = Path(__file__).resolve().parents[3] / "cuda"
    waits = Counter()
    for path in [p for p in root.rglob("*") if p.suffix in (".h", ".cpp", ".cu")]:
        name = path.relative_to(root).as_posix()
        if not name.startswith("simulated/") and name not in ("runtime/driver.h", "runtime/runtime_driver.cpp"):
            waits[name] += len(re.findall(r"driver(?:\(\)|_)\s*\.\s*(?:synchronize_|has_passed)|cuda\w+Synchronize\(", path.read_text()))
    assert +waits == {"runtime/stream.cpp": 1, "runtime/event.cpp": 1, "functions.cpp": 3, "cudnn/calls.h": 1, "memory/copy.cpp": 2, "memory/shared.cpp": 4,
                      "memory/pinned_allocator.cpp": 1, "memory/device_allocator.cpp": 1, "memory/device_allocator_segments.cpp": 3}
