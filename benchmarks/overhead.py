"""What a call costs when there is next to nothing to compute: 4-element tensors, and a tiny MLP's step."""

from .harness import Case

UNARY = ["neg", "exp", "sqrt", "relu", "tanh", "sigmoid", "abs"]
BINARY = ["add", "sub", "mul", "div", "maximum"]


def _operators(lib, requires_grad: bool):
    a = lib.tensor([0.1, 0.2, 0.3, 0.4], requires_grad=requires_grad)
    b = lib.tensor([0.5, 0.6, 0.7, 0.8])
    m = lib.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=requires_grad)
    runs = {f"{n}": (lambda f=getattr(lib, n): f(a)) for n in UNARY}
    runs |= {f"{n}": (lambda f=getattr(lib, n): f(a, b)) for n in BINARY}
    runs |= {
        "a + b": lambda: a + b, "2 * a": lambda: 2 * a, "a * a": lambda: a * a, "sum": lambda: a.sum(), "mean(0)": lambda: m.mean(0),
        "reshape": lambda: a.reshape(2, 2), "t()": lambda: m.t(), "m @ m": lambda: m @ m, "a[1]": lambda: a[1], "cat": lambda: lib.cat([a, b]),
    }
    return runs


def tiny_mlp(lib):
    """A closure that does one training step of a 4-16-16-2 network on 8 samples with Adam."""
    lib.manual_seed(0)
    nn = lib.nn
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    x = lib.randn(8, 4)
    y = lib.randint(0, 2, (8,))

    def step():
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()

    return step


def cases(libraries):
    for tape in (False, True):
        group = "operators with tape" if tape else "operators"
        runs = {name: _operators(lib, tape) for name, lib in libraries.items() if name != "numpy"}
        for operator in runs["tapegrad"]:
            yield Case(group, operator, {name: r[operator] for name, r in runs.items()})
    if "numpy" in libraries:
        np = libraries["numpy"]
        a, b = np.array([0.1, 0.2, 0.3, 0.4], np.float32), np.array([0.5, 0.6, 0.7, 0.8], np.float32)
        own = libraries["tapegrad"]
        x, y = own.tensor([0.1, 0.2, 0.3, 0.4]), own.tensor([0.5, 0.6, 0.7, 0.8])
        yield Case("operators against NumPy", "a + b", {"tapegrad": lambda: x + y, "numpy": lambda: a + b})
    yield Case("tiny MLP", "step with Adam", {name: tiny_mlp(lib) for name, lib in libraries.items() if name != "numpy"})
