"""Rules of vmap for operators with samples in their indices, statistics or states: equal to torch.func.vmap, and no call per sample."""

import numpy as np
import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")


def array(*sizes, seed=0):
    return np.random.default_rng([seed, *sizes]).standard_normal(sizes)


def both(function, arrays, **options):
    """The results of `function(t, vmap, tensors...)` in both libraries, as arrays."""
    for t in (tg, torch):
        result = function(t, lambda f, t=t, **k: t.func.vmap(f, **k), *[t.tensor(a) for a in arrays])
        yield [np.asarray(r.detach().tolist()) for r in (result if isinstance(result, (tuple, list)) else [result])]


def same(function, *arrays):
    got, expected = both(function, arrays)
    assert len(got) == len(expected)
    for g, e in zip(got, expected):
        assert g.shape == e.shape
        np.testing.assert_allclose(g, e, rtol=1e-7, atol=1e-8)


INDICES = np.array([[0, 2, 1], [3, 3, 0], [1, 0, 2], [2, 1, 1]])
PICKS = {
    "first": lambda x, i: x[i], "pair": lambda x, i: x[i, i], "behind": lambda x, i: x[:, i], "apart": lambda x, i: x[i, :, i],
    "behind two": lambda x, i: x[:, i, i], "column": lambda x, i: x[i[:, None], i], "negative": lambda x, i: x[-1 - i],
}


@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (1, 0)], ids=str)
@pytest.mark.parametrize("name", PICKS)
def test_index(name, in_dims):
    pick = PICKS[name]
    x = array(4, 4, 4, 4)
    index = INDICES if in_dims[1] is not None else INDICES[1]

    def run(t, vmap, x, i):
        def gradient(x, i):
            return t.func.grad(lambda v: (pick(v, i) ** 2).sum())(x)

        return vmap(pick, in_dims=in_dims)(x, i), vmap(gradient, in_dims=in_dims)(x, i)

    same(run, x, index)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("shared", ["", "index", "values", "target"])
@pytest.mark.parametrize("where", ["first", "behind", "apart"])
def test_index_put(where, shared, accumulate):
    x, index = array(4, 4, 4, 4), np.array([[0, 2, 1], [3, 1, 0], [1, 0, 2], [2, 1, 3]])
    values = {"first": array(4, 3, 4, 4), "behind": array(4, 4, 3, 4), "apart": array(4, 3, 4)}[where]
    dims = tuple(None if shared == name else 0 for name in ("target", "index", "values"))
    arrays = [a[0] if d is None else a for a, d in zip((x, index, values), dims)]

    def run(t, vmap, *tensors):
        def put(x, i, v):
            places = {"first": (i,), "behind": (slice(None), i), "apart": (i, slice(None), i)}[where]
            full = [t.arange(4)[:, None], i[None, :]] if where == "behind" else None
            if where == "apart":
                full = [i[:, None], t.arange(4)[None, :], i[:, None]]
            del places
            return x.index_put(tuple(full or [i]), v, accumulate=accumulate)

        return vmap(put, in_dims=dims)(*tensors)

    same(run, *arrays)


def test_assignment_by_tensors_in_place():
    def run(t, vmap, x, i, v):
        def put(x, i, v):
            y = x.clone()
            y[i] = v
            y[:, 0] += 1
            return y

        return vmap(put)(x, i, v)

    same(run, array(4, 4, 2), INDICES[:, :2], array(4, 2, 2))
    with pytest.raises(RuntimeError, match="same in all samples"):
        tg.vmap(lambda i, shared=tg.zeros(4): shared.index_put_((i,), tg.ones(3)))(tg.tensor(INDICES))
    with pytest.raises(IndexError):
        tg.vmap(lambda x, i: x[i])(tg.zeros(4, 2), tg.tensor(INDICES))


