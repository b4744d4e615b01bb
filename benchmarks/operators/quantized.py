"""Products with weights of 8 and 4 bits for few rows, and what they make of a language model: a token of GPT-2 small."""

import math
import warnings

from ..harness import Case
from .layers import without_tape

SIZES = [(768, 3072), (4096, 4096)]  # in, out
ROWS = (1, 4, 16, 64)
GROUP = 128  # terms of an int4 weight that share a scale
LAYERS, WIDTH, HEADS, WORDS, PLACES = 12, 768, 12, 50257, 256
KINDS = ("float32", "dynamic int8", "bfloat16", "int8 weights", "int4 weights")


def _bytes(lib, *sizes):
    return lib.randint(-128, 128, sizes).to(lib.int8)


def _int4(lib, n, k, dtype):
    packed = lib._convert_weight_to_int4pack_for_cpu(lib.randint(0, 16, (n, k)).to(lib.int32), 2)
    return packed, (lib.randn(k // GROUP, n, 2) * (0.1 / math.sqrt(k))).to(dtype)


def _dynamic(lib, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's that its quantisation moves elsewhere
        return lib.ao.quantization.quantize_dynamic(model, {lib.nn.Linear}, dtype=lib.qint8)


def _products(lib, k, n):
    weight, packed = _bytes(lib, n, k), _int4(lib, n, k, lib.bfloat16)
    linear, scales = _dynamic(lib, lib.nn.Sequential(lib.nn.Linear(k, n))), lib.rand(n).to(lib.bfloat16)
    runs = {}
    for m in ROWS:
        a, x = _bytes(lib, m, k), lib.randn(m, k)
        half = x.to(lib.bfloat16)
        runs |= {f"_int_mm {m}x{k} @ ({n}x{k}).t()": lambda a=a: lib._int_mm(a, weight.t()),
                 f"dynamic int8 linear {m}x{k} -> {n}": lambda x=x: linear(x),
                 f"int8 weight {m}x{k} -> {n}, bfloat16": lambda half=half: lib._weight_int8pack_mm(half, weight, scales),
                 f"int4 weight {m}x{k} -> {n}, bfloat16": lambda half=half: lib._weight_int4pack_mm_for_cpu(half, packed[0], GROUP, packed[1])}  # fmt: skip
    return runs


def _weight_only(lib, linear, bits):
    """A linear layer with a weight of few bits, as programs write them for inference. Its bias is float, its input bfloat16."""
    n, k = linear.weight.shape
    rows = (n + 15) // 16 * 16  # the vocabulary is no multiple
    weight, bias = linear.weight, linear.bias
    packed = _int4(lib, rows, k, lib.bfloat16) if bits == 4 else None
    scales = (weight.abs().amax(1) / 127).to(lib.bfloat16)
    whole = (weight / scales.float().unsqueeze(1)).round().clamp(-128, 127).to(lib.int8)

    class WeightOnly(lib.nn.Module):
        def forward(self, x):
            flat = x.reshape(-1, k)
            y = lib._weight_int4pack_mm_for_cpu(flat, packed[0], GROUP, packed[1])[:, :n] if bits == 4 else lib._weight_int8pack_mm(flat, whole, scales)
            return (y if bias is None else y + bias.to(y.dtype)).reshape(*x.shape[:-1], n)

    return WeightOnly()


def _decoder(lib, kind):
    """A step of generation behind `PLACES` words, of which the keys and values are kept."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])
            sizes = ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH))
            self.layers = nn.ModuleList([nn.Linear(*pair) for pair in sizes])

        def forward(self, x, keys, values, at):
            qkv, out, up, down = self.layers
            q, k, v = qkv(self.norms[0](x)).view(1, 1, 3, HEADS, WIDTH // HEADS).unbind(2)
            keys[:, :, at], values[:, :, at] = k[:, 0], v[:, 0]
            mixed = F.scaled_dot_product_attention(q.transpose(1, 2), keys[:, :, : at + 1], values[:, :, : at + 1])
            x = x + out(mixed.transpose(1, 2).reshape(1, 1, WIDTH))
            return x + down(F.gelu(up(self.norms[1](x)), approximate="tanh"))

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(PLACES, WIDTH)
            self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

        def forward(self, word, at, cache):
            x = self.words(word) + self.places(at)
            for block, (keys, values) in zip(self.blocks, cache):
                x = block(x, keys, values, PLACES - 1)
            return self.head(self.norm(x)).argmax(-1)

    with lib.no_grad():
        model = Decoder().eval()
        dtype = lib.float32 if kind in ("float32", "dynamic int8") else lib.bfloat16
        if kind == "dynamic int8":
            model = _dynamic(lib, model)
        elif kind != dtype:
            model = model.to(dtype)
            if kind.endswith("weights"):
                for place in [m for m in model.modules() if any(type(c) is nn.Linear for c in m.children())]:
                    for name, child in list(place.named_children()):
                        if type(child) is nn.Linear:
                            setattr(place, name, _weight_only(lib, child.float(), int(kind[3])))
        cache = [[lib.randn(1, HEADS, PLACES, WIDTH // HEADS).to(dtype) for _ in range(2)] for _ in range(LAYERS)]
    word, at = lib.tensor([[17]]), lib.tensor([[PLACES - 1]])
    return lambda: model(word, at, cache)


def cases(libraries):
    libraries = {name: lib for name, lib in libraries.items() if name != "numpy"}
    for k, n in SIZES:
        runs = {name: _products(lib, k, n) for name, lib in libraries.items()}
        for label in runs["tapegrad"]:
            yield Case("quantized", label, {name: without_tape(libraries[name], table[label]) for name, table in runs.items()})
    for kind in KINDS:
        yield Case("quantized", f"GPT-2 small, a token, {kind}", {name: without_tape(lib, _decoder(lib, kind)) for name, lib in libraries.items()})
