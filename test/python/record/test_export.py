"""Exported programs: the bits of the code, other sizes, files, parts, what is refused, threads."""

import collections
import io
import json
import struct

import numpy as np
import pytest
import tapegrad as tg
from recorded import in_threads
from tapegrad import export as ex
from tapegrad import nn
from tapegrad.nn import functional as F


class Attention(nn.Module):
    """A small GPT as public ones are written: views by sizes, a mask that is cut, the last column."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(16, 32)
        self.norm, self.qkv, self.out, self.head = nn.LayerNorm(32), nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 50)
        self.register_buffer("mask", tg.tril(tg.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, idx):
        rows, columns = idx.size()
        x = self.tokens(idx) + self.places(tg.arange(columns).unsqueeze(0))
        q, k, v = (t.view(rows, columns, 4, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).split(32, dim=2))
        a = (q @ k.transpose(-2, -1)) / 8 ** 0.5
        a = a.masked_fill(self.mask[:, :, :columns, :columns] == 0, float("-inf")).softmax(-1)
        x = x + self.out((a @ v).transpose(1, 2).contiguous().view(rows, columns, -1))
        return self.head(x)[:, -1, :]


Pair = collections.namedtuple("Pair", "a b")


class Pairs(nn.Module):
    def forward(self, x, *, scale=2.0, extra=None):
        y = x.clone()
        y[0:2, 1] = 5.0
        y[y > 1] = 0.5
        made = tg.tensor([1.0, 2.0, 3.0, 4.0])
        made += x[0]
        return {"y": y * scale, "both": (made, [x.sum(), None, "text"]), "max": x.max(0)}


def conv():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))


def mixed(x):
    a, b = x.split(2, 1)
    c = tg.cat([a, b, a], 1).sort(1)[0]
    d = c.cumsum(1).topk(2)[1]
    e = x.gather(1, d % 4)
    return tg.where(e > 0, e, -e).std(0) + tg.einsum("ij,ik->k", e, e) + x[d % 3, 0].mean() + x.data.T[0, 0]


MODELS = {
    "gpt": (Attention, lambda b: (tg.randint(0, 50, (b, 8)),), {"idx": {0: "b"}}),
    "conv": (conv, lambda b: (tg.randn(b, 3, 8, 8),), {"input": {0: "b"}}),
    "lstm": (lambda: nn.LSTM(8, 16, 2, batch_first=True), lambda b: (tg.randn(b, 5, 8),), ({0: "b"},)),
    "gru": (lambda: nn.GRU(8, 16), lambda b: (tg.randn(5, b, 8),), ((None, "b", None),)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), lambda b: (tg.randn(b, 5, 16),), {"src": {0: ex.Dim("b", min=1)}}),
    "bag": (lambda: nn.EmbeddingBag(10, 4), lambda b: (tg.randint(0, 10, (b, 4)),), {"input": {0: ex.Dim.AUTO}}),
    "mixed": (lambda: mixed, lambda b: (tg.randn(3, 4),), None),
}


def same(a, b):
    leaves = [tg.utils._pytree.tree_flatten(t) for t in (a, b)]
    assert leaves[0][1] == leaves[1][1]
    for x, y in zip(leaves[0][0], leaves[1][0], strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype and tg.equal(x, y) if isinstance(x, tg.Tensor) else x == y


@pytest.mark.parametrize("name", MODELS)
def test_bits_of_the_code_for_other_values_and_sizes_and_from_a_file(name, tmp_path):
    tg.manual_seed(1)
    make, inputs, shapes = MODELS[name]
    model = make()
    if isinstance(model, nn.Module):
        model.eval()
    exported = ex.export(model, inputs(2), dynamic_shapes=shapes)
    ex.save(exported, tmp_path / "model.pt2")
    programs = [exported.module(), ex.load(tmp_path / "model.pt2").module()]
    with tg.no_grad():
        for rows in (2, 2, 5, 1, 2):
            given = inputs(rows if shapes else 2)
            for program in programs:
                same(program(*given), model(*given))
    if shapes:
        assert [s[0] for s in exported._program.symbols()] == (["size_2"] if name == "bag" else ["b"])
    else:
        with pytest.raises(ValueError, match="expected x of size"):
            programs[0](tg.randn(9, 4))


def test_nested_arguments_and_results(tmp_path):
    model = Pairs()
    x = tg.randn(3, 4)
    exported = ex.export(model, (x,), {"scale": 3.0, "extra": None})
    for program in (exported.module(), ex.load(_saved(exported, tmp_path)).module()):
        with tg.no_grad():
            for _ in range(3):
                x = tg.randn(3, 4)
                same(program(x, scale=3.0, extra=None), model(x, scale=3.0))
                same(program(extra=None, scale=3.0, x=x), model(x, scale=3.0))
        with pytest.raises(ValueError, match="an argument was 3.0 in the example, and cannot be 2.0"):
            program(x, scale=2.0, extra=None)
        with pytest.raises(TypeError, match="expected the arguments x, scale, extra"):
            program(x)


def _saved(exported, tmp_path):
    ex.save(exported, tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


def test_training_an_exported_module(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    x, y = tg.randn(6, 4), tg.randn(6, 1)
    exported = ex.export(model, (x,))
    program = ex.load(_saved(exported, tmp_path)).module()
    assert [n for n, _ in program.named_parameters()] == [n for n, _ in model.named_parameters()]
    optimizers = [tg.optim.SGD(m.parameters(), lr=0.1) for m in (model, program)]
    for _ in range(5):
        losses = []
        for m, optimizer in zip((model, program), optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(F.mse_loss(m(x), y))
            losses[-1].backward()
            optimizer.step()
        same(*losses)
    with tg.no_grad():
        same(program(x), model(x))  # replays read the weights where they are
    program.load_state_dict({n: p * 2 for n, p in program.state_dict().items()})
    model.load_state_dict(program.state_dict())
    with tg.no_grad():
        same(program(x), model(x))
        for m in (model, program):
            for p in m.parameters():
                p.data = p.data.clone() + 1  # other memory
        same(program(x), model(x))
    given = x.clone().requires_grad_()
    program(given).sum().backward()
    mine = given.grad
    given.grad = None
    model(given).sum().backward()
    same(mine, given.grad)
    with pytest.raises(NotImplementedError, match="train"):
        program.train()


def test_the_export_shares_weights_and_leaves_no_trace():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    x = tg.randn(2, 4)
    state, before = tg.get_rng_state(), x.clone()
    exported = ex.export(model, (x,), dynamic_shapes={"input": {0: "b"}})  # in training mode: dropout is part of the program
    assert tg.equal(tg.get_rng_state(), state) and tg.equal(x, before) and not tg.record.is_recording()
    assert exported.state_dict["0.weight"] is model[0].weight
    program = exported.module()
    with tg.no_grad():
        for rows in (2, 3, 3, 3):
            x = tg.randn(rows, 4)
            tg.manual_seed(7)
            expected = model(x), tg.rand(1)
            tg.manual_seed(7)
            same((program(x), tg.rand(1)), expected)


def by_value(x):
    return x * x.sum().item()


def by_mask(x):
    return x[x > 0]


def by_gradient(x):
    with tg.enable_grad():
        x = x.detach().requires_grad_()
        return tg.autograd.grad((x ** 3).sum(), x)[0]


def by_size(x):
    return x.sum(0) if len(x) < 4 else x.sum(0) * 2


def by_product(x):
    return x * (1.0 / len(x))


def by_seed(x):
    tg.manual_seed(3)
    return x + tg.rand(3)


@pytest.mark.parametrize("function, shapes, text", [
    (by_value, None, "item reads a value.*test_export.py"), (by_mask, None, "nonzero reads a value"), (by_gradient, None, "no operator .a backward pass."),
    (by_size, {"x": {0: "n"}}, "other operators are called|it is called with other tensors"), (by_product, {"x": {0: "n"}}, "mul .*test_export.py.* depends on n .*another value"),
    (by_seed, None, "it seeds a random generator.*test_export.py"), (nn.BatchNorm1d(3), None, "it writes to running_mean.*training mode")])
def test_what_cannot_be_repeated_is_refused_with_the_line(function, shapes, text):
    with pytest.raises((RuntimeError, ValueError), match=text):
        ex.export(function, (tg.randn(3, 3),), dynamic_shapes=shapes)
    ex.export(nn.ReLU(), (tg.randn(3),))  # nothing is left behind


def test_errors_of_arguments():
    x = tg.randn(3, 4)
    for call, error, text in [
            (lambda: ex.export(nn.ReLU(), x), TypeError, "Expecting args to be a tuple"), (lambda: ex.export(3, (x,)), TypeError, "module or a function"),
            (lambda: ex.export(nn.ReLU(), (x,), dynamic_shapes={"y": {0: "n"}}), ValueError, "no argument 'y': input"),
            (lambda: ex.export(nn.ReLU(), (x,), dynamic_shapes={"input": {2: "n"}}), ValueError, "got dimension 2"),
            (lambda: ex.export(nn.ReLU(), (x,), dynamic_shapes={"input": (5, None)}), ValueError, "is 3 in the example: got 5"),
            (lambda: ex.export(nn.ReLU(), (x,), dynamic_shapes={"input": {0: ex.Dim("n", min=4)}}), ValueError, "is 3, and n goes from 4"),
            (lambda: ex.export(nn.ReLU(), (x[:0],), dynamic_shapes={"input": {0: "n"}}), ValueError, "is 0 in the example"),
            (lambda: ex.export(tg.add, (x, x), dynamic_shapes=({0: "n"}, {1: "n"})), ValueError, "n is 3 and, in dimension 1 of .*, 4"),
            (lambda: ex.export(nn.ReLU(), (x.to_sparse(),)), TypeError, "plain dense tensors"), (lambda: ex.Dim("1n"), ValueError, "expected a name"),
            (lambda: ex.Dim("n", min=3, max=2), ValueError, "not below"), (lambda: ex.save(nn.ReLU(), "f"), TypeError, "ExportedProgram"),
            (lambda: ex.load("/no/such/file"), RuntimeError, "cannot open")]:
        with pytest.raises(error, match=text):
            call()
    program = ex.export(lambda a, b: a + b, (x, x), dynamic_shapes={"a": {0: ex.Dim("n", max=6)}, "b": {0: "n"}}).module()
    with pytest.raises(ValueError, match="n is 4 in one input and 5"):
        program(tg.randn(4, 4), tg.randn(5, 4))
    with pytest.raises(ValueError, match="n is 7, and goes from 0 to 6"):
        program(tg.randn(7, 4), tg.randn(7, 4))
    with pytest.raises(TypeError, match="dtype"):
        program(x.double(), x)
    with pytest.raises(RuntimeError, match="exported_program.module"):
        ex.export(nn.ReLU(), (x,))(x)


def test_any_value_is_given_and_asked_for():
    def function(x, z):
        h = ex.name(x.exp(), "h")
        h[0] = 0
        return h.sum() + z, z * 2

    x, z = tg.randn(3), tg.randn(3)
    program = ex.export(function, (x, z))
    h = x.exp()
    h[0] = 0
    same(program.run({"x": x}, ["h"]), [h])
    given = tg.ones(3)
    outputs = program.graph_signature.user_outputs
    same(program.run({"h": given, "z": z}, outputs[:1]), [tg.tensor(2.0) + z])
    assert given.sum() == 3  # a value that is given is not changed
    same(program.run({"x": x, "z": z}), list(function(x, z)))
    with pytest.raises(ValueError, match="need z"):
        program.run({"x": x})
    with pytest.raises(KeyError, match="nobody"):
        program.run({"nobody": x})


def test_the_graph_says_what_is_done():
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    exported = ex.export(model, (tg.randn(2, 4),))
    nodes = list(exported.graph)
    assert [n.op for n in nodes] == ["get_attr", "get_attr", "placeholder", "call_function", "call_function", "output"]
    linear, relu = nodes[3:5]
    assert linear.target == "linear" and relu.args[0] is linear and list(linear.users) == [relu] and linear.meta["shape"] == (2, 8)
    assert "linear: float32[2, 8] = linear(input, 0.weight, 0.bias)" in str(exported) and "call_function[target=relu]" in str(exported.graph)
    assert exported.graph_signature.parameters == ["0.weight", "0.bias"] and exported.constants == {}
    parts = ex.export(lambda x: x.sort(0), (tg.randn(3),)).graph.find_nodes(op="call_function", target="getitem")
    assert len(parts) == 2 and parts[1].meta["dtype"] is tg.int64


def test_files_of_the_program(tmp_path):
    exported = ex.export(nn.Linear(2, 2), (tg.randn(1, 2),))
    buffer = io.BytesIO()
    ex.save(exported, buffer, extra_files={"note": "a text"})
    buffer.seek(0)
    extra = {"note": "", "other": ""}
    loaded = ex.load(buffer, extra_files=extra)
    assert extra == {"note": "a text", "other": ""} and str(loaded).count("linear") == str(exported).count("linear")
    content = tg.load(_saved(exported, tmp_path))  # the weights, for everything that reads safetensors
    assert tg.equal(content["weight"], exported.state_dict["weight"])
    with pytest.raises(ValueError, match="tuples, lists and dictionaries"):
        ex.save(ex.export(lambda x: Pair(x, x), (tg.randn(2),)), tmp_path / "x")
    with pytest.raises(RuntimeError, match="holds tensors and no program"):
        tg.serialization.save_file({"a": tg.ones(2)}, tmp_path / "tensors")
        ex.load(tmp_path / "tensors")


def test_damaged_programs_raise(tmp_path):
    """Each number, text and list of a file is changed: an error of a known kind, or a program that runs."""
    exported = ex.export(mixed, (tg.randn(3, 4),))
    content = _saved(exported, tmp_path).read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8:8 + length]), content[8 + length:]
    program = json.loads(header["__metadata__"]["tapegrad.program"])
    places = []

    def walk(value, path):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            (walk if isinstance(item, (dict, list)) and item else lambda *place: places.append(place[1]))(item, [*path, key])

    walk(program, [])
    rng = np.random.default_rng(0)
    refused = 0
    for path in [places[i] for i in rng.permutation(len(places))[:300]]:
        changed = json.loads(json.dumps(program))
        owner = changed
        for key in path[:-1]:
            owner = owner[key]
        value = owner[path[-1]]
        owner[path[-1]] = (int(rng.choice([-1, 0, 1, 7, 1 << 40, -(1 << 62)])) if isinstance(value, (int, float)) and not isinstance(value, bool)
                           else str(rng.choice(["", "float64", "softmax", "cat"])) if isinstance(value, str) else [1])
        header["__metadata__"]["tapegrad.program"] = json.dumps(changed)
        text = json.dumps(header).encode()
        (tmp_path / "damaged").write_bytes(struct.pack("<Q", len(text)) + text + data)
        try:
            run = ex.load(tmp_path / "damaged").module()
            with tg.no_grad():
                for _ in range(2):
                    run(tg.randn(3, 4))
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, NotImplementedError):
            refused += 1
    assert refused > 100
    about = json.loads(header["__metadata__"]["tapegrad.export"])
    for kind in ("return_types.__class__", "return_types.__getattribute__", "nobody", 3):
        about["out"] = [kind, None, [None]]
        header["__metadata__"] = {"tapegrad.program": json.dumps(program), "tapegrad.export": json.dumps(about)}
        text = json.dumps(header).encode()
        (tmp_path / "damaged").write_bytes(struct.pack("<Q", len(text)) + text + data)
        with pytest.raises(RuntimeError, match="the program is damaged"):
            ex.load(tmp_path / "damaged")
    for cut in (0, 7, 50, length // 2, length + 7):
        (tmp_path / "damaged").write_bytes(content[:cut])
        with pytest.raises(RuntimeError):
            ex.load(tmp_path / "damaged")


def test_threads_share_one_program():
    model = Attention().eval()
    program = ex.export(model, (tg.randint(0, 50, (2, 8)),), dynamic_shapes={"idx": {0: "b"}})
    run = program.module()
    inputs = [tg.randint(0, 50, (1 + i % 3, 8)) for i in range(6)]
    with tg.no_grad():
        expected = [model(x) for x in inputs]

    def work(start):
        with tg.no_grad():
            for i in range(60):
                k = (i + start) % len(inputs)
                assert tg.equal(run(inputs[k]), expected[k])

    in_threads(work, range(4))
    assert 3 <= program._program.plans() <= 12


def test_the_picture_shows_each_operator_once(tmp_path):
    import xml.etree.ElementTree as tree

    exported = ex.export(Attention().eval(), (tg.randint(0, 50, (2, 8)),))
    exported.picture().save(tmp_path / "model.svg")
    root = tree.parse(tmp_path / "model.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    boxes = [[float(r.get(k)) for k in ("x", "y", "width", "height")] for g in root.iter(space + "g") for r in g.iter(space + "rect")]
    assert len(boxes) == len([n for n in exported.graph if n.op != "get_attr"])
    width, height = float(root.get("width")), float(root.get("height"))
    for i, (x, y, w, h) in enumerate(boxes):
        assert 0 <= x and x + w <= width and 0 <= y and y + h <= height
        assert all(x + w <= a or a + c <= x or y + h <= b or b + d <= y for a, b, c, d in boxes[:i])  # none over another
    texts = [t.text for t in root.iter(space + "text")]
    assert any("float32[2, 8, 32]" in t and "2.05 KB" in t for t in texts) and exported.picture()._repr_svg_().startswith("<svg")