@pytest.mark.parametrize("name", ["index_add", "index_copy"])
@pytest.mark.parametrize("dims", [(0, 0, 0), (0, None, 0), (None, 0, 0), (0, 0, None)], ids=str)
def test_slices_by_index(name, dims):
    arrays = [array(4, 3, 5, 2), np.array([[0, 2, 4], [1, 3, 0], [4, 3, 2], [2, 1, 0]]), array(4, 3, 3, 2)]
    arrays = [a[0] if d is None else a for a, d in zip(arrays, dims)]

    def run(t, vmap, *tensors):
        return vmap(lambda x, i, s: getattr(x, name)(1, i, s), in_dims=dims)(*tensors)

    same(run, *arrays)
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        tg.vmap(lambda x, i, s: getattr(x, name)(0, i, s))(tg.zeros(2, 3, 1), tg.tensor([[0, 3], [0, 1]]), tg.ones(2, 2, 1))


@pytest.mark.parametrize("dims", [(None, 0), (0, None), (0, 0)], ids=str)
@pytest.mark.parametrize("padding", [None, 1])
def test_gradient_of_an_embedding(dims, padding):
    weight, index = array(4, 5, 3), INDICES
    weight, index = weight if dims[0] == 0 else weight[0], index if dims[1] == 0 else index[0]

    def run(t, vmap, weight, index):
        def loss(w, i):
            return (t.nn.functional.embedding(i, w, padding_idx=padding) ** 3).sum()

        return vmap(t.func.grad(loss), in_dims=dims)(weight, index)

    same(run, weight, index)


@pytest.mark.parametrize("affine", ["", "shared", "own"])
@pytest.mark.parametrize("sizes", [(3, 4), (3, 4, 5), (3, 4, 2, 3)], ids=str)
def test_batch_norm(sizes, affine):
    arrays = [array(5, *sizes)] + ([] if not affine else [array(5, 4, seed=1), array(5, 4, seed=2)] if affine == "own" else [array(4, seed=1), array(4, seed=2)])
    dims = (0, *([0, 0] if affine == "own" else [None, None])) if affine else (0,)

    def run(t, vmap, *tensors):
        def norm(x, w=None, b=None):
            return t.nn.functional.batch_norm(x, None, None, w, b, training=True)

        def loss(*a):
            return (norm(*a) ** 3).sum()

        return [vmap(norm, in_dims=dims)(*tensors), *vmap(t.func.grad(loss, argnums=tuple(range(len(tensors)))), in_dims=dims)(*tensors)]

    same(run, *arrays)


@pytest.mark.parametrize("own", [False, True])
def test_batch_norm_with_given_statistics(own):
    arrays = [array(5, 3, 4, 2), *(array(*((5, 4) if own else (4,)), seed=s) for s in (1, 2, 3)), np.exp(array(*((5, 4) if own else (4,)), seed=4))]

    def run(t, vmap, *tensors):
        def norm(x, w, b, m, v):
            return t.nn.functional.batch_norm(x, m, v, w, b)

        return vmap(norm, in_dims=(0, *[0 if own else None] * 4))(*tensors)

    same(run, *arrays)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", ["group", "layer", "instance"])
