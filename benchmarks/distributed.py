"""Two ranks on this machine: collectives, data-parallel steps and exchanges, beside torch's over gloo in the same rounds.

Rank 0 is this process; rank 1 is a child per library that runs what rank 0 asks for, several calls per question.
"""

from __future__ import annotations

import atexit
import importlib
import os
import socket
import subprocess
import sys

from .harness import Case

REDUCTIONS = (("4 KB", 1 << 10, 200), ("1 MB", 1 << 18, 30), ("100 MB", 25 << 20, 2))


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

    def gpt(self):
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
        return self._train(GPT(), lambda m: nn.functional.cross_entropy(m(x).reshape(-1, 65), y.reshape(-1)))

    def end(self):
        return self.dist.destroy_process_group


class Pair:
    """Both ranks of a library."""

    def __init__(self, name: str):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.child = subprocess.Popen([sys.executable, "-m", "benchmarks.distributed", name, str(port)], stdin=subprocess.PIPE, text=True,
                                      env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)})
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
    for pair in pairs.values():
        pair.case(1, "end")()
        pair.child.stdin.close()
        pair.child.wait(10)


def _serve(name: str, port: int) -> None:
    import ast

    rank = Rank(name, 1, port)
    for line in sys.stdin:
        what, args, calls = ast.literal_eval(line)
        rank.run(what, *args, calls=calls)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
