"""The all-reduce of distributed/ over connections: what it costs by message, byte and sum, fitted to runs of 2 to 4 ranks here.

A call first exchanges headers of 256 bytes among all pairs (call.h); then, in blocks of 8 MB (64 KB for each of many ranks), each rank sends its pieces to all others,
sums its own and sends the result to all (pairwise_backend.h). `ring` and `tree` are what it is compared with.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import numpy as np

BLOCK, PIECE = 8 << 20, 64 << 10
SMALL = 4096  # bytes that travel with their header among up to 8 ranks


def blocks_of(ranks: int, nbytes: float) -> int:
    """How many blocks a large all-reduce has."""
    return int(-(-nbytes // max(BLOCK, ranks * PIECE)))


@dataclass
class Costs:
    """Seconds of a processor per message, per byte that is sent or received, per byte that is added, per call; and what a message costs
    more where two ranks share a core and the one that it is for has to be woken."""

    message: float
    byte: float
    add: float
    call: float
    wake: float = 0.0


def work_of(ranks: int, nbytes: int) -> np.ndarray:
    """[messages, bytes sent and received, bytes added, 1] of one rank and one call."""
    others = ranks - 1
    if nbytes <= SMALL and ranks <= 8:
        return np.array([2 * others, 2 * others * (256 + nbytes), others * nbytes, 1.0])
    blocks = blocks_of(ranks, nbytes)
    share = others * nbytes / ranks
    return np.array([2 * others + 4 * others * blocks, 4 * share + 512 * others, share, 1.0])


def terms(ranks: int, nbytes: int, cores: int) -> np.ndarray:
    """What each of the costs is multiplied with where `ranks` processes share `cores`."""
    crowd = max(1.0, ranks / cores)
    work = work_of(ranks, nbytes)
    return np.append(work * crowd, work[0] * (crowd - 1))


def call_time(costs: Costs, ranks: int, nbytes: int, cores: int) -> float:
    """Seconds of an all-reduce of that many bytes among that many ranks of one machine."""
    return float(terms(ranks, nbytes, cores) @ [costs.message, costs.byte, costs.add, costs.call, costs.wake])


PROGRAM = """
import json, sys, time
import tapegrad as tg, tapegrad.distributed as dist
tg.set_num_threads(1)
dist.init_process_group("gloo")
found = {}
for numel in json.loads(sys.argv[1]):
    t = tg.zeros(numel)
    calls = max(3, min(300, (1 << 23) // numel))
    best = []
    for _ in range(5):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(t)
        best.append((time.perf_counter() - start) / calls)
    found[4 * numel] = sorted(best)[2]
if dist.get_rank() == 0:
    print(json.dumps(found))
dist.destroy_process_group()
"""
SIZES = (16, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23)  # float32 numbers


def measure(ranks: int, sizes=SIZES) -> dict[int, float]:
    """Seconds of an all-reduce over gloo by bytes, of `ranks` processes of this machine: medians of 5 rounds."""
    done = subprocess.run([sys.executable, "-m", "tapegrad.distributed.run", "--nproc-per-node", str(ranks), "--no-python", sys.executable, "-c",
                           PROGRAM, json.dumps(sizes)], env={**os.environ, "TAPEGRAD_DISTRIBUTED_ENGINE": "gloo"}, capture_output=True, text=True,
                          timeout=600)
    if done.returncode:
        raise RuntimeError(done.stderr)
    line = next(text for text in done.stdout.splitlines() if "{" in text)
    return {int(n): seconds for n, seconds in json.loads(line[line.index("{"):]).items()}


def fit(measured: dict[int, dict[int, float]], cores: int) -> Costs:
    """Costs, none negative, with the least sum of squared relative errors over {ranks: {bytes: seconds}}."""
    rows, ones = [], []
    for ranks, times in measured.items():
        for nbytes, seconds in times.items():
            rows.append(terms(ranks, nbytes, cores) / seconds)
            ones.append(1.0)
    a, b = np.array(rows), np.array(ones)
    scale = np.maximum(a.max(0), 1e-300)
    x = np.full(5, 0.1)
    for _ in range(20_000):  # multiplicative updates stay positive (Lee and Seung, 2001)
        x *= (a / scale).T @ b / np.maximum((a / scale).T @ ((a / scale) @ x), 1e-300)
    return Costs(*(x / scale))


def ring(rate: float, latency: float, ranks: int, nbytes: float) -> float:
    """Seconds of a ring all-reduce (Patarasuk and Yuan, 2009): 2 (n - 1) steps of n-th parts."""
    return 2 * (ranks - 1) * (latency + nbytes / ranks / rate)


def pairwise(rate: float, latency: float, message: float, ranks: int, nbytes: float) -> float:
    """Ours between machines: the same bytes, the processor's time for every message, headers to all."""
    return 2 * latency + (2 * (ranks - 1) + 4 * (ranks - 1) * blocks_of(ranks, nbytes)) * message + 2 * (ranks - 1) * nbytes / ranks / rate


def tree_header(latency: float, message: float, ranks: int) -> float:
    """Headers compared along a binary tree, up and down, instead of all with all."""
    depth = int(np.ceil(np.log2(max(ranks, 2))))
    return 2 * depth * (latency + 2 * message)
