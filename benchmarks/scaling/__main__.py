"""`python -m benchmarks.scaling [--out FOLDER]`: measures 2 to 4 ranks and parameter servers of 1 to 3 workers here, simulates the rest, writes
numbers (JSON) and a picture. `--local`: only the parameter servers, printed."""

from __future__ import annotations

import argparse
import datetime
import json
import os
from pathlib import Path

from ..report import processor
from . import backup, engines, local
from .parameter_server import Cluster, step_time

WORKERS = (1, 2, 5, 10, 25, 50, 100)
# Abadi et al. 2016, section 6.2: seconds of a step without computation, 16 servers, at 1 and at 100 workers.
PAPER = {"scalar": (0.0018, 0.0088), "100 MB": (0.147, 0.613), "1 GB": (1.01, 7.16)}
# From the figures at one worker: the rate is what 900 MB more cost twice, a request what 99 workers more cost a server that has nothing
# else to do; what is left of the scalar step are two messages, and of the 147 ms a step's own time.
RATE = 2 * 0.9e9 / (1.01 - 0.147)
REQUEST = (0.0088 - 0.0018) / 99 / 2
LATENCY = (PAPER["scalar"][0] - 2 * REQUEST) / 2
FIXED = 0.147 - 2 * 0.1e9 / RATE - 2 * (LATENCY + REQUEST)
# So that the shortest step has four backup workers and the gain is about a tenth, as in section 6.3.
STRAGGLERS, LOAD = backup.Stragglers(0.08, 0.02, 1.3), 0.01
HOSTS = (2, 8, 32, 128, 512, 1000)


def null_steps() -> dict[str, list[float]]:
    found = {}
    for name, nbytes in (("scalar", 0), ("100 MB", 1e8), ("1 GB", 1e9)):
        cluster = Cluster(RATE, LATENCY, REQUEST, FIXED if nbytes else 0.0)
        found[name] = [step_time(cluster, workers, nbytes) for workers in WORKERS]
    return found


def backup_workers() -> list[tuple[int, float, float]]:
    """(number, step's time relative to none, gain)"""
    alone = backup.step_times(50, 0, STRAGGLERS).mean()
    return [(b, backup.step_times(50, b, STRAGGLERS, LOAD).mean() / alone, backup.gain(50, b, STRAGGLERS, load=LOAD)) for b in range(6)]


def hosts(costs: engines.Costs, rate: float, nbytes: float = 1e8, latency: float = 50e-6) -> dict[str, list[float]]:
    """Seconds of a step's exchange of 100 MB of gradients among hosts with one rank each."""
    server = Cluster(rate, latency, request=REQUEST)
    return {"ours": [engines.pairwise(rate, latency, costs.message, n, nbytes) for n in HOSTS],
            "of it, headers": [2 * (n - 1) * costs.message for n in HOSTS],
            "headers along a tree": [engines.tree_header(latency, costs.message, n) for n in HOSTS],
            "ring": [engines.ring(rate, latency, n, nbytes) for n in HOSTS],
            "16 parameter servers": [step_time(server, n, nbytes) if n <= 128 else None for n in HOSTS]}


def plot(result: dict, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4))
    for name, times in result["null steps"].items():
        line = left.loglog(WORKERS, times, label=name)[0]
        left.plot((1, 100), PAPER[name], "o", color=line.get_color())
    left.set(title="step without computation (dots: the paper)", xlabel="workers, 16 servers", ylabel="seconds")
    left.legend()
    numbers, times, gains = zip(*result["backup workers"])
    middle.plot(numbers, times, label="step's time")
    middle.plot(numbers, gains, label="gain per machine")
    middle.set(title="50 workers and some more", xlabel="backup workers")
    middle.legend()
    for name, times in result["hosts"].items():
        right.loglog([n for n, t in zip(HOSTS, times) if t], [t for t in times if t], label=name)
    right.set(title="exchange of 100 MB of gradients", xlabel="hosts", ylabel="seconds")
    right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/scaling"))
    parser.add_argument("--local", action="store_true")
    options = parser.parse_args()
    if options.local:
        print(json.dumps({"processor": processor(), **local.compare()}, indent=1))
        return
    cores = len(os.sched_getaffinity(0))
    measured = {ranks: engines.measure(ranks) for ranks in (2, 3, 4)}
    costs = engines.fit({ranks: measured[ranks] for ranks in (2, 4)}, cores)
    check = {n: engines.call_time(costs, 3, n, cores) / seconds for n, seconds in measured[3].items()}
    result = {"processor": processor(), "cores": cores, "measured all_reduce (s)": measured, "costs": vars(costs),
              "3 ranks, predicted / measured": check, "workers": WORKERS, "null steps": null_steps(), "paper": PAPER,
              "backup workers": backup_workers(), "parameter servers here": local.compare(), "number of hosts": HOSTS, "hosts": hosts(costs, 1.25e9)}
    options.out.mkdir(parents=True, exist_ok=True)
    stem = options.out / datetime.date.today().isoformat()
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    plot(result, stem.with_suffix(".png"))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
