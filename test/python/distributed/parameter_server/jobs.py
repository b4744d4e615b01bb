"""A small model with a table, servers on threads of the test, and what one process makes of the same data."""

import contextlib
import threading

import tapegrad as tg
import tapegrad.distributed as dist
from tapegrad import nn, optim
from tapegrad.distributed.parameter_server import ParameterServer


def model():
    tg.manual_seed(5)
    return nn.Sequential(nn.Embedding(11, 4, sparse=True), nn.Flatten(), nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def batch(step: int, part: int = 0, parts: int = 1):
    g = tg.Generator().manual_seed(100 + step)
    x, y = tg.randint(0, 11, (12, 2), generator=g), tg.randint(0, 3, (12,), generator=g)
    n = 12 // parts
    return x[part * n:(part + 1) * n], y[part * n:(part + 1) * n]


def loss_of(net, step, part=0, parts=1):
    x, y = batch(step, part, parts)
    return nn.functional.cross_entropy(net(x), y)


def adagrad(parameters):
    return optim.Adagrad(parameters, lr=0.1)


def alone(steps: int, parts: int = 1) -> dict:
    """One process; a step's gradient is the mean of those of the parts."""
    net = model()
    optimizer = adagrad(net.parameters())
    for step in range(steps):
        grads = []
        for part in range(parts):
            net.zero_grad()
            loss_of(net, step, part, parts).backward()
            grads.append({k: p.grad for k, p in net.named_parameters()})
        for k, p in net.named_parameters():
            total = grads[0][k]
            for other in grads[1:]:
                total = total + other[k]
            p.grad = total / parts if parts > 1 else total
        optimizer.step()
    return {k: v.detach().clone() for k, v in net.state_dict().items()}


@contextlib.contextmanager
def served(shards: int = 1, **options):
    """Servers on threads of this process, and their store."""
    store = dist.HashStore()
    servers = [ParameterServer(store, adagrad, shard=k, shards=shards, **{"timeout": 20, **options}) for k in range(shards)]
    threads = [threading.Thread(target=s.serve, daemon=True) for s in servers]
    for t in threads:
        t.start()
    try:
        yield store, servers
    finally:
        for s in servers:
            s.close()
        for t in threads:
            t.join(10)
            assert not t.is_alive()


def equal(a: dict, b: dict, tolerance: float = 0.0) -> None:
    assert a.keys() == b.keys()
    for name, value in b.items():
        tg.testing.assert_close(a[name], value, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}")


def raised(f) -> str:
    try:
        f()
    except (RuntimeError, dist.DistBackendError) as error:
        return str(error)
    return ""
