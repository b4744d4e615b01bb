"""Linear algebra from 4 x 4 to 1024 x 1024 in float32, and batches of small matrices."""

from ..harness import Case

OPERATORS = {
    "inv": lambda lib, regular, symmetric, positive: lib.linalg.inv(regular),
    "solve": lambda lib, regular, symmetric, positive: lib.linalg.solve(regular, symmetric),
    "det": lambda lib, regular, symmetric, positive: lib.linalg.det(regular),
    "cholesky": lambda lib, regular, symmetric, positive: lib.linalg.cholesky(positive),
    "solve_triangular": lambda lib, regular, symmetric, positive: lib.linalg.solve_triangular(regular, symmetric, upper=True),
    "qr": lambda lib, regular, symmetric, positive: lib.linalg.qr(regular),
    "eigh": lambda lib, regular, symmetric, positive: lib.linalg.eigh(symmetric),
    "svd": lambda lib, regular, symmetric, positive: lib.linalg.svd(regular),
    "matrix_exp": lambda lib, regular, symmetric, positive: lib.linalg.matrix_exp(regular),
}
LARGEST = {"eigh": 512, "svd": 256, "matrix_exp": 256}


def operands(lib, n, *batch, **options):
    x = lib.randn(*batch, n, n, **options)
    eye = lib.eye(n, **options)
    return x + 2 * n**0.5 * eye, x + x.mT, x @ x.mT + n * eye


def _case(name, label, n, libraries, *batch):
    runs = {}
    for library, lib in libraries.items():
        if library != "numpy":
            matrices = operands(lib, n, *batch)
            runs[library] = lambda lib=lib, matrices=matrices: OPERATORS[name](lib, *matrices)
    return Case("linear algebra", f"{name} {label}", runs)


def cases(libraries):
    for name in OPERATORS:
        for n in (4, 16, 64, 256, 512, 1024):
            if n <= LARGEST.get(name, 1024):
                yield _case(name, f"{n} x {n}", n, libraries)
        for n in (4, 32):
            yield _case(name, f"batch 256 of {n} x {n}", n, libraries, 256)
