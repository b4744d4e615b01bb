"""Models as ONNX: layers together, sizes that may change, writes, files and names, and what is refused."""

import io
import os

import numpy as np
import pytest
import tapegrad as tg
from onnx_runs import runs
from tapegrad import export as ex
from tapegrad import nn
from tapegrad.nn import functional as F

onnx = pytest.importorskip("onnx", reason="the package onnx writes the files")


class Block(nn.Module):
    """A layer of a GPT as public ones are written."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        rows, columns, width = x.size()
        q, k, v = (t.view(rows, columns, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(rows, columns, width))
        return x + self.mlp(x)


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.blocks, self.norm = nn.ModuleList(Block(32, 4) for _ in range(2)), nn.LayerNorm(32)
        self.head = nn.Linear(32, 50, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, idx):
        x = self.tokens(idx) + self.places(tg.arange(idx.size(1), device=idx.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))[:, -1, :]


def double(before: int, after: int):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True), nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(2, after), nn.SiLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = double(3, 8), double(8, 16), double(24, 8)
        self.pool, self.up, self.last = nn.MaxPool2d(2), nn.ConvTranspose2d(16, 16, 2, stride=2), nn.Conv2d(8, 2, 1)

    def forward(self, x):
        high = self.one(x)
        low = self.up(self.two(self.pool(high)))
        low = F.pad(low, [0, high.shape[3] - low.shape[3], 0, high.shape[2] - low.shape[2]])
        return self.last(self.three(tg.cat([low, high], 1)))


class Recurrent(nn.Module):
    def __init__(self, kind: str, **options):
        super().__init__()
        self.layer = getattr(nn, kind)(6, 5, 2, **options)

    def forward(self, x):
        return self.layer(x)


def vision(name: str):
    from tapegrad.vision import models

    return getattr(models, name)(weights=None, num_classes=10)


def batches(*shape):
    return lambda n: (tg.randn(n, *shape),)


def images(size: int):
    return batches(3, size, size)


MODELS = {
    "resnet18": (lambda: vision("resnet18"), images(32)), "mobilenet_v2": (lambda: vision("mobilenet_v2"), images(32)),
    "mobilenet_v3": (lambda: vision("mobilenet_v3_small"), images(32)), "squeezenet": (lambda: vision("squeezenet1_1"), images(48)),
    "unet": (UNet, images(18)), "gpt": (Gpt, lambda n: (tg.randint(0, 50, (n, 9)),)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), batches(5, 16)),
    "encoder_norm_first": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu"), batches(5, 16)),
    "lstm": (lambda: Recurrent("LSTM", batch_first=True), batches(4, 6)), "gru": (lambda: Recurrent("GRU", batch_first=True, bidirectional=True), batches(4, 6)),
    "lstm_both_ways": (lambda: Recurrent("LSTM", batch_first=True, bidirectional=True, bias=False), batches(4, 6)),
    "rnn": (lambda: Recurrent("RNN", batch_first=True, nonlinearity="tanh"), batches(4, 6)),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_its_numbers_for_other_batches(name):
    tg.manual_seed(1)
    make, inputs = MODELS[name]
    model = make().eval()
    argument = next(iter(ex._trace._arguments(model.forward, inputs(2), {})))
    program = runs(model, *inputs(2), dynamic_shapes={argument: {0: "batch"}}, others=[inputs(3), inputs(1)])
    graph = program.model_proto.graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    weights = {t.name for t in graph.initializer}
    assert {n for n, _ in model.named_parameters()} <= weights


def test_attention_layers_of_other_lengths():
    """Rows and columns of the input may change: views, masks and positions are computed from them."""
    tg.manual_seed(2)
    model = Gpt().eval()
    shapes = {"idx": {0: "rows", 1: "columns"}}
    inputs = [(tg.randint(0, 50, (r, c)),) for r, c in ((2, 5), (1, 8), (3, 3), (4, 1))]
    program = runs(model, *inputs[0], dynamic_shapes=shapes, others=inputs[1:])
    assert [d.dim_param or d.dim_value for d in program.model_proto.graph.output[0].type.tensor_type.shape.dim] == ["rows", 50]


def changing(x):
    rows, columns = x.shape
    made = tg.cat([x, x[:, :1]], 1)
    return (x.reshape(-1), x[1:, :-1], x.view(rows, columns // columns, columns), tg.zeros(rows, columns + 1), made.expand(2, rows, columns + 1), x.repeat(2, 1), x[-1],
            tg.arange(rows), made.mean(0), x.var(0), x.sort(1)[0], tg.full((rows,), 2.0) * rows, F.pad(x, (1, 1)), x.flip(0), x.T @ x, x.select(0, rows - 1), x.narrow(1, 0, columns - 1), x[1:-1], x[:-2, -1], x[:, -2:])


def test_numbers_that_depend_on_sizes():
    def function(x):
        return changing(x)

    inputs = [(tg.randn(r, c),) for r, c in ((3, 4), (2, 6), (5, 3))]
    program = runs(function, *inputs[0], dynamic_shapes={"x": {0: "r", 1: "c"}}, others=inputs[1:])
    shapes = [[d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim] for o in program.model_proto.graph.output]
    assert shapes[0] == ["r*c"] and shapes[1] == ["r - 1", "c - 1"] and shapes[3] == ["r", "c + 1"] and shapes[5] == ["2*r", "c"]


def test_indices_of_other_lengths():
    def function(x, i):
        return x[i], x[:, i], x[i, i], x.index_put((i,), x[i] * 2), x.index_select(0, i)

    runs(function, tg.randn(5, 5), tg.tensor([0, 1, 4]), dynamic_shapes={"i": {0: "k"}}, others=[(tg.randn(5, 5), tg.tensor([3, 2]))])


def test_images_of_other_sizes():
    """Sizes behind a stride are no sums of products: the graph reads them from tensors."""
    tg.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)).eval()
    shapes = {"input": {0: "b", 2: "h", 3: "w"}}
    runs(model, tg.randn(2, 3, 16, 16)[:, :, :, :15].contiguous(), dynamic_shapes=shapes, others=[(tg.randn(1, 3, 21, 18),), (tg.randn(3, 3, 9, 13),)])


def test_sizes_behind_strides_are_told_apart():
    def swapped(x):
        y = F.max_pool2d(x, 2)
        return y.reshape(y.shape[0], 2, y.shape[3], y.shape[2])

    with pytest.raises((NotImplementedError, ValueError), match="known only when the model runs|in a way that no program can say"):
        tg.onnx.export(swapped, (tg.randn(1, 2, 16, 16),), dynamic_shapes={"x": {2: "h", 3: "w"}})
    x = tg.randn(1, 2, 16, 16)
    runs(lambda x: (F.max_pool2d(x, 2).flatten(2), F.max_pool2d(x, 2).mT * 2, F.max_pool2d(x, 2).expand(3, 2, -1, -1)), x, dynamic_shapes={"x": {2: "h", 3: "w"}},
         others=[(tg.randn(1, 2, 9, 20),)])


def test_writes_become_values():
    def function(x, i):
        y = x.clone()
        y[0] = 1.0
        y[:, 1:3] *= 2
        row = y[1]
        row.add_(10)
        y.mul_(3)
        z = y.view(-1)
        z[0] = -1
        y.T[2].fill_(7)
        z.clamp_(max=40)
        made = tg.zeros(3, 4)
        made.index_put_((i,), x[i])
        made.masked_fill_(made > 1, 1.0)
        made.copy_(made + y)
        made += 1
        a, b = made.split(2, 1)
        a.zero_()
        first = z.view(3, 4)[0]
        inner = first[1:3]
        tg.add(x, x, out=z.view(3, 4))
        return y, row, z, made, b, F.relu(made - 2, inplace=True), inner * 2

    tg.manual_seed(4)
    runs(function, tg.randn(3, 4), tg.tensor([2, 0]))


def test_writes_that_stay_refused():
    def sizes(x):
        y = x.clone()
        y.unsqueeze_(0)
        return y + 1

    def shared(x):
        y = x.detach()
        return x.add_(1) * 0 + y

    with pytest.raises(NotImplementedError, match="unsqueeze_ at .*no ONNX operator"):
        tg.onnx.export(sizes, (tg.randn(3, 4),))
    runs(shared, tg.randn(3, 4))


def test_an_argument_that_is_written_to():
    def function(x):
        x[0] = 5.0
        x.add_(1)
        return x.relu_(), x * 2

    runs(function, tg.randn(3, 4))
    runs(lambda x: x.add_(1) * 2, tg.randn(3, 4), dynamic_shapes={"x": {0: "n"}}, others=[(tg.randn(5, 4),)])
    with pytest.raises(tg.onnx.UnsupportedOperatorError, match=r"fill_ .*test_onnx_models.py.*writes to a view \(_strided_view\) of a tensor whose sizes may change"):
        tg.onnx.export(function, (tg.randn(3, 4),), dynamic_shapes={"x": {0: "n"}})


def test_all_that_is_not_translated_is_said_at_once():
    def function(x):
        y = tg.linalg.svd(x)[1]
        z = tg.digamma(y)
        return F.adaptive_max_pool2d(x[None], 3) + z.sum() + F.dropout(x, 0.5)[:3, :3]

    with pytest.raises(NotImplementedError) as raised:
        tg.onnx.export(function, (tg.randn(4, 5),))
    lines = str(raised.value).split("\n")
    assert isinstance(raised.value, tg.onnx.OnnxExporterError) and lines[0] == "onnx.export: these calls of the program are not translated:"
    found = {line.split(" at ")[0].split("(")[0]: line for line in lines[1:]}
    assert set(found) == {"linalg_svd", "digamma", "adaptive_max_pool2d", "dropout"} and all("test_onnx_models.py:" in line for line in lines[1:])
    assert "windows of several sizes" in found["adaptive_max_pool2d"] and "evaluation mode" in found["dropout"] and "no ONNX operator" in found["digamma"]


def test_sizes_that_may_change_where_no_operator_takes_them():
    with pytest.raises(NotImplementedError, match=r"pad at .*: it depends on a size that may change"):
        tg.onnx.export(lambda x: F.pad(x, (x.shape[0], 0)), (tg.randn(3, 4),), dynamic_shapes={"x": {0: "n"}})
    with pytest.raises(NotImplementedError, match="tril at .*: a number among its arguments depends on a size that may change"):
        tg.onnx.export(lambda x: x.tril(x.shape[0]), (tg.randn(3, 4),), dynamic_shapes={"x": {0: "n"}})


def test_names_and_axes_as_torch_takes_them(tmp_path):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    path = tmp_path / "model.onnx"
    made = tg.onnx.export(model, tg.randn(2, 4), path, input_names=["data"], output_names=["scores"], dynamic_axes={"data": {0: "batch"}, "scores": {0: "batch"}},
                          external_data=False, verify=True)
    graph = onnx.load(path).graph
    assert [i.name for i in graph.input] == ["data"] and [o.name for o in graph.output] == ["scores"] and {t.name for t in graph.initializer} == {"0.weight", "0.bias"}
    assert graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch" and "data" in repr(made)
    listed = tg.onnx.export(model, (tg.randn(2, 4),), dynamic_axes={"input": [0]})
    assert listed.model_proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "input_dynamic_axes_1"
    two = tg.onnx.export(lambda a, *, b: {"s": a + b, "t": (a, b * 2)}, (tg.randn(2),), kwargs={"b": tg.randn(2)}, input_names=["x", "y"])
    assert [i.name for i in two.model_proto.graph.input] == ["x", "y"] and len(two.model_proto.graph.output) == 3
    np.testing.assert_allclose(two(tg.ones(2), b=tg.ones(2))[2].numpy(), [2, 2])
    assert tg.onnx.export(model, (tg.randn(2, 4),), io.BytesIO(), dynamo=False) is None


def test_files(tmp_path):
    model = nn.Linear(40, 30).eval()
    x = tg.randn(2, 40)
    path = tmp_path / "model.onnx"
    for _ in range(2):  # the second one replaces the weights
        tg.onnx.export(model, (x,), path)
        assert sorted(os.listdir(tmp_path)) == ["model.onnx", "model.onnx.data"] and os.path.getsize(f"{path}.data") == 40 * 30 * 4
    from onnx.reference import ReferenceEvaluator

    with tg.no_grad():
        expected = model(x).numpy()
    np.testing.assert_allclose(ReferenceEvaluator(str(path)).run(None, {"input": x.numpy()})[0], expected, atol=1e-5)
    buffer = io.BytesIO()
    exported = ex.export(model, (x,))
    ex.save(exported, tmp_path / "program")
    made = tg.onnx.export(ex.load(tmp_path / "program"), f=buffer)
    read = onnx.load_from_string(buffer.getvalue())
    assert len(made.model_proto.graph.initializer) == len(read.graph.initializer) == 2 and read.opset_import[0].version == 18 and read.producer_name == "tapegrad"
    weightless = io.BytesIO()
    tg.onnx.export(model, (x,), weightless, export_params=False)
    graph = onnx.load_from_string(weightless.getvalue()).graph
    assert [i.name for i in graph.input] == ["input", "weight", "bias"] and not graph.initializer
    both = io.BytesIO()
    tg.onnx.export(model, (x,), both, keep_initializers_as_inputs=True)
    graph = onnx.load_from_string(both.getvalue()).graph
    assert len(graph.input) == 3 and len(graph.initializer) == 2


def test_constants_are_computed_when_the_model_is_written():
    def function(x):
        return x + tg.tril(tg.ones(4, 4)).cumsum(0)

    counts = [len(tg.onnx.export(function, (tg.randn(4, 4),), do_constant_folding=fold).model_proto.graph.node) for fold in (True, False)]
    assert counts[0] == 1 and counts[1] > 1
    runs(function, tg.randn(4, 4))


@pytest.mark.parametrize("version", [18, 19, 20, 21, 22, 23])
def test_versions_of_the_operators(version):
    tg.manual_seed(5)
    made = runs(Gpt().eval(), tg.randint(0, 50, (2, 5)), opset_version=version)
    assert made.model_proto.opset_import[0].version == version
    runs(UNet().eval(), tg.randn(1, 3, 16, 16), opset_version=version)


def test_dtypes():
    for kind in (tg.float64, tg.float16):
        model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Sigmoid()).to(kind)
        program = tg.onnx.export(model, (tg.randn(2, 4).to(kind),))
        assert program.model_proto.graph.output[0].type.tensor_type.elem_type == {tg.float64: 11, tg.float16: 10}[kind]
    bfloat = tg.onnx.export(lambda x: x * 2, (tg.randn(3, dtype=tg.bfloat16),)).model_proto
    assert bfloat.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16
    for function in (lambda x: x * 2, lambda x: x):
        with pytest.raises(NotImplementedError, match="(?s)^onnx.export: .*no complex64"):
            tg.onnx.export(function, (tg.randn(3, dtype=tg.complex64),))


def test_errors_of_arguments():
    x = tg.randn(2, 4)
    model = nn.Linear(4, 3)
    program = ex.export(model, (x,))
    for call, error, text in [(lambda: tg.onnx.export(model, (x,), opset_version=9), ValueError, "goes from 18 to 23: got 9"),
                              (lambda: tg.onnx.export(model, (x,), input_names=["a", "b"]), ValueError, "2 input_names for 1 inputs"),
                              (lambda: tg.onnx.export(model, (x,), input_names=["weight"]), ValueError, "'weight' is the name of a weight"),
                              (lambda: tg.onnx.export(lambda a: (a + 1, a * 2), (x,), output_names=["y", "y"]), ValueError, "outputs need names of their own: y, y"),
                              (lambda: tg.onnx.export(model, (x,), dynamo=False), ValueError, "a path or a file"),
                              (lambda: tg.onnx.export(program, dynamic_axes={"input": {0: "b"}}), ValueError, "has its sizes already"),
                              (lambda: tg.onnx.export(model, (x,), custom_translation_table={1: 2}), NotImplementedError, "custom_translation_table"),
                              (lambda: tg.onnx.export(model, (x,))(x, x), TypeError, "expected 1 tensors: got 2")]:
        with pytest.raises(error, match=text):
            call()
    assert not tg.onnx.is_in_onnx_export()
    seen = []
    tg.onnx.export(lambda a: a * (seen.append(tg.onnx.is_in_onnx_export()) or 2), (x,))
    assert seen and all(seen)
