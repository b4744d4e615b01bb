"""Recorded steps (tapegrad.compile) against the same functions run eagerly here and in PyTorch: whole training steps, models compiled
alone, inference, chains of operators."""

import functools

from .harness import Case


def _mlp(lib, sizes, rows):
    lib.manual_seed(0)
    layers = []
    for a, b in zip(sizes, sizes[1:], strict=False):
        layers += [lib.nn.Linear(a, b), lib.nn.Tanh()]
    return lib.nn.Sequential(*layers[:-1]), lib.randn(rows, sizes[0]), lib.randint(0, sizes[-1], (rows,))


def _lstm_cells(lib, width=32, steps=16, rows=8):
    lib.manual_seed(0)

    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.out = lib.nn.LSTMCell(width, width), lib.nn.Linear(width, 4)

        def forward(self, x):
            h = c = lib.zeros(x.shape[1], width)
            for t in range(steps):
                h, c = self.cell(x[t], (h, c))
            return self.out(h)

    return Net(), lib.randn(steps, rows, width), lib.randint(0, 4, (rows,))


def _gpt(lib, width=64, layers=2, length=32, rows=2, words=65):
    lib.manual_seed(0)
    nn = lib.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
            blocks = [nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(layers)]
            self.blocks, self.norm, self.head = nn.ModuleList(blocks), nn.LayerNorm(width), nn.Linear(width, words)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

        def forward(self, x):
            x = self.words(x) + self.places(lib.arange(x.shape[1]))
            for block in self.blocks:
                x = block(x, src_mask=self.mask, is_causal=True)
            return self.head(self.norm(x)).flatten(0, 1)

    return Net(), lib.randint(0, words, (rows, length)), lib.randint(0, words, (rows * length,))


MODELS = {
    "MLP 16-32-32-4, 8 rows": lambda lib: _mlp(lib, (16, 32, 32, 4), 8),
    "MLP 784-256-128-10, 64 rows": lambda lib: _mlp(lib, (784, 256, 128, 10), 64),
    "LSTMCell 32, 16 steps, 8 rows": _lstm_cells,
    "GPT 64 columns, 2 layers, 2 x 32": _gpt,
    "GPT 128 columns, 4 layers, 4 x 64": lambda lib: _gpt(lib, 128, 4, 64, 4),
}


def _training(lib, model, x, y):
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def _careful(lib, model, x, y):
    """A step that looks at its loss and at the norm of its gradients, and returns the loss as a number."""
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), y)
        if not loss.isfinite():
            return None
        loss.backward()
        norm = lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm > 100:
            return None
        optimizer.step()
        return loss.item()

    return step


def _inference(lib, model):
    model.eval()

    def run(x):
        with lib.no_grad():
            return model(x)

    return run


def _chain(lib, n):
    def run(x):
        for _ in range(n // 4):
            x = lib.maximum(x * 0.5 + 0.25, -x).abs()
        return x

    return run


def _peers(libraries, make, compiled=None, whole=True):
    """The recorded function, the eager one, PyTorch's eager one and PyTorch's compiled one. `make(lib)` gives a function and its arguments,
    `compiled(lib)` the same with the model alone compiled: what is measured here where it is given, and in PyTorch where a whole step is not
    what it compiles. Each of PyTorch's compilations takes 10 to 30 s."""
    own, torch = libraries["tapegrad"], libraries.get("torch")
    runs = {}
    for name, lib, record in (("tapegrad", own, True), ("eager", own, False), ("torch", torch, False), ("torch.compile", torch, True)):
        if lib is None:
            continue
        alone = record and compiled is not None and (lib is torch or not whole)
        function, args = compiled(lib) if alone else make(lib)
        function = lib.compile(function) if record and not alone else function
        runs[name] = lambda function=function, args=args: function(*args)
    return runs


def _recordings(libraries, make):
    """The first two calls of a step, which are recorded, and two eager ones."""
    function, args = make(libraries["tapegrad"])
    step = libraries["tapegrad"].record(function)

    def recorded():
        step.reset()
        return step(*args), step(*args)

    return {"tapegrad": recorded, "eager": lambda: (function(*args), function(*args))}


def _steps(make, step):
    """What makes a step of the model as it is, and of the compiled model."""
    def build(lib, compiled=False):
        model, x, y = make(lib)
        return step(lib, lib.compile(model) if compiled else model, x, y), (x, y)

    return build, functools.partial(build, compiled=True)


def cases(libraries):
    for name, make in MODELS.items():
        whole, alone = _steps(make, _training)
        def inference(lib, make=make):
            model, x, _ = make(lib)
            return _inference(lib, model), (x,)

        def exported(lib, make=make):
            model, x, _ = make(lib)
            program = lib.export.export(model.eval(), (x,)).module() if lib is libraries["tapegrad"] else lib.compile(model.eval())
            return (lambda x: _without_gradients(lib, program, x)), (x,)

        yield Case("recorded training step", name, _peers(libraries, whole, alone))
        yield Case("two calls that are recorded", name, _recordings(libraries, whole))
        yield Case("recorded training step that reads", name, _peers(libraries, *_steps(make, _careful)))
        yield Case("compiled model in an eager step", name, _peers(libraries, whole, alone, whole=False))
        yield Case("recorded inference", name, _peers(libraries, inference))
        yield Case("exported inference", name, _peers(libraries, inference, exported, whole=False))
    for n in (4, 8, 16, 40):
        for size in (4, 1024, 16384, 262144, *([16 << 20] if n < 40 else [])):
            yield Case("recorded chains", f"{n} operators, {size} elements",
                       _peers(libraries, lambda lib, n=n, size=size: (_chain(lib, n), (lib.linspace(-1, 1, size),))))


def _without_gradients(lib, program, x):
    with lib.no_grad():
        return program(x)
