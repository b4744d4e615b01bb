"""What tapegrad's own guarantees cost: lines in messages, NaN mode, the same bits for any number of threads, one generator for all
devices, calls that Ctrl-C ends, 16-bit numbers."""

import hashlib
import os
import signal
import statistics
import threading
import time
from dataclasses import dataclass

import tapegrad as tg

from .harness import Case, duration, geometric_mean, measure
from .operators import families
from .overhead import tiny_mlp


@dataclass
class Promise:
    what: str
    measured: str
    limit: str
    kept: bool


def _step(lib, width: int, batch: int):
    """A training step of a network with two hidden layers, with Adam."""
    lib.manual_seed(0)
    nn = lib.nn
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    x, y = lib.randn(batch, width), lib.randint(0, 10, (batch,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return model, step


def _paired(plain, changed, rounds: int, slice_s: float = 0.03) -> float:
    """How many times longer `changed` takes."""
    case = Case("", "", {"tapegrad": plain, "changed": changed})
    return measure(case, rounds, slice_s, pause_s=0).ratio("changed")  # one library: no other's threads to wait for


def _lines(rounds):
    for name, step in (("tiny MLP's step", tiny_mlp(tg)), ("MLP 256 step", _step(tg, 256, 128)[1])):
        def run(lines: bool, step=step):
            tg._C._record_lines(lines)
            step()
            tg._C._record_lines(True)

        cost = _paired(lambda run=run: run(False), lambda run=run: run(True), max(rounds, 21)) - 1
        yield Promise(f"2: noting the line of every node, {name}", f"{100 * cost:+.1f} %", "5 %", cost <= 0.05)


def _anomaly(lib, step, rounds):
    def watched():
        with lib.autograd.detect_anomaly():
            step()

    return _paired(step, watched, rounds)


def _nan_mode(libraries, rounds):
    import warnings

    warnings.simplefilter("ignore")
    for name, width, batch in (("MLP 64", 64, 64), ("MLP 256", 256, 128)):
        ratio = _anomaly(tg, _step(tg, width, batch)[1], rounds)
        peer = f" (torch {_anomaly(libraries['torch'], _step(libraries['torch'], width, batch)[1], rounds):.2f}x)" if "torch" in libraries else ""
        yield Promise(f"2: NaN mode, {name} step", f"{ratio:.2f}x{peer}", "1.3x", ratio <= 1.3)


def _same_bits():
    hashes, before = [], tg.get_num_threads()
    for threads in (1, 2, 3, 5):
        tg.set_num_threads(threads)
        model, step = _step(tg, 256, 128)
        for _ in range(20):
            step()
        hashes.append(hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest())
    tg.set_num_threads(before)
    yield Promise("5: weights after 20 steps with 1, 2, 3 and 5 threads", f"{len(set(hashes))} hash", "1", len(set(hashes)) == 1)


def _generator(libraries, rounds):
    numbers = []
    before = tg.get_num_threads()
    for threads in (1, 3):
        tg.set_num_threads(threads)
        numbers.append(tg.manual_seed(7) and tg.randn(1_000_003).numpy().tobytes())
    tg.set_num_threads(before)
    yield Promise("6: randn of 1,000,003 numbers with 1 and 3 threads", "equal" if numbers[0] == numbers[1] else "different", "equal", numbers[0] == numbers[1])
    if "torch" in libraries:
        torch = libraries["torch"]
        case = measure(Case("", "", {"tapegrad": lambda: tg.rand(1 << 20), "torch": lambda: torch.rand(1 << 20)}), rounds)
        yield Promise("6: rand of 1 M numbers against torch's Mersenne twister", f"{case.ratio('torch'):.2f}x as fast", "1x", case.ratio("torch") >= 1)


def _interrupted(run) -> float | None:
    """Seconds from an interrupt to the end of the call; None when the call was over before."""
    sent = []

    def send():
        time.sleep(0.25)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    try:
        thread.start()
        run()
        while not sent:
            time.sleep(0.01)
        time.sleep(0.1)
        return None
    except KeyboardInterrupt:
        return time.monotonic() - sent[0]
    finally:
        thread.join()


def _interrupts():
    square = tg.randn(1200, 1200, dtype=tg.float64)  # what an interrupt leaves behind is over before the next call
    numbers, image = tg.randn(1 << 25), tg.randn(64, 64, 128, 128)
    weight, heads = tg.randn(128, 64, 3, 3), tg.randn(8, 8, 4096, 64)
    f = tg.nn.functional
    calls = {
        "matmul": lambda: [square @ square for _ in range(1000)], "conv2d": lambda: [f.conv2d(image, weight, padding=1) for _ in range(9)], "sort": lambda: numbers.sort(),
        "attention": lambda: f.scaled_dot_product_attention(heads, heads, heads), "cumsum": lambda: tg.zeros(1 << 28).cumsum(0), "inv": lambda: [tg.linalg.inv(square) for _ in range(100)],
        "qr": lambda: [tg.linalg.qr(square) for _ in range(100)], "svd": lambda: [tg.linalg.svd(square) for _ in range(20)],
        "eigh": lambda: [tg.linalg.eigh(square) for _ in range(20)],
        "backward": lambda: [(square.clone().requires_grad_() @ square).sum().backward() for _ in range(500)],
        "fft": lambda: tg.fft.fft(tg.randn(64, 1 << 20)),
        "unique": lambda: tg.randint(0, 1 << 30, (1 << 26,)).unique(),
    }
    for name, run in calls.items():
        late = statistics.median(_interrupted(run) or 0.0 for _ in range(3))
        time.sleep(1.5)
        yield Promise(f"10: {name} ends after Ctrl-C", duration(max(late, 1e-6)), "200 ms", late <= 0.2)


def _half():
    """16-bit formats against float32 in every family of operators, at 262,144 elements. What seems above the limit is measured
    again, five times as long: among 260 medians of a shared machine some are far off, and those would be named in every run."""
    tables = {dtype: {f: make(tg, *families.tensors(tg, families.SIZES[262_144], getattr(tg, dtype))) for f, make in families.FAMILIES.items()}
              for dtype in ("float32", "bfloat16", "float16")}
    for dtype in ("bfloat16", "float16"):
        slow, ratios = [], []
        for family, table in tables[dtype].items():
            for name, run in table.items():
                if name.startswith("int64"):
                    continue
                ratios.append(1 / _paired(run, tables["float32"][family][name], 15, 0.01))
                if ratios[-1] > 1.3:
                    ratios[-1] = 1 / _paired(run, tables["float32"][family][name], 75, 0.01)
                if ratios[-1] > 1.3:
                    slow.append(f"{name} {ratios[-1]:.2f}")
        worst = f": {', '.join(slow)}" if slow else ""
        yield Promise(f"8: {dtype} against float32, {len(ratios)} operators, geometric mean of the times {geometric_mean(ratios):.2f}",
                      f"{len(slow)} above 1.3{worst}", "0", not slow)


def measure_promises(libraries, rounds=9):
    done = []
    for promises in (_lines(rounds), _nan_mode(libraries, rounds), _same_bits(), _generator(libraries, rounds), _interrupts(), _half()):
        for p in promises:
            print(f"{p.what:72} {p.measured:24} limit {p.limit:8} {'kept' if p.kept else 'BROKEN'}", flush=True)
            done.append(p)
    return done


def table(promises: list[Promise]) -> str:
    lines = ["", "## What our promises cost", "", "| promise | measured | limit | |", "| --- | --- | --- | --- |"]
    return "\n".join(lines + [f"| {p.what} | {p.measured} | {p.limit} | {'kept' if p.kept else 'not kept'} |" for p in promises]) + "\n"