def test_other_norms(kind, own):
    width = 5 if kind == "layer" else 4
    sizes = (3, 5) if kind == "layer" else (3, 4, 5)
    arrays = [array(6, *sizes), *(array(*((6, width) if own else (width,)), seed=s) for s in (1, 2))]
    dims = (0, *[0 if own else None] * 2)

    def run(t, vmap, *tensors):
        f = t.nn.functional

        def norm(x, w, b):
            if kind == "group":
                return f.group_norm(x, 2, w, b)
            return f.layer_norm(x, (5,), w, b) if kind == "layer" else f.instance_norm(x, weight=w, bias=b)

        return [vmap(norm, in_dims=dims)(*tensors), *vmap(t.func.grad(lambda *a: (norm(*a) ** 3).sum(), argnums=(0, 1, 2)), in_dims=dims)(*tensors)]

    same(run, *arrays)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("kind", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("options", [{}, {"ignore_index": 1}, {"weighted": True}], ids=str)
def test_losses_of_labels(kind, reduction, options):
    options = dict(options)
    weighted = options.pop("weighted", False)

    def run(t, vmap, x, y):
        weight = t.arange(1.0, 5.0, dtype=t.float64) if weighted else None

        def loss(x, y):
            return getattr(t.nn.functional, kind)(x, y, weight=weight, reduction=reduction, **options)

        return vmap(loss)(x, y), vmap(t.func.grad(lambda x, y: (loss(x, y) ** 2).sum()))(x, y)

    same(run, array(5, 3, 4), np.array([[0, 1, 2], [3, 2, 0], [2, 1, 0], [1, 3, 3], [0, 0, 1]]))


def test_a_label_per_sample_and_one_for_all():
    def run(t, vmap, x, y):
        f = t.nn.functional.cross_entropy
        per_sample = t.func.grad(lambda x, y: f(x[None], y[None]))
        return vmap(f)(x, y), vmap(per_sample)(x, y), vmap(lambda x: f(x[None], y[:1]))(x)

    same(run, array(5, 4), np.array([0, 1, 2, 3, 1]))
    with pytest.raises(IndexError, match="arget 9 is out of bounds"):
        tg.vmap(tg.nn.functional.cross_entropy)(tg.zeros(2, 3, 4), tg.tensor([[0, 1, 2], [0, 9, 1]]))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": True}], ids=str)
def test_attention(options):
    options = dict(options)
    mask = options.pop("mask", False)
    arrays = [array(3, 2, 4, 5, 6, seed=s) for s in range(3)] + ([array(3, 2, 1, 5, 5, seed=4)] if mask else [])

    def run(t, vmap, *tensors):
        def attend(q, k, v, m=None):
            return t.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m, **options)

        return [vmap(attend)(*tensors), *vmap(t.func.grad(lambda *a: (attend(*a) ** 2).sum(), argnums=(0, 1, 2)))(*tensors)]

    same(run, *arrays)


def _network(kind, **options):
    tg.manual_seed(3)
    return getattr(tg.nn, kind)(3, 4, num_layers=2, dtype=tg.float64, **options)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "batch_first": True}], ids=str)
@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers(kind, options):
    """PyTorch's vmap refuses LSTM and GRU: against one call per sample."""
    net = _network(kind, **options)
    x = tg.tensor(array(5, 6, 2, 3))
    got = tg.vmap(lambda v: net(v)[0])(x)
    assert tg.allclose(got, tg.stack([net(v)[0] for v in x]), atol=1e-12)
    gradient = tg.func.grad(lambda v: (net(v)[0] ** 2).sum())
    assert tg.allclose(tg.vmap(gradient)(x), tg.stack([gradient(v) for v in x]), atol=1e-12)
    names, values = zip(*net.named_parameters())

    def loss(parameters, v):
        return (tg.func.functional_call(net, dict(zip(names, parameters)), (v,))[0] ** 2).sum()

    per_sample = tg.vmap(tg.func.grad(loss), in_dims=(None, 0))(tuple(p.detach() for p in values), x)
    for i, v in enumerate(x):
        for got, expected in zip(per_sample, tg.func.grad(loss)(tuple(p.detach() for p in values), v)):
            assert tg.allclose(got[i], expected, atol=1e-10)


def test_packed_sequences_and_projections():
    net = _network("LSTM", proj_size=2)
    lengths = [6, 3, 1]

    def run(v):
        packed = tg.nn.utils.rnn.pack_padded_sequence(v, lengths)
        return net(packed)[0].data

    x = tg.tensor(array(4, 6, 3, 3))
    assert tg.allclose(tg.vmap(run)(x), tg.stack([run(v) for v in x]), atol=1e-12)


def calls(run) -> int:
    """How many operators run."""
    with tg.profiler.profile() as prof:
        run()
    return len(prof.events())


