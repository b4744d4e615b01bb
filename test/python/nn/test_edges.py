"""Layers, and functions that are no rows, at edge values against PyTorch (test/python/edges/__init__.py): inputs and parameters."""

import itertools
import math
import sys
from pathlib import Path

import edges
import pytest
import rows
import tapegrad as tg

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from aten.gen.emit_nn_model import load_layers  # noqa: E402

torch = pytest.importorskip("torch")

KNOWN = edges.load_known()
LAYERS = {layer.name: layer for layer in load_layers(Path(__file__).resolve().parents[3] / "nn")}
# Written by hand: constructor arguments and sizes of inputs.
WRITTEN = {
    "RNN": [["(3, 4, num_layers=2)", "(5, 2, 3)"], ["(3, 4, nonlinearity='relu', bidirectional=True)", "(5, 2, 3)"]],
    "GRU": [["(3, 4, num_layers=2, bidirectional=True)", "(5, 2, 3)"]],
    "LSTM": [["(3, 4, num_layers=2, bidirectional=True)", "(5, 2, 3)"], ["(3, 4, proj_size=2)", "(5, 2, 3)"]],
    "MultiheadAttention": [["(4, 2)", "(3, 2, 4)", "(5, 2, 4)", "(5, 2, 4)"], ["(4, 2, batch_first=True, kdim=3, vdim=5, add_zero_attn=True)", "(2, 3, 4)", "(2, 5, 3)", "(2, 5, 5)"]],
    "TransformerEncoderLayer": [["(4, 2, 8, dropout=0.0)", "(3, 2, 4)"], ["(4, 2, 8, 0.0, 'gelu', norm_first=True)", "(3, 2, 4)"]],
    "TransformerDecoderLayer": [["(4, 2, 8, dropout=0.0)", "(3, 2, 4)", "(5, 2, 4)"]],
}
CASES = [(name, sample) for name, layer in LAYERS.items() for sample in layer.get("test")] + [(name, s) for name, ss in WRITTEN.items() for s in ss]


class Layer(edges.Callable):
    """A layer as a function of its inputs and parameters. Running statistics stay as they are from call to call."""

    def __init__(self, name, sample, training):
        super().__init__(f"nn.{name}")
        torch.manual_seed(0)
        self.theirs = eval(f"nn.{name}{sample[0]}", {"nn": torch.nn, "t": torch}).double().train(training)  # noqa: S307
        self.mine = eval(f"nn.{name}{sample[0]}", {"nn": tg.nn, "t": tg}).double().train(training)  # noqa: S307
        self.parameters = {n: tg.tensor(p.detach().numpy()) for n, p in self.theirs.named_parameters()}
        self.buffers = {n: b.detach().clone() for n, b in self.theirs.named_buffers()}
        self.inputs = [self._input(text) for text in sample[1:]]
        # Targets have no gradient: what is not given as a shape, behind the first input.
        self.args = [[str(i)] for i in range(len(self.inputs))]
        self.test = {"fixed": [str(i) for i, text in enumerate(sample[1:]) if i > 0 and "." in text]}

    @staticmethod
    def _input(text):
        value = eval(text, {"t": torch})  # noqa: S307
        if isinstance(value, tuple) and all(isinstance(n, int) for n in value):
            value = torch.randn(value)
        return rows.map_tree(lambda t: tg.tensor((t.double() if t.is_floating_point() else t).numpy()), value)

    def make_samples(self, dtype, seed=0):
        return [((*self.inputs,), dict(self.parameters))]

    def _call(self, lib, module, inputs, parameters):
        buffers = {n: lib.tensor(b.numpy()) for n, b in self.buffers.items()}
        inputs = [v + 0 if i == 0 and getattr(module, "inplace", False) else v for i, v in enumerate(inputs)]
        return lib.func.functional_call(module, {**parameters, **buffers}, tuple(inputs))

    def function(self, *inputs, **parameters):
        return self._call(tg, self.mine, inputs, parameters)

    def torch_function(self, *inputs, **parameters):
        return self._call(torch, self.theirs, inputs, parameters)


def differences_of_layer(name, sample):
    found, ran, compared = [], 0, 0
    for training in (True, False) if "Norm" in name else (True,):
        layer = Layer(name, sample, training)
        for case in edges.sample_cases(layer, tg.float64):
            result = edges.Comparison(layer, case, "float64", name not in ("MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d"))
            found, ran, compared = found + result.differences, ran + 1, compared + result.compared
    return found, ran, compared


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _ in CASES))
def test_layers(name):
    found, compared = [], 0
    for sample in [s for n, s in CASES if n == name]:
        new, _, n = differences_of_layer(name, sample)
        found, compared = found + new, compared + n
    assert compared, f"{name}: no case that PyTorch takes"
    edges.check(f"nn.{name}", found, KNOWN)


INF = math.inf


def attention(masked, **options):
    """Scaled dot product attention whose mask forbids everything to some queries."""
    def f(t, q, k, v):
        mask = masked(t, q)
        return t.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
    return f


