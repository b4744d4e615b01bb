"""backend="mpi": groups over the MPI of mpirun, which has started the ranks."""

import os
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
from tapegrad.distributed.distributed_c10d._available import mpi_is_there

pytestmark = pytest.mark.skipif(not mpi_is_there() or shutil.which("mpirun") is None,
                                reason="needs an MPI when tapegrad is built, and its mpirun")

BEGIN = """
    import os, sys, time
    from datetime import timedelta
    import tapegrad as tg, tapegrad.distributed as dist
    dist.init_process_group("mpi", timeout=timedelta(seconds=float(sys.argv[1])))
    rank, n = dist.get_rank(), dist.get_world_size()
    def say(*words):
        os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""


def mpirun(tmp_path, ranks: int, program: str, seconds: float = 60) -> tuple[int, list[str], str]:
    """Exit code, the sorted lines of all ranks and the error stream."""
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(BEGIN) + textwrap.dedent(program))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    done = subprocess.run(["mpirun", "-n", str(ranks), sys.executable, str(script), str(seconds)], capture_output=True, text=True,
                          env=environment, cwd=tmp_path, timeout=120)
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


def test_collectives_and_messages(tmp_path):
    code, out, err = mpirun(tmp_path, 3, """
        assert dist.group.WORLD.engine == "mpi" and n == 3
        for dtype in tg.float32, tg.bfloat16, tg.float16, tg.int64, tg.complex64:
            for size in 0, 3, 5000, 300_001:
                t = tg.full((size,), rank + 1, dtype=dtype)
                dist.all_reduce(t)
                assert (t == 6).all() and t.dtype == dtype
        t = tg.arange(12.).reshape(3, 4).t() * rank   # strides
        dist.broadcast(t, 2)
        assert tg.equal(t, tg.arange(12.).reshape(3, 4).t() * 2)
        parts = [tg.empty(2) for _ in range(3)]
        dist.all_gather(parts, tg.full((2,), float(rank)))
        assert [p.tolist() for p in parts] == [[0, 0], [1, 1], [2, 2]]
        out = tg.empty(2)
        dist.reduce_scatter(out, [tg.full((2,), float(rank * r)) for r in range(3)])
        assert out.tolist() == [3 * rank] * 2
        got = [tg.empty(r + 1) for r in range(3)]
        dist.all_to_all(got, [tg.full((rank + 1,), 10. * rank + r) for r in range(3)])
        assert [g.tolist() for g in got] == [[10. * r + rank] * (r + 1) for r in range(3)]
        t = tg.full((4,), float(rank))
        dist.reduce(t, 1, op=dist.ReduceOp.MAX)
        assert t.tolist() == [2.] * 4 if rank == 1 else t.tolist() == [float(rank)] * 4
        objects = [None] * 3
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": r} for r in range(3)]
        if rank == 0:
            for tag, size in (5, 3), (4, 100_000):
                dist.send(tg.full((size,), float(tag)), 1, tag=tag)
        elif rank == 1:
            small, large = tg.empty(3), tg.empty(100_000)
            assert dist.recv(small, tag=5) == 0 and dist.recv(large, 0, tag=4) == 0
            assert (small == 5).all() and (large == 4).all()
        pair = dist.new_group([2, 0])
        t = tg.ones(100_000)
        if rank != 1:
            dist.all_reduce(t, group=pair)
            assert (t == 2).all()
        work = dist.all_reduce(t, async_op=True)
        work.wait()
        assert (t == 5).all()
        try:
            dist.all_reduce(tg.ones(3 + rank))
        except RuntimeError as error:
            say("refused:", "do not agree" in str(error))
        dist.barrier()
        dist.destroy_process_group()
    """)
    assert code == 0 and out == ["refused: True"] * 3, err


def test_a_program_that_ends_without_leaving(tmp_path):
    code, out, err = mpirun(tmp_path, 2, "dist.barrier()\nsay(rank, 'done')\ntime.sleep(1.5 * (rank == 0))")
    assert (code, out) == (0, ["0 done", "1 done"]), err


@pytest.mark.parametrize("what, said", [pytest.param("time.sleep(8)", r"timed out after 4\.\d s of waiting for rank 1 \(rank 1 is at .*script\.py", marks=pytest.mark.long),
                                        ("raise KeyError('mine')", "rank 1 failed: an uncaught exception")])
def test_a_rank_that_does_not_come(tmp_path, what, said):
    code, out, err = mpirun(tmp_path, 2, f"""
        began = time.monotonic()
        if rank == 1:
            {what}
        try:
            dist.all_reduce(tg.ones(100_000))
        except dist.DistBackendError as error:
            say(time.monotonic() - began < 6, str(error).splitlines()[0])
    """, 4)  # the ranks meet within that, too, on a busy machine
    assert code != 0 and re.search("^True .*" + said, out[-1]), (out, err)


def test_without_mpirun(tmp_path):
    program = textwrap.dedent("""
        import tapegrad.distributed as dist
        try:
            dist.init_process_group("mpi", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
            print(dist.group.WORLD.size())
        except Exception as error:
            print(error)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
    assert done.stdout == "1\n", done.stderr  # a world of one needs none