def test_no_operator_runs_once_per_sample():
    f = tg.nn.functional
    net = _network("LSTM").float()
    cases = {
        "index": (lambda x, i: x[i], lambda n: (tg.ones(n, 4, 3), tg.zeros(n, 3, dtype=tg.int64))),
        "index_put": (lambda x, i: x.index_put((i,), x[:3], accumulate=True), lambda n: (tg.ones(n, 4, 3), tg.zeros(n, 3, dtype=tg.int64))),
        "batch_norm": (lambda x: f.batch_norm(x, None, None, training=True), lambda n: (tg.ones(n, 4, 3),)),
        "layer_norm": (tg.func.grad(lambda w, x: f.layer_norm(x, (3,), w).sum()), lambda n: (tg.ones(n, 3), tg.ones(n, 4, 3))),
        "cross_entropy": (tg.func.grad(f.cross_entropy), lambda n: (tg.ones(n, 4, 3), tg.zeros(n, 4, dtype=tg.int64))),
        "attention": (lambda q: f.scaled_dot_product_attention(q, q, q), lambda n: (tg.ones(n, 2, 2, 4, 3),)),
        "lstm": (lambda x: net(x)[0], lambda n: (tg.ones(n, 4, 2, 3),)),
        "index_add": (lambda x, i: x.index_add(0, i, x[:3]), lambda n: (tg.ones(n, 4, 3), tg.zeros(n, 3, dtype=tg.int64))),
    }
    for name, (function, make) in cases.items():
        few, many = (calls(lambda n=n: tg.vmap(function)(*make(n))) for n in (2, 50))
        assert few == many, name


PLACES = np.array([[0, 5, -3], [2, 2, 7], [-1, 0, 4]])
ONE_ROW = {
    "take": (lambda t, x, i: x.take(i), array(3, 2, 4), PLACES),
    "take, placed": (lambda t, x, i: x.take(i[None]), array(3, 8), PLACES),
    "put": (lambda t, x, i, s: x.put(i, s, accumulate=True), array(3, 2, 4), PLACES, array(3, 3)),
    "roll": (lambda t, x: (x.roll(1), x.roll((1, -1), (0, 1)), t.fft.fftshift(x)), array(3, 2, 4)),
    "repeat": (lambda t, x: (x.repeat(2, 1, 3), x.tile(2), x.repeat_interleave(2, 0)), array(3, 2, 4)),
    "index_select": (lambda t, x, i: (x.index_select(1, i), x.t().index_select(0, i)), array(3, 2, 4), np.abs(PLACES) % 4),
    "index_fill": (lambda t, x, i: x.index_fill(1, i, 2.0), array(3, 2, 4), np.abs(PLACES) % 4),
    "embedding": (lambda t, i, w: t.nn.functional.embedding(i, w), np.abs(PLACES), array(3, 8, 2)),
    "masked_scatter": (lambda t, x, s: x.masked_scatter(x > 0, s), array(3, 2, 4), array(3, 8)),
    "median": (lambda t, x: (x.median(), x.nanmedian()), array(3, 2, 4)),
    "searchsorted": (lambda t, s, x: (t.searchsorted(s, x), t.searchsorted(s, x, right=True)), np.sort(array(3, 5)), array(3, 2, 4)),
    "searchsorted, one by one": (lambda t, s, x: t.searchsorted(s, x, side="right"), np.sort(array(3, 2, 5)), array(3, 2, 4)),
    "bucketize": (lambda t, x, s: t.bucketize(x, s), array(3, 2, 4), np.sort(array(3, 5))),
    "isin": (lambda t, i, j: (t.isin(i, j), t.isin(i, j, invert=True)), PLACES, np.flip(PLACES, 0).copy()),
    "bincount": (lambda t, i: t.bincount(i, minlength=9), np.abs(PLACES)),
    "bincount, weighted": (lambda t, i, w: t.bincount(i, w, minlength=9), np.abs(PLACES), array(3, 3)),
    "repeat_interleave": (lambda t, x, n: x.repeat_interleave(n, 0, output_size=4), array(3, 3, 2), np.array([[1, 2, 1], [0, 0, 4], [4, 0, 0]])),
    "solve": (lambda t, a, b: t.linalg.solve(a, b), array(3, 4, 4), array(3, 4, 2)),
    "solve, vectors": (lambda t, a, b: t.linalg.solve(a, b), array(3, 4, 4), array(3, 4)),
    "solve, batches": (lambda t, a, b: t.linalg.solve(a, b), array(3, 2, 4, 4), array(3, 4, 2)),
    "solve_triangular": (lambda t, a, b: t.linalg.solve_triangular(a, b, upper=True), array(3, 4, 4), array(3, 4, 2)),
    "cholesky_solve": (lambda t, a, b: t.cholesky_solve(b, a), array(3, 4, 4), array(3, 4, 2)),
    "lu_solve": (lambda t, a, b: t.linalg.lu_solve(*t.linalg.lu_factor(a), b), array(3, 4, 4), array(3, 4, 2)),
    "inverses": (lambda t, a: (t.linalg.inv(a), t.linalg.pinv(a), t.cholesky_inverse(a)), array(3, 4, 4)),
    "lstsq": (lambda t, a, b: t.linalg.lstsq(a, b).solution, array(3, 5, 3), array(3, 5, 2)),
    "ctc_loss": (lambda t, x, y, n: t.nn.functional.ctc_loss(x.log_softmax(-1), y, t.full((2,), 6), n, zero_infinity=True), array(3, 6, 2, 5),
                 np.array([[[1, 2, 2], [3, 1, 4]]] * 3), np.array([[3, 1], [2, 3], [1, 2]])),
    "embedding_bag": (lambda t, i, o, w: t.nn.functional.embedding_bag(i, w, o, mode="mean"), np.abs(PLACES),
                      np.array([[0, 1], [0, 0], [0, 3]]), array(3, 8, 2)),
}


