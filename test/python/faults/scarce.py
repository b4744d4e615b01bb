"""A program that calls operators when no memory is left: `scarce.py LEFT FIRST STEP [names]`; with TAPEGRAD_TEST_THREAD=1 from new threads.

The limit is what the process has at that moment and LEFT bytes; before that, what the allocators still hold is taken. Each call runs in
a child of its own, whose threads and lazily made tables are new, with its gradient where it has one. It must succeed or raise
OutOfMemoryError (Python's own MemoryError may come from Python). Then memory is given back, the same call must give what it gives
elsewhere, and a network trains. Every line that is printed is a call that broke this.
"""

import copy
import ctypes
import gc
import os
import resource
import signal
import sys
import threading
from pathlib import Path

sys.modules["torch"] = None  # rows.py does without it
sys.path.insert(0, str(Path(__file__).parents[1]))

import rows  # noqa: E402
import tapegrad as tg  # noqa: E402
from autograd.leaves import Cube  # noqa: E402
from tapegrad import nn  # noqa: E402

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
SECONDS = 60
OK, OUT, PYTHONS = b"succeeded", b"OutOfMemoryError", b"MemoryError"


def used():
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def limit(nbytes):
    resource.setrlimit(resource.RLIMIT_AS, (nbytes, resource.RLIM_INFINITY))


def fill():
    for size in (1 << 24, 1 << 20, 1 << 16, 1 << 12, 1 << 9, 128, 24):
        while libc.malloc(size):
            pass


def take_everything(left):
    """Fills what the allocators keep, in ever smaller pieces; small Python objects keep some pools of their own."""
    pools = [[bytes(n) for n in range(32, 480, 16)] for _ in range(6000)]
    kept = pools[::500]
    del pools
    crumbs = [(libc.malloc(n), libc.malloc(24))[0] for n in range(16, 1000, 16) for _ in range(3)]  # for the interpreter
    gc.collect()
    gc.freeze()
    gc.disable()
    whole = used()
    limit(whole)
    chain = None
    for size in (1 << 24, 1 << 20, 1 << 16, 1 << 12, 1 << 9, 64):
        try:
            while True:
                chain = (tg.empty(size, dtype=tg.uint8), chain)
        except (tg.OutOfMemoryError, MemoryError):
            pass
    fill()
    for crumb in crumbs:
        libc.free(crumb)
    limit(whole + left)
    return whole + left, kept, chain


class Case:
    def __init__(self, name, function, args, kwargs, gradient, values=True):
        self.name, self.function, self.args, self.kwargs, self.gradient, self.values = name, function, args, kwargs, gradient, values

    def __call__(self):
        result = self.function(*self.args, **self.kwargs)
        if self.gradient:
            parts = [t for t in rows.tensors_of(result) if t.requires_grad]
            for t in rows.tensors_of((self.args, self.kwargs)):
                t.grad = None
            tg.autograd.backward(parts, [tg.ones_like(t) for t in parts])
        return result


