"""Trains the network of mnist.py with a parameter server: rank 0 holds the parameters, the other ranks are workers:

    python -m tapegrad.distributed.run --nproc-per-node 4 examples/parameter_server.py              a server and three workers
    python -m tapegrad.distributed.run --nproc-per-node 4 examples/parameter_server.py --backup 1   the first two gradients make a step
    python examples/parameter_server.py                                                             a server and a worker in one process

A worker that is slow or dies does not hold up the others: without --backup each gradient is applied when it comes, with it the late ones of
every step are dropped. The server saves itself in --checkpoint, a folder here; `--resume` goes on from there.
"""

import os
import shutil
import threading

import common
import tapegrad as tg
import tapegrad.distributed as dist
from mnist import build_network
from tapegrad import nn
from tapegrad.datasets import MNIST
from tapegrad.distributed.parameter_server import ParameterClient, ParameterServer


def parse(arguments=None):
    parser = common.arguments(__doc__, "parameter_server", steps=(600, "of the server (%(default)s)"),
                              batch_size=(40, "images of one worker's gradient (%(default)s)"), lr=0.01,
                              staleness=(8, "pushes that an asynchronous worker may be ahead of the slowest (%(default)s)"),
                              images=(0, "train on the first N images only"))
    parser.add_argument("--backup", type=int, help="workers of which a synchronous step does not wait; default: asynchronous")
    return parser.parse_args(arguments)


def serve(options, store, workers: int) -> ParameterServer:
    """The server, ready for its workers."""
    folder = os.path.splitext(options.checkpoint)[0]
    if not options.resume:
        shutil.rmtree(folder, ignore_errors=True)
    way = {"staleness": options.staleness} if options.backup is None else {"first": workers - options.backup}
    return ParameterServer(store, lambda ps: tg.optim.SGD(ps, lr=options.lr, momentum=0.9), workers=workers, folder=folder, **way)


def work(options, store, worker: int) -> float:
    """Trains until the server has taken all steps. The accuracy on images that were held out."""
    tg.manual_seed(options.seed)
    model = build_network()
    images, labels = MNIST(train=True).tensors()
    count = options.images or len(images)
    steps = min(options.steps, options.stop_after or options.steps)
    with ParameterClient(store, worker, model) as client:
        while (step := client.pull()[0]) < steps:
            own = tg.Generator().manual_seed(options.seed + 7919 * step + worker)  # the images of a step do not depend on what was before
            chosen = tg.randint(0, count, (options.batch_size,), generator=own)
            loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            model.zero_grad()
            loss.backward()
            client.push()
            if step % 50 == 0 and not options.quiet:
                print(f"worker {worker}, step {step}: loss {loss.item():.4f}", flush=True)
        client.pull()
    model.eval()
    images, labels = MNIST(train=False).tensors()
    with tg.no_grad():
        right = sum((model(part).argmax(1) == truth).sum().item() for part, truth in zip(images.split(500), labels.split(500), strict=True))
    return right / len(labels)


@common.stoppable
def main(arguments=None) -> float | None:
    """The accuracy; None on the server and on all workers but the first."""
    options = parse(arguments)
    if "RANK" in os.environ:
        store, rank, size = next(dist.rendezvous("env://"))
        if size < 2:
            raise SystemExit("a server needs workers: start at least two processes")
        if rank == 0:
            return serve(options, store, size - 1).serve()
        accuracy = work(options, store, rank - 1)
        if rank > 1:
            return None
    else:
        store = dist.HashStore()
        serving = threading.Thread(target=serve(options, store, 1).serve)
        serving.start()
        accuracy = work(options, store, 0)
        serving.join()
    print(f"held-out accuracy: {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    main()
