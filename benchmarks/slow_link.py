"""Two ranks with a link of 800 Mbit/s between them: what 16-bit transfers and rows of tables save. Needs root, `ip` and `tc`.

usage: python -m benchmarks.slow_link [--rounds N]

Two network namespaces are joined by a pair of virtual interfaces whose rate is limited on both sides (`tc tbf`), and each holds one rank.
Tensors go through gloo; torch does the same in the same rounds where it is installed. Times are of the slower rank, medians of all rounds.
"""

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

RATE = "800mbit"
NUMEL = 4 << 20  # of the tensor that is added up: 16 MB
ROWS, WIDTH, USED = 100_000, 64, 1_000  # a table, and the rows that a rank's gradient has: 1 %
_SPACES = ("tapegrad0", "tapegrad1")


@contextlib.contextmanager
def link():
    """The two namespaces and the link between them; gone afterwards."""
    def ip(*args):
        subprocess.run(["ip", *args], check=True)

    for name in _SPACES:
        subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL, check=False)
    try:
        for name in _SPACES:
            ip("netns", "add", name)
        ip("link", "add", "tapegrad0", "netns", _SPACES[0], "type", "veth", "peer", "name", "tapegrad0", "netns", _SPACES[1])
        for i, name in enumerate(_SPACES):
            ip("-n", name, "addr", "add", f"10.213.47.{i + 1}/24", "dev", "tapegrad0")
            for interface in ("lo", "tapegrad0"):
                ip("-n", name, "link", "set", interface, "up")
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "tapegrad0", "root", "tbf", "rate", RATE, "burst", "256kb", "latency", "50ms"],
                           check=True)
        yield
    finally:
        for name in _SPACES:
            subprocess.run(["ip", "netns", "del", name], check=False)


def _works(lib, dist) -> dict:
    """What is measured."""
    nn, Bf16 = lib.nn, lib.bfloat16
    hooks = importlib.import_module(f"{lib.__name__}.distributed.algorithms.ddp_comm_hooks.default_hooks")

    def backward(module, x, hook=None):
        model = nn.parallel.DistributedDataParallel(module)
        if hook is not None:
            model.register_comm_hook(None, hook)

        def step():
            model.zero_grad()
            model(x).sum().backward()

        return step

    t, half = lib.zeros(NUMEL), lib.zeros(NUMEL, dtype=Bf16)
    x, ids = lib.ones(8, 2048), lib.arange(USED) * (ROWS // USED)
    works = {
        "all_reduce of 4 M numbers, float32": lambda: dist.all_reduce(t),
        "all_reduce of 4 M numbers, bfloat16": lambda: dist.all_reduce(half),
        "DDP backward, 4 M parameters, float32": backward(nn.Linear(2048, 2048, bias=False), x),
    }
    if lib.__name__ == "tapegrad":  # torch refuses this hook over gloo
        works["DDP backward, 4 M parameters, bf16_compress_hook"] = backward(nn.Linear(2048, 2048, bias=False), x, hooks.bf16_compress_hook)
    works["DDP backward of a table, dense"] = backward(nn.Embedding(ROWS, WIDTH), ids)
    works["DDP backward of a table, 1 % of its rows"] = backward(nn.Embedding(ROWS, WIDTH, sparse=True), ids)
    return works


def _rank(name: str, rank: int, port: int) -> None:
    """One rank: runs the work whose name it reads, and prints its seconds."""
    lib = importlib.import_module(name)
    dist = importlib.import_module(f"{name}.distributed")
    lib.set_num_threads(1)
    os.environ.update(TAPEGRAD_DISTRIBUTED_ENGINE="gloo", GLOO_SOCKET_IFNAME="tapegrad0")
    dist.init_process_group("gloo", init_method=f"tcp://10.213.47.1:{port}", rank=rank, world_size=2)
    works = _works(lib, dist)
    print(json.dumps(list(works)), flush=True)
    for line in sys.stdin:
        work = works[json.loads(line)]
        dist.barrier()
        since = time.perf_counter()
        work()
        print(time.perf_counter() - since, flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slow_link", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    libraries = [name for name in ("tapegrad", "torch") if importlib.util.find_spec(name)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "OMP_NUM_THREADS": "1"}
    with link():
        ranks = {name: [subprocess.Popen(["ip", "netns", "exec", _SPACES[r], sys.executable, "-m", "benchmarks.slow_link", name, str(r), str(29600 + i)],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) for r in range(2)]
                 for i, name in enumerate(libraries)}
        try:
            known = {name: [json.loads(p.stdout.readline()) for p in pair][0] for name, pair in ranks.items()}
            seconds: dict = {}
            for number in range(rounds + 1):  # the first one warms up
                for work in known["tapegrad"]:
                    for name, pair in ranks.items():
                        if work not in known[name]:
                            continue
                        for p in pair:
                            p.stdin.write(json.dumps(work) + "\n")
                            p.stdin.flush()
                        slower = max(float(p.stdout.readline()) for p in pair)
                        if number:
                            seconds.setdefault((work, name), []).append(slower)
            medians = {key: statistics.median(values) for key, values in seconds.items()}
            print("| | " + " | ".join(f"{name}, ms" for name in libraries) + " |\n| --- |" + " --- |" * len(libraries))
            for work in known["tapegrad"]:
                print(f"| {work} | " + " | ".join(f"{1e3 * medians[work, n]:.1f}" if (work, n) in medians else "" for n in libraries) + " |")
            works = known["tapegrad"]
            for less, more in zip(works[1::2], works[::2], strict=True):
                ratios = [a / b for a, b in zip(seconds[less, "tapegrad"], seconds[more, "tapegrad"], strict=True)]
                print(f"\n{less}: {statistics.median(ratios):.2f} of the time of the row above")
            for pair in ranks.values():
                for p in pair:
                    p.stdin.close()
                for p in pair:
                    p.wait(20)
        finally:
            for pair in ranks.values():
                for p in pair:
                    p.kill()


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[2] in "01":
        _rank(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
