"""The group "cuda": kernels, products and training steps on a GPU, against the torch that is found there.

Work is queued and timed with one wait at the end of each measurement, so that a case of small tensors times what an operator
costs the host, and one of large tensors what the kernel takes. Large kernels are compared with the card's own copy rate. On
a simulated device (TAPEGRAD_CUDA_SIMULATE) everything runs small: a test of this file, and no measurement. The networks are
those of models/.
"""

import datetime
import gc
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from . import report
from .harness import Case, duration, geometric_mean, measure
from .models import MODELS, on_cuda
from .operators import linalg

SIMULATED = bool(os.environ.get("TAPEGRAD_CUDA_SIMULATE"))
LARGE = 1 << (10 if SIMULATED else 26)  # elements of a tensor that caches do not hold
SIDE = 32 if SIMULATED else 4096  # of square matrices
DTYPES = ("float32", "tf32", "bfloat16")  # tf32: float32 whose products may be rounded to TF32


class Work:
    """A case in the making: `make(lib)` gives the function to time; bytes, floating-point operations or (items, unit) of one call.
    `heavy`: what was made before is given back first, and what a call asks of the allocator is counted. `tf32`: every library may
    round to TF32; without it none may, whatever its defaults are."""

    def __init__(self, group, name, make, nbytes=0, flops=0, items=None, heavy=False, tf32=False):
        self.group, self.name, self.make, self.nbytes, self.flops, self.items = group, name, make, nbytes, flops, items
        self.heavy, self.tf32 = heavy, tf32


def pointwise():
    for name, dtype, f, operands in [
        ("copy", "float32", lambda lib, x, y: lambda: x.clone(), 2), ("add", "float32", lambda lib, x, y: lambda: x + y, 3),
        ("add a number", "float32", lambda lib, x, y: lambda: x + 2.5, 2), ("exp", "float32", lambda lib, x, y: lambda: x.exp(), 2),
        ("gelu", "float32", lambda lib, x, y: lambda: lib.nn.functional.gelu(x), 2), ("where", "float32", lambda lib, x, y: lambda: lib.where(x > y, x, y), 0),
        ("add", "bfloat16", lambda lib, x, y: lambda: x + y, 3), ("gelu", "bfloat16", lambda lib, x, y: lambda: lib.nn.functional.gelu(x), 2),
        ("to bfloat16", "float32", lambda lib, x, y: lambda: x.to(lib.bfloat16), 1.5), ("add of a transpose", "float32", transposed_add, 3),
    ]:
        size = 4 if dtype == "float32" else 2
        yield Work("pointwise", f"{name}, {dtype}", lambda lib, f=f, dtype=dtype: f(lib, *two(lib, (LARGE,), dtype)), operands * LARGE * size)


def transposed_add(lib, x, y):
    side = int(LARGE**0.5)
    a, b = (t[: side * side].reshape(side, side) for t in (x, y))
    return lambda: a + b.t()


def two(lib, shape, dtype="float32"):
    return [lib.randn(*shape, device="cuda").to(getattr(lib, dtype)) for _ in range(2)]


def stored(dtype):
    """The dtype of tensors that a case of DTYPES has."""
    return "float32" if dtype == "tf32" else dtype


