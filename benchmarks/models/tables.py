"""Models of tables and graphs: collaborative filtering, a multilayer perceptron, a graph network."""

import numpy as np

from .sizes import Sizes


def users_of(s: Sizes) -> int:
    return s.of(138493, 50)


def items_of(s: Sizes) -> int:
    return s.of(26744, 30)


def ncf(lib, s: Sizes, sparse: bool = False):
    """NeuMF: products of embeddings beside a multilayer perceptron on others; as many users and items as MovieLens-20M has.
    `sparse`: the gradients of the tables have the rows that a batch reads."""
    nn, width = lib.nn, s.of(64, 4)

    class NeuMF(nn.Module):
        def __init__(self):
            super().__init__()
            users, items = users_of(s), items_of(s)
            self.user, self.item = nn.Embedding(users, width, sparse=sparse), nn.Embedding(items, width, sparse=sparse)
            self.deep_user, self.deep_item = nn.Embedding(users, 2 * width, sparse=sparse), nn.Embedding(items, 2 * width, sparse=sparse)
            self.deep = nn.Sequential(nn.Linear(4 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU())
            self.out = nn.Linear(2 * width, 1)

        def forward(self, users, items):
            deep = self.deep(lib.cat([self.deep_user(users), self.deep_item(items)], 1))
            return self.out(lib.cat([self.user(users) * self.item(items), deep], 1)).squeeze(1)

    return NeuMF()


def digits_mlp(lib, s: Sizes):
    nn, widths = lib.nn, (s.of(784, 8), s.of(256, 8), s.of(128, 8))
    return nn.Sequential(nn.Linear(*widths[:2]), nn.ReLU(), nn.Linear(*widths[1:]), nn.ReLU(), nn.Linear(widths[2], 10))


def graph_network(lib, s: Sizes):
    """A graph convolutional network (Kipf and Welling, 2016) as large as theirs for Cora; who is joined to whom is drawn."""
    nn, F = lib.nn, lib.nn.functional
    nodes, edges, features = nodes_of(s), s.of(5429, 20), s.of(1433, 8)
    drawn = np.random.default_rng(0).integers(0, nodes, (2, edges))
    pairs = np.concatenate([drawn, drawn[::-1], np.tile(np.arange(nodes), (2, 1))], 1)
    pairs = np.unique(pairs, axis=1)
    degree = np.bincount(pairs[0], minlength=nodes).astype(np.float32)
    weights = degree[pairs[0]] ** -0.5 * degree[pairs[1]] ** -0.5

    class GraphNetwork(nn.Module):
        def __init__(self):
            super().__init__()
            graph = lib.sparse_coo_tensor(lib.from_numpy(pairs), lib.from_numpy(weights), (nodes, nodes), check_invariants=False)
            self.register_buffer("graph", graph.coalesce(), persistent=False)
            self.first, self.last = nn.Linear(features, 16), nn.Linear(16, 7)

        def forward(self, x):
            x = F.relu(lib.sparse.mm(self.graph, self.first(x)))
            return lib.sparse.mm(self.graph, self.last(x))

    return GraphNetwork()


def nodes_of(s: Sizes) -> int:
    return s.of(2708, 12)