@pytest.mark.parametrize("name", ONE_ROW)
def test_rows_of_samples(name):
    """Each sample alone gives the same; any number of them is as many calls; and so is the gradient, whichever argument has samples."""
    function, *arrays = ONE_ROW[name]
    tensors = [tg.tensor(a) for a in arrays]
    floating = [k for k, x in enumerate(tensors) if x.is_floating_point()]

    def values(*args):
        result = function(tg, *args)
        return result if isinstance(result, tuple) else (result,)

    def loss(*args):
        return sum(((v * v.detach().cos()).sum() for v in values(*args) if v.is_floating_point()), tg.zeros(()))

    def each(f, dims):
        rows = [f(*(x if d is None else x[i] for x, d in zip(tensors, dims))) for i in range(3)]
        return [tg.stack(column) for column in zip(*rows)]

    shared = [0] * len(tensors)
    for dims in [shared, *([None if k == lone else 0 for k in range(len(tensors))] for lone in range(len(tensors)) if len(tensors) > 1)]:
        given = [x if d == 0 else x[0] for x, d in zip(tensors, dims)]
        tensors_now, tensors = tensors, given
        wanted = each(values, dims)
        got = tg.vmap(values, in_dims=tuple(dims))(*given)
        for g, w in zip(got, wanted):
            assert g.shape == w.shape and g.dtype == w.dtype and tg.allclose(g.double(), w.double(), atol=1e-10), (name, dims)
        if floating:
            gradient = tg.func.grad(loss, argnums=tuple(floating))
            for g, w in zip(tg.vmap(gradient, in_dims=tuple(dims))(*given), each(gradient, dims)):
                assert tg.allclose(g, w, atol=1e-9), (name, dims, "gradient")
        tensors = tensors_now
    few, many = (calls(lambda n=n: tg.vmap(values)(*(x[[0] * n] for x in tensors))) for n in (2, 30))
    assert few == many


