"""Trains the network of mnist.py on one process or on several, each with its part of every batch:

    python examples/ddp.py                                                     one process
    python -m tapegrad.distributed.run --nproc-per-node 2 examples/ddp.py      two processes of this machine
    torchrun --nproc-per-node 2 examples/ddp.py                                the same, started by PyTorch's launcher

The batch of --batch-size images is that of all processes together, so that any number of them trains the same network: the curves lie on
one another. `--resume` goes on from the last complete epoch with the same bits. Rank 0 shows progress, saves and draws; it also tells which rank
keeps the others waiting, and every 100 steps all ranks compare their networks.
"""

import common
import tapegrad as tg
import tapegrad.distributed as dist
from mnist import build_network
from tapegrad import nn
from tapegrad.datasets import MNIST
from tapegrad.nn.parallel import DistributedDataParallel
from tapegrad.utils.data import DataLoader, TensorDataset
from tapegrad.utils.data.distributed import DistributedSampler


def parse(arguments=None):
    return common.arguments(__doc__, "ddp", epochs=3, batch_size=(120, "images of all processes together (%(default)s)"), lr=4e-3,
                            images=(0, "train on the first N images only")).parse_args(arguments)


class Training:
    """One rank's part of the data, and the network that all ranks share."""

    def __init__(self, options) -> None:
        self.options, self.rank, self.size = options, dist.get_rank(), dist.get_world_size()
        if options.batch_size % self.size:
            raise SystemExit(f"--batch-size {options.batch_size} cannot be shared by {self.size} processes evenly")
        if self.rank != 0:
            options.quiet = True
        tg.manual_seed(options.seed)
        images, labels = MNIST(train=True).tensors()
        count = options.images or len(images)
        data = TensorDataset(images[:count], labels[:count])
        self.sampler = DistributedSampler(data, seed=options.seed, drop_last=True)
        self.loader = DataLoader(data, batch_size=options.batch_size // self.size, sampler=self.sampler, drop_last=True)
        self.model = build_network()
        self.parallel = DistributedDataParallel(self.model, average="samples", check_drift=100, report_stragglers=100)
        self.optimizer = tg.optim.AdamW(self.model.parameters(), lr=options.lr, weight_decay=0.01)
        self.run = common.Run(options, ("epochs", "batch_size", "images"), model=self.model, optimizer=self.optimizer)
        self.run.seconds = None
        if self.rank != 0:
            self.run.save = dist.barrier  # rank 0 saves for all; no rank ends before that
        else:
            save = self.run.save
            self.run.save = lambda: (save(), dist.barrier())

    def one_epoch(self, epoch: int) -> None:
        self.parallel.train()
        self.sampler.set_epoch(epoch)
        with common.progress(self.loader, f"epoch {epoch + 1}/{self.options.epochs}", self.options.quiet, unit="batch") as batches:
            for images, labels in batches:
                loss = nn.functional.cross_entropy(self.parallel(images), labels)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                mean = loss.detach()
                dist.all_reduce(mean)
                self.run.record(loss=mean.item() / self.size)

    @tg.no_grad()
    def evaluate(self) -> float:
        """The share of held-out images that are read right; each rank looks at its part."""
        self.model.eval()
        images, labels = MNIST(train=False).tensors()
        right = tg.tensor([0.0, 0.0])
        for part, truth in list(zip(images.split(500), labels.split(500), strict=True))[self.rank::self.size]:
            right += tg.tensor([(self.model(part).argmax(1) == truth).sum().item(), len(truth)])
        dist.all_reduce(right)
        return (right[0] / right[1]).item()


@common.stoppable
@common.many_processes()
def main(arguments=None) -> float:
    """What each rank does. The accuracy on images that were held out."""
    training = Training(parse(arguments))
    if training.rank == 0:
        print(f"{training.size} process{'es' * (training.size > 1)}, {len(training.loader.dataset):,} images, {len(training.loader)} steps per epoch")
    for epoch in training.run.rounds(training.options.epochs, "epoch", bar=False):
        training.one_epoch(epoch)
    accuracy = training.evaluate()
    if training.rank == 0:
        with common.picture(training.options.picture, 8, 4) as drawing:
            if drawing is not None:
                common.draw_curve(drawing[1][0, 0], training.run.history["loss"], f"loss of each batch, {training.size} process{'es' * (training.size > 1)}", yscale="log")
        print(f"held-out accuracy: {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    main()
