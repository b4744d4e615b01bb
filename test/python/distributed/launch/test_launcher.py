"""python -m tapegrad.distributed.run: what ranks are told, restarts, failures, signals, and that nothing is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from tapegrad.distributed.elastic.multiprocessing import SignalException, Std
from tapegrad.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
from tapegrad.distributed.launcher.api import LaunchConfig
from tapegrad.distributed.run import get_args_parser, parse_min_max_nnodes

ENVIRONMENT = {**{name: value for name, value in os.environ.items() if not name.startswith(("PET_", "OMP_"))},
               "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUNBUFFERED": "1"}


def start(tmp_path, program: str, *options, arguments=(), module: str = "run", environment=None, **how) -> subprocess.Popen:
    script = tmp_path / "script.py"
    # One write for a line: several ranks share the stream.
    script.write_text("def say(*words):\n    __import__('os').write(1, (' '.join(map(str, words)) + '\\n').encode())\n" + textwrap.dedent(program))
    return subprocess.Popen([sys.executable, "-m", f"tapegrad.distributed.{module}", *options, str(script), *map(str, arguments)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**ENVIRONMENT, **(environment or {})}, cwd=tmp_path, **how)


def launch(tmp_path, program: str, *options, **how) -> tuple[int, str, str]:
    process = start(tmp_path, program, *options, **how)
    out, err = process.communicate(timeout=90)
    return process.returncode, out, err


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_ranks_are_told(tmp_path):
    code, out, err = launch(tmp_path, """
        import json, os, sys
        names = ("RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR MASTER_PORT "
                 "TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE OMP_NUM_THREADS TAPEGRAD_JOB_TOKEN").split()
        say(json.dumps({**{name: os.environ[name] for name in names}, "argv": sys.argv[1:]}))
    """, "--nproc-per-node", "2", "--rdzv-id", "job7", arguments=["--an", "argument", "-m"])
    assert (code, err) == (0, "")
    ranks = sorted((json.loads(line) for line in out.splitlines()), key=lambda r: r["RANK"])
    assert [r["RANK"] for r in ranks] == ["0", "1"] and ranks[0]["argv"] == ["--an", "argument", "-m"]
    assert ranks[1]["LOCAL_RANK"] == "1" and ranks[0]["WORLD_SIZE"] == ranks[0]["LOCAL_WORLD_SIZE"] == "2"
    assert ranks[0]["TORCHELASTIC_RUN_ID"] == "job7" and ranks[0]["TORCHELASTIC_USE_AGENT_STORE"] == "True" and ranks[0]["MASTER_ADDR"] == "127.0.0.1"
    assert ranks[0]["MASTER_PORT"] == ranks[1]["MASTER_PORT"] and len(ranks[0]["TAPEGRAD_JOB_TOKEN"]) == 32
    assert int(ranks[0]["OMP_NUM_THREADS"]) >= 1


MEET = """
    import os, sys
    from tapegrad.distributed.distributed_c10d._rendezvous import find_world
    store, rank, size = find_world("env://")
    store.set(f"key{rank}", str(rank))
    say(rank, store.multi_get([f"key{r}" for r in range(size)]))
    store.barrier("end", size)
