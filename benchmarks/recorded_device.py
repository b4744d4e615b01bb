"""Recorded steps on a GPU: eager, replayed call by call, by CUDA graphs, and with chains of pointwise calls as one kernel each; bits compared.

    python -m benchmarks.recorded_device [--rounds 9]

Times are those of the host and the device together: 20 calls, then a wait; "making it" is the time of the three calls that record a step with chains, and
until these are compiled and taken in. On a simulated device the run is a test of this program; its times mean nothing, and there are chains where
TAPEGRAD_CUDA_SIMULATE_COMPILER names a compiler.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

SIMULATED = bool(os.environ.get("TAPEGRAD_CUDA_SIMULATE"))


def _mlp(tg, columns: int, rows: int, optimizer: str):
    nn = tg.nn
    tg.manual_seed(0)
    net = nn.Sequential(nn.Linear(columns, columns), nn.GELU(), nn.Dropout(0.1), nn.Linear(columns, columns), nn.GELU(), nn.Linear(columns, 10)).cuda()
    step_of = {"sgd": lambda p: tg.optim.SGD(p, lr=0.01, momentum=0.9), "adam": lambda p: tg.optim.Adam(p, lr=0.001)}[optimizer](net.parameters())
    x, y = tg.randn(rows, columns, device="cuda"), tg.randint(0, 10, (rows,), device="cuda")

    def step(x, y):
        step_of.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        step_of.step()
        return loss

    return step, (x, y)


def _chain(tg, numel: int):
    tg.manual_seed(0)
    x = tg.rand(numel, device="cuda")

    def chain(x):
        for _ in range(8):
            x = (x * 1.01 + 0.5).sin()
        return x

    return chain, (x,)


def _gelus(tg, columns: int):
    """What a product leaves to pointwise kernels in a transformer's feed-forward part, with bias and residual, in bfloat16."""
    tg.manual_seed(0)
    x, bias, residual = (tg.randn(*shape, device="cuda", dtype=tg.bfloat16) for shape in ((4096, columns), (columns,), (4096, columns)))

    def gelus(x, bias, residual):
        return tg.nn.functional.silu(tg.nn.functional.gelu(x + bias) * 0.5 + residual) * x

    return gelus, (x, bias, residual)


def cases(tg):
    """Name, and what makes the function with its arguments: anew for each way, from one seed."""
    sizes = ((32, 8, "adam"), (256, 64, "adam"), (1024, 256, "sgd")), (1024, 1 << 18, 1 << 22, 1 << 26), (3072,)
    if SIMULATED:
        sizes = ((8, 4, "adam"),), (64,), (2,)
    return [
        *((f"training step, MLP of {c} columns, {r} rows, {o}", lambda c=c, r=r, o=o: _mlp(tg, c, r, o))
          for c, r, o in sizes[0]),
        *((f"24 pointwise operators on {n:,} elements", lambda n=n: _chain(tg, n)) for n in sizes[1]),
        *((f"bias, GELU, residual, SiLU on 4096 x {c:,} in bfloat16", lambda c=c: _gelus(tg, c)) for c in sizes[2]),
    ]


def _microseconds(tg, function, args, calls: int = 20) -> float:
    tg.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        function(*args)
    tg.cuda.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def table(tg, rounds: int) -> str:
    """Medians of alternating rounds, as a table. Raises AssertionError where bits differ."""
    ways = {"eager": lambda f: f, "call by call": lambda f: tg.record(f, graphs=False), "graphs": tg.record, "chains": tg.record}
    lines = [f"{tg.cuda.get_device_name()}: us per call", "", "| | " + " | ".join(ways) + " | kernels of chains | making it |", "| --- |" + " --- |" * (len(ways) + 2)]
    for name, make in cases(tg):
        made = {way: (wrap((pair := make())[0]), pair[1]) for way, wrap in ways.items()}
        results, making = {}, 0.0
        for way, (function, args) in made.items():
            before = tg.record.loops(way == "chains")
            try:
                tg.manual_seed(1)
                start = time.perf_counter()
                results[way] = [function(*args).clone() for _ in range(3)]
                tg._C._wait_for_chains()
                results[way].append(function(*args).clone())
                tg.cuda.synchronize()
                making = time.perf_counter() - start
                results[way] += [function(*args).clone() for _ in range(4)]
            finally:
                tg.record.loops(before)
        assert all(tg.equal(a, b) for way in results for a, b in zip(results["eager"], results[way])), name
        assert made["graphs"][0]._replays.memory()[0]["graphs"] > 0, made["graphs"][0].summary()
        use = made["chains"][0]._replays.memory()[0]
        if use["no_chains"]:
            print(f"{name}: chains are calls: {use['no_chains']}")
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, (function, args) in made.items():
                times[way].append(_microseconds(tg, function, args))
        lines.append(f"| {name} | " + " | ".join(f"{statistics.median(times[way]):.1f}" for way in ways)
                     + f" | {use['chains']} for {use['in_chains']} calls | {making * 1e3:.0f} ms |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    import tapegrad as tg

    print(table(tg, options.rounds))


if __name__ == "__main__":
    main()
