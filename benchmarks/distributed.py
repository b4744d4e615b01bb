"""Two ranks on this machine: collectives, data-parallel steps and exchanges, beside torch's over gloo in the same rounds.

Rank 0 is this process; rank 1 is a child per library that runs what rank 0 asks for, several calls per question.
"""

import atexit
import importlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from .harness import Case

REDUCTIONS = (("4 KB", 1 << 10, 200), ("1 MB", 1 << 18, 30), ("100 MB", 25 << 20, 2))
LAYERS, WIDTH = 24, 1024  # of what memory is measured with: 4 MB each
WARM, TIMELINES = 5, 40  # steps
CUTS = (("default buckets", None), ("buckets of 0.5 MB", 0.5))


def _resident(name: str) -> float:
    """MB of this process by the system: VmRSS now, VmHWM at most."""
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)) / 1e3 * 1.024


def overlap(step: dict) -> float:
    """The share of the time in which buckets are reduced that lies within the backward's operators."""
    total = sum(end - begun for _, begun, end in step["buckets"])
    return sum(max(0.0, min(end, step["computed"]) - begun) for _, begun, end in step["buckets"]) / total


class Rank:
    """One rank of one library: its groups, models and what it can be asked to run."""

    def __init__(self, name: str, rank: int, port: int):
        self.name, self.lib = name, importlib.import_module(name)
        self.lib.set_num_threads(1)
        self.dist = importlib.import_module(f"{name}.distributed")
        self.dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
        self.rank, self.made = rank, {}
        if name == "tapegrad":
            os.environ["TAPEGRAD_DISTRIBUTED_ENGINE"] = "gloo"
            self.over_gloo = self.dist.new_group()
            del os.environ["TAPEGRAD_DISTRIBUTED_ENGINE"]
        else:
            self.over_gloo = None

    def run(self, what: str, *args, calls: int):
        """Runs one of the functions below `calls` times."""
        key = (what, *args)
        if key not in self.made:
            self.made[key] = getattr(self, what)(*args)
        step = self.made[key]
        for _ in range(calls):
            step()

    def all_reduce(self, numel: int, gloo: bool):
        t = self.lib.zeros(numel)
        group = self.over_gloo if gloo else None
        return lambda: self.dist.all_reduce(t, group=group)

    def all_gather(self, numel: int, gloo: bool):
        t, out = self.lib.zeros(numel), self.lib.zeros(2 * numel)
        group = self.over_gloo if gloo else None
        return lambda: self.dist.all_gather_into_tensor(out, t, group=group)

    def barrier(self):
        return self.dist.barrier

    def _train(self, net, make_loss, lr: float = 1e-3):
        model = self.lib.nn.parallel.DistributedDataParallel(net)
        optimizer = self.lib.optim.Adam(model.parameters(), lr=lr)

        def step():
            optimizer.zero_grad()
            make_loss(model).backward()
            optimizer.step()

        return step

    def digits(self):
        nn, lib = self.lib.nn, self.lib
        net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                            nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
        x, y = lib.randn(32, 1, 28, 28), lib.randint(0, 10, (32,))
        return self._train(net, lambda m: nn.functional.cross_entropy(m(x), y))

    def _gpt(self):
        """A small GPT (0.8 M numbers) and its loss of one batch."""
        nn, lib = self.lib.nn, self.lib
        width = 128

        class GPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.places = nn.Embedding(65, width), nn.Embedding(64, width)
                layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
                self.layers, self.head = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(width, 65)
                self.mask = nn.Transformer.generate_square_subsequent_mask(64)

            def forward(self, x):
                h = self.tokens(x) + self.places(lib.arange(x.shape[1]))
                return self.head(self.layers(h, mask=self.mask, is_causal=True))

        x, y = lib.randint(0, 65, (8, 64)), lib.randint(0, 65, (8, 64))
        return GPT(), lambda m: nn.functional.cross_entropy(m(x).reshape(-1, 65), y.reshape(-1))

    def gpt(self):
        return self._train(*self._gpt())

    def _sharded(self, net, blocks, kind: str):
        """The module that is called, and its optimizer: "fsdp" cuts everything, block by block; "zero" the optimizer's state."""
        Adam = self.lib.optim.Adam
        if kind == "fsdp":
            fully_shard = importlib.import_module(f"{self.name}.distributed.fsdp").fully_shard
            for block in blocks:
                fully_shard(block)
            return fully_shard(net), Adam(net.parameters(), lr=1e-3)
        Zero = importlib.import_module(f"{self.name}.distributed.optim").ZeroRedundancyOptimizer
        return self.lib.nn.parallel.DistributedDataParallel(net), Zero(net.parameters(), Adam, lr=1e-3)

    def sharded_gpt(self, kind: str):
        net, make_loss = self._gpt()
        model, optimizer = self._sharded(net, net.layers.layers, kind)

        def step():
            optimizer.zero_grad()
            make_loss(model).backward()
            optimizer.step()

        return step

    # What is measured once, by ranks of its own.
    def memory(self, kind: str) -> dict:
        """MB of this rank that training steps of LAYERS square layers need at most: by the allocator where it can tell, and by the system."""
        nn, lib = self.lib.nn, self.lib
        allocator = lib.cpu if self.name == "tapegrad" else None
        for part in ("fsdp", "optim"):  # what importing takes is not counted
            importlib.import_module(f"{self.name}.distributed.{part}")
        resident, tensors = _resident("VmRSS"), allocator.memory_allocated() if allocator else 0
        net = nn.Sequential(*[nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)])
        model, optimizer = self._sharded(net, net, kind)
        peaks = []
        for _ in range(5):
            if allocator:
                allocator.reset_peak_memory_stats()
            optimizer.zero_grad()
            model(lib.ones(4, WIDTH)).sum().backward()
            optimizer.step()
            if allocator:
                peaks.append((allocator.max_memory_allocated() - tensors) / 1e6)
        found = {"resident": _resident("VmHWM") - resident}
        if allocator:  # the order of the units is known after the first step; of what a group's thread lets go of a moment late the least counts
            found["tensors"] = min(peaks[1:])
        return found

    def timeline(self, engine: str, megabytes: float | None) -> list[dict]:
        """TIMELINES steps of the small GPT: milliseconds since its backward began."""
        from tapegrad.nn.parallel import DistributedDataParallel, _buckets

        net, make_loss = self._gpt()
        model = DistributedDataParallel(net, process_group=self.over_gloo if engine == "gloo" else None, bucket_cap_mb=megabytes)
        optimizer = self.lib.optim.Adam(model.parameters(), lr=1e-3)
        start, reduce_used = _buckets.GradientSync._start, _buckets.GradientSync._reduce_used
        given, ended, last = {}, {}, []

        def noting_start(sync, index, *rest):
            given[index] = time.monotonic()
            work = start(sync, index, *rest)
            work._call.then(lambda: ended.__setitem__(index, time.monotonic()))
            return work

        def noting_end(sync, unused):  # all operators of the backward are over, and it waits for what is left
            last.append(time.monotonic())
            return reduce_used(sync, unused)

        found = []
        _buckets.GradientSync._start, _buckets.GradientSync._reduce_used = noting_start, noting_end
        try:
            for step in range(WARM + TIMELINES):
                given.clear(), ended.clear(), last.clear()
                optimizer.zero_grad()
                loss = make_loss(model)
                self.dist.barrier()
                operators = []
                if step >= WARM:
                    with self.lib.profiler.profile() as profile, self.lib.profiler.record_function("begins"):
                        began = time.monotonic()
                        loss.backward()
                        over = time.monotonic()
                    events = profile.events()
                    zero = next(e for e in events if e.name == "begins").time_range.start
                    operators = [((e.time_range.start - zero) / 1e3, (e.time_range.end - zero) / 1e3) for e in events if e.name.startswith("autograd::engine::")]
                else:
                    began = time.monotonic()
                    loss.backward()
                    over = time.monotonic()
                optimizer.step()
                deadline = time.monotonic() + 5
                while len(ended) < len(given) and time.monotonic() < deadline:  # the notes come from the group's thread
                    time.sleep(0.001)
                buckets, free = [], 0.0
                for index in sorted(given):  # the group's thread does one after the other
                    begun = max(given[index], free)
                    free = ended[index]
                    buckets.append([1e3 * (t - began) for t in (given[index], begun, free)])
                if step >= WARM:
                    found.append({"began": 1e3 * began, "operators": operators, "buckets": buckets, "computed": 1e3 * (last[0] - began), "over": 1e3 * (over - began)})
        finally:
            _buckets.GradientSync._start, _buckets.GradientSync._reduce_used = start, reduce_used
        return found

    def end(self):
        return self.dist.destroy_process_group


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _start(*args, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.distributed", *map(str, args)], text=True,
                            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}, **options)


