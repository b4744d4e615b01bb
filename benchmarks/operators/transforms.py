"""vmap: operators of many samples at once, and gradients of each sample, against torch.func."""

from ..harness import Case


def _mapped(name, libraries, make, function, in_dims=0):
    """vmap of function(library, *tensors) over what make(library) gives."""
    runs = {}
    for library, lib in libraries.items():
        if library != "numpy":
            tensors = make(lib)
            mapped = lib.func.vmap(lambda *t, lib=lib: function(lib, *t), in_dims=in_dims)
            runs[library] = lambda mapped=mapped, tensors=tensors: mapped(*tensors)
    return Case("vmap of operators", name, runs)


def _mlp(nn):
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def _convolutions(nn):
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(16, 10))


def _gradients(name, libraries, network, shape, samples):
    """Gradients of the loss for all weights, one for each sample."""
    runs = {}
    for library, lib in libraries.items():
        if library == "numpy":
            continue
        lib.manual_seed(0)
        model = network(lib.nn)
        weights = {k: v.detach() for k, v in model.named_parameters()}
        x, y = lib.randn(samples, *shape), lib.randint(0, 10, (samples,))

        def loss(weights, x, y, lib=lib, model=model):
            return lib.nn.functional.cross_entropy(lib.func.functional_call(model, weights, (x[None],)), y[None])

        each = lib.func.vmap(lib.func.grad(loss), in_dims=(None, 0, 0))
        runs[library] = lambda each=each, weights=weights, x=x, y=y: each(weights, x, y)
    return Case("gradients of each sample", name, runs)


def _rows(lib, *shape):
    return lib.randn(64, *shape)


def _places(lib):
    return lib.randint(0, 100, (64, 30))


def _positive(lib):
    a = _rows(lib, 8, 8)
    return lib.linalg.cholesky(a @ a.mT + 8 * lib.eye(8))


def cases(libraries):
    sample = {
        "softmax of 100": (lambda t: (_rows(t, 100),), lambda t, x: x.softmax(-1)),
        "matmul 8 x 8": (lambda t: (_rows(t, 8, 8), _rows(t, 8, 8)), lambda t, a, b: a @ b),
        "take 30 of 100": (lambda t: (_rows(t, 100), _places(t)), lambda t, x, i: x.take(i)),
        "index_select 30 of 100": (lambda t: (_rows(t, 100), _places(t)), lambda t, x, i: x.index_select(0, i)),
        "put 30 of 100": (lambda t: (_rows(t, 100), _places(t), _rows(t, 30)), lambda t, x, i, s: x.put(i, s, accumulate=True)),
        "roll of 100": (lambda t: (_rows(t, 100),), lambda t, x: x.roll(3, 0)),
        "repeat of 100": (lambda t: (_rows(t, 100),), lambda t, x: x.repeat(2, 2)),
        "searchsorted 100 in 100": (lambda t: (t.sort(_rows(t, 100), 1)[0], _rows(t, 100)), lambda t, s, x: t.searchsorted(s, x)),
        "isin 30 in 30": (lambda t: (_places(t), _places(t)), lambda t, i, j: t.isin(i, j)),
        "solve 8 x 8": (lambda t: (_rows(t, 8, 8), _rows(t, 8, 2)), lambda t, a, b: t.linalg.solve(a, b)),
        "cholesky_solve 8 x 8": (lambda t: (_positive(t), _rows(t, 8, 2)), lambda t, a, b: t.cholesky_solve(b, a)),
        "inv 8 x 8": (lambda t: (_rows(t, 8, 8),), lambda t, a: t.linalg.inv(a)),
        "pinv 8 x 4": (lambda t: (_rows(t, 8, 4),), lambda t, a: t.linalg.pinv(a)),
        "layer_norm of 100": (lambda t: (_rows(t, 100),), lambda t, x: t.nn.functional.layer_norm(x, (100,))),
    }
    for name, (make, function) in sample.items():
        yield _mapped(f"{name}, 64 samples", libraries, make, function)
    yield _mapped("solve 8 x 8, one matrix, 64 samples", libraries, lambda t: (t.randn(8, 8), _rows(t, 8, 2)), lambda t, a, b: t.linalg.solve(a, b), (None, 0))
    for samples in (16, 256):
        yield _gradients(f"MLP 64-128-128-10, {samples} samples", libraries, _mlp, (64,), samples)
        yield _gradients(f"two convolutions of 1 x 28 x 28, {samples} samples", libraries, _convolutions, (1, 28, 28), samples)
