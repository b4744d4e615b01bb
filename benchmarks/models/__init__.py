"""Whole models, one file for every library: the one under test comes as an argument. `python -m benchmarks.models --help`."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from . import images, sequences, tables
from .sizes import Sizes


@dataclass
class Model:
    """`build(lib, sizes)` gives the module; `batch(sizes, numbers, n)` its inputs and targets as arrays, the same in every
    library. `cpu`: items of a batch on a CPU; `cuda`: a small batch, where launches cost most, and one that fills a large card."""

    name: str
    build: Callable
    batch: Callable
    unit: str
    cpu: int = 0  # 0: not measured there
    cuda: tuple = ()  # (): not measured there
    optimizer: str = "SGD"
    loss: str = "cross_entropy"
    tiny: int = 2
    lowered: bool = True  # False: PyTorch cannot train it under autocast to bfloat16


def _pictures(side: int, s: Sizes, numbers, n: int):
    p = s.of(224, side)
    return (numbers.standard_normal((n, 3, p, p), np.float32),), numbers.integers(0, s.of(1000, 10), n)


def _noise(s: Sizes, numbers, n: int):
    p = s.of(32, 8)
    return (numbers.standard_normal((n, 3, p, p), np.float32), numbers.random(n, np.float32) * 6), numbers.standard_normal((n, 3, p, p), np.float32)


def _sentences(s: Sizes, numbers, n: int):
    words, length = sequences.words_of(s), s.of(50, 25 if s.device == "cpu" else 3, cpu=25)
    source, target = numbers.integers(0, words, (2, length, n))
    return (source, target), numbers.integers(0, words, length * n)


def _ratings(s: Sizes, numbers, n: int):
    return (numbers.integers(0, tables.users_of(s), n), numbers.integers(0, tables.items_of(s), n)), numbers.random(n, np.float32).round()


def _texts(words: int, length: int, s: Sizes, numbers, n: int, cpu: int | None = None):
    words, length = s.of(words, 40), s.of(length, 8, cpu)
    return (numbers.integers(0, words, (n, length)),), numbers.integers(0, words, n * length)


def _gaps(s: Sizes, numbers, n: int):
    """Texts of several lengths, of which one word in seven is to be guessed."""
    (tokens,), target = _texts(30522, 128, s, numbers, n)
    length = tokens.shape[1]
    padding = np.arange(length) >= (length - length // (2 * n) * np.arange(n))[:, None]
    target[(numbers.random(n * length) > 0.15) | padding.ravel()] = -100
    target[0] = 1
    return (tokens, padding), target


def _rows_of_words(s: Sizes, numbers, n: int):
    words, length = s.of(10000, 40), 35
    return (numbers.integers(0, words, (length, n)),), numbers.integers(0, words, length * n)


def _digits(s: Sizes, numbers, n: int):
    return (numbers.standard_normal((n, s.of(784, 8)), np.float32),), numbers.integers(0, 10, n)


def _nodes(s: Sizes, numbers, n: int):
    nodes = tables.nodes_of(s)
    return (numbers.standard_normal((nodes, s.of(1433, 8)), np.float32),), numbers.integers(0, 7, nodes)


MODELS = [
    Model("AlexNet", images.alexnet, partial(_pictures, 63), "images", 8, (16, 256)),
    Model("VGG-19", images.vgg19, partial(_pictures, 32), "images", 1, (4, 64)),
    Model("ResNet-50", images.resnet50, partial(_pictures, 64), "images", 4, (8, 128), tiny=4),
    Model("MobileNet v1", images.mobilenet_v1, partial(_pictures, 32), "images", 8),
    Model("MobileNetV2", images.mobilenet_v2, partial(_pictures, 32), "images", 0, (8, 128)),
    Model("ViT-S", images.vit_small, partial(_pictures, 32), "images", 4, (), "AdamW"),
    Model("diffusion U-Net", images.diffusion_unet, _noise, "images", 8, (), "AdamW", "mse_loss"),
    Model("GNMT", sequences.gnmt, _sentences, "sentences", 4, (4, 128), "Adam", lowered=False),
    Model("LSTM language model", sequences.lstm_words, _rows_of_words, "rows", 20, lowered=False),
    Model("small BERT", sequences.bert_small, _gaps, "texts", 4, (), "AdamW"),
    Model("small GPT", sequences.gpt_small, partial(_texts, 65, 64), "texts", 8, (), "AdamW"),
    Model("GPT-2 small", sequences.gpt2_small, partial(_texts, 50257, 1024, cpu=128), "texts", 1, (1, 8), "AdamW"),
    Model("NCF", tables.ncf, _ratings, "ratings", 1024, (256, 1 << 16), "Adam", "binary_cross_entropy_with_logits"),
    Model("NCF, row-sparse", partial(tables.ncf, sparse=True), _ratings, "ratings", 1024, (), "SparseAdam", "binary_cross_entropy_with_logits"),
    Model("graph network", tables.graph_network, _nodes, "graphs", 1, (), "Adam", tiny=1, lowered=False),
    Model("digits MLP", tables.digits_mlp, _digits, "images", 64, (), "Adam"),
]


def named(name: str) -> Model:
    return next(m for m in MODELS if m.name == name)
