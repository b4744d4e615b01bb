"""Whole training runs give the same bits at any number of threads, and from run to run."""

import hashlib

import pytest
import tapegrad as tg
import tapegrad.nn.functional as F
from tapegrad import nn


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.a, self.b = nn.Conv2d(channels, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.na, self.nb = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.nb(self.b(F.relu(self.na(self.a(x))))))


class LastOfLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(24, 48, num_layers=2, batch_first=True, dropout=0.1), nn.Linear(48, 10)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.body, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(32, 10)

    def forward(self, tokens):
        return self.head(self.body(self.embedding(tokens)).mean(1))


def mlp():
    return nn.Sequential(nn.Linear(100, 300), nn.GELU(), nn.LayerNorm(300), nn.Dropout(0.2), nn.Linear(300, 10)), lambda n: tg.randn(n, 100)


def resnet():
    body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Residual(16), nn.MaxPool2d(2), Residual(16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return body, lambda n: tg.randn(n, 3, 20, 20)


def lstm():
    return LastOfLSTM(), lambda n: tg.randn(n, 17, 24)


def transformer():
    return Transformer(), lambda n: tg.randint(0, 50, (n, 23))


def train(make) -> str:
    tg.manual_seed(7)
    model, batch = make()
    optimizer = tg.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(4):
        x, target = batch(32), tg.randint(0, 10, (32,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("make", [mlp, resnet, lstm, transformer], ids=lambda f: f.__name__)
def test_training_gives_one_hash(make):
    hashes = []
    for count in (1, 2, 3, 5, 2):
        tg.set_num_threads(count)
        hashes.append(train(make))
    assert len(set(hashes)) == 1, hashes


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "logsumexp", "cumsum", "softmax", "var", "norm"])
def test_large_reductions(name):
    tg.manual_seed(3)
    x = tg.rand(700, 1500) + 0.5
    results = []
    for count in (1, 2, 3, 5):
        tg.set_num_threads(count)
        f = getattr(x, name)
        results.append(b"".join(f(dim).numpy().tobytes() for dim in (0, 1)) if name not in ("norm",) else f().numpy().tobytes())
    assert len(set(results)) == 1
