"""Control flow as ONNX's If and Loop, run by onnx's reference on inputs that go each way."""

from __future__ import annotations

import pytest
import tapegrad as tg
from onnx_runs import runs
from tapegrad import nn
from tapegrad._higher_order_ops import cond, while_loop

onnx = pytest.importorskip("onnx", reason="the package onnx writes the files")


def types(program) -> list[str]:
    def of(nodes):
        for node in nodes:
            yield node.op_type
            for attribute in node.attribute:
                yield from of(attribute.g.node)

    return list(of(program.model_proto.graph.node))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = x * 2
        y = cond(x.sum() > 0, lambda x: (self.a(x) + h, x.sum()), lambda x: (self.b(x) - h + tg.tensor([1.0, 2, 3, 4]), h.sum()), (x,))
        count, z = while_loop(lambda i, v: v.abs().sum() < 100, lambda i, v: (i + 1, v * 2 + h), (tg.zeros((), dtype=tg.int64), y[0]))
        return z, count, y[1]


def each_way():
    return [((tg.rand(3, 4) - k % 2) * 10 ** (k % 4),) for k in range(8)]


def test_branches_and_loops():
    program = runs(Model().eval(), tg.rand(3, 4), others=each_way())
    assert {"If", "Loop"} <= set(types(program)) and types(program).count("Gemm") + types(program).count("MatMul") == 2


def test_bodies_within_bodies():
    def f(x, p):
        def inner(a):
            return cond(a.sum() > 2, lambda a: (a * x, a), lambda a: (while_loop(lambda b: b.sum() < 5, lambda b: (b + x + 1,), (a,))[0], x), (a,))

        y, z = cond(p, inner, lambda a: (a - 1, x), (x * 1,))
        return y.relu() + z, x

    runs(f, tg.rand(2, 3), tg.tensor(True), others=[(tg.rand(2, 3) * k, tg.tensor(k % 3 != 0)) for k in range(6)])


def test_what_passes_through():
    """Results that are operands, constants or values of the graph around; a body of nothing."""
    c = tg.tensor([1.0, 2.0])
    runs(lambda x: cond(x.sum() > 0, lambda x: (x, c, x), lambda x: (x * 2, x, c), (x,)), tg.ones(2), others=[(-tg.ones(2),)])
    runs(lambda x: while_loop(lambda x, y: x.sum() < 10, lambda x, y: (x + y, y), (x, x.abs())), tg.ones(2), others=[(tg.ones(2) * 20,)])


def test_refused():
    with pytest.raises(NotImplementedError, match=r"(?s)cond at .*test_onnx_control.py:\d+: in a body of it: digamma at .*there is no ONNX operator for it here"):
        tg.onnx.export(lambda x: cond(x.sum() > 0, lambda x: x.digamma(), lambda x: x, (x,)), (tg.ones(2),))
    with pytest.raises(NotImplementedError, match="control flow is translated where no size may change"):
        tg.onnx.export(lambda x: cond(x.sum() > 0, lambda x: x + 1, lambda x: x, (x,)), (tg.ones(2),), dynamic_shapes={"x": {0: "n"}})
