"""What generation and inference of small batches consist of: products of few rows, attention of few queries, in 32 and 16 bits."""

from ..harness import Case
from .layers import without_tape

SIZES = [(768, 768), (768, 3072), (3072, 768), (4096, 4096)]  # in, out: the layers of a GPT-2, and of something larger
ROWS = (1, 2, 4, 8, 16, 32, 64)
# heads of the query, of key and value; queries, keys in use, places of the cache
ATTENTION = [(12, 12, 1, 100, 2048), (12, 12, 1, 1000, 2048), (12, 12, 4, 1000, 1000), (12, 12, 16, 1000, 2048), (32, 8, 1, 1000, 2048)]


def _products(lib, dtype, k, n):
    weight, turned, bias = lib.randn(n, k).to(dtype), lib.randn(k, n).to(dtype), lib.randn(n).to(dtype)
    rows = {m: lib.randn(m, k).to(dtype) for m in ROWS}
    return {**{f"linear {m}x{k} -> {n}": lambda x=x: lib.nn.functional.linear(x, weight, bias) for m, x in rows.items()},
            **{f"addmm {m}x{k} @ {k}x{n}": lambda x=x: lib.addmm(bias, x, turned) for m, x in rows.items() if m <= 16}}  # fmt: skip


def _attention(lib, dtype):
    runs = {}
    for heads, shared, queries, used, most in ATTENTION:
        q = lib.randn(1, heads, queries, 64).to(dtype)
        k, v = (lib.randn(1, shared, most, 64).to(dtype)[:, :, :used] for _ in range(2))
        runs[f"attention {heads}/{shared} heads, {queries} of {used} in {most}"] = lambda q=q, k=k, v=v: (
            lib.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        )
    return runs


def cases(libraries):
    libraries = {name: lib for name, lib in libraries.items() if name != "numpy"}
    for dtype in ("float32", "bfloat16", "float16"):
        for make in [*[lambda lib, d, s=s: _products(lib, d, *s) for s in SIZES], _attention]:
            runs = {name: make(lib, getattr(lib, dtype)) for name, lib in libraries.items()}
            for label in runs["tapegrad"]:
                yield Case("few rows", f"{label}, {dtype}", {n: without_tape(libraries[n], table[label]) for n, table in runs.items()})