class Pair:
    """Both ranks of a library."""

    def __init__(self, name: str):
        port = _port()
        self.child = _start(name, port, stdin=subprocess.PIPE)
        atexit.register(self.child.kill)
        self.own = Rank(name, 0, port)

    def case(self, calls: int, what: str, *args):
        """A function that runs `calls` calls on both ranks."""
        def run():
            self.child.stdin.write(repr((what, args, calls)) + "\n")
            self.child.stdin.flush()
            self.own.run(what, *args, calls=calls)

        return run


def cases(libs: dict):
    pairs = {name: Pair(name) for name in libs if name in ("tapegrad", "torch")}
    for kind, gloo in (("over shared memory", False), ("over gloo", True)):
        for size, numel, calls in REDUCTIONS:
            yield Case("two ranks", f"all_reduce {size} {kind}, {calls} calls",
                       {n: p.case(calls, "all_reduce", numel, gloo) for n, p in pairs.items()}, inner=1)
        yield Case("two ranks", f"all_gather 1 MB {kind}, 30 calls", {n: p.case(30, "all_gather", 1 << 18, gloo) for n, p in pairs.items()}, inner=1)
    yield Case("two ranks", "barrier, 200 calls", {n: p.case(200, "barrier") for n, p in pairs.items()}, inner=1)
    yield Case("two ranks", "DDP step of the digits network, 8 steps", {n: p.case(8, "digits") for n, p in pairs.items()}, inner=1)
    yield Case("two ranks", "DDP step of a small GPT, 4 steps", {n: p.case(4, "gpt") for n, p in pairs.items()}, inner=1)
    for kind, what in (("fsdp", "fully_shard"), ("zero", "ZeroRedundancyOptimizer")):
        yield Case("two ranks", f"step of a small GPT with {what}, 4 steps", {n: p.case(4, "sharded_gpt", kind) for n, p in pairs.items()}, inner=1)
    for pair in pairs.values():
        pair.case(1, "end")()
        pair.child.stdin.close()
        pair.child.wait(10)


