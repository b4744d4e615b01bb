"""Process groups over NCCL in Python: ranks are threads with a simulated device each, where NCCL is a double."""

import os
import subprocess
import sys
import textwrap


def run(program: str) -> None:
    environment = {**os.environ, "TAPEGRAD_CUDA_SIMULATE": "2", "TAPEGRAD_CUDA_SIMULATE_MEMORY": "64"}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr


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


def test_simulated_devices_have_no_nccl_between_processes():
    run("""
        import tapegrad.distributed as dist
        assert not dist.is_nccl_available() and not dist.is_backend_available("nccl")
    """)
