"""Remote calls beside torch's (TensorPipe): `python -m benchmarks.remote_calls`.

Two workers on one machine; a process of its own for each worker and library. Both libraries' workers stand ready, and rounds of one and of
the other alternate; medians of the rounds.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

# What is sent (None: an integer; float32 otherwise), what is called, how many calls are under way at once, and how often a round does that.
CASES = {"an integer there and back": (None, "echo", 1, 200), "an integer, 16 calls at once": (None, "echo", 16, 15),
         "64 bytes there and back": (16, "echo", 1, 200), "1 MB there and back": (1 << 18, "echo", 1, 20),
         "64 MB there and back": (1 << 24, "echo", 1, 2), "64 MB there": (1 << 24, "length", 1, 2)}
ROUNDS = 9


def echo(value):
    return value


def length(value) -> int:
    return len(value)


def worker(kind: str, rank: int, path: str) -> None:
    import importlib

    lib, rpc = importlib.import_module(kind), importlib.import_module(f"{kind}.distributed.rpc")
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{path}", rpc_timeout=600)
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    if rank == 0:
        def round_(function, value, at_once: int, n: int) -> None:
            for _ in range(n):
                if at_once == 1:
                    rpc.rpc_sync("w1", function, args=(value,))
                else:
                    for future in [rpc.rpc_async("w1", function, args=(value,)) for _ in range(at_once)]:
                        future.wait()

        for line in sys.stdin:
            size, name, at_once, n = CASES[json.loads(line)]
            value = 1 if size is None else lib.ones(size)
            round_(globals()[name], value, at_once, 1)
            begin = time.perf_counter()
            round_(globals()[name], value, at_once, n)
            print(json.dumps((time.perf_counter() - begin) / n), flush=True)
    rpc.shutdown()


def measure(rounds: int = ROUNDS) -> dict:
    """Seconds of ours and theirs by case: medians."""
    seconds: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        processes: list = []
        leaders = {}
        for kind in ("tapegrad", "torch"):
            for rank in (1, 0):
                process = subprocess.Popen([sys.executable, "-W", "ignore", "-m", "benchmarks.remote_calls", kind, str(rank), f"{folder}/{kind}"],
                                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                           env={**os.environ, "OMP_NUM_THREADS": "1"})
                processes.append(process)
                leaders[kind] = process
        try:
            for case in CASES:
                times: dict = {"tapegrad": [], "torch": []}
                for _ in range(rounds):
                    for kind, leader in leaders.items():
                        print(json.dumps(case), file=leader.stdin, flush=True)
                        times[kind].append(json.loads(leader.stdout.readline()))
                seconds[case] = [statistics.median(times[kind]) for kind in ("tapegrad", "torch")]
        finally:
            for process in processes:
                process.stdin.close()
            for process in processes:
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
    return seconds


def main() -> None:
    print("| remote calls, two workers on one machine | tapegrad, us | torch, us | torch / tapegrad |\n| --- | --- | --- | --- |")
    for case, (ours, theirs) in measure().items():
        print(f"| {case} | {ours * 1e6:.0f} | {theirs * 1e6:.0f} | {theirs / ours:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        worker(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    else:
        main()