def key_padding(t, q, k, v):
    """Multi-head attention of two samples, of which one has no key at all."""
    e = q.shape[-1]
    weight = t.linspace(-1, 1, 3 * e * e, dtype=q.dtype).reshape(3 * e, e)
    empty = t.tensor([[True] * k.shape[0], [False] * k.shape[0]])
    return t.nn.functional.multi_head_attention_forward(
        q, k, v, e, 2, weight, t.zeros(3 * e, dtype=q.dtype), None, None, False, 0.0, t.eye(e, dtype=q.dtype), None, key_padding_mask=empty)


ROW = [[0.5, -1.0, 2.0], [-INF] * 3, [INF, 0.0, -INF], [INF, INF, 1.0], [math.nan, 1.0, 2.0], [0.0, -0.0, 0.0], [1e308, -1e308, 1e308], [-INF, 1.0, -INF]]
SQUARE = [[[0.5, -1.0], [0.0, 0.0]], [[1.0, INF], [-1e200, 3.0]]]
FINITE = [[[0.5, -1.0], [0.25, 0.0]], [[1.0, 0.125], [-2.0, 3.0]]]
HEADS = [[[0.1 * (i + j * k) - 0.4 for i in range(4)] for j in range(2)] for k in range(3)]

FUNCTIONS = {
    "softmax": (lambda t, x: t.nn.functional.softmax(x, 1), [ROW]),
    "softmax 0": (lambda t, x: t.nn.functional.softmax(x, 0), [ROW]),
    "log_softmax": (lambda t, x: t.nn.functional.log_softmax(x, 1), [ROW]),
    "softmin": (lambda t, x: t.nn.functional.softmin(x, 1), [ROW]),
    "logsumexp": (lambda t, x: t.logsumexp(x, 1), [ROW]),
    "normalize": (lambda t, x: t.nn.functional.normalize(x, dim=1), [ROW]),
    "normalize 1": (lambda t, x: t.nn.functional.normalize(x, 1.0, 1), [ROW]),
    "normalize inf": (lambda t, x: t.nn.functional.normalize(x, INF, 1), [ROW]),
    "layer_norm": (lambda t, x: t.nn.functional.layer_norm(x, (3,), eps=0.0), [ROW]),
    "rms_norm": (lambda t, x: t.nn.functional.rms_norm(x, (3,)), [ROW]),
    "batch_norm": (lambda t, x: t.nn.functional.batch_norm(x, None, None, training=True), [ROW]),
    "group_norm": (lambda t, x: t.nn.functional.group_norm(x, 3), [ROW]),
    "attention none": (attention(lambda t, q: None), [SQUARE] * 3),
    "attention false": (attention(lambda t, q: t.tensor([[True, False], [False, False]])), [FINITE] * 3),
    "attention false inf": (attention(lambda t, q: t.tensor([[True, False], [False, False]])), [FINITE, FINITE, SQUARE]),
    "attention -inf": (attention(lambda t, q: t.tensor([[0.0, -INF], [-INF, -INF]], dtype=q.dtype)), [FINITE] * 3),
    "attention inf": (attention(lambda t, q: t.tensor([[0.0, INF], [-INF, 1.0]], dtype=q.dtype)), [FINITE] * 3),
    "attention causal": (attention(lambda t, q: None, is_causal=True), [FINITE, FINITE, SQUARE]),
    "attention scale 0": (attention(lambda t, q: None, scale=0.0), [SQUARE] * 3),
    "heads": (key_padding, [HEADS] * 3),
    "embedding": (lambda t, w: t.nn.functional.embedding(t.tensor([1, 1, 2, 0]), w, padding_idx=1), [ROW]),
    "embedding scaled": (lambda t, w: t.nn.functional.embedding(t.tensor([1, 1, 2, 0]), w, scale_grad_by_freq=True), [ROW]),
    "embedding none": (lambda t, w: t.nn.functional.embedding(t.zeros(0, 3, dtype=t.int64), w), [ROW]),
    "embedding max_norm": (lambda t, w: t.nn.functional.embedding(t.arange(8), w.detach().clone(), max_norm=1.0), [ROW]),
    **{f"bag {mode}": (lambda t, w, mode=mode: t.nn.functional.embedding_bag(t.tensor([1, 2, 0, 5]), w, t.tensor([0, 0, 2, 4]), mode=mode), [ROW])
       for mode in ("sum", "mean", "max")},
    "one_hot": (lambda t, x: t.nn.functional.one_hot(t.tensor([0, 2, 1]), 3) * x[:3], [ROW]),
    "glu": (lambda t, x: t.nn.functional.glu(x[:, :2], 1), [ROW]),
    "pad": (lambda t, x: t.nn.functional.pad(x, (1, 1), mode="constant", value=math.nan), [ROW]),
    "dropout": (lambda t, x: t.nn.functional.dropout(x, 1.0), [ROW]),
    "alpha_dropout": (lambda t, x: t.nn.functional.alpha_dropout(x, 0.0, True), [ROW]),
    "interpolation": (lambda t, x: t.nn.functional.interpolate(x[None], size=5, mode="linear"), [ROW]),
    "lp_pool": (lambda t, x: t.nn.functional.lp_pool1d(x[None], 2.0, 2), [ROW]),
    "cosine": (lambda t, x, y: t.nn.functional.cosine_similarity(x, y), [ROW, ROW[::-1]]),
    "pdist": (lambda t, x: t.nn.functional.pdist(x), [ROW]),
    "parts": (lambda t, x: t.nn.utils.parameters_to_vector([x]), [ROW]),
}
LABELS = [0, 1, 2, 0, 1, 2, 0, -100]
for _reduction in ("none", "mean", "sum"):
    for _name, _options in {"plain": {}, "smoothed": {"label_smoothing": 0.1}, "weighted": {"weight": [0.0, 1.0, INF]}, "ignored": {"ignore_index": 0}}.items():
        def _loss(t, x, reduction=_reduction, options=_options):
            made = {k: t.tensor(v, dtype=x.dtype) if isinstance(v, list) else v for k, v in options.items()}
            labels = [0 if n < 0 else n for n in LABELS] if "ignore_index" in made else LABELS
            return t.nn.functional.cross_entropy(x, t.tensor(labels), reduction=reduction, **made)
        FUNCTIONS[f"cross_entropy {_name} {_reduction}"] = (_loss, [ROW])
    FUNCTIONS[f"all ignored {_reduction}"] = (lambda t, x, r=_reduction: t.nn.functional.cross_entropy(x, t.full((8,), -100), reduction=r), [ROW])
    FUNCTIONS[f"no rows {_reduction}"] = (lambda t, x, r=_reduction: t.nn.functional.cross_entropy(x[:0], t.full((0,), 1), reduction=r), [ROW])
    FUNCTIONS[f"saturated {_reduction}"] = (
        lambda t, x, y, r=_reduction: t.nn.functional.binary_cross_entropy(t.sigmoid(x), y, reduction=r),
        [[17.0, 40.0, 800.0, -800.0, -40.0, 0.0, INF, -INF, 17.0, -800.0], [1.0, 1.0, 1.0, 0.0, 1.0, 0.5, 0.0, 1.0, 0.0, 0.0]])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    f, values = FUNCTIONS[name]
    found = []
    for dtype in ("float32", "float64"):
        subject = edges.Callable(f"nn.functional {name}", lambda *a: f(tg, *a), lambda *a: f(torch, *a))
        case = edges.Case("given", tuple(tg.tensor(v, dtype=tg.float64).to(getattr(tg, dtype)) for v in values), {})
        result = edges.Comparison(subject, case, dtype)
        assert result.compared, f"{name}: PyTorch does not take it"
        found += result.differences
    edges.check(f"nn.functional {name}", found, KNOWN)