"""


@pytest.mark.parametrize("options", [["--standalone"], [], ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], ["--nnodes=1:1", "--node-rank=0"]])
def test_ranks_meet(tmp_path, options):
    code, out, err = launch(tmp_path, MEET, *options, "--nproc_per_node=3")
    assert (code, err) == (0, "") and sorted(out.splitlines()) == [f"{r} [b'0', b'1', b'2']" for r in range(3)]


def test_a_rank_that_fails_is_named_with_its_traceback(tmp_path):
    code, out, err = launch(tmp_path, """
        import os, time
        from tapegrad.distributed.elastic.multiprocessing.errors import record
        @record
        def main():
            if os.environ["RANK"] == "1":
                raise KeyError("the missing key")
            time.sleep(60)
        main()
    """, "--nproc-per-node", "2")
    assert code == 1
    assert "script.py FAILED" in err and "Root Cause (first observed failure):" in err and "rank      : 1 (local_rank: 1)" in err
    assert re.search(r"traceback : Traceback \(most recent call last\):\n(.*\n)+.*KeyError: 'the missing key'", err[err.index("Root Cause"):])
    error_file = re.search(r"error_file: (\S+)", err)[1]
    assert json.loads(open(error_file).read())["message"]["message"] == "KeyError: 'the missing key'"


@pytest.mark.parametrize(("end", "shown"), [("sys.exit(7)", "exitcode  : 7 (pid: "), ("os.kill(os.getpid(), signal.SIGSEGV)", "(SIGSEGV)")])
def test_exit_codes_and_signals_of_ranks(tmp_path, end, shown):
    code, out, err = launch(tmp_path, f"""
        import os, signal, sys, time
        if os.environ["RANK"] == "0":
            {end}
        time.sleep(60)
    """, "--nproc-per-node", "2")
    assert code == 1 and shown in err


def test_all_ranks_are_started_again(tmp_path):
    program = """
        import os, sys, time
        from tapegrad.distributed.distributed_c10d._rendezvous import find_world
        store, rank, size = find_world("env://")
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        assert store.add("came", 1) <= size, "keys of another attempt"
        store.barrier("all", size)
        say(f"rank {rank} attempt {attempt}")
        if attempt < 2:
            if rank == 1:
                sys.exit(1)
            time.sleep(60)
    """
    code, out, err = launch(tmp_path, program, "--nproc-per-node", "2", "--max-restarts", "2")
    assert code == 0 and sorted(out.splitlines()) == sorted(f"rank {r} attempt {a}" for r in range(2) for a in range(3))
    assert err.count("rank 1 failed (exit code 1): all 2 ranks are started again") == 2
    code, out, err = launch(tmp_path, program, "--nproc-per-node", "2", "--max-restarts", "1")
    assert code == 1 and out.count("attempt 1") == 2 and "FAILED" in err


SLEEP = """
    import os, signal, subprocess, sys, time
    def hear(number, frame):
        say("heard", signal.Signals(number).name)
        sys.exit(0)
    if sys.argv[1] == "deaf":
        for name in ("SIGTERM", "SIGINT", "SIGHUP"):
            signal.signal(signal.Signals[name], signal.SIG_IGN)
    else:
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"):
            signal.signal(signal.Signals[name], hear)
    child = subprocess.Popen(["sleep", "100"], start_new_session=sys.argv[1] == "deaf")
    say("pids", os.getpid(), child.pid)
    time.sleep(100)
