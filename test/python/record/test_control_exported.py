"""Control flow in programs: both branches and one turn are written down; files, modules and gradients have the code's results."""

from __future__ import annotations

import io
import json

import pytest
import tapegrad as tg
from tapegrad import nn
from tapegrad._higher_order_ops import cond, scan, while_loop
from tapegrad.export import export, load, save


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = x * 2
        y = cond(x.sum() > 0, lambda x: (self.a(x) + h, {"s": x.sum()}), lambda x: (self.b(x) - h + tg.tensor([1.0, 2, 3, 4]), {"s": h.sum()}), (x,))
        count, z = while_loop(lambda i, v: v.abs().sum() < 100, lambda i, v: (i + 1, v * 2 + h), (tg.zeros((), dtype=tg.int64), y[0]))
        return z * 1, count, y[1]["s"]


def round_trip(program):
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    return load(file)


def assert_same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert a.dtype is b.dtype and a.equal(b)


@pytest.mark.parametrize("changing", [False, True])
def test_programs_and_files(changing):
    model = Model().eval()
    program = export(model, (tg.rand(3, 4),), dynamic_shapes={"x": {0: "rows"}} if changing else None)
    modules = [program.module(), round_trip(program).module(), round_trip(round_trip(program)).module()]
    with tg.no_grad():
        for k in range(16):
            x = (tg.rand(3 + 2 * (k % 3) * changing, 4) - k % 2) * 10 ** (k % 4)
            wanted = model(x)
            for module in modules:
                assert_same(module(x), wanted)
    assert modules[1]._exported._program.plans() == (3 if changing else 1)


def test_gradients():
    model = Model()
    module = round_trip(export(model, (tg.rand(3, 4),))).module()
    for sign in (1, -1):
        x = (tg.rand(3, 4) * sign).requires_grad_()
        found = []
        for m in (model, module):
            m.zero_grad()
            grad, = tg.autograd.grad(m(x)[0].sum(), x, retain_graph=True)
            m(x)[0].sum().backward()
            found.append([grad, *(p.grad for p in m.parameters())])
        assert [g is None for g in found[0]] == [g is None for g in found[1]]
        assert_same([g for g in found[0] if g is not None], [g for g in found[1] if g is not None])


def test_text_graph_and_parts():
    program = export(Model().eval(), (tg.rand(3, 4),))
    text = str(program)
    assert "cond: float32[3, 4], cond_1: float32[] = cond([gt], [x, a.weight, a.bias, mul], [x, b.weight, b.bias, mul])  # at " in text
    assert "\n  if true\n    input operand: float32[3, 4]\n" in text and "\n  else\n" in text and "\n  while\n" in text and "\n  do\n" in text
    choice, = program.graph.find_nodes(op="call_function", target="cond")
    true, false = choice.meta["bodies"]
    assert [n.target for n in true.nodes if n.op == "call_function"] == ["linear", "add", "sum"]
    assert [n.target for n in false.nodes if n.op == "call_function"] == ["linear", "sub", "add", "sum"]
    assert "cond" in str(program.picture())
    x = tg.rand(3, 4)
    y, = program.run({"x": x}, ["cond"])
    assert y.equal(nn.functional.linear(x, program.state_dict["a.weight"], program.state_dict["a.bias"]) + x * 2)
    z, = program.run({"cond": y * 0 + 100, "mul": x}, ["while_loop_1"])
    assert z.equal(y * 0 + 100)


def test_nested_and_static_control_flow():
    def f(x, p):
        def inner(a):
            return cond(a.sum() > 2, lambda a: a * x, lambda a: while_loop(lambda b: b.sum() < 5, lambda b: (b + x,), (a,))[0], (a,))

        x = cond(p, inner, lambda a: a - 1, (x * 1,))
        x = cond(True, lambda a: a * 2, None, (x,))
        x = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2), (0, x))[1]
        return scan(lambda c, a: (c + a, c * a), x[0], x)[1]

    with pytest.warns(UserWarning, match="Pred is a Python constant"):
        program = export(f, (tg.rand(4, 3), tg.tensor(True)))
    module = round_trip(program).module()
    with tg.no_grad():
        for k in range(12):
            x, p = tg.rand(4, 3) * (k % 3), tg.tensor(k % 4 != 0)
            x = x + 0.1
            assert module(x, p).equal(f(x, p))


def test_random_numbers_and_buffers():
    def f(x):
        return cond(x.sum() > 0, lambda x: x + tg.rand(3), lambda x: x * tg.rand(3) * 2, (x,)) + tg.rand(3)

    module = round_trip(export(f, (tg.ones(3),))).module()
    for sign in (1, -1, 1, -1, 1, -1):
        results = []
        for g in (f, module):
            tg.manual_seed(5)
            results.append(g(tg.ones(3) * sign))
        assert results[0].equal(results[1])


