"""A parameter server and two workers, one of them on another machine (a network namespace) whose link is cut."""

import contextlib
import os
import subprocess
import sys
import time

import pytest
from distributed.machines import needs_namespaces, run, two_machines

PROGRAM = """
import sys, time
from datetime import timedelta
import tapegrad as tg, tapegrad.distributed as dist
from tapegrad import nn
from tapegrad.distributed.parameter_server import ParameterClient, ParameterServer
role, pushes, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
store = dist.TCPStore("10.213.49.1", 29557, None, role == "server", timedelta(seconds=30), wait_for_workers=False)
tg.manual_seed(0)
model = nn.Linear(3, 2)
if role == "server":
    server = ParameterServer(store, lambda ps: tg.optim.SGD(ps, lr=0.1), workers=2, staleness=3, patience=1.0, address="10.213.49.1", timeout=60)
    server.serve()
    print("served", server.version, server.dropped, flush=True)
    sys.exit()
dropped = 0
try:
    with ParameterClient(store, {"near": 0, "far": 1}[role], model, timeout=60) as client:
        for k in range(pushes):
            since = time.monotonic()
            client.pull()
            (dropped_here,) = client.push({"weight": tg.ones(2, 3), "bias": tg.zeros(2)})
            dropped += not dropped_here
            print("step", k, f"{time.monotonic() - since:.2f}", flush=True)
            time.sleep(pause)
    print("done", dropped, flush=True)
except dist.DistBackendError as error:
    print("error", f"{time.monotonic() - since:.1f}", error, flush=True)
"""


@contextlib.contextmanager
def job(folder, near: tuple, far: tuple):
    """The three processes, all of which have made a step: server and near worker on one machine, the far one on the other."""
    (folder / "rank.py").write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1", "TAPEGRAD_JOB_TOKEN": "of this job"}
    with two_machines("tgps", "10.213.49") as spaces:
        started = {role: subprocess.Popen(["ip", "netns", "exec", spaces[role == "far"], sys.executable, str(folder / "rank.py"), role, *map(str, how)],
                                          env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for role, how in (("server", (0, 0)), ("near", near), ("far", far))}
        try:
            for role in ("near", "far"):
                first = started[role].stdout.readline()
                assert first.startswith("step 0"), first + started[role].stderr.read()
            yield spaces, started
        finally:
            for p in started.values():
                p.kill()
                p.communicate()


def end(process, timeout: float) -> list[list[str]]:
    said, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    return [line.split(" ", 2) for line in said.splitlines()]


@pytest.mark.long
@needs_namespaces
def test_a_worker_whose_link_is_cut_and_mended_goes_on(tmp_path):
    with job(tmp_path, (100, 0.05), (60, 0.05)) as (spaces, started):
        time.sleep(0.5)
        run("ip", "-n", spaces[1], "link", "set", "tgps", "down")
        near = end(started["near"], 30)  # without the other one
        assert started["far"].poll() is None
        run("ip", "-n", spaces[1], "link", "set", "tgps", "up")
        far = end(started["far"], 40)
        (served,) = end(started["server"], 10)
        assert [line[0] for line in near] == ["step"] * 99 + ["done"] and near[-1] == ["done", "0"]
        waits = sorted(float(line[2]) for line in near[:-1])
        assert waits[-1] < 4 and waits[-2] < 1, waits[-3:]  # one wait until it is known that the other one says nothing
        assert [line[0] for line in far] == ["step"] * 59 + ["done"] and far[-1][1] in "01"  # what it had when it was cut off is too old
        assert served == ["served", str(160 - int(far[-1][1])), far[-1][1]]


@pytest.mark.long
@needs_namespaces
def test_a_worker_whose_link_stays_cut_is_given_up_and_knows_it(tmp_path):
    with job(tmp_path, (40, 0.05), (1000, 0.05)) as (spaces, started):
        time.sleep(0.5)
        run("ip", "-n", spaces[1], "link", "set", "tgps", "down")
        cut = time.monotonic()
        near = end(started["near"], 30)
        assert near[-1] == ["done", "0"]
        (served,) = end(started["server"], 45)  # ends when the connection is given up
        assert 15 < time.monotonic() - cut < 45 and int(served[1]) >= 40
        far = end(started["far"], 30)
        assert far[-1][0] == "error" and "parameter server: shard 0 has gone" in far[-1][2], far[-1]
        assert 15 < float(far[-1][1]) < 45
