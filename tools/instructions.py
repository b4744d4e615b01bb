"""Counts the processor's instructions of some calls, under valgrind: a count that no busy neighbour changes.

usage: instructions.py [--build DIR] [--only SUBSTRING]

Each call runs LOOPS times between two calls of get_num_threads, where callgrind writes what it has counted; the
instructions of an empty loop are taken off. A line's count is repeatable to about one in a hundred: dictionaries and the
allocator's free lists differ from process to process. Kernels and the choice of an instruction set belong to the
processor, so counts are compared on one machine only. benchmarks/results/ keeps them by processor.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOOPS = 200
MARKER = "tapegrad::get_num_threads()"

CALLS = """
import os
import tapegrad as tg
from tapegrad import nn
F = nn.functional
tg.set_num_threads(1)
tg.manual_seed(0)
a, b = tg.tensor([0.1, 0.2, 0.3, 0.4]), tg.tensor([0.5, 0.6, 0.7, 0.8])
p = tg.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=True)
m, n = tg.rand(4, 4), tg.rand(4, 4)
w, bias = tg.rand(4, 4, requires_grad=True), tg.rand(4, requires_grad=True)
image, kernel = tg.rand(1, 2, 5, 5), tg.rand(2, 2, 3, 3)
target = tg.tensor([0, 1, 2, 3])
linear = nn.Linear(4, 4)
batch = tg.rand(3, 4)
vmapped = tg.vmap(lambda x: x + b)
both = tg.vmap(lambda x: F.linear(x, w.detach(), None))

def autocast_linear():
    with tg.autocast("cpu", dtype=tg.bfloat16):
        return F.linear(m, w, bias)

def vmapped_autocast_linear():
    with tg.autocast("cpu", dtype=tg.bfloat16):
        return both(batch)

mlp = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
adam = tg.optim.Adam(mlp.parameters(), lr=1e-3)
rows, labels = tg.rand(8, 16), tg.tensor([0, 1, 2, 3, 0, 1, 2, 3])

def training(x, y):
    adam.zero_grad()
    loss = F.cross_entropy(mlp(x), y)
    loss.backward()
    adam.step()
    return loss

def by_sizes(x):
    for _ in range(20):
        n, width = x.shape
        x = x.view(n, 2, width // 2).transpose(1, 2).reshape(n, width)
    return x

def two_recorded_calls(step, *args):
    step.reset()
    step(*args)
    return step(*args)

replayed, recorded, sized = tg.record(training), tg.record(training), tg.record(by_sizes)

def no_grad_add():
    with tg.no_grad():
        return p + b

CALLS = {
    "nothing": lambda: None,
    "a + b": lambda: a + b,
    "a + b, recorded": lambda: p + b,
    "a + b under no_grad": no_grad_add,
    "add(a, b)": lambda: tg.add(a, b),
    "a * 2": lambda: a * 2,
    "a.add_(b)": lambda: a.add_(b),
    "add(a, b, out=)": lambda: tg.add(a, b, out=a),
    "relu": lambda: tg.relu(a),
    "sum, recorded": lambda: p.sum(),
    "softmax": lambda: F.softmax(m, -1),
    "m @ n": lambda: m @ n,
    "linear, recorded": lambda: F.linear(m, w, bias),
    "nn.Linear": lambda: linear(m),
    "conv2d": lambda: F.conv2d(image, kernel, padding=1),
    "cross_entropy, recorded": lambda: F.cross_entropy(w, target),
    "layer_norm": lambda: F.layer_norm(m, (4,)),
    "where": lambda: tg.where(m > 0.5, m, n),
    "t[1]": lambda: m[1],
    "reshape": lambda: m.reshape(2, 8),
    "cat": lambda: tg.cat([a, b]),
    "forward and backward of a linear": lambda: F.linear(m, w, bias).sum().backward(),
    "autocast linear": autocast_linear,
    "vmapped a + b": lambda: vmapped(batch),
    "vmapped, autocast linear": vmapped_autocast_linear,
    "training step": lambda: training(rows, labels),
    "training step, replayed": lambda: replayed(rows, labels),
    "training step, two recorded calls": lambda: two_recorded_calls(recorded, rows, labels),
    "reshapes by sizes": lambda: by_sizes(rows),
    "reshapes by sizes, two recorded calls": lambda: two_recorded_calls(sized, rows),
}

if os.environ.get("TAPEGRAD_CUDA_SIMULATE"):  # the host's part of a launch; the kernel itself runs when somebody waits
    c, d, g = a.cuda(), b.cuda(), tg.rand(4, device="cuda", requires_grad=True)
    CALLS["a + b on a simulated device"] = lambda: c + d
    CALLS["a + b on a simulated device, recorded"] = lambda: g + d

def profiled():
    with tg.profiler.profile():
        for _ in range(LOOPS):
            a + b
"""

DRIVER = """
ONLY, LOOPS = {only!r}, {loops}
chosen = [n for n in CALLS if n == "nothing" or ONLY in n]
for name in chosen:
    for _ in range(30):
        CALLS[name]()
tg.get_num_threads()
for name in chosen:
    call = CALLS[name]
    for _ in range(LOOPS):
        call()
    tg.get_num_threads()
profiled()
tg.get_num_threads()
profiled()
tg.get_num_threads()
print("\\n".join(chosen))
"""


def count(build: Path, only: str = "") -> dict[str, float]:
    """Instructions of one call, by its name. Calls on a simulated device are counted in a process of their own."""
    counts = _count(build, only, {})
    if (build / "lib" / "libtapegrad_cuda_sim.so").exists():
        on_device = _count(build, only if "device" in only else "simulated device", {"TAPEGRAD_CUDA_SIMULATE": "1"})
        counts |= {name: number for name, number in on_device.items() if only in name and "simulated device" in name}
    return counts


def _count(build: Path, only: str, environment: dict[str, str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--dump-after={MARKER}", sys.executable, "-c",
                   CALLS + DRIVER.format(only=only, loops=LOOPS)]
        environment = {**os.environ, "PYTHONPATH": str(build / "python"), "PYTHONHASHSEED": "0", "TAPEGRAD_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **environment}
        run = subprocess.run(command, env=environment, capture_output=True, text=True)
        if run.returncode:
            raise RuntimeError(run.stderr[-2000:])
        totals = []
        for path in sorted(glob.glob(out + ".*"), key=lambda p: int(p.rsplit(".", 1)[1])):
            totals.append(int(re.search(r"^(?:summary|totals): (\d+)", Path(path).read_text(errors="replace"), re.M)[1]))
    names = [*run.stdout.split("\n")[:-1], "first profile", "a + b under the profiler"]
    counts = {name: total / LOOPS for name, total in zip(names, totals[1:], strict=False)}
    nothing = counts.pop("nothing")
    counts.pop("first profile")
    return {name: value - nothing for name, value in counts.items()}


def table(counts: dict[str, float]) -> str:
    width = max(map(len, counts))
    return "".join(f"{name.ljust(width)}  {value:10,.0f}\n" for name, value in counts.items())


def main():
    arguments = argparse.ArgumentParser(description="instructions of some calls, counted by valgrind")
    arguments.add_argument("--build", type=Path, default=ROOT / "build")
    arguments.add_argument("--only", default="", help="the calls whose names have this in them")
    options = arguments.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed: apt-get install valgrind")
    print(table(count(options.build.resolve(), options.only)), end="")


if __name__ == "__main__":
    main()
