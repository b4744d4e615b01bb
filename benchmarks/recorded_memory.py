"""Memory of recorded training steps: plans against what lives at one time, plans within budgets, and the time that they take; then
what the check before each replay takes. Times are processor time of pairs in turn: the machine may do other things."""

from __future__ import annotations

import statistics
import time

from .harness import duration
from .recorded import _gpt

MIB = 1 << 20


def _resnet(lib, rows, size):
    from tapegrad.vision.models import resnet50

    lib.manual_seed(0)
    return resnet50(), lib.randn(rows, 3, size, size), lib.randint(0, 1000, (rows,))


MODELS = {
    "GPT 128 columns, 4 layers, 4 x 64": (lambda lib: _gpt(lib, 128, 4, 64, 4), ("Adam", 1e-3, {}), (0.6,)),
    "GPT 384 columns, 6 layers, 4 x 256": (lambda lib: _gpt(lib, 384, 6, 256, 4), ("Adam", 1e-3, {}), (0.6, 0.5, 0.4)),
    "ResNet-50, 2 x 128 x 128": (lambda lib: _resnet(lib, 2, 128), ("SGD", 0.01, {"momentum": 0.9}), (0.5, 0.3)),
    "ResNet-50, 4 x 224 x 224": (lambda lib: _resnet(lib, 4, 224), ("SGD", 0.01, {"momentum": 0.9}), (0.6,)),
}


def _recorded(lib, make, optimizer, budget):
    model, x, y = make(lib)
    name, lr, options = optimizer
    optimizer = getattr(lib.optim, name)(model.parameters(), lr=lr, **options)

    def step(x, y):
        loss = lib.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    recorded = lib.record(step, memory=budget)
    for _ in range(4):
        recorded(x, y)
    return lambda: recorded(x, y), recorded


def _processor_time(run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def rows(lib, rounds):
    for name, (make, optimizer, budgets) in MODELS.items():
        plain, step = _recorded(lib, make, optimizer, None)
        for budget in (None, *budgets):
            run, step = (plain, step) if budget is None else _recorded(lib, make, optimizer, budget)
            use = step._replays.memory()[0]
            if budget is None:
                ratio = None
            else:
                pairs = [(_processor_time(plain), _processor_time(run)) for _ in range(max(rounds, 5))]
                ratio = statistics.median(b / a for a, b in pairs)
            yield name, budget, use, ratio


def _check_seconds(lib) -> float:
    """Of three arguments and twenty dictionaries."""
    class Part:
        def __init__(self, value):
            self.value = value

    parts = [Part(float(i)) for i in range(20)]
    (p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, p10, p11, p12, p13, p14, p15, p16, p17, p18, p19) = parts

    def step(a, b, c):
        return a + b + c + (p0.value + p1.value + p2.value + p3.value + p4.value + p5.value + p6.value + p7.value + p8.value + p9.value
                            + p10.value + p11.value + p12.value + p13.value + p14.value + p15.value + p16.value + p17.value + p18.value + p19.value)

    recorded = lib.record(step)
    args = tuple(lib.ones(3) for _ in range(3)), {}
    for _ in range(4):
        recorded(*args[0])
    check, n = recorded._replays.check, 20_000
    assert check(args)
    best = float("inf")
    for _ in range(15):
        start = time.process_time()
        for _ in range(n):
            check(args)
        best = min(best, (time.process_time() - start) / n)
    return best


def table(lib, rounds) -> str:
    lines = ["\n## Memory of recorded training steps\n",
             "Temporaries and results of a step that clears its gradients at its end; time is processor time, of pairs with the same step without a budget.\n",
             "| step | budget | lives at one time, MiB | plan, MiB | of the plan without | updated early | made again | their time, recorded | time |",
             "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, budget, use, ratio in rows(lib, rounds):
        print(f"{name:40} {budget!s:5} plan {use['planned'] / MIB:.1f} MiB, {use['planned'] / use['unlimited']:.3f} of {use['unlimited'] / MIB:.1f}, "
              f"time {ratio or 1:.3f}", flush=True)
        lines.append(f"| {name} | {'-' if budget is None else budget} | {use['live'] / MIB:.1f} | {use['planned'] / MIB:.1f} | {use['planned'] / use['unlimited']:.3f} | "
                     f"{use['updates']} | {use['again']} | {use['share']:.1%} | {'1' if ratio is None else f'{ratio:.3f}'} |")
    lines.append(f"\nThe check before a replay, three arguments and twenty dictionaries: {duration(_check_seconds(lib))}.\n")
    return "\n".join(lines)


if __name__ == "__main__":
    import tapegrad

    print(table(tapegrad, 9))
