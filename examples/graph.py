"""Reads digits of which almost none has a label, with a network on the graph of who looks like whom: `python examples/graph.py --help`.

Each image is joined to the few that are nearest to it. Layers of a graph convolutional network (Kipf and Welling, 2016) multiply by the sparse
matrix of the graph, so that what is known of a labelled digit reaches its neighbours; the same network without the graph shows what that
is worth. `--resume` goes on bit for bit.
"""

import common
import tapegrad as tg
from tapegrad import nn
from tapegrad.datasets import MNIST
from tapegrad.nn import functional as F


def neighbours(points, count: int):
    """(2, N * count): each point's number beside those of the `count` points nearest to it."""
    near = [tg.cdist(part, points).topk(count + 1, largest=False).indices[:, 1:] for part in points.split(500)]
    return tg.stack([tg.arange(len(points)).repeat_interleave(count), tg.cat(near).flatten()])


def normalised(edges, size: int):
    """The sparse matrix D^-1/2 (A + 1) D^-1/2 of the graph with these edges in both directions."""
    loops = tg.arange(size).expand(2, size)
    both = tg.unique(tg.cat([edges, edges.flip(0), loops], 1), dim=1)
    degree = tg.bincount(both[0], minlength=size).float()
    weights = degree[both[0]].rsqrt() * degree[both[1]].rsqrt()
    return tg.sparse_coo_tensor(both, weights, (size, size)).coalesce()


class GraphNetwork(nn.Module):
    """Features (N, F) of all nodes to scores (N, classes); without a graph, layers that see each node alone."""

    def __init__(self, graph, features: int, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.graph = graph
        self.first, self.last, self.drop = nn.Linear(features, width), nn.Linear(width, classes), nn.Dropout(dropout)

    def spread(self, x):
        return x if self.graph is None else tg.sparse.mm(self.graph, x)

    def forward(self, x):
        return self.spread(self.last(self.drop(F.relu(self.spread(self.first(self.drop(x)))))))


def parse(arguments=None):
    return common.arguments(__doc__, "graph", steps=150, nodes=(6000, "images in the graph"), labels=(10, "labelled images of each digit"),
                            near=(8, "neighbours of an image"), width=64, dropout=0.5, lr=1e-2).parse_args(arguments)


@common.stoppable
def main(arguments=None):
    options = parse(arguments)
    tg.manual_seed(options.seed)
    images, labels = MNIST(train=True).tensors()
    images, labels = images[:options.nodes].flatten(1), labels[:options.nodes]
    known = tg.cat([(labels == digit).nonzero().flatten()[:options.labels] for digit in range(10)])
    unknown = tg.ones(len(labels), dtype=tg.bool)
    unknown[known] = False
    edges = neighbours(images, options.near)
    graph = normalised(edges, len(images))
    same = (labels[edges[0]] == labels[edges[1]]).float().mean().item()
    print(f"{len(images):,} images, {len(known)} of them with a label; {graph._nnz():,} entries in the graph's matrix; "
          f"{100 * same:.0f} % of the neighbours show the same digit")
    models = {"graph": GraphNetwork(graph, images.shape[1], options.width, 10, options.dropout),
              "alone": GraphNetwork(None, images.shape[1], options.width, 10, options.dropout)}
    optimizers = {f"{name}_optimizer": tg.optim.Adam(model.parameters(), lr=options.lr, weight_decay=5e-4) for name, model in models.items()}
    run = common.Run(options, ("steps", "nodes", "labels", "near", "width"), **models, **optimizers)

    @tg.no_grad()
    def accuracy(model) -> float:
        model.eval()
        right = (model(images).argmax(1) == labels)[unknown].float().mean().item()
        model.train()
        return right

    for _ in run.rounds(options.steps, "step", save_every=50):
        for name, model in models.items():
            loss = F.cross_entropy(model(images)[known], labels[known])
            optimizers[f"{name}_optimizer"].zero_grad()
            loss.backward()
            optimizers[f"{name}_optimizer"].step()
            run.record(**{f"{name}_loss": loss.item(), name: accuracy(model)})
    result = {name: accuracy(model) for name, model in models.items()}
    with common.picture(options.picture, 11, 4.5, 1, 2) as drawing:
        if drawing:
            curve, places = drawing[1][0]
            for name, text in (("graph", "with the graph"), ("alone", "each image alone")):
                common.draw_curve(curve, run.history[name], "unlabelled digits read right", label=text)
            curve.set(ylim=(0, 1), ylabel="share")
            curve.legend(loc="lower right")
            with tg.no_grad():
                hidden = models["graph"].eval().spread(F.relu(models["graph"].spread(models["graph"].first(images))))
            axes = tg.linalg.svd(hidden - hidden.mean(0), full_matrices=False)[2][:2]
            flat = (hidden @ axes.t()).numpy()
            dots = places.scatter(flat[:, 0], flat[:, 1], c=labels.numpy(), cmap="tab10", vmin=-0.5, vmax=9.5, s=3)
            places.figure.colorbar(dots, ax=places, ticks=range(10), label="digit")
            places.set(title="what the network makes of the images", xticks=[], yticks=[], xlabel="first direction", ylabel="second direction")
    print(f"unlabelled digits read right: {result['graph']:.3f} with the graph, {result['alone']:.3f} without")
    return result["alone"], result["graph"]


if __name__ == "__main__":
    main()
