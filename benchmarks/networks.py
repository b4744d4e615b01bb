"""Networks whose training steps are timed on a GPU: written once for tapegrad and for PyTorch, whose names they share.

AlexNet, VGG-19, ResNet-50 and MobileNetV2 as their papers describe them, a translator of LSTM layers with attention in the
manner of GNMT, NeuMF (neural collaborative filtering) and GPT-2 small. Without dropout, so that a step is the same work
and the same numbers in every library and in a graph.

`python -m benchmarks.networks LIBRARY NETWORK` prints, as JSON, how long a fresh process takes to its first step.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from dataclasses import dataclass

SIMULATED = bool(os.environ.get("TAPEGRAD_CUDA_SIMULATE"))


def cut(n: int, by: int = 32, least: int = 2) -> int:
    """n channels, or few on a simulated device, where only the way through the code counts."""
    return max(least, n // by) if SIMULATED else n


def side(n: int, simulated: int) -> int:
    return simulated if SIMULATED else n


# --- images ---


def alexnet(nn):
    def conv(a, b, k, **options):
        return [nn.Conv2d(a, b, k, **options), nn.ReLU(inplace=True)]

    a, b, c, wide = cut(64), cut(192), cut(256), cut(4096, 256)
    return nn.Sequential(*conv(3, a, 11, stride=4, padding=2), nn.MaxPool2d(3, 2), *conv(a, b, 5, padding=2), nn.MaxPool2d(3, 2), *conv(b, 2 * b, 3, padding=1),
                         *conv(2 * b, c, 3, padding=1), *conv(c, c, 3, padding=1), nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d(side(6, 1)), nn.Flatten(),
                         nn.Linear(c * side(6, 1) ** 2, wide), nn.ReLU(inplace=True), nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Linear(wide, side(1000, 10)))


def vgg19(nn):
    layers, before = [], 3
    for channels, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers += [nn.Conv2d(before, cut(channels), 3, padding=1), nn.ReLU(inplace=True)]
            before = cut(channels)
        layers.append(nn.MaxPool2d(2))
    wide = cut(4096, 256)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(side(7, 1)), nn.Flatten(), nn.Linear(before * side(7, 1) ** 2, wide), nn.ReLU(inplace=True),
                         nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Linear(wide, side(1000, 10)))


def resnet50(nn):
    class Bottleneck(nn.Module):
        def __init__(self, before, inner, after, stride):
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(before, inner, 1, bias=False), nn.BatchNorm2d(inner)
            self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(inner)
            self.conv3, self.bn3 = nn.Conv2d(inner, after, 1, bias=False), nn.BatchNorm2d(after)
            self.relu = nn.ReLU(inplace=True)
            self.other = None
            if stride != 1 or before != after:
                self.other = nn.Sequential(nn.Conv2d(before, after, 1, stride=stride, bias=False), nn.BatchNorm2d(after))

        def forward(self, x):
            y = self.relu(self.bn1(self.conv1(x)))
            y = self.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            return self.relu(y + (x if self.other is None else self.other(x)))

    before = cut(64)
    layers = [nn.Conv2d(3, before, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(before), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    for number, (inner, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for i in range(count):
            layers.append(Bottleneck(before, cut(inner), 4 * cut(inner), 2 if number and i == 0 else 1))
            before = 4 * cut(inner)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, side(1000, 10)))


def mobilenet_v2(nn):
    def conv(a, b, k, stride=1, groups=1):
        return [nn.Conv2d(a, b, k, stride=stride, padding=k // 2, groups=groups, bias=False), nn.BatchNorm2d(b), nn.ReLU6(inplace=True)]

    class Inverted(nn.Module):
        def __init__(self, before, after, stride, expand):
            super().__init__()
            inner = before * expand
            self.body = nn.Sequential(*(conv(before, inner, 1) if expand > 1 else []), *conv(inner, inner, 3, stride, inner),
                                      nn.Conv2d(inner, after, 1, bias=False), nn.BatchNorm2d(after))
            self.through = stride == 1 and before == after

        def forward(self, x):
            return x + self.body(x) if self.through else self.body(x)

    before = cut(32)
    layers = conv(3, before, 3, 2)
    for expand, channels, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            layers.append(Inverted(before, cut(channels), stride if i == 0 else 1, expand))
            before = cut(channels)
    return nn.Sequential(*layers, *conv(before, cut(1280), 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cut(1280), side(1000, 10)))


# --- sequences and tables ---

WORDS, TOKENS, USERS, ITEMS = side(32000, 40), side(50257, 40), side(138493, 50), side(26744, 30)


def gnmt(lib):
    """Four layers of LSTM on each side, 1024 wide, the first of the encoder in both directions; attention by products."""
    nn, width = lib.nn, side(1024, 8)

    class Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.source, self.target = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
            self.both = nn.LSTM(width, width, bidirectional=True)
            self.encoder = nn.ModuleList([nn.LSTM(2 * width if i == 0 else width, width) for i in range(3)])
            self.first = nn.LSTM(width, width)
            self.decoder = nn.ModuleList([nn.LSTM(2 * width, width) for _ in range(3)])
            self.words = nn.Linear(width, WORDS)

        def forward(self, source, target):
            x = self.both(self.source(source))[0]
            for i, layer in enumerate(self.encoder):
                y = layer(x)[0]
                x = y if i == 0 else x + y
            y = self.first(self.target(target))[0]
            scores = lib.bmm(y.transpose(0, 1), x.permute(1, 2, 0)) * width**-0.5
            seen = lib.bmm(scores.softmax(-1), x.transpose(0, 1)).transpose(0, 1)
            for i, layer in enumerate(self.decoder):
                z = layer(lib.cat([y, seen], 2))[0]
                y = z if i == 0 else y + z
            return self.words(y)

    return Translator()


def ncf(lib):
    """NeuMF: products of embeddings beside a multilayer perceptron on others."""
    nn, width = lib.nn, side(64, 4)

    class NeuMF(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item = nn.Embedding(USERS, width), nn.Embedding(ITEMS, width)
            self.deep_user, self.deep_item = nn.Embedding(USERS, 2 * width), nn.Embedding(ITEMS, 2 * width)
            self.deep = nn.Sequential(nn.Linear(4 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU())
            self.out = nn.Linear(2 * width, 1)

        def forward(self, users, items):
            deep = self.deep(lib.cat([self.deep_user(users), self.deep_item(items)], 1))
            return self.out(lib.cat([self.user(users) * self.item(items), deep], 1)).squeeze(1)

    return NeuMF()


def gpt2_small(lib):
    """Twelve blocks of width 768 with twelve heads; the table of words is used at both ends."""
    nn, F, width, heads, blocks, length = lib.nn, lib.nn.functional, side(768, 16), side(12, 2), side(12, 2), side(1024, 8)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = (y.view(n, t, heads, width // heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(width, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, width))
            return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(TOKENS, width), nn.Embedding(length, width)
            self.blocks, self.ln = nn.Sequential(*[Block() for _ in range(blocks)]), nn.LayerNorm(width)

        def forward(self, tokens):
            x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
            return F.linear(self.ln(self.blocks(x)), self.tokens.weight)

    return GPT()


# --- training ---


@dataclass
class Network:
    """`build(lib)` gives the module, `batch(lib, n)` its inputs and targets, `items(n)` how many images and so on these are."""

    name: str
    build: object
    batch: object
    batches: tuple  # a small one, where launches cost most, and one that fills a large card
    unit: str
    optimizer: str = "SGD"
    simulated: int = 2

    def sizes(self) -> tuple:
        return (self.simulated,) if SIMULATED else self.batches


def images(pixels, simulated):
    def batch(lib, n):
        p = side(pixels, simulated)
        return (lib.randn(n, 3, p, p, device="cuda"),), lib.randint(0, side(1000, 10), (n,), device="cuda")

    return batch


def sentences(lib, n):
    words = lib.randint(0, WORDS, (side(50, 3), 2 * n), device="cuda")
    return (words[:, :n].contiguous(), words[:, n:].contiguous()), lib.randint(0, WORDS, (side(50, 3) * n,), device="cuda")


def ratings(lib, n):
    return (lib.randint(0, USERS, (n,), device="cuda"), lib.randint(0, ITEMS, (n,), device="cuda")), lib.rand(n, device="cuda").round()


def texts(lib, n):
    t = side(1024, 8)
    return (lib.randint(0, TOKENS, (n, t), device="cuda"),), lib.randint(0, TOKENS, (n * t,), device="cuda")


NETWORKS = [
    Network("AlexNet", lambda lib: alexnet(lib.nn), images(224, 63), (16, 256), "images"),
    Network("VGG-19", lambda lib: vgg19(lib.nn), images(224, 32), (4, 64), "images"),
    Network("ResNet-50", lambda lib: resnet50(lib.nn), images(224, 32), (8, 128), "images"),
    Network("MobileNetV2", lambda lib: mobilenet_v2(lib.nn), images(224, 32), (8, 128), "images"),
    Network("GNMT", gnmt, sentences, (4, 128), "sentences", "Adam"),
    Network("NCF", ncf, ratings, (256, 1 << 16), "ratings", "Adam"),
    Network("GPT-2 small", gpt2_small, texts, (1, 8), "texts", "AdamW"),
]


def captured(lib, step, before=lambda: None):
    """A function that replays `step`, captured after three runs on another stream; `before` runs in front of each and of the capture."""
    side = lib.cuda.Stream()
    side.wait_stream(lib.cuda.current_stream())
    with lib.cuda.stream(side):
        for _ in range(3):
            before()
            step()
    lib.cuda.current_stream().wait_stream(side)
    before()
    graph = lib.cuda.CUDAGraph()
    with lib.cuda.graph(graph):
        step()
    return lambda: graph.replay()


def training_step(lib, network: Network, n: int, dtype: str, graphed: bool):
    """A step of training on one batch that stays where it is: forward and backward pass and the optimizer, `graphed` captured
    once and replayed. `step.model` is the network."""
    lib.manual_seed(0)
    with lib.device("cuda"):
        model = network.build(lib)
    inputs, target = network.batch(lib, n)
    options = {"momentum": 0.9} if network.optimizer == "SGD" else {"capturable": graphed}
    optimizer = getattr(lib.optim, network.optimizer)(model.parameters(), lr=1e-4, **options)
    F = lib.nn.functional
    lowered = dtype != "float32"

    def train():
        with lib.autocast("cuda", dtype=getattr(lib, dtype), cache_enabled=not graphed) if lowered else contextlib.nullcontext():
            out = model(*inputs)
            if network.unit == "ratings":
                loss = F.binary_cross_entropy_with_logits(out.float(), target)
            else:
                loss = F.cross_entropy(out.reshape(-1, out.shape[-1]), target)
        loss.backward()
        optimizer.step()

    def step():
        optimizer.zero_grad(set_to_none=True)
        train()

    step.model = model
    if not graphed:
        return step
    replay = captured(lib, train, lambda: optimizer.zero_grad(set_to_none=True))
    replay.model = model
    return replay


def traffic(lib, step, steps: int = 5) -> dict:
    """What a step asks of the allocator: requests, their bytes, and how often it had to go to the driver."""
    names = {"requests": "allocation.all.allocated", "bytes": "allocated_bytes.all.allocated", "driver": "num_device_alloc"}
    before = lib.cuda.memory_stats()
    for _ in range(steps):
        step()
    lib.cuda.synchronize()
    after = lib.cuda.memory_stats()
    return {name: (after.get(key, 0) - before.get(key, 0)) / steps for name, key in names.items()} | {"peak": after.get("reserved_bytes.all.peak", 0)}


def first_step(library: str, name: str) -> dict:
    """Seconds of this process: the import, the network and its first batch on the device, the first step, the fourth."""
    times, start = {}, time.perf_counter()

    def lap(what):
        nonlocal start
        now = time.perf_counter()
        times[what], start = now - start, now

    lib = importlib.import_module(library)
    lap("import")
    network = next(n for n in NETWORKS if n.name == name)
    step = training_step(lib, network, network.sizes()[0], "float32", False)
    lib.cuda.synchronize()
    lap("build")
    for what in ("first", "second", "third", "fourth"):
        step(), lib.cuda.synchronize()
        lap(what)
    return {what: times[what] for what in ("import", "build", "first", "fourth")}


if __name__ == "__main__":
    print(json.dumps(first_step(*sys.argv[1:3])))
