"""Programs of random operators, branches and loops, within each other: recorded, exported and from files they have the bits of if and while."""

from __future__ import annotations

import io

import tapegrad as tg
from hypothesis import given, settings
from hypothesis import strategies as st
from tapegrad._higher_order_ops import cond, scan, while_loop

ops = st.tuples(st.just("op"), st.sampled_from(["add", "mul", "sin", "flip", "rand", "weight"]), st.integers(0, 3), st.integers(0, 3))


def blocks(inner):
    body = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(inner, st.tuples(st.just("cond"), st.integers(0, 3), body, body), st.tuples(st.just("while"), st.integers(0, 3), body),
                     st.tuples(st.just("scan"), st.integers(0, 3), body))


programs = st.lists(blocks(blocks(ops)), min_size=1, max_size=5)


class Plain:
    """Branches and loops of Python, with results of their own."""

    @staticmethod
    def cond(pred, true, false, operands):
        return (true if pred else false)(*operands)

    @staticmethod
    def while_loop(more, body, carried):
        while more(*carried):
            carried = body(*carried)
        return carried


class Operators:
    cond, while_loop = staticmethod(cond), staticmethod(while_loop)


def run(flow, program, pool: list, weight, random: bool):
    """The last of the tensors that a program makes of a pool; each block sees those of the blocks around it."""
    def pick(i):
        return pool[i % len(pool)]

    pool = list(pool)
    for kind, *what in program:
        if kind == "op":
            name, i, k = what
            a, b = pick(i), pick(k)
            made = {"add": lambda: a + b, "mul": lambda: a * b * 0.5, "sin": lambda: a.sin(), "flip": lambda: a.flip(0) - b, "weight": lambda: a * weight + 0.1,
                    "rand": lambda: a + tg.rand(3) if random else a - 0.3}[name]()
        elif kind == "cond":
            i, yes, no = what
            made = flow.cond(pick(i).sum() > 0.2, lambda x: run(flow, yes, [x, *pool], weight, random) * 1, lambda x: run(flow, no, [x, *pool], weight, random) * 1, (pick(i + 1),))
        elif kind == "while":
            i, body = what
            made = flow.while_loop(lambda n, x: (n < 4) & (x.sum() < 2.5), lambda n, x: (n + 1, run(flow, body, [x, *pool], weight, random) * 0.5 + 0.4),
                                   (tg.zeros((), dtype=tg.int64), pick(i) * 1))[1]
        else:
            i, body = what
            made = scan(lambda c, x: (run(flow, body, [c, *pool], weight, random) + x, c * 2), pick(i) * 1, pool[0].expand(2, 3))[1].sum(0)
        pool = [made, *pool[:3]]
    return pool[0]


@settings(max_examples=40, deadline=None)
@given(programs, st.booleans(), st.booleans(), st.integers(0, 2**20))
def test_recorded(program, gradients, random, seed):
    tg.manual_seed(seed)
    inputs = [tg.randn(3) for _ in range(9)]
    found = []
    for flow in (Plain, Operators):
        weight = tg.full((3,), 0.7, requires_grad=gradients)

        def step(x, flow=flow, weight=weight):
            y = run(flow, program, [x, x * 2], weight, random)
            if y.requires_grad:
                y.sum().backward()
            return y.detach() * 1, x + 0

        call = tg.record(step, pure=True) if flow is Operators else step
        tg.manual_seed(seed + 1)
        results = []
        for x in inputs:
            weight.grad = None
            results += [*call(x), weight.grad]
            if flow is Operators:
                call._replays.scribble()
        found.append([*results, tg.rand(2)])
    for mine, theirs in zip(*found, strict=True):
        assert (mine is None) == (theirs is None) and (mine is None or mine.equal(theirs) or mine.isnan().any())


@settings(max_examples=20, deadline=None)
@given(programs, st.integers(0, 2**20))
def test_exported(program, seed):
    tg.manual_seed(seed)
    weight = tg.full((3,), 0.7)
    inputs = [tg.randn(3) for _ in range(5)]
    exported = tg.export.export(lambda x: run(Operators, program, [x, x * 2], weight, False) * 1, (inputs[0],))
    file = io.BytesIO()
    tg.export.save(exported, file)
    file.seek(0)
    for module in (exported.module(), tg.export.load(file).module()):
        for x in inputs * 2:
            with tg.no_grad():
                mine = module(x)
            theirs = run(Plain, program, [x, x * 2], weight, False) * 1
            assert mine.equal(theirs) or mine.isnan().any()


def test_the_programs_have_what_is_tested():
    """Programs like these are replayed, and not left to run eagerly."""
    program = [("cond", 0, [("while", 0, [("op", "add", 0, 1)])], [("op", "sin", 0, 0)]), ("while", 0, [("cond", 0, [("op", "mul", 0, 1)], [("op", "weight", 0, 1)])])]
    for gradients in (False, True):
        weight = tg.full((3,), 0.7, requires_grad=gradients)
        step = tg.record(lambda x, weight=weight: run(Operators, program, [x, x * 2], weight, False).detach() * 1, pure=True, fullgraph=True)
        for _ in range(60):
            step(tg.randn(3))
        assert step._replays.count > 20