def network():
    tg.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 10))
    optimizer = tg.optim.Adam(model.parameters(), lr=0.01)
    x, y = tg.randn(8, 1, 8, 8), tg.arange(8) % 10

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def large_cases():
    """Calls that want scratch, of libraries and of our own, and threads."""
    f = nn.functional
    a, b, image = tg.rand(400, 400) + tg.eye(400), tg.randn(300, 300, dtype=tg.float64), tg.randn(4, 8, 32, 32)
    weight, long, ints = tg.randn(16, 8, 3, 3), tg.randn(1 << 18), tg.randint(0, 9, (1 << 17,))
    q = tg.randn(2, 4, 128, 32)
    lstm = nn.LSTM(32, 64, 2)
    cases = {
        "matmul": (lambda x: x @ x, a), "bmm": (tg.bmm, tg.randn(32, 48, 48), tg.randn(32, 48, 48)), "mv": (tg.mv, a, a[0]),
        "complex matmul": (lambda x: x @ x, tg.randn(200, 200, dtype=tg.complex64)),
        "half matmul": (lambda x: x @ x, tg.randn(300, 300).half()), "int matmul": (lambda x: x @ x, tg.randint(0, 9, (200, 200))),
        "conv2d": (f.conv2d, image, weight), "conv_transpose2d": (f.conv_transpose2d, image, weight.transpose(0, 1).contiguous()),
        "conv1d": (f.conv1d, tg.randn(4, 8, 512), tg.randn(16, 8, 5)), "conv3d": (f.conv3d, tg.randn(2, 4, 8, 16, 16), tg.randn(8, 4, 3, 3, 3)),
        "double conv2d": (f.conv2d, image.double(), weight.double()), "attention": (f.scaled_dot_product_attention, q, q, q),
        "lstm": (lstm, tg.randn(20, 4, 32)), "sort": (tg.sort, long), "unique": (tg.unique, ints), "topk": (lambda x: x.topk(1000), long),
        "fft": (tg.fft.fft, long), "odd fft": (tg.fft.fft, long[:100_003]), "stft": (lambda x: tg.stft(x, 512, return_complex=True), long),
        "index_put": (lambda x, i: tg.zeros(9).index_put((i,), x, accumulate=True), long[:1 << 17], ints), "cumsum": (tg.cumsum, long, 0),
        "layer_norm": (f.layer_norm, a, (400,)), "batch_norm": (lambda x: f.batch_norm(x, None, None, training=True), image),
        "embedding": (f.embedding, ints, tg.randn(9, 16)), "cdist": (tg.cdist, b, b), "median": (tg.median, long),
        "matrix_exp": (tg.linalg.matrix_exp, a[:64, :64]), "einsum": (lambda x: tg.einsum("ij,kj->ik", x, x), a),
        "svd": (tg.linalg.svd, b), "eig": (tg.linalg.eig, b), "eigh": (tg.linalg.eigh, b + b.T), "qr": (tg.linalg.qr, b), "solve": (tg.linalg.solve, a, a),
        "small qr": (tg.linalg.qr, b[:20, :20]), "many svd": (tg.linalg.svd, tg.randn(64, 8, 8)), "many solve": (tg.linalg.solve, tg.randn(64, 8, 8), tg.randn(64, 8, 8)),
        "lstsq": (tg.linalg.lstsq, b, b), "cholesky": (tg.linalg.cholesky, a @ a.T + tg.eye(400)), "inv": (tg.linalg.inv, a), "det": (tg.linalg.det, a),
        "long svd": (tg.linalg.svd, tg.randn(500, 500)), "long qr": (tg.linalg.qr, tg.randn(1000, 1000)),
        "ldl": (tg.linalg.ldl_factor, b + b.T), "bernoulli": (tg.bernoulli, tg.rand(1 << 18)), "randperm": (tg.randperm, 1 << 17),
        "multinomial": (lambda p: tg.multinomial(p, 1000), tg.rand(5000)), "histc": (tg.histc, long), "kthvalue": (lambda x: x.kthvalue(7), long),
        "cat": (lambda x: tg.cat([x] * 50), a), "pad": (lambda x: f.pad(x, (9, 9, 9, 9), mode="reflect"), image), "str": (str, a), "tolist": (tg.Tensor.tolist, a),
        "numpy": (lambda x: x.numpy().sum(), a), "interpolate": (lambda x: f.interpolate(x, scale_factor=3, mode="bicubic"), image),
        "grid_sample": (lambda x: f.grid_sample(x, tg.zeros(4, 50, 50, 2), align_corners=False), image), "ctc": (
            f.ctc_loss, tg.randn(50, 4, 20).log_softmax(2), tg.randint(1, 20, (4, 10)), tg.full((4,), 50), tg.full((4,), 10)),
        "vmap": (tg.vmap(lambda x: (x * x).sum()), a), "save": (lambda x: tg.save({"x": x}, os.devnull), a), "share": (lambda x: x.clone().share_memory_(), a),
    }
    cases |= larger_parts(a, q, image)
    for name, (function, *args) in cases.items():
        gradient = name not in ("str", "tolist", "numpy", "save", "share", "bernoulli", "multinomial", "histc", "randperm", "unique", "profiler", "autocast",
                                "loader", "jacobian", "deepcopy", "training", "function mode")
        args = [t.requires_grad_() if gradient and isinstance(t, tg.Tensor) and (t.is_floating_point() or t.is_complex()) and t.is_leaf else t
                for t in args]
        yield Case(name, function, args, {}, gradient, name not in ("bernoulli", "multinomial", "randperm"))
    for kind in ("SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "LBFGS", "NAdam", "RAdam", "Adadelta", "Adamax", "Rprop", "ASGD"):
        yield Case(kind, first_step(kind), (), {}, False, False)


class Mode(tg.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def larger_parts(a, q, image):
    """Programs of several operators, with what belongs to them."""
    layer, gru = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), nn.GRU(32, 48)
    model = nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
    start = copy.deepcopy(model.state_dict())
    data = tg.utils.data.TensorDataset(tg.arange(64.0))

    def profiled(x):
        with tg.profiler.profile() as p:
            x @ x
        return p.key_averages() is not None

    def lowered(x):
        with tg.autocast("cpu"):
            return (x @ x).float()

    def trained(x):
        model.load_state_dict(start)
        optimizer = tg.optim.Adam(model.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        return model[0].weight.detach().clone()

    def in_mode(x):
        with Mode():
            return x + 1

    def with_hooks(x):
        y = x * 2
        y.register_hook(lambda g: g * 2)
        with tg.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            return (y * y).sum()

    return {"transformer layer": (lambda x: layer(x[0]), q), "gru": (gru, tg.randn(20, 4, 32)), "profiler": (profiled, a), "autocast": (lowered, a),
            "training": (trained, image), "custom function": (Cube.apply, a), "function mode": (in_mode, a), "hooks": (with_hooks, a),
            "loader": (lambda: [b[0].clone() for b in tg.utils.data.DataLoader(data, batch_size=16)],), "deepcopy": (copy.deepcopy, a),
            "jacobian": (lambda x: tg.func.jacrev(lambda t: t.sin().sum(0))(x), a[:20, :20]),
            "recomputed": (lambda x: tg.utils.checkpoint.checkpoint(lambda t: (t @ t).sin(), x, use_reentrant=False), a)}


def first_step(kind):
    parameter = tg.ones(300, 100, requires_grad=True)
    optimizer = getattr(tg.optim, kind)([parameter], lr=0.01)

    def step():
        def closure():
            parameter.grad = None
            loss = (parameter * parameter).sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step


def table_cases():
    for record in rows.load_records():
        for dtype in (tg.float32, None):
            try:
                samples = record.make_samples(dtype)
                break
            except (RuntimeError, TypeError, NotImplementedError):
                samples = []
        values = record.kind != "random" and not record.test.get("random") and record.test.get("values") is not False
        for n, (args, kwargs) in enumerate(samples[:SAMPLES]):
            yield Case(f"{record.name} {n}", record.function, args, kwargs, False, values)
            fixed = record.test.get("fixed", ())
            if not record.differentiable or record.test.get("grad") is False or fixed:
                continue
            args, kwargs = rows.map_tree(lambda t: t.detach().clone().requires_grad_() if t.is_floating_point() or t.is_complex() else t, (args, kwargs))
            yield Case(f"{record.name} {n} with its gradient", record.function, args, kwargs, True, values)


def outcome(case):
    """(what happened, the values or the text of the error)"""
    try:
        result = case()
        return OK, result
    except tg.OutOfMemoryError:
        return OUT, None
    except MemoryError:
        return PYTHONS, None
    except BaseException as error:  # noqa: BLE001
        return b"", error


def judge(case, before, expected_losses, train):
    """What is wrong with a call that came to this end."""
    what, result = before
    again, value = outcome(case)
    if again in (OUT, PYTHONS):
        return "there is memory again, and the call finds none"
    if not what:
        return None if not again and type(value) is type(result) and str(value) == str(result) else f"{type(result).__name__}: {result}"
    if what is OK and case.values and again is OK:
        same = all(a.equal(b) or bool((a.isnan() == b.isnan()).all()) for a, b in zip(rows.tensors_of(result), rows.tensors_of(value)))
        if not same:
            return "it succeeded with other values than with memory"
    losses = [train() for _ in expected_losses]
    return None if losses == expected_losses else f"training goes on with {losses} and not with {expected_losses}"


def outcome_in_a_thread(case, left):
    """The same from a thread that has not called anything before. MALLOC_ARENA_MAX=1: it has no memory of its own."""
    limit(resource.RLIM_INFINITY)
    go, found = threading.Event(), [None]

    def work():
        go.wait()
        found[0] = outcome(case)

    thread = threading.Thread(target=work)
    thread.start()
    crumbs = [libc.malloc(n) for n in range(16, 1000, 16) for _ in range(3)]
    whole = used()
    limit(whole)
    fill()
    for crumb in crumbs:
        libc.free(crumb)
    limit(whole + left)
    go.set()
    thread.join()
    return found[0]


def run_alone(case, write, expected_losses, train, left):
    """In a child: the call without memory, then the judgement with memory."""
    signal.alarm(SECONDS)
    before = outcome_in_a_thread(case, left) if THREAD else outcome(case)
    limit(resource.RLIM_INFINITY)
    wrong = judge(case, before, expected_losses, train)
    os.write(write, (f"{case.name}: {wrong}\n".encode() if wrong else before[0] + b"\n"))
    os._exit(0)


def main(left, first, step, names):
    cases = [c for c in [*large_cases(), *table_cases()] if not names or c.name in names or c.name.split()[0] in names]
    cases = cases[first::step]
    read, write = os.pipe()
    if os.fork() == 0:  # who knows how training goes on
        train = network()
        os.write(write, repr([train() for _ in range(3)]).encode())
        os._exit(0)
    expected = eval(os.read(read, 1000))  # noqa: S307
    os.wait()
    reported, report = os.pipe()
    leader = os.fork()
    if leader == 0:
        train = network()
        held = take_everything(left)
        for case in cases:
            child = os.fork()
            if child == 0:
                run_alone(case, report, expected, train, left)
            _, status = os.waitpid(child, 0)
            if status != 0:
                limit(resource.RLIM_INFINITY)
                os.write(report, f"{case.name}: ended with status {status}\n".encode())
                limit(held[0])
        os._exit(0)
    os.close(report)
    with open(reported, "rb") as lines:
        outcomes = [line.rstrip(b"\n") for line in lines]
    assert os.waitpid(leader, 0)[1] == 0, "the process that starts the calls ended"
    counts = {kind: outcomes.count(kind) for kind in (OK, OUT, PYTHONS, b"")}
    wrong = [o.decode() for o in outcomes if o not in counts]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{len(cases)} calls, {left} bytes left:", {k.decode() or "same error": v for k, v in counts.items()})
    assert len(outcomes) == len(cases)
    return bool(wrong)


SAMPLES = int(os.environ.get("TAPEGRAD_TEST_SAMPLES", "1"))
THREAD = "TAPEGRAD_TEST_THREAD" in os.environ

if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