GRADIENTS = {"finite": [[3.0, -4.0], [0.5]], "zero": [[0.0, -0.0], [0.0]], "inf": [[INF, 1.0], [2.0]], "nan": [[math.nan, 1.0], [2.0]],
             "huge": [[1e300, -1e300], [1e308]], "least": [[5e-324, 0.0], [0.0]], "empty": [[], []], "one empty": [[], [3.0]]}


@pytest.mark.parametrize("norm_type", [2.0, 1.0, INF, 0.5, 0.0, -INF])
@pytest.mark.parametrize("name", GRADIENTS)
def test_clip_grad(name, norm_type):
    def run(t, error):
        parameters = [t.zeros(len(g), dtype=t.float64, requires_grad=True) for g in GRADIENTS[name]]
        for p, g in zip(parameters, GRADIENTS[name]):
            p.grad = t.tensor(g, dtype=t.float64)
        try:
            norm = t.nn.utils.clip_grad_norm_(parameters, 1.0, norm_type, error_if_nonfinite=error)
        except RuntimeError:
            return "error"
        return [norm, *(p.grad.clone() for p in parameters), t.nn.utils.get_total_norm([p.grad for p in parameters], norm_type),
                t.nn.utils.clip_grad_value_(parameters, 0.25), *(p.grad for p in parameters)]

    for error in (False, True):
        got, expected = run(tg, error), run(torch, error)
        rows.assert_equal(got, expected, f"{name} {norm_type}") if expected != "error" else rows.assert_equal([got], [expected], name)


@pytest.mark.parametrize("p", [1e-10, 0.5])
def test_dropout_keeps_the_order_of_dimensions_in_memory(p):
    for order in itertools.permutations(range(4)):
        x = tg.ones([2, 3, 4, 5]).permute(order).contiguous().permute([order.index(d) for d in range(4)])[:, 1:].requires_grad_()
        y = tg.nn.functional.dropout(x, p)
        assert y.stride() == (x * 1).stride()
        if p > 0.1:
            assert set(y.unique().tolist()) <= {0.0, 2.0}
        y.sum().backward()
        tg.testing.assert_close(x.grad, y.detach())
    last = tg.ones(2, 3, 4, 5).contiguous(memory_format=tg.channels_last)
    assert tg.nn.functional.dropout(last, p).is_contiguous(memory_format=tg.channels_last)
    expanded = tg.ones(3).expand(4, 3)
    assert tg.nn.functional.dropout(expanded, p).is_contiguous()