def reductions():
    rows, cols = (16, 64) if SIMULATED else (1 << 14, 1 << 12)
    shape, nbytes = (rows, cols), rows * cols * 4
    for name, f in [("sum of all", lambda lib, x: lambda: x.sum()), ("sum of rows", lambda lib, x: lambda: x.sum(1)),
                    ("sum of columns", lambda lib, x: lambda: x.sum(0)), ("var of rows", lambda lib, x: lambda: x.var(1)),
                    ("argmax of rows", lambda lib, x: lambda: x.argmax(1)), ("cumsum of rows", lambda lib, x: lambda: x.cumsum(1))]:
        yield Work("reductions", name, lambda lib, f=f: f(lib, two(lib, shape)[0]), nbytes * (2 if "cumsum" in name else 1))
    for name, f in [("softmax", lambda lib, x: lambda: x.softmax(1)), ("log_softmax", lambda lib, x: lambda: x.log_softmax(1)),
                    ("layer_norm", lambda lib, x: lambda: lib.nn.functional.layer_norm(x, (cols,))),
                    ("rms_norm", lambda lib, x: lambda: lib.nn.functional.rms_norm(x, (cols,)))]:
        for dtype in ("float32", "bfloat16"):
            size = 4 if dtype == "float32" else 2
            yield Work("softmax and norms", f"{name}, {dtype}", lambda lib, f=f, dtype=dtype: f(lib, two(lib, shape, dtype)[0]), 2 * rows * cols * size)

    def batch_norm(lib):
        norm = lib.nn.BatchNorm2d(8).to("cuda")
        x = lib.randn(4, 8, cols // 8, rows // 4, device="cuda")
        return lambda: norm(x)

    yield Work("softmax and norms", "batch_norm, training", batch_norm, 3 * nbytes)


def indexing():
    rows, cols, count = (64, 16, 100) if SIMULATED else (1 << 17, 256, 1 << 17)

    def operands(lib):
        return lib.randn(rows, cols, device="cuda"), lib.randint(0, rows, (count,), device="cuda")

    moved = 2 * count * cols * 4
    cases = [
        ("rows of a table", lambda lib, t, i: lambda: t[i], moved), ("index_select", lambda lib, t, i: lambda: t.index_select(0, i), moved),
        ("embedding", lambda lib, t, i: lambda: lib.nn.functional.embedding(i, t), moved),
        ("gather", lambda lib, t, i: (lambda j: lambda: t.gather(0, j))(i.unsqueeze(1).expand(count, cols).contiguous()), moved + count * cols * 8),
        ("index_add", lambda lib, t, i: (lambda s: lambda: t.index_add(0, i, s))(lib.randn(count, cols, device="cuda")), 0),
        ("masked_select", lambda lib, t, i: (lambda m: lambda: t.masked_select(m))(t > 0), 0),
        ("sort", lambda lib, t, i: lambda: t.view(-1)[: LARGE // 16].sort(), 0), ("cat", lambda lib, t, i: lambda: lib.cat([t, t]), 4 * rows * cols * 4),
    ]
    for name, f, nbytes in cases:
        yield Work("indexing", name, lambda lib, f=f: f(lib, *operands(lib)), nbytes)


def products():
    n = SIDE
    for dtype in (*DTYPES, "float64"):
        yield Work("products", f"{n} x {n}, {dtype}", lambda lib, d=stored(dtype): (lambda a, b: lambda: a @ b)(*two(lib, (n, n), d)), flops=2 * n**3, tf32=dtype == "tf32")

    m = 16 if SIMULATED else 512
    yield Work("products", f"64 of {m} x {m}, bfloat16", lambda lib: (lambda a, b: lambda: a @ b)(*two(lib, (64, m, m), "bfloat16")), flops=128 * m**3)

    def linear(lib):
        x, w = two(lib, (n, n), "bfloat16")
        return lambda: lib.nn.functional.linear(x, w, w[0])

    yield Work("products", f"linear with bias, {n}, bfloat16", linear, flops=2 * n**3)

    def gradients(lib):
        x, w = (t.requires_grad_() for t in two(lib, (n, n), "bfloat16"))
        bias = lib.randn(n, device="cuda").to(lib.bfloat16).requires_grad_()
        y = lib.nn.functional.linear(x, w, bias)
        g = lib.randn_like(y)
        return lambda: lib.autograd.grad(y, (x, w, bias), g, retain_graph=True)

    yield Work("products", f"its three gradients, {n}, bfloat16", gradients, flops=4 * n**3)

    def scaled(lib, rows):
        a, b = (t.to(lib.float8_e4m3fn) for t in two(lib, (n, n)))
        scales = (lib.rand(n, 1, device="cuda"), lib.rand(1, n, device="cuda")) if rows else (lib.rand((), device="cuda"), lib.rand((), device="cuda"))
        return lambda: lib._scaled_mm(a, b.t(), *scales, out_dtype=lib.bfloat16)

    for rows, name in ((False, "one scale each"), (True, "a scale for each row")):
        yield Work("products", f"{n} x {n}, float8, {name}", lambda lib, rows=rows: scaled(lib, rows), flops=2 * n**3)

    def grouped(lib):
        x, w = lib.randn(2 * n, n, device="cuda").to(lib.bfloat16), lib.randn(8, n // 4, n, device="cuda").to(lib.bfloat16)
        ends = (lib.arange(1, 9, device="cuda") * (n // 4)).to(lib.int32)
        return lambda: lib._grouped_mm(x, w.mT, ends)

    yield Work("products", f"8 groups of {n // 4} rows, {n} x {n // 4}, bfloat16", grouped, flops=n**3)


def matrices():
    """On both sides of the bounds from which on cuSOLVER has them (cuda/linalg/factor/large.h)."""
    for n, batch in [(64, ()), (80, ()), (512, ()), (SIDE, ()), (256, (15,)), (256, (16,))]:
        for name in ("inv", "solve", "cholesky", "solve_triangular", "qr"):
            def make(lib, n=min(n, SIDE), batch=batch, f=linalg.OPERATORS[name]):
                operands = linalg.operands(lib, n, *batch, device="cuda")
                return lambda: f(lib, *operands)
            yield Work("linear algebra", f"{name}, {' of '.join([*map(str, batch), f'{n} x {n}'])}, float32", make)


def small():
    for name, f in [("add of 4", lambda lib: (lambda x, y: lambda: x + y)(*two(lib, (4,)))), ("product of 8 x 8", lambda lib: (lambda x, y: lambda: x @ y)(*two(lib, (8, 8)))),
                    ("sum of 100", lambda lib: (lambda x, y: lambda: x.sum())(*two(lib, (100,))))]:
        yield Work("launches", name, f)


def mlp(lib, batch, width, graphed):
    """A training step by hand-written gradient descent; `graphed`: captured once and replayed."""
    lib.manual_seed(0)
    sizes = [784, width, width, 10]
    layers = [x for a, b in zip(sizes, sizes[1:]) for x in (lib.nn.Linear(a, b), lib.nn.ReLU())][:-1]
    model = lib.nn.Sequential(*layers).to("cuda")
    x, y = lib.randn(batch, 784, device="cuda"), lib.randint(0, 10, (batch,), device="cuda")
    parameters = list(model.parameters())

    def step():
        lib.nn.functional.cross_entropy(model(x), y).backward()
        with lib.no_grad():
            for p in parameters:
                p.sub_(p.grad, alpha=1e-3)
                p.grad = None

    return on_cuda.captured(lib, step) if graphed else step


def adam(lib):
    parameters = [lib.nn.Parameter(lib.randn(64, 64, device="cuda")) for _ in range(40)]
    for p in parameters:
        p.grad = lib.randn_like(p)
    return lib.optim.Adam(parameters, lr=1e-3).step


def steps():
    width = 16 if SIMULATED else 1024
    for batch in (32, 1024):
        for graphed in (False, True):
            yield Work("training steps", f"MLP 784-{width}-{width}-10, batch {batch}, {'graphed' if graphed else 'eager'}",
                       lambda lib, b=batch, g=graphed: mlp(lib, b if not SIMULATED else 4, width, g))
    yield Work("training steps", "Adam, 40 tensors of 64 x 64", adam)


def convolutions():
    n, channels, side = (2, 4, 8) if SIMULATED else (64, 128, 56)
    flops = 2 * n * channels * channels * side * side * 9
    for dtype in DTYPES:
        def operands(lib, dtype=stored(dtype)):
            x, w = lib.randn(n, channels, side, side, device="cuda"), lib.randn(channels, channels, 3, 3, device="cuda")
            return [t.to(getattr(lib, dtype)).requires_grad_() for t in (x, w)]

        def forward(lib, layout="contiguous_format", operands=operands):
            x, w = (t.detach().contiguous(memory_format=getattr(lib, layout)) for t in operands(lib))
            return lambda: lib.nn.functional.conv2d(x, w, padding=1)

        def backward(lib, operands=operands):
            x, w = operands(lib)
            y = lib.nn.functional.conv2d(x, w, padding=1)
            g = lib.ones_like(y)
            return lambda: lib.autograd.grad(y, (x, w), g, retain_graph=True)

        tf32 = dtype == "tf32"
        yield Work("convolutions", f"3 x 3, {channels} channels, {side} x {side}, {dtype}", forward, flops=flops, tf32=tf32)
        yield Work("convolutions", f"the same in channels_last, {dtype}", lambda lib, f=forward: f(lib, "channels_last"), flops=flops, tf32=tf32)
        yield Work("convolutions", f"its two gradients, {dtype}", backward, flops=2 * flops, tf32=tf32)


def attention():
    batch, heads, n, width = (2, 2, 8, 8) if SIMULATED else (8, 16, 1024, 64)
    flops = 4 * batch * heads * n * n * width  # of the whole, also where half of it is hidden
    kinds = {"": {}, ", causal": {"is_causal": True}, ", padded": {"attn_mask": True}, ", dropout": {"dropout_p": 0.1}}
    for dtype, of in (("bfloat16", kinds), ("float32", list(kinds)[:2])):
        for kind in of:
            def forward(lib, dtype=dtype, options=kinds[kind]):
                q, k, v = (lib.randn(batch, heads, n, width, device="cuda").to(getattr(lib, dtype)).requires_grad_() for _ in range(3))
                if "attn_mask" in options:  # samples of several lengths
                    lengths = n - n // batch * lib.arange(batch, device="cuda")
                    options = {"attn_mask": (lib.arange(n, device="cuda") < lengths[:, None])[:, None, None]}
                return (q, k, v), lambda: lib.nn.functional.scaled_dot_product_attention(q, k, v, **options)

            def backward(lib, forward=forward):
                leaves, run = forward(lib)
                y = run()
                g = lib.ones_like(y)
                return lambda: lib.autograd.grad(y, leaves, g, retain_graph=True)

            name = f"{batch} x {heads} x {n} x {width}{kind}, {dtype}"
            yield Work("attention", name, lambda lib, f=forward: f(lib)[1], flops=flops)
            yield Work("attention", f"its gradients{kind}, {dtype}", backward, flops=2.5 * flops)


def training():
    for network in MODELS:
        for i, n in enumerate(on_cuda.batches(network)):
            for dtype in DTYPES:
                for graphed in (False, True):
                    yield Work("networks" if i else "networks, small batches", f"{network.name}, {n} {network.unit}, {dtype}, {'graphed' if graphed else 'eager'}",
                               lambda lib, w=network, n=n, d=stored(dtype), g=graphed: on_cuda.training_step(lib, w, n, d, g), items=(n, network.unit), heavy=True,
                               tf32=dtype == "tf32")


def all_work():
    """The most telling first: a run may be cut off."""
    for part in (small, steps, training, pointwise, reductions, products, attention, convolutions, matrices, indexing):
        yield from part()


def copy_rate(lib) -> float:
    """Bytes per second of a large copy on the card, read and written, the best of ten."""
    x = lib.randn(LARGE, device="cuda")
    y = lib.empty_like(x)
    case = Case("", "", {"tapegrad": lambda: y.copy_(x)}, finish=lib.cuda.synchronize)
    measure(case, 10)
    return 2 * 4 * LARGE / min(case.seconds["tapegrad"])


def driver_allocations(lib) -> int:
    """Allocations of the driver in ten training steps after the first."""
    step = mlp(lib, 8, 32, False)
    step(), lib.cuda.synchronize()
    before = lib.cuda.memory_stats().get("num_device_alloc", 0)
    for _ in range(10):
        step()
    lib.cuda.synchronize()
    return lib.cuda.memory_stats().get("num_device_alloc", 0) - before


def run_one(work: Work, libs: dict, rounds: int):
    """(Case or None, what it asked of the allocator, why a library is missing)."""
    runs, why = {}, ""
    if work.heavy:
        gc.collect()
    for name, lib in libs.items():
        lib.backends.cuda.matmul.allow_tf32 = lib.backends.cudnn.allow_tf32 = work.tf32
        if work.heavy:
            lib.cuda.empty_cache(), lib.cuda.reset_peak_memory_stats()
        try:
            runs[name] = work.make(lib)
            runs[name](), lib.cuda.synchronize()
        except Exception as error:  # whatever it is, the other cases are measured
            runs.pop(name, None)
            why = why or f"{name}: {(str(error).splitlines() or [type(error).__name__])[0]}"
    if "tapegrad" not in runs:
        return None, {}, why
    try:
        case = measure(Case(work.group, work.name, runs, inner=int(SIMULATED), finish=wait_all(libs)), rounds, pause_s=0)
        asked = {name: on_cuda.traffic(libs[name], run, 1 if SIMULATED else 5) for name, run in runs.items()} if work.heavy else {}
    except Exception as error:
        return None, {}, f"while it was timed: {(str(error).splitlines() or [type(error).__name__])[0]}"
    return case, asked, why


def wait_all(libs):
    def wait():
        for lib in libs.values():
            lib.cuda.synchronize()

    return wait


def first_steps(libs: dict):
    """Each network and library in a process of its own: seconds to the end of the first step, and what they went into."""
    for network in filter(on_cuda.batches, MODELS):
        for name in libs:
            row = {"network": network.name, "library": name}
            try:
                done = subprocess.run([sys.executable, "-m", "benchmarks.models.on_cuda", name, network.name], capture_output=True, text=True, timeout=600)
                row |= json.loads(done.stdout.splitlines()[-1])
            except subprocess.TimeoutExpired:
                row["missing"] = "no first step in 600 s"
            except (IndexError, ValueError):
                row["missing"] = (done.stderr.strip().splitlines() or ["nothing was printed"])[-1]
            yield row


def rate(work: Work, seconds: float, copy: float) -> str:
    if work.items:
        return f"{work.items[0] / seconds:.4g} {work.items[1]}/s"
    if work.flops:
        return f"{work.flops / seconds / 1e12:.3g} TFLOP/s"
    return f"{work.nbytes / seconds / 1e9:.0f} GB/s, {100 * work.nbytes / seconds / copy:.0f} % of a copy" if work.nbytes else ""


def main(libs: dict, rounds: int, out: Path, only=lambda text: True, name: str = "", resume: bool = False) -> None:
    """Runs the group and writes DATE-DEVICE.md, .json and, where torch has a GPU too, .png; `resume`: only what the .json lacks."""
    own = libs["tapegrad"]
    if not own.cuda.is_available():
        raise SystemExit("the group cuda needs a device: " + own._C._cuda_why_not())
    peers = {n: lib for n, lib in libs.items() if n == "torch" and not SIMULATED and lib.cuda.is_available()}
    if "torch" in libs and not peers:
        print("this torch has no device: tapegrad is measured alone")
    device = re.sub(r"[^a-z0-9]+", "-", own.cuda.get_device_name().lower()).strip("-")
    stem = "-".join(filter(None, [datetime.date.today().isoformat(), device, name]))
    out.mkdir(parents=True, exist_ok=True)
    kept = json.loads((out / f"{stem}.json").read_text()) if resume and (out / f"{stem}.json").exists() else None
    rows, starts = (kept["rows"], kept["first_steps"]) if kept else ([], [])
    facts = kept["facts"] if kept else {
        "device": own.cuda.get_device_name(), "capability": ".".join(map(str, own.cuda.get_device_capability())), "simulated": SIMULATED,
        "copy_GB_per_s": round(copy_rate(own) / 1e9, 1), "driver_allocations_in_10_steps": driver_allocations(own),
        "versions": {n: lib.__version__ for n, lib in {"tapegrad": own, **peers}.items()}, "libraries": own.cuda.library_versions()}

    def write():  # after every row: what was measured outlives an error of the device and a limit of time
        part = out / f".{stem}.part"  # a run that is killed leaves the file before whole
        part.write_text(json.dumps({"facts": facts, "rows": rows, "first_steps": starts}, indent=1))
        part.replace(out / f"{stem}.json")
        (out / f"{stem}.md").write_text(table(facts, rows, peers) + allocator_table(rows) + first_step_table(starts))

    have = {(r["group"], r["name"]) for r in rows}
    for work in all_work():
        if (work.group, work.name) in have or not only(f"cuda: {work.group}: {work.name}"):
            continue
        case, asked, why = run_one(work, {"tapegrad": own, **peers}, rounds)
        if case is None:
            rows.append({"group": work.group, "name": work.name, "missing": why})
            print(f"{work.group:24} {work.name:50} left out: {why}", flush=True)
        else:
            seconds, ratio = case.median("tapegrad"), case.ratio("torch")
            rows.append({"group": work.group, "name": work.name, "seconds": case.seconds, "median": seconds, "ratio": ratio,
                         "rate": rate(work, seconds, facts["copy_GB_per_s"] * 1e9), "of_copy": work.nbytes / seconds / facts["copy_GB_per_s"] / 1e9 if work.nbytes else None,
                         "note": why, "allocator": asked})
            print(f"{work.group:24} {work.name:50} {duration(seconds):>9}  {'' if ratio is None else f'{ratio:.2f}x'}  {rows[-1]['rate']}", flush=True)
        write()
        if case is None and is_broken(own):  # for every later call of this process
            arguments = [a for a in sys.argv[1:] if a != "--resume"]
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-m", "benchmarks", *arguments, "--resume"])
    if only("cuda: first step") and not starts:
        for row in first_steps({"tapegrad": own, **peers}):
            starts.append(row)
            write()
    write()
    timed = [Case(r["group"], r["name"], {}, seconds=r["seconds"]) for r in rows if "seconds" in r]
    if peers and len(timed) > 1:
        report.plot(timed, "torch", out / f"{stem}.png")
    print(f"written: {out / stem}.md, .json" + (", .png" if peers and len(timed) > 1 else ""))


def is_broken(lib) -> bool:
    try:
        lib.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def table(facts: dict, rows: list, peers) -> str:
    """Markdown: what was measured where, a summary per group, every case, and what is slower than torch."""
    lines = [f"# tapegrad on {facts['device']}", ""]
    if facts["simulated"]:
        lines += ["On a simulated device: a test of the script. The times say nothing.", ""]
    lines += [f"Compute capability {facts['capability']}; a copy moves {facts['copy_GB_per_s']} GB/s (read and written). "
              + ", ".join(f"{n} {v}" for n, v in facts["versions"].items()) + ".",
              "Libraries: " + ", ".join(f"{n} {v}" for n, v in facts["libraries"].items()) + ".",
              f"Allocations of the driver in ten training steps after the first: {facts['driver_allocations_in_10_steps']}.", "",
              "Medians of alternating rounds, each ended by a wait for the device; a ratio above 1 means that tapegrad is faster."]
    groups: dict[str, list] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    for group, members in groups.items():
        ratios = [r["ratio"] for r in members if r.get("ratio")]
        lines += ["", f"## {group}" + (f" ({geometric_mean(ratios):.2f} of torch)" if ratios else ""), "", "| case | tapegrad | torch | ratio | rate |", "| --- | --- | --- | --- | --- |"]
        for r in members:
            if "missing" in r:
                lines.append(f"| {r['name']} | none: {r['missing']} | | | |")
                continue
            theirs = duration(statistics.median(r["seconds"]["torch"])) if "torch" in r["seconds"] else ""
            lines.append(f"| {r['name']} | {duration(r['median'])} | {theirs} | {'' if r['ratio'] is None else format(r['ratio'], '.2f')} | {r['rate']} |")
    lines += goals(rows)
    if peers:
        slow = [f"- {r['group']}: {r['name']}: {r['ratio']:.2f}" for r in rows if r.get("ratio") and r["ratio"] < 1]
        lines += ["", "## Slower than torch", "", *(slow or ["None."])]
    return "\n".join(lines) + "\n"


def goals(rows: list) -> list:
    """What the backend is meant to reach, and how much of it these rows do."""
    found = []
    for text, members in [
        ("Large kernels at 85 % of a copy's rate", [(r, r["of_copy"] >= 0.85) for r in rows if r.get("of_copy")]),
        ("Networks at least as fast as torch, eager", [(r, r["ratio"] >= 1) for r in rows if r["group"] == "networks" and r.get("ratio") and "eager" in r["name"]]),
        ("Small batches 1.5 times as fast as torch, eager", [(r, r["ratio"] >= 1.5) for r in rows if r["group"] == "networks, small batches" and r.get("ratio") and "eager" in r["name"]]),
        ("Training steps without an allocation of the driver", [(r, r["allocator"]["tapegrad"]["driver"] == 0) for r in rows if r.get("allocator")]),
    ]:
        if members:
            missed = [r["name"] for r, reached in members if not reached]
            found.append(f"- {text}: {len(members) - len(missed)} of {len(members)}" + (f"; not: {'; '.join(missed)}" if missed else ""))
    return ["", "## Goals", "", *found] if found else []


def allocator_table(rows: list) -> str:
    """What a step of each network asks of the allocator."""
    lines = ["", "## Allocator, per step", "", "| case | library | requests | bytes | of the driver | reserved at most |", "| --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        for library, asked in r.get("allocator", {}).items():
            lines.append(f"| {r['name']} | {library} | {asked['requests']:.0f} | {asked['bytes'] / 1e6:.1f} MB | {asked['driver']:g} | {asked['peak'] / 1e6:.0f} MB |")
    return "\n".join(lines) + "\n" if len(lines) > 5 else ""


def first_step_table(rows: list) -> str:
    """Seconds to the first step, each network in a process of its own."""
    lines = ["", "## Time to the first step", "", "A fresh process each: the import, the network and a small batch on the device, its first step in float32; and the fourth.", "",
             "| network | library | import | network | first step | together | fourth step |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for r in rows:
        if "missing" in r:
            lines.append(f"| {r['network']} | {r['library']} | none: {r['missing']} | | | | |")
        else:
            parts = [r["import"], r["build"], r["first"]]
            lines.append(f"| {r['network']} | {r['library']} | " + " | ".join(map(duration, [*parts, sum(parts), r["fourth"]])) + " |")
    return "\n".join(lines) + "\n" if rows else ""
