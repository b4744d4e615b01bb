"""The models that are compared with JAX, as functions of their parameters; a step is compiled as a whole and its arguments are given away."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from . import Model
from .sizes import Sizes
from .training import RATE, common_numbers

# --- models: (shapes by name in PyTorch's order, a function of parameters and inputs) ---


def _linears(widths: dict) -> dict:
    return {f"{name}.{part}": shape for name, (n, m) in widths.items() for part, shape in (("weight", (m, n)), ("bias", (m,)))}


def _linear(p, name, x):
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def digits_mlp(s: Sizes):
    widths = (s.of(784, 8), s.of(256, 8), s.of(128, 8), 10)

    def forward(p, x):
        return _linear(p, "4", jax.nn.relu(_linear(p, "2", jax.nn.relu(_linear(p, "0", x)))))

    return _linears({str(2 * i): widths[i:i + 2] for i in range(3)}), forward


def alexnet(s: Sizes):
    a, b, c, wide, side = s.cut(64), s.cut(192), s.cut(256), s.cut(4096, 256), s.of(6, 1)
    convolutions = {"0": (3, a, 11, 4, 2), "3": (a, b, 5, 1, 2), "6": (b, 2 * b, 3, 1, 1), "8": (2 * b, c, 3, 1, 1), "10": (c, c, 3, 1, 1)}
    shapes = {}
    for name, (n, m, k, _, _) in convolutions.items():
        shapes |= {f"{name}.weight": (m, n, k, k), f"{name}.bias": (m,)}
    shapes |= _linears({"15": (c * side**2, wide), "17": (wide, wide), "19": (wide, s.of(1000, 10))})

    def forward(p, x):
        x = x.transpose(0, 2, 3, 1)  # the layout that XLA's convolutions are made for
        for name, (_, _, _, stride, padding) in convolutions.items():
            weight = p[f"{name}.weight"].transpose(2, 3, 1, 0)
            x = jax.lax.conv_general_dilated(x, weight, (stride, stride), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x + p[f"{name}.bias"])
            if name in ("0", "3", "10"):
                x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID")
        x = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        return _linear(p, "19", jax.nn.relu(_linear(p, "17", jax.nn.relu(_linear(p, "15", x)))))

    return shapes, forward


def gpt_small(s: Sizes):
    words, width, heads, blocks = 65, s.of(128, 16), s.of(4, 2), 4
    shapes = {"tokens.weight": (words, width), "places.weight": (64, width)}
    for i in range(blocks):
        norms = {f"blocks.{i}.{n}.{part}": (width,) for n in ("ln1", "ln2") for part in ("weight", "bias")}
        shapes |= norms | _linears({f"blocks.{i}.qkv": (width, 3 * width), f"blocks.{i}.out": (width, width), f"blocks.{i}.up": (width, 4 * width),
                                    f"blocks.{i}.down": (4 * width, width)})
    shapes |= {"ln.weight": (width,), "ln.bias": (width,)}

    def norm(p, name, x):
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]

    def forward(p, tokens):
        n, t = tokens.shape
        x = p["tokens.weight"][tokens] + p["places.weight"][:t]
        for i in range(blocks):
            at = f"blocks.{i}."
            q, k, v = (y.reshape(n, t, heads, -1) for y in jnp.split(_linear(p, at + "qkv", norm(p, at + "ln1", x)), 3, -1))
            x = x + _linear(p, at + "out", jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(n, t, width))
            x = x + _linear(p, at + "down", jax.nn.gelu(_linear(p, at + "up", norm(p, at + "ln2", x))))
        return norm(p, "ln", x) @ p["tokens.weight"].T

    return shapes, forward


def lstm_words(s: Sizes):
    words, width = s.of(10000, 40), s.of(650, 8)
    shapes = {"table.weight": (words, width)}
    for i in range(2):
        shapes |= {f"lstm.weight_ih_l{i}": (4 * width, width), f"lstm.weight_hh_l{i}": (4 * width, width), f"lstm.bias_ih_l{i}": (4 * width,), f"lstm.bias_hh_l{i}": (4 * width,)}
    shapes |= _linears({"words": (width, words)})

    def layer(p, i, x):
        before = x @ p[f"lstm.weight_ih_l{i}"].T + p[f"lstm.bias_ih_l{i}"] + p[f"lstm.bias_hh_l{i}"]

        def cell(state, gates):
            h, c = state
            a, f, g, o = jnp.split(gates + h @ p[f"lstm.weight_hh_l{i}"].T, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(a) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[1], width))
        return jax.lax.scan(cell, (zero, zero), before)[1]

    return shapes, lambda p, x: _linear(p, "words", layer(p, 1, layer(p, 0, p["table.weight"][x])))


MODELS = {"digits MLP": digits_mlp, "AlexNet": alexnet, "small GPT": gpt_small, "LSTM language model": lstm_words}

# --- optimizers: the state before the first step, and a function that makes one ---


def _sgd(p, g, state):
    m = jax.tree.map(lambda m, g: 0.9 * m + g, state, g)
    return jax.tree.map(lambda p, m: p - RATE * m, p, m), m


def _adam(p, g, state, decay):
    t, m, v = state
    t = t + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    return jax.tree.map(lambda p, m, v: p * (1 - RATE * decay) - RATE * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8), p, m, v), (t, m, v)


class Run:
    """As training.Run."""

    def __init__(self, lib, model: Model, sizes: Sizes, n: int, dtype: str, training: bool, wrap=None):
        if dtype != "float32":
            raise ValueError("in_jax: only float32 is compared")
        self.shapes, forward = MODELS[model.name](sizes)
        inputs, target = model.batch(sizes, np.random.default_rng(1), n)
        self.inputs, self.target, self.adam = [jnp.asarray(x) for x in inputs], jnp.asarray(target), model.optimizer != "SGD"
        update = partial(_adam, decay=0.01 if model.optimizer == "AdamW" else 0.0) if self.adam else _sgd

        def loss(p):
            scores = jax.nn.log_softmax(forward(p, *self.inputs).reshape(len(self.target), -1))
            return -jnp.take_along_axis(scores, self.target[:, None], 1).mean()

        def step(p, state):
            value, g = jax.value_and_grad(loss)(p)
            return value, *update(p, g, state)

        self.gradients, self.forward = jax.jit(jax.grad(loss)), jax.jit(forward)
        self.compiled = jax.jit(step, donate_argnums=(0, 1))
        self.refill()

    def refill(self) -> None:
        self.parameters = {name: jnp.asarray(a) for (name, _), a in zip(self.shapes.items(), common_numbers(self.shapes.items()), strict=True)}
        zeros = jax.tree.map(jnp.zeros_like, self.parameters)
        self.state = (jnp.zeros(()), zeros, jax.tree.map(jnp.zeros_like, self.parameters)) if self.adam else zeros

    def step(self):
        value, self.parameters, self.state = self.compiled(self.parameters, self.state)
        return value.block_until_ready()

    def infer(self):
        return self.forward(self.parameters, *self.inputs).block_until_ready()

    def losses(self, steps: int = 3) -> list[float]:
        self.refill()
        length = float(sum((g.astype(jnp.float32) ** 2).sum() for g in self.gradients(self.parameters).values()) ** 0.5)
        first, *rest = [float(self.step()) for _ in range(steps)]
        return [first, length, *rest]
