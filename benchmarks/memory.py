"""Kernels bound by memory, on 16 M float32 elements: fresh outputs, as an eager script makes them."""

from .harness import Case

N = 16 * 1024 * 1024


def cases(libraries):
    per_library = {}
    for name, lib in libraries.items():
        if name == "numpy":
            a = lib.linspace(0.1, 1, N, dtype=lib.float32)
            b = a[::-1].copy()
            m = a.reshape(4096, 4096)
            per_library[name] = {"a + b": lambda a=a, b=b: a + b, "a * 2": lambda a=a, lib=lib: a * lib.float32(2), "exp": lambda a=a, lib=lib: lib.exp(a),
                                 "sum": lambda a=a: a.sum(), "transpose copy": lambda m=m: m.T.copy()}
            continue
        a = lib.linspace(0.1, 1, N)
        b = a.flip(0)
        m = a.reshape(4096, 4096)
        per_library[name] = {
            "a + b": lambda a=a, b=b: a + b, "a * 2": lambda a=a: a * 2, "relu": lambda a=a, lib=lib: lib.relu(a),
            "exp": lambda a=a, lib=lib: lib.exp(a), "sigmoid": lambda a=a, lib=lib: lib.sigmoid(a),
            "where": lambda a=a, b=b, lib=lib: lib.where(a > b, a, b), "lerp": lambda a=a, b=b, lib=lib: lib.lerp(a, b, 0.3),
            "row + column": lambda m=m: m + m[:, :1], "clone": lambda a=a: a.clone(),
            "transpose copy": lambda m=m: m.t().contiguous(), "sum": lambda a=a: a.sum(), "sum(0)": lambda m=m: m.sum(0),
            "sum(1)": lambda m=m: m.sum(1), "softmax(-1)": lambda m=m: m.softmax(-1), "zeros_like": lambda a=a, lib=lib: lib.zeros_like(a),
            "to float64": lambda a=a: a.double(), "to bfloat16": lambda a=a: a.bfloat16(),
        }
    for kernel in per_library["tapegrad"]:
        yield Case("memory-bound, 16 M elements", kernel, {n: r[kernel] for n, r in per_library.items() if kernel in r})