def ranks(name: str, what: str, *args) -> list:
    """What a method of Rank gives on two ranks that are made for it alone."""
    port = _port()
    processes = [_start(name, port, rank, what, json.dumps(args), stdout=subprocess.PIPE) for rank in range(2)]
    try:
        said = [p.communicate(timeout=300)[0] for p in processes]
    finally:
        for p in processes:
            p.kill()
    return [json.loads(text) for text in said]


def memory_table(libs: dict) -> str:
    """Peak memory per rank beside what the sharding promises."""
    whole, unit = LAYERS * WIDTH * WIDTH * 4e-6, WIDTH * WIDTH * 4e-6
    lines = ["", "## Memory per rank", "",
             f"Training steps of {LAYERS} linear layers of {WIDTH} x {WIDTH} with Adam on two ranks, MB at most: {whole:.0f} MB of parameters, four times as much "
             "with gradients and Adam's two states. Promised: all of it cut in two, and the values and gradients of the unit that computes and of "
             "the next one whole (fully_shard); or the two states cut in two (ZeroRedundancyOptimizer). Tensors: by the allocator, which torch does not have on the "
             "CPU; resident: by the system (VmHWM less VmRSS before), with buckets and transfers.", "",
             "| | promised | tapegrad, tensors | of what is promised | tapegrad, resident | torch, resident |", "| --- | --- | --- | --- | --- | --- |"]
    for kind, what, promised in (("fsdp", "fully_shard", 4 * whole / 2 + 4 * unit), ("zero", "ZeroRedundancyOptimizer", 2 * whole + 2 * whole / 2)):
        found = {name: ranks(name, "memory", kind) for name in ("tapegrad", "torch") if name in libs}
        tensors = max(f["tensors"] for f in found["tapegrad"])
        resident = [f"{max(f['resident'] for f in found[name]):.0f}" if name in found else "" for name in ("tapegrad", "torch")]
        lines.append(f"| {what} | {promised:.0f} | {tensors:.0f} | {tensors / promised:.2f} | {resident[0]} | {resident[1]} |")
    return "\n".join(lines) + "\n"