@pytest.mark.parametrize("name", ["take", "put", "roll", "searchsorted", "isin", "solve", "lu_solve", "inverses", "bucketize", "index_fill"])
def test_rows_of_samples_as_torch(name):
    function, *arrays = ONE_ROW[name]
    same(lambda t, vmap, *tensors: vmap(lambda *a: function(t, *a))(*tensors), *arrays)


def test_what_a_row_of_samples_refuses():
    x, i = tg.ones(2, 4), tg.tensor([[0, 4], [1, 2]])
    with pytest.raises(IndexError, match="take: an index is out of bounds for dimension of size 4"):
        tg.vmap(lambda a, b: a.take(b))(x, i)
    with pytest.raises(RuntimeError, match="bincount: vmap: the results of samples have different sizes"):
        tg.vmap(tg.bincount)(i)
    with pytest.raises(RuntimeError, match="bincount: only 1-d non-negative integral"):
        tg.vmap(lambda v: tg.bincount(v, minlength=9))(-i)
    with pytest.raises(RuntimeError, match="masked_scatter: the mask has 4 true elements, the source only 3"):
        tg.vmap(lambda a, s: a.masked_scatter(a > 0, s))(x, tg.ones(2, 3))
    with pytest.raises(RuntimeError, match=r"the results of samples have different sizes: \[4\] and \[3\]"):
        tg.vmap(lambda a, n: a.repeat_interleave(n))(x[:, :2], i)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers_with_weights_of_samples(kind):
    """An ensemble: each sample has weights of its own; packed sequences, two directions."""
    tg.manual_seed(3)
    nets = [getattr(tg.nn, kind)(3, 4, bidirectional=True, dtype=tg.float64) for _ in range(3)]
    stacked, _ = tg.func.stack_module_state(nets)
    x = tg.tensor(array(5, 2, 3))

    def run(parameters, v):
        packed = tg.nn.utils.rnn.pack_padded_sequence(v, [5, 2])
        output, state = tg.func.functional_call(nets[0], parameters, (packed,))
        return output.data, state[0] if kind == "LSTM" else state

    def loss(parameters, v):
        return sum((r * r).sum() for r in run(parameters, v))

    ours = [{k: v[i] for k, v in stacked.items()} for i in range(3)]
    for got, wanted in zip(tg.vmap(run, in_dims=(0, None))(stacked, x), zip(*(run(p, x) for p in ours))):
        assert tg.allclose(got, tg.stack(wanted), atol=1e-12)
    gradients = tg.vmap(tg.func.grad(loss), in_dims=(0, None))(stacked, x)
    for i, p in enumerate(ours):
        for name, g in tg.func.grad(loss)(p, x).items():
            assert tg.allclose(gradients[name][i], g, atol=1e-10)


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_recurrent_cells_with_weights_of_samples(kind):
    """A single step is no call per sample, nor is its gradient."""
    tg.manual_seed(3)
    cells = [getattr(tg.nn, kind)(3, 4, dtype=tg.float64) for _ in range(3)]
    stacked, _ = tg.func.stack_module_state(cells)
    x = tg.tensor(array(2, 3))

    def loss(parameters, v):
        result = tg.func.functional_call(cells[0], parameters, (v,))
        return sum((r * r).sum() for r in (result if isinstance(result, tuple) else (result,)))

    gradient = tg.func.grad(loss)
    got = tg.vmap(gradient, in_dims=(0, None))(stacked, x)
    for i in range(3):
        for name, g in gradient({k: v[i] for k, v in stacked.items()}, x).items():
            assert tg.allclose(got[name][i], g, atol=1e-10)
    few, many = (calls(lambda n=n: tg.vmap(gradient, in_dims=(0, None))({k: v[[0] * n] for k, v in stacked.items()}, x)) for n in (2, 9))
    assert few == many