def test_results_that_are_operands():
    c = tg.tensor([1.0, 2.0])

    def f(x):
        return cond(x.sum() > 0, lambda x: (x, c, x), lambda x: (x * 2, x, c), (x,))

    module = round_trip(export(f, (tg.ones(2),))).module()
    for x in (tg.ones(2), -tg.ones(2), tg.ones(2), -tg.ones(2)):
        assert_same(module(x), f(x))
        assert_same(module(x.requires_grad_()), f(x))
    for branch in (lambda x: x, lambda x: x * 1):
        def written(x, branch=branch):
            h = x * 2
            y = cond(x.sum() > 0, branch, lambda x: x * 3, (h,))
            return y.add_(1) * 1, h * 1

        if branch(c) is c:
            with pytest.raises(RuntimeError, match=r"what control flow was given or gave is written to afterwards: clone\(\) it at "):
                export(written, (tg.ones(2),))
        else:
            assert_same(export(written, (tg.ones(2),)).module()(-tg.ones(2)), written(-tg.ones(2)))


def test_refusals():
    class Normed(nn.BatchNorm1d):
        def forward(self, x):
            return cond(x.sum() > 0, super().forward, lambda x: x + 1, (x,))

    for f, error, text in [
        (lambda x: cond(x.sum() > 0, lambda x: x + 1, lambda x: x[:2], (x,)), RuntimeError, "true_fn_output and false_fn_output to have same metadata but found"),
        (lambda x: cond(x.sum() > 0, lambda x: x + 1, lambda x: (x, x), (x,)), RuntimeError, "Unmatched output spec from torch.cond branches"),
        (lambda x: cond(x.sum() > 0, lambda x: (x, 1), lambda x: (x, 2), (x,)), RuntimeError, "must be the same in both branches: got 1 and 2"),
        (lambda x: cond(x.sum() > 0, lambda x: x * x.sum().item(), lambda x: x + 1, (x,)), RuntimeError, "item reads a value.* at .*test_control_exported"),
        (lambda x: cond(x.sum() > 0, lambda x: x.add_(1) * 1, lambda x: x + 1, (x * 1,)), RuntimeError, "a body of control flow writes to what it is given at "),
        (Normed(3), RuntimeError, "a body of control flow writes to what it is given"),
        (lambda x: while_loop(lambda x: x.sum() < 9, lambda x: (x[:1],), (x,))[0], RuntimeError, "body_fn_output and carried_inputs to have same metadata"),
        (lambda x: while_loop(lambda i, x: x.sum() < 9, lambda i, x: (i + 1, x + 1), (0, x))[1], RuntimeError, "reads a value"),
    ]:
        with pytest.raises(error, match=text):
            export(f, (tg.rand(3, 3),))
    assert export(lambda x: x + 1, (tg.rand(3),)).module()(tg.ones(3)).equal(tg.ones(3) + 1)  # nothing is left of them


def test_damaged_files(tmp_path):
    path = tmp_path / "m.pt2"
    save(export(Model().eval(), (tg.rand(3, 4),)), path)
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])

    def calls(program):
        return next(c for c in program["calls"] if c.get("control") == "cond"), next(c for c in program["calls"] if c.get("control") == "while_loop")

    def deeper(program):
        inner = calls(program)[0]
        for _ in range(20):
            inner = inner | {"bodies": [inner["bodies"][0] | {"calls": [inner]}, inner["bodies"][1]]}
        program["calls"].append(inner)

    for damage in [lambda p: calls(p)[0].update(control="switch"), lambda p: calls(p)[0]["bodies"].pop(), lambda p: calls(p)[0].update(counts=[1, 2]),
                   lambda p: calls(p)[0].update(counts=[2, 4, 4]), lambda p: calls(p)[0]["tensors"].pop(), lambda p: calls(p)[0]["tensors"][0].__setitem__(0, 3),
                   lambda p: calls(p)[0]["tensors"][0].__setitem__(2, 10 ** 6), lambda p: calls(p)[0]["results"].pop(), lambda p: calls(p)[0]["bodies"][1]["outputs"].pop(),
                   lambda p: calls(p)[0]["bodies"][0]["inputs"].append(0), lambda p: calls(p)[1]["bodies"][0]["outputs"].append(0), lambda p: calls(p)[1].update(counts=[10 ** 12, 0, 1]),
                   lambda p: calls(p)[1]["bodies"][1].pop("prefix"), lambda p: calls(p)[0].update(bodies=3), lambda p: calls(p)[0]["bodies"][1].update(prefix="no/"), deeper]:
        changed = json.loads(json.dumps(header))
        program = json.loads(changed["__metadata__"]["tapegrad.program"])
        damage(program)
        changed["__metadata__"]["tapegrad.program"] = json.dumps(program)
        text = json.dumps(changed).encode()
        text += b" " * (-len(text) % 8)
        path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size:])
        with pytest.raises(RuntimeError, match="the program is damaged|checksum"):
            load(path)
