"""Process groups over NCCL in Python: ranks are threads with a simulated device each, where NCCL is a double."""

import functools

from interpreter import programs

run = functools.partial(programs.run, timeout=100, TAPEGRAD_CUDA_SIMULATE="2", TAPEGRAD_CUDA_SIMULATE_MEMORY="64")


def test_calls_are_ordered_with_the_callers_stream():
    run("""
        import threading
        import tapegrad as tg
        from tapegrad import _C
        from tapegrad.distributed import HashStore

        store, found = HashStore(), {}

        def rank(r):
            try:
                tg.cuda.set_device(r)
                group = _C._Group(store._native(), r, 2, "threads", nccl=True)
                with tg.cuda.stream(tg.cuda.Stream()):
                    t = tg.full((4,), r + 1.0, device="cuda") * 2
                    work = group.run(2, [], [t], wait=False)  # all_reduce
                    work.wait()
                    t += 1
                    found[r] = t.tolist()
                    try:
                        group.run(2, [], [t.int()], reduce=6)
                    except ValueError as e:
                        found[r, "bits"] = str(e)
                group.close()
            except BaseException as e:
                found[r] = repr(e)

        threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert found[0] == found[1] == [7.0] * 4, found
        assert found[0, "bits"] == "all_reduce: Cannot use ReduceOp.BXOR with NCCL", found
    """)


def test_data_parallel_training_goes_through_nccl():
    """Two ranks with half of the batch each have the gradients of the whole batch, also where a parameter is unused and in float16."""
    run("""
        import threading
        import tapegrad as tg
        from tapegrad import _C, nn
        from tapegrad.distributed import HashStore, ProcessGroup, Backend
        from tapegrad.distributed.distributed_c10d._world import _world

        def net():
            tg.manual_seed(3)
            made = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))
            made.unused = nn.Parameter(tg.ones(5))
            return made

        def trained(model, x, y, sync, steps=3):
            optimizer = tg.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(steps):
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
            return [p.detach().cpu() for p in model.parameters()]

        tg.manual_seed(0)
        x, y = tg.randn(8, 6), tg.randn(8, 3)
        alone = trained(net(), x, y, False)
        store, found = HashStore(), {}

        def rank(r):
            try:
                tg.cuda.set_device(r)
                group = ProcessGroup(store, r, 2)
                group._engine = _C._Group(store._native(), r, 2, "threads", nccl=True)
                group._backend = Backend("nccl")
                _world.add(group, group._backend, store, range(2))
                model = net().cuda()
                half = slice(4 * r, 4 * r + 4)
                ddp = nn.parallel.DistributedDataParallel(model, device_ids=[r], process_group=group, find_unused_parameters=True, bucket_cap_mb=0.0005)
                found[r] = trained(ddp, x[half].cuda(), y[half].cuda(), True)
                group.shutdown()
            except BaseException as e:
                import traceback
                found[r] = traceback.format_exc()

        threads = [threading.Thread(target=rank, args=(r,)) for r in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(80)
        assert all(isinstance(found.get(r), list) for r in range(2)), found
        for a, b, c in zip(found[0], found[1], alone):
            assert a.equal(b) and tg.allclose(a, c, atol=1e-6), (a, b, c)
    """)