def overlap_table(stem: Path) -> str:
    """How much of the buckets' reductions lies within backward; one step is drawn."""
    lines = ["", "## Overlap of backward and reductions", "",
             "A DDP step of the small GPT. Share: of the time in which buckets are reduced, what lies within the backward's operators; the rest is waited for "
             f"at its end. {TIMELINES} steps of both ranks; the fastest one, which other programs disturbed least, is drawn (rank 0, rank 1).", "",
             "| | buckets | share, median | share in the fastest step | waited at its end, ms | its backward, ms |", "| --- | --- | --- | --- | --- | --- |"]
    drawn = None
    for engine in ("shared memory", "gloo"):
        for cut, megabytes in CUTS:
            of_ranks = zip(*ranks("tapegrad", "timeline", engine, megabytes), strict=True)
            found = sorted(of_ranks, key=lambda both: max(step["over"] for step in both))
            steps, share = found[0], statistics.median(overlap(step) for both in found for step in both)
            if megabytes:
                drawn = {**(drawn or {}), engine: steps}
            lines.append(f"| over {engine}, {cut} | {len(steps[0]['buckets'])} | {share:.2f} | " + " | ".join(", ".join(texts) for texts in (
                [f"{overlap(s):.2f}" for s in steps], [f"{s['over'] - s['computed']:.1f}" for s in steps], [f"{s['over']:.1f}" for s in steps])) + " |")
    path = stem.with_name(stem.name + "-overlap.png")
    draw(drawn, path)
    lines += ["", f"![one step, two ranks]({path.name})", "",
              "A bucket is given when its last gradient is there, begun when it is given or when the one before it has ended (a group's thread does one after the "
              "other), and ended when its sum is there."]
    return "\n".join(lines) + "\n"


def draw(drawn: dict, path: Path) -> None:
    """Two lanes for each rank: operators of the backward, and buckets from given to ended."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, all_axes = plt.subplots(len(drawn), 1, figsize=(11, 2.6 * len(drawn)), squeeze=False)
    for axes, (engine, steps) in zip(all_axes[:, 0], drawn.items(), strict=True):
        for rank, step in enumerate(steps):
            y, zero = -2.6 * rank, step["began"] - min(s["began"] for s in steps)
            axes.broken_barh([(zero + a, b - a) for a, b in step["operators"]], (y, 0.8), facecolors="tab:blue", edgecolor="white", linewidth=0.2)
            axes.vlines(zero + step["computed"], y - 1.1, y + 0.9, color="black", linewidth=0.8, linestyle="--")
            for number, (given, begun, end) in enumerate(step["buckets"]):
                axes.broken_barh([(zero + given, begun - given)], (y - 1, 0.2), facecolors=("lightgray", "darkgray")[number % 2])
                axes.broken_barh([(zero + begun, end - begun)], (y - 0.75, 0.6), facecolors=("tab:orange", "tab:red")[number % 2])
                axes.text(zero + (begun + end) / 2, y - 0.45, str(number), fontsize=6, ha="center", va="center")
        axes.set_yticks([y for rank in range(len(steps)) for y in (-2.6 * rank + 0.4, -2.6 * rank - 0.6)],
                        [text for rank in range(len(steps)) for text in (f"rank {rank}: backward", "buckets")], fontsize=7)
        shares = " and ".join(f"{100 * overlap(step):.0f} %" for step in steps)
        axes.set_title(f"over {engine}: {shares} of the reductions' time within backward (dashed: its operators end; gray: given, not begun)", fontsize=8)
        axes.set_xlabel("ms", fontsize=7)
        axes.tick_params(axis="x", labelsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def appendix(libs: dict, stem: Path) -> str:
    """What is no comparison of times; for the page of a run."""
    return memory_table(libs) + overlap_table(stem)


def _serve(name: str, port: int) -> None:
    import ast

    rank = Rank(name, 1, port)
    for line in sys.stdin:
        what, args, calls = ast.literal_eval(line)
        rank.run(what, *args, calls=calls)


def _once(name: str, port: int, number: int, what: str, args: str) -> None:
    rank = Rank(name, number, port)
    found = getattr(rank, what)(*json.loads(args))
    rank.end()()
    print(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        _serve(sys.argv[1], int(sys.argv[2]))
    else:
        _once(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
