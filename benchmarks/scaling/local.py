"""The real parameter server on this machine against the simulator: null steps (pull and push, nothing computed) of 1 to 3 workers.

A server and its workers are processes that share the cores. What a request, a byte at the server, a byte at a worker and a byte of a step cost is
fitted to the runs of 1 and 2 workers; those of 3 are predicted.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace

import numpy as np

from .parameter_server import Cluster, step_time

SIZES = {"1 MB": 10**6, "10 MB": 10**7, "100 MB": 10**8}
_FITTED = ("request", "fixed", "byte", "step_byte", "worker_byte")

PROGRAM = """
import json, sys, time
import tapegrad as tg, tapegrad.distributed as dist
from tapegrad.distributed.parameter_server import ParameterClient, ParameterServer
tg.set_num_threads(1)
path, number, workers, nbytes, steps = sys.argv[1], *map(int, sys.argv[2:])
store = dist.FileStore(path, workers + 1)
if number == workers:
    ParameterServer(store, lambda ps: tg.optim.SGD(ps, lr=0.1), workers=workers, first=workers).serve()
    sys.exit()
model = tg.nn.Module()
for k in range(8):
    model.register_parameter(f"p{k}", tg.nn.Parameter(tg.zeros(nbytes // 32)))
grads, times = {name: tg.zeros_like(p) for name, p in model.named_parameters()}, []
with ParameterClient(store, number, model) as client:
    while len(times) <= steps:
        since = time.perf_counter()
        client.pull()
        client.push(grads)
        times.append(time.perf_counter() - since)
    client.pull()
print(json.dumps(sorted(times[1:])[steps // 2]))
"""


def measure(workers: int, nbytes: int) -> float:
    """Seconds of a step: the median of a worker's steps, the mean over workers. All have to give their gradient."""
    steps = max(5, min(100, 3 * 10**8 // nbytes))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", PROGRAM, os.path.join(folder, "store")]
        ranks = [subprocess.Popen([*command, *map(str, (k, workers, nbytes, steps))], stdout=subprocess.PIPE, text=True) for k in range(workers + 1)]
        try:
            said = [p.communicate(timeout=300)[0] for p in ranks]
        finally:
            for p in ranks:
                p.kill()
    if any(p.returncode for p in ranks):
        raise RuntimeError(f"null steps of {workers} workers: a process has failed")
    return statistics.mean(json.loads(text) for text in said[:workers])


def measure_all(rounds: int, workers=(1, 2, 3)) -> dict[int, dict[int, float]]:
    """{workers: {bytes: seconds}}: the least of rounds in which all follow one another, since the machine may do other things, too."""
    found: dict = {w: {n: [] for n in SIZES.values()} for w in workers}
    for _ in range(rounds):
        for w in workers:
            for n in SIZES.values():
                found[w][n].append(measure(w, n))
    return {w: {n: min(seconds) for n, seconds in by_size.items()} for w, by_size in found.items()}


def fit(measured: dict[int, dict[int, float]], cores: int) -> Cluster:
    """The costs, none negative, with the least sum of squared logarithms of simulated / measured: one cost after the other, in ever finer steps."""
    def error(cluster) -> float:
        return sum(np.log(step_time(cluster, w, n, steps=4) / seconds) ** 2 for w, times in measured.items() for n, seconds in times.items())

    best = Cluster(rate=1.0, servers=1, cores=cores, request=1e-4, fixed=1e-4, byte=1e-9, step_byte=1e-9, worker_byte=1e-9)
    least = error(best)
    for factor in (3.0, 1.5, 1.2, 1.07, 1.02):
        better = True
        while better:
            better = False
            for name in _FITTED:
                for by in (factor, 1 / factor):
                    other = replace(best, **{name: getattr(best, name) * by})
                    if (e := error(other)) < least * (1 - 1e-6):
                        best, least, better = other, e, True
    return best


def compare(rounds: int = 4) -> dict:
    """Measured, fitted and predicted null steps."""
    cores = len(os.sched_getaffinity(0))
    measured = measure_all(rounds)
    cluster = fit({w: measured[w] for w in (1, 2)}, cores)
    simulated = {w: {n: step_time(cluster, w, n, steps=4) for n in times} for w, times in measured.items()}
    return {"costs (s)": {name: getattr(cluster, name) for name in _FITTED}, "measured (s)": measured, "simulated (s)": simulated,
            "3 workers, simulated / measured": {n: simulated[3][n] / seconds for n, seconds in measured[3].items()}}