def test_cuda_nccl_moves_tensors_between_the_devices_of_a_process():
    run("""
        import tapegrad as tg
        from tapegrad.cuda import nccl

        def two(f):
            return [f(r).to(f"cuda:{r}") for r in range(2)]

        a = two(lambda r: tg.arange(6.0) + 10 * r)
        assert nccl.is_available(a) and not nccl.is_available([a[0], a[0]]) and not nccl.is_available([tg.ones(1)])
        out = two(lambda r: tg.zeros(6))
        with tg.cuda.stream(tg.cuda.Stream(device=1)):
            b = a[1] * 1
        tg.cuda.synchronize(1)
        nccl.all_reduce([a[0], b], out)
        expected = (2 * tg.arange(6.0) + 10).tolist()
        assert [o.tolist() for o in out] == [expected] * 2
        nccl.all_reduce(out, op=2)  # the maximum, in place
        assert [o.tolist() for o in out] == [expected] * 2
        before = a[1]._version
        nccl.broadcast(a, root=0)
        assert a[1].tolist() == a[0].tolist() and a[1]._version > before
        c = two(lambda r: tg.full((4,), r + 1, dtype=tg.int64))
        nccl.reduce(c, root=1, op=1)
        assert c[1].tolist() == [2] * 4 and c[0].tolist() == [1] * 4
        total = tg.empty(4, dtype=tg.int64, device="cuda:0")
        nccl.reduce(c, total)
        assert total.tolist() == [3] * 4
        gathered = two(lambda r: tg.zeros(8, dtype=tg.int64))
        nccl.all_gather(c, gathered)
        assert [g.tolist() for g in gathered] == [[1] * 4 + [2] * 4] * 2
        parts = two(lambda r: tg.zeros(2, dtype=tg.complex64))
        nccl.reduce_scatter(two(lambda r: (tg.arange(4.0) + r).to(tg.complex64) * 1j), parts)
        assert [p.tolist() for p in parts] == [[1j, 3j], [5j, 7j]]
        nccl.all_reduce(two(lambda r: tg.zeros(0)))

        def said(f, *args, **kwargs):
            try:
                f(*args, **kwargs)
            except Exception as e:
                return f"{type(e).__name__}: {e}"

        flat = tg.ones(2, device="cuda:1")
        for wrong, text in ((lambda: nccl.all_reduce([a[0], a[0]]), "ValueError: all_reduce: each tensor must be on a GPU of its own"),
                            (lambda: nccl.all_reduce([a[0], a[1].int()]), "TypeError: all_reduce: all tensors must have one dtype"),
                            (lambda: nccl.all_reduce([a[0], tg.ones(6)]), "TypeError: all_reduce: input 1 must be a contiguous"),
                            (lambda: nccl.all_reduce([a[0], flat]), "ValueError: all_reduce: input 1 has 2 elements, expected 6"),
                            (lambda: nccl.all_gather(c, c), "ValueError: all_gather: output 0 has 4 elements, expected 8"),
                            (lambda: nccl.reduce_scatter(two(lambda r: tg.ones(3)), two(lambda r: tg.ones(1))), "ValueError: reduce_scatter: 3 elements"),
                            (lambda: nccl.broadcast(a, root=2), "ValueError: broadcast: the root must be one of 2"),
                            (lambda: nccl.all_reduce(a, op=9), "ValueError: nccl.all_reduce: the reduction"),
                            (lambda: nccl.all_reduce(a[0]), "TypeError: nccl.all_reduce: Inputs should be a collection"),
                            (lambda: nccl.all_reduce([]), "ValueError: all_reduce: no tensors"),
                            (lambda: nccl.all_reduce(a, comms=[1, 2]), "ValueError: nccl.all_reduce: communicators")):
            assert (said(wrong) or "").startswith(text), (text, said(wrong))
    """)


def test_cuda_comm_spreads_tensors_over_devices():
    run("""
        import tapegrad as tg
        from tapegrad.cuda import comm

        x = tg.arange(10.0, device="cuda:0", requires_grad=True)
        copies = comm.broadcast(x, [0, 1])
        assert [c.device.index for c in copies] == [0, 1] and copies[1].tolist() == x.tolist()
        comm.reduce_add([copies[0] * 2, copies[1] * 3], destination=1).sum().backward()
        assert x.grad.tolist() == [5.0] * 10
        plain = x.detach()
        parts = comm.scatter(plain, [0, 1], chunk_sizes=[3, 7])
        assert [p.device.index for p in parts] == [0, 1] and [p.numel() for p in parts] == [3, 7]
        assert comm.gather(parts, destination="cpu").tolist() == plain.tolist() and comm.gather(parts).device.type == "cuda"
        out = [tg.empty(5, device=f"cuda:{i}") for i in range(2)]
        assert comm.scatter(plain, out=out)[1].tolist() == plain[5:].tolist()
        whole = tg.empty(10, device="cuda:1")
        assert comm.gather(out, out=whole) is whole and whole.tolist() == plain.tolist()
        rows = comm.broadcast_coalesced([plain, plain.int()], [1])
        assert len(rows) == 1 and rows[0][1].dtype == tg.int32 and rows[0][0].device.index == 1
        sums = comm.reduce_add_coalesced([[plain, plain], [plain.to("cuda:1"), plain.to("cuda:1")]], 0)
        assert sums[1].tolist() == (2 * plain).tolist()
        for wrong in (lambda: comm.broadcast(x), lambda: comm.broadcast(x, [0], out=out), lambda: comm.gather(parts, destination=0, out=whole),
                      lambda: comm.broadcast(x.detach(), out=[tg.empty(10)]), lambda: comm.scatter(plain, [0, 1], chunk_sizes=[3, 3, 4]),
                      lambda: comm.reduce_add([plain, plain[:3]]), lambda: comm.reduce_add([])):
            try:
                wrong()
            except (RuntimeError, ValueError):
                continue
            raise AssertionError("a mistake went through")
    """)


def test_simulated_devices_have_no_nccl_between_processes():
    run("""
        import tapegrad.distributed as dist
        assert not dist.is_nccl_available() and not dist.is_backend_available("nccl")
    """)