"""


def pids_of(process, n: int) -> list[int]:
    pids = []
    for _ in range(n):
        pids += map(int, process.stdout.readline().split()[1:])
    assert len(pids) == 2 * n
    return pids


def all_gone(pids, within: float) -> bool:
    deadline = time.monotonic() + within
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(("name", "options"), [("SIGTERM", []), ("SIGINT", []), ("SIGHUP", []), ("SIGUSR1", ["--signals-to-handle=SIGUSR1"])])
def test_signals_are_passed_on(tmp_path, name, options):
    process = start(tmp_path, SLEEP, "--nproc-per-node", "2", *options, arguments=["polite"])
    pids = pids_of(process, 2)
    process.send_signal(signal.Signals[name])
    out, err = process.communicate(timeout=30)
    assert process.returncode == 1 and out.count(f"heard {name}") == 2 and f"got signal: {name}" in err
    assert all_gone(pids, 2)


def test_ranks_that_hear_nothing_are_killed(tmp_path):
    process = start(tmp_path, SLEEP, "--nproc-per-node", "2", "--shutdown-timeout", "1", arguments=["deaf"])
    pids = pids_of(process, 2)
    begun = time.monotonic()
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 1 and time.monotonic() - begun < 10 and all_gone(pids, 2)


@pytest.mark.parametrize("manner", ["polite", "deaf"])
def test_nobody_is_left_when_the_launcher_is_killed(tmp_path, manner):
    process = start(tmp_path, SLEEP, "--nproc-per-node", "2", arguments=[manner])
    pids = pids_of(process, 2)
    process.kill()
    process.wait()
    assert all_gone(pids, 10)
    process.stdout.close()
    process.stderr.close()


def test_streams(tmp_path):
    program = """
        import os, sys
        print("out", os.environ["RANK"])
        print("err", os.environ["RANK"], file=sys.stderr)
        sys.stdout.write("no end of line")
    """
    logs = tmp_path / "logs"
    code, out, err = launch(tmp_path, program, "--nproc-per-node", "2", "--log-dir", str(logs), "--tee", "3", "--role", "worker", "--rdzv-id", "r")
    assert code == 0
    assert sorted(out.splitlines()) == sorted(f"[worker{r}]:{line}" for r in range(2) for line in (f"out {r}", "no end of line"))
    assert sorted(err.splitlines()) == [f"[worker{r}]:err {r}" for r in range(2)]
    (run,) = logs.iterdir()
    assert run.name.startswith("r_")
    for r in range(2):
        assert (run / "attempt_0" / str(r) / "stdout.log").read_text() == f"out {r}\nno end of line"
        assert (run / "attempt_0" / str(r) / "stderr.log").read_text() == f"err {r}\n"
    code, out, err = launch(tmp_path, program, "--nproc-per-node", "2", "--log-dir", str(tmp_path / "other"), "--redirects", "0:1,1:2")
    assert code == 0 and out.splitlines() == ["out 1", "no end of line"] and err.splitlines() == ["err 0"]
    code, out, err = launch(tmp_path, program, "--nproc-per-node", "2", "--local-ranks-filter", "1")
    assert code == 0 and out.splitlines() == ["out 1", "no end of line"] and err.splitlines() == ["err 1"]


def test_modules_and_programs(tmp_path):
    (tmp_path / "a_module.py").write_text("import os, sys; os.write(1, f'module {os.environ[\"RANK\"]} {sys.argv[1:]}\\n'.encode())")
    run = [sys.executable, "-m", "tapegrad.distributed.run", "--nproc-per-node", "2"]
    for rest, line in [(["-m", "a_module", "x"], "module 0 ['x']"), (["--no-python", "sh", "-c", "echo program $RANK"], "program 0"),
                       (["--run-path", str(tmp_path / "a_module.py"), "y"], "module 0 ['y']")]:
        done = subprocess.run([*run, *rest], capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path, timeout=60)
        assert done.returncode == 0 and sorted(done.stdout.splitlines())[0] == line, done.stderr


def test_launch_gives_the_local_rank_as_an_argument(tmp_path):
    program = "import sys; say(sys.argv[1:])"
    assert sorted(launch(tmp_path, program, "--nproc-per-node", "2", module="launch", arguments=["x"])[1].splitlines()) == [
        f"['--local-rank={r}', 'x']" for r in range(2)]
    assert launch(tmp_path, program, "--use-env", module="launch", arguments=["x"])[1] == "['x']\n"


@pytest.mark.parametrize(("options", "words"), [
    (["--nnodes", "2"], "starts the ranks of one machine"), (["--node-rank", "1"], "starts the ranks of one machine"),
    (["--nproc-per-node", "0"], "must be at least 1: got 0"), (["--nproc-per-node", "many"], "Unsupported nproc_per_node value: many"),
    (["--nnodes", "x"], "is not in \"MIN:MAX\" format"), (["--tee", "9"], "a stream must be"), (["--signals-to-handle", "SIGNOT"], "no signal 'SIGNOT'"),
    (["--local-ranks-filter", "a"], "comma-separated"), (["--max-restarts", "-1"], "max_restarts must be at least 0"),
    (["--no-python", "-m"], "Don't use both"),
])
def test_mistakes(tmp_path, options, words):
    code, out, err = launch(tmp_path, "", *options)
    assert code == 1 and words in err and "Traceback" not in err


def test_options_from_the_environment(monkeypatch):
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    monkeypatch.setenv("PET_MAX_RESTARTS", "2")
    monkeypatch.setenv("PET_STANDALONE", "1")
    args = get_args_parser().parse_args(["script.py", "--nproc-per-node", "9"])
    assert (args.nproc_per_node, args.max_restarts, args.standalone, args.training_script_args) == ("3", 2, True, ["--nproc-per-node", "9"])


def test_options_are_torch_s():
    torch_run = pytest.importorskip("torch.distributed.run")
    theirs, ours = ({name for action in module.get_args_parser()._actions for name in action.option_strings}
                    for module in (torch_run, sys.modules["tapegrad.distributed.run"]))
    absent = {"--numa-binding", "--numa_binding", "--logs-specs", "--logs_specs", "--duplicate-stdout-filters", "--duplicate_stdout_filters",
              "--duplicate-stderr-filters", "--duplicate_stderr_filters"}
    assert theirs - ours == absent and ours <= theirs
    assert parse_min_max_nnodes("1:4") == (1, 4)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_functions(tmp_path, method):
    script = tmp_path / "functions.py"
    script.write_text(textwrap.dedent("""
        import os, sys
        from tapegrad.distributed.elastic.multiprocessing.errors import ChildFailedError
        from tapegrad.distributed.launcher.api import LaunchConfig, elastic_launch

        def doubled(x, fails=None):
            rank = int(os.environ["RANK"])
            if rank == fails:
                raise ValueError(f"rank {rank} was asked to fail")
            return rank, x * 2, "x" * 1_000_000

        if __name__ == "__main__":
            launch = elastic_launch(LaunchConfig(1, 1, 2, start_method=sys.argv[1], max_restarts=0), doubled)
            assert launch(21) == {r: (r, 42, "x" * 1_000_000) for r in range(2)}
            assert "RANK" not in os.environ
            try:
                launch(21, 1)
            except ChildFailedError as e:
                assert "ValueError: rank 1 was asked to fail" in str(e)
                rank, failure = e.get_first_failure()
                assert (rank, failure.local_rank, failure.exitcode) == (1, 1, 1)
                print("done")
    """))
    done = subprocess.run([sys.executable, str(script), method], capture_output=True, text=True, env=ENVIRONMENT, timeout=90)
    assert done.stdout == "done\n", done.stderr


def test_parts(tmp_path, monkeypatch):
    assert Std.from_str("3") == Std.ALL and Std.from_str("0:1,1:2") == {0: Std.OUT, 1: Std.ERR}
    assert issubclass(SignalException, Exception)
    path = tmp_path / "error.json"
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))

    @record
    def fails():
        raise RuntimeError("no \udcff way")

    with pytest.raises(RuntimeError):
        fails()
    failure = ProcessFailure(0, 1, 1, str(path))
    assert "RuntimeError: no" in failure.text() and failure.signal_name() == "<N/A>"
    for junk in (b"", b"{", b"[1]", b"\xff\xfe", b'{"message": {"extraInfo": 3}}', b'{"message": 5}'):
        path.write_bytes(junk)
        ChildFailedError("x", {0: ProcessFailure(0, 1, -9, str(path))})
    with pytest.raises(ValueError, match="one machine"):
        LaunchConfig(2, 2, 1)


def test_the_first_failure_of_a_second_comes_first(tmp_path):
    data = json.dumps({"message": {"message": "m", "extraInfo": {"py_callstack": "t", "timestamp": "1700000000"}}})
    failures = {}
    for rank, nanosecond in ((0, 900), (1, 200), (2, 500)):
        path = tmp_path / f"{rank}.json"
        path.write_text(data)
        os.utime(path, ns=(0, 1_700_000_000_000_000_000 + nanosecond))
        failures[rank] = ProcessFailure(rank, 1, 1, str(path))
    assert ChildFailedError("x", failures).get_first_failure() == (1, failures[1])
