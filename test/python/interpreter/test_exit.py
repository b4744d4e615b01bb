"""The interpreter ends while daemon threads are inside operators, hooks, loaders: it ends with its status and in silence.

A thread that wants the GIL then must not be unwound: PyEval_RestoreThread() ends it with pthread_exit() before Python 3.14."""

import os
import textwrap

import pytest
from interpreter.programs import run

RUNS = int(os.environ.get("TAPEGRAD_EXIT_RUNS", "5"))

# What a daemon thread does, again and again.
WORK = {
    "parallel loops": "a = tg.rand(400_000)\nwork = lambda: (a * 2 + 1).sum()",
    "small operators": "a = tg.rand(4)\nwork = lambda: (a * 2 + 1).sum()",
    "matmul": "a = tg.rand(300, 300)\nwork = lambda: a @ a",
    "long matmul": "a, w = tg.rand(4000, 512), tg.rand(512, 2048)\nwork = lambda: a @ w",  # OpenBLAS gives its memory back at the end
    "long backward": "a, w = tg.rand(2000, 512), tg.rand(512, 1024, requires_grad=True)\nwork = lambda: (a @ w).sum().backward()",
    "recorded step": "a, w = tg.rand(4000, 512), tg.rand(512, 2048)\nwork = tg.record(lambda: a @ w)",
    "exported program": """
        a, w = tg.rand(4000, 512), tg.rand(512, 2048)
        program = tg.export.export(lambda x: x @ w, (a,)).module()
        work = lambda: program(a)
    """,
    "linear algebra": "a = tg.rand(60, 60)\nwork = lambda: (tg.linalg.svd(a), tg.linalg.qr(a), tg.linalg.eigh(a @ a.T))",
    "convolution": "a, w = tg.rand(2, 8, 40, 40), tg.rand(8, 8, 3, 3)\nwork = lambda: tg.nn.functional.conv2d(a, w)",
    "sort": "a = tg.rand(200_000)\nwork = lambda: (a.sort(), a.topk(10), a.unique())",
    "backward": """
        a = tg.rand(100, 100, requires_grad=True)
        def work():
            y = a
            for _ in range(20):
                y = (y @ a).sigmoid()
            y.sum().backward()""",
    "hooks": """
        a = tg.rand(50, requires_grad=True)
        def hook(g):
            return sum([g * k for k in range(20)])
        def work():
            y = a * 2
            y.register_hook(hook)
            y.grad_fn.register_hook(lambda inputs, outputs: (hook(inputs[0]), *inputs[1:]))
            y.grad_fn.register_prehook(lambda outputs: (hook(outputs[0]),))
            y.sum().backward()""",
    "functions": """
        class Slow(tg.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return sum([x * k for k in range(50)])
            @staticmethod
            def backward(ctx, g):
                return sum([g * k for k in range(50)])
        a = tg.rand(50, requires_grad=True)
        def work():
            Slow.apply(a).sum().backward()""",
    "saved tensors' hooks": """
        a = tg.rand(50, requires_grad=True)
        def slow(t):
            for _ in range(2000):
                pass
            return t
        def work():
            with tg.autograd.graph.saved_tensors_hooks(slow, slow):
                (a * a).exp().sum().backward()""",
    "Python between operators": """
        class Slow:
            def __len__(self):
                return 3
            def __getitem__(self, i):
                for _ in range(500):
                    pass
                return [1.0, 2.0, 3.0][i]
        def work():
            tg.tensor(Slow())""",
    "modules": """
        own = threading.local()
        def work():
            if not hasattr(own, "model"):
                own.model = tg.nn.Sequential(tg.nn.Linear(20, 20), tg.nn.ReLU(), tg.nn.Linear(20, 3))
                own.optimizer = tg.optim.Adam(own.model.parameters())
            model, optimizer = own.model, own.optimizer
            optimizer.zero_grad()
            model(tg.rand(10, 20)).sum().backward()
            optimizer.step()""",
    "vmap": "a = tg.rand(50, 50)\nwork = lambda: tg.func.vmap(lambda x: (x * x).sum())(a)",
    "loaders": """
        data = tg.utils.data.TensorDataset(tg.rand(64, 8))
        def work():
            for batch in tg.utils.data.DataLoader(data, batch_size=4, num_workers=2, worker_type="thread"):
                batch[0].sum()""",
    "objects of others": """
        import numpy
        def work():
            tg.from_numpy(numpy.zeros(1000)) + 1
            tg.frombuffer(bytearray(1000), dtype=tg.uint8) + 1
            numpy.from_dlpack(tg.rand(3))""",
}

PROGRAM = """
import os, random, sys, threading, time, traceback
import tapegrad as tg
import tapegrad.utils.data, tapegrad.func
{work}
started = threading.Semaphore(0)
def run(i):
    try:
        work()
        started.release()
        while True:
            work()
    except BaseException:
        traceback.print_exc()
        os._exit(9)
for i in range(4):
    threading.Thread(target=run, args=(i,), daemon=True).start()
for i in range(4):
    started.acquire()
time.sleep(random.random() / 20)
{end}
"""


@pytest.mark.parametrize("name", WORK)
def test_while_daemon_threads_work(name):
    for _ in range(RUNS):
        run(PROGRAM.format(work=textwrap.dedent(WORK[name]), end=""))


def test_the_status_stays():
    for _ in range(RUNS):
        run(PROGRAM.format(work=WORK["parallel loops"], end="sys.exit(3)"), status=3)


def test_the_program_goes_on_to_its_last_line():
    """What runs at the very end - exit functions, destructors of objects - computes, too."""
    end = """
import atexit
class Last:
    def __init__(self):
        self.x = tg.rand(300_000, requires_grad=True)
    def __del__(self):
        self.x.mul(2).sum().backward()
        assert self.x.grad.sum() == 600_000
        print("last", flush=True)
tg.last = Last()
sys.modules["tapegrad"].tests_last = Last()
def leave():
    y = tg.rand(300_000) @ tg.rand(300_000)
    print("exit function", flush=True)
atexit.register(leave)
"""
    for _ in range(RUNS):
        assert "exit function" in run(PROGRAM.format(work=textwrap.dedent(WORK["backward"]), end=end))
