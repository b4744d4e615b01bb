"""Square matrix products from 64 to 2048 in float32, and batches."""

from ..harness import Case


def cases(libraries):
    for n in (64, 128, 256, 512, 1024, 2048):
        runs = {}
        for name, lib in libraries.items():
            if name == "numpy":
                a = lib.random.default_rng(0).standard_normal((n, n), dtype=lib.float32)
            else:
                a = lib.randn(n, n)
            runs[name] = lambda a=a: a @ a
        yield Case("matrix products", f"{n} x {n}", runs)
    torch_like = {name: lib for name, lib in libraries.items() if name != "numpy"}
    for b, n in ((64, 64), (16, 256)):
        yield Case("matrix products", f"batch {b} of {n} x {n}",
                   {name: (lambda a=lib.randn(b, n, n): a @ a) for name, lib in torch_like.items()})
