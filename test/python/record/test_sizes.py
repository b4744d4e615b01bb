"""Recorded steps and arguments of other sizes: plans without a recording, with eager's bits, or a recording of that size with a reason."""

import copy
import math
import signal
import sys

import pytest
import tapegrad as tg
from recorded import Layers, assert_same, batches, compare, in_threads, mlp, plans, replays, training
from tapegrad import nn

F = nn.functional


class Runs:
    """Counts how often functions of these names run in Python, and what was recorded."""

    def __init__(self, *names):
        self.names = names

    def __enter__(self):
        self.count = 0
        sys.setprofile(self._see)
        return self

    def _see(self, frame, event, _):
        self.count += event == "call" and frame.f_code.co_name in self.names

    def __exit__(self, *_):
        sys.setprofile(None)


def steps(make, optimizer=lambda p: tg.optim.SGD(p, lr=0.1, momentum=0.9), **options):
    """The same training step, recorded and eager, and their networks."""
    a, b = make(), make()
    return tg.record(training(a, optimizer(a.parameters()), **options)), training(b, optimizer(b.parameters()), **options), a, b


def run_both(step, eager, a, b, arguments, seed=0):
    tg.manual_seed(seed)
    expected = eager(*(t.clone() for t in arguments))
    after = tg.rand(2)
    tg.manual_seed(seed)
    step._replays.scribble()
    got = step(*arguments)
    assert tg.equal(tg.rand(2), after), "the generator stands elsewhere"
    for x, y in zip(got if isinstance(got, tuple) else [got], expected if isinstance(expected, tuple) else [expected], strict=True):
        assert same(x, y), (got, expected)
    if a is not None:
        assert_same(a, b, f"sizes {[tuple(t.shape) for t in arguments]}")


def same(x, y):
    if not isinstance(x, tg.Tensor):
        return x == y or x != x and y != y
    return x.shape == y.shape and x.dtype == y.dtype and x.requires_grad == y.requires_grad and x.detach().numpy().tobytes() == y.detach().numpy().tobytes()


def images(n):
    return tg.randn(n, 6), tg.randint(0, 3, (n,))


@pytest.mark.parametrize("zero", ["optimizer", "module", "after"])
def test_the_last_batch_of_a_loader(zero):
    step, eager, a, b = steps(mlp, lambda p: tg.optim.Adam(p, lr=0.01), zero=zero, clip=0.5)
    data = tg.utils.data.TensorDataset(*images(38))
    first = True
    for epoch in range(3):
        loader = tg.utils.data.DataLoader(data, batch_size=8, shuffle=True)
        for x, y in list(loader):
            if not first and len(x) == 6:
                with Runs("step", "forward") as runs:
                    step(x, y)
                assert runs.count == 0, f"epoch {epoch}"
                eager(x, y)
                assert_same(a, b, f"epoch {epoch}")
            else:
                run_both(step, eager, a, b, (x, y))
        first = False
    assert plans(step) == 2 and step._replays.made == 1 and not step._notes, step.summary()


def test_a_new_size_needs_no_python():
    step, eager, a, b = steps(mlp)
    for _ in range(3):
        run_both(step, eager, a, b, images(5))
    for n in (3, 9, 1, 2, 40):
        x, y = images(n)
        with Runs("step", "forward", "_record") as runs:
            step(x, y)
        assert runs.count == 0, n
        eager(x, y)
        assert_same(a, b, f"{n} rows")
    assert step._replays.made == 5 and plans(step) == 6


def test_inference():
    net = mlp()

    @tg.record
    def infer(x):
        with tg.no_grad():
            return net(x).softmax(-1)

    for n in (4, 4, 4, 7, 1, 0, 4, 7):
        x = tg.randn(n, 6)
        with tg.no_grad():
            assert same(infer(x), net(x).softmax(-1))
    assert infer._replays.made == 3


class Convolutions(nn.Module):
    def __init__(self, flat):
        super().__init__()
        tg.manual_seed(0)
        self.conv, self.norm, self.drop, self.out = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.3), nn.Linear(64, 3)
        self.flat = flat

    def forward(self, x):
        return self.out(self.drop(self.flat(F.max_pool2d(F.relu(self.norm(self.conv(x))), 2))))


def by_sizes(h):
    b, c, rows, columns = h.shape
    return h.view(b, c * rows * columns)


FLAT = {
    "flatten": lambda h: h.flatten(1),
    "reshape": lambda h: h.reshape(-1, 64),
    "size": lambda h: h.view(h.size(0), -1),
    "shape": lambda h: h.view(h.shape[0], 64),
    "sizes": by_sizes,
    "list": lambda h: h.reshape([h.size()[0], -1]),
    "numel": lambda h: h.view(h.numel() // 64, 64),
    "new": lambda h: h.view(h.size(0), -1) + h.new_zeros(h.size(0), 64),
    "index": lambda h: h.flatten(1)[:h.size(0)],
}


@pytest.mark.parametrize("flat", FLAT)
def test_convolutions(flat):
    step, eager, a, b = steps(lambda: Convolutions(FLAT[flat]))
    for i, n in enumerate((5, 5, 5, 3, 2, 7, 1, 5, 3)):
        # One value per channel is refused with batch norm where there is but one: four rows of images are larger.
        run_both(step, eager, a, b, (tg.randn(n, 1, 10, 10), tg.randint(0, 3, (n,))), seed=i)
    assert step._replays.made == 4, (step._notes, step._reasons)


class Attention(nn.Module):
    def __init__(self, width, heads, length, fused):
        super().__init__()
        self.qkv, self.out, self.drop = nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Dropout(0.2)
        self.heads, self.width, self.fused = heads, width, fused
        self.register_buffer("mask", tg.tril(tg.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(self.width, dim=2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
            y = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.drop(self.out(y.transpose(1, 2).contiguous().view(B, T, C)))


class Generated(Attention):
    """With a generator expression, in which sizes are not followed."""

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in self.qkv(x).split(self.width, dim=2))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C))


class GPT(nn.Module):
    def __init__(self, fused, attention=Attention, width=32, length=32):
        super().__init__()
        tg.manual_seed(0)
        self.length = length
        self.tokens, self.places, self.norm = nn.Embedding(40, width), nn.Embedding(length, width), nn.LayerNorm(width)
        self.attention = attention(width, 4, length, fused)
        self.head = nn.Linear(width, 40, bias=False)

    def forward(self, ids):
        b, t = ids.size()
        if not t <= self.length:  # what `assert` is, without pytest's own code
            raise AssertionError(f"{t} tokens are more than {self.length}")
        x = self.tokens(ids) + self.places(tg.arange(0, t, dtype=tg.long, device=ids.device))
        x = x + self.attention(self.norm(x))
        return self.head(x).transpose(1, 2)


SEQUENCES = [(3, 10)] * 4 + [(2, 10), (3, 7), (1, 1), (5, 32), (4, 4), (3, 10), (5, 32)]


@pytest.mark.parametrize("fused", [False, True])
def test_sequences_of_a_gpt(fused):
    step, eager, a, b = steps(lambda: GPT(fused), lambda p: tg.optim.AdamW(p, lr=0.01))
    for i, size in enumerate(SEQUENCES):
        run_both(step, eager, a, b, (tg.randint(0, 40, size), tg.randint(0, 40, size)), seed=i)
    assert step._replays.made == 5, (step._notes, step._reasons)
    with pytest.raises(AssertionError, match="33 tokens are more than 32"):
        step(tg.randint(0, 40, (1, 33)), tg.randint(0, 40, (1, 33)))


def test_sizes_that_are_not_followed_are_recorded_by_themselves():
    step, eager, a, b = steps(lambda: GPT(False, Generated))
    for i, size in enumerate(SEQUENCES):
        run_both(step, eager, a, b, (tg.randint(0, 40, size), tg.randint(0, 40, size)), seed=i)
    assert step._replays.made == 0
    assert any("it reads a size (size at " in note for note in step._notes), step._notes


@pytest.mark.parametrize("fused", [False, True])
def test_compiled_modules(fused):
    a, b = GPT(fused), GPT(fused)
    first, second = tg.optim.AdamW(a.parameters(), lr=0.01), tg.optim.AdamW(b.parameters(), lr=0.01)
    model = tg.compile(a)
    for i, size in enumerate(SEQUENCES):
        x, y = tg.randint(0, 40, size), tg.randint(0, 40, size)
        for net, optimizer in ((model, first), (b, second)):
            tg.manual_seed(i)
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        assert_same(a, b, f"{size}")
    replayed = a.forward._replays
    assert replayed.made == 5 and replayed.count >= 8, a.forward.summary()


def test_layers_with_state():
    def make():
        tg.manual_seed(0)
        return Layers()

    step, eager, a, b = steps(make)
    for i, n in enumerate((5, 5, 5, 3, 8, 2, 5)):
        run_both(step, eager, a, b, images(n), seed=i)
    assert replays(step) >= 2, step.summary()


# --- what programs do with sizes ---

weight = tg.linspace(-1, 1, 60).reshape(10, 6)


class Other:
    """Has methods with names of tensors'."""

    def __init__(self, view):
        self.view = view


def double(n):
    return list(range(n))


def helper(x, n):
    return x * len([0] * n)


def caught(x):
    try:
        return (x @ weight[:5].T) + tg.ones(5, 5)
    except RuntimeError:
        return x * 2


def in_a_loop(x):
    total = x.sum()
    for i in range(x.size(0)):
        total = total + x[i].sum() * i
    return total


def for_rows(x):
    return sum((row * row).sum() for row in x)


def assigned(x):
    n = x.size(0)
    if n > 3:
        n = 2
    return x[:n].sum()


def counted_down(x):
    n, total = x.size(0), x.sum()
    while n > 0:
        total, n = total * 0.5, n - 2
    return total


def stored(x):
    sizes = {"n": x.size(0)}
    return x * sizes["n"]


def in_place(x):
    y = x.clone()
    y[: x.size(0) // 2] += 1
    y.view(x.size(0), 2, 3)[:, 1].mul_(3)
    return y


def swapped(x):
    a, b = x.shape
    a, b = b, a
    return x.t().reshape(a, b)


def chosen(x):
    return x.view(x.size(0), 6) * 2 if x.size(0) > 3 else x.view(x.size(0), 2, 3).sum(1)


PROGRAMS = {
    "chosen": chosen,
    "range": in_a_loop,
    "rows": for_rows,
    "assigned": assigned,
    "while": counted_down,
    "stored": stored,
    "in place": in_place,
    "swapped": swapped,
    "caught": caught,
    "helper": lambda x: helper(x, x.size(0)),
    "len": lambda x: x * len(x),
    "mean": lambda x: x.sum() / x.size(0),
    "scale": lambda x: x * x.size(0),
    "reversed scale": lambda x: x.size(0) * x,
    "float": lambda x: x * (1.0 / max(x.size(0), 1)),
    "half": lambda x: x * (0.5 * x.size(0)),
    "half behind": lambda x: x * (x.size(0) * 0.5),
    "power": lambda x: x * x.size(0) ** 2,
    "int": lambda x: x * int(x.size(0)),
    "float of it": lambda x: x * float(x.size(0)),
    "text": lambda x: x * len(f"{x.size(0):04d}" * 2),
    "list": lambda x: x * len([1] * x.size(0)),
    "tuple": lambda x: x * len((1,) + x.shape),
    "shape": lambda x: tg.zeros(x.shape) + x,
    "shape and more": lambda x: tg.zeros((*x.shape, 2)) + x.unsqueeze(-1),
    "shape added": lambda x: tg.zeros(x.shape + (2,)) + x.unsqueeze(-1),
    "equal shapes": lambda x: x * 2 if x.shape == (3, 6) else x * 3,
    "in": lambda x: x * 2 if x.size(0) in (3, 4) else x * 3,
    "is": lambda x: x * 2 if x.size(0) is None else x * 3,
    "truth": lambda x: x * 2 if x.size(0) else x.sum(0),
    "not": lambda x: x.sum(0) if not x.shape[0] else x * 2,
    "chained": lambda x: x * 2 if 2 < x.size(0) < 6 else x * 3,
    "float compared": lambda x: x * 2 if 2.5 < x.size(0) else x * 3,
    "modulo": lambda x: x[: x.size(0) - x.size(0) % 2].reshape(-1, 2, 6).sum(1) if x.size(0) % 2 == 0 else x,
    "arange": lambda x: x + tg.arange(x.size(0)).unsqueeze(1),
    "arange by two": lambda x: x[tg.arange(0, x.size(0), 2)],
    "tensor": lambda x: x * tg.tensor(x.size(0)),
    "tensor of list": lambda x: x * tg.tensor([x.size(0)] * 6),
    "full": lambda x: tg.full((x.size(0), 6), 2.0) * x,
    "full of it": lambda x: tg.full((2,), x.size(0)).sum() * x,
    "expand": lambda x: x[:1].expand(x.size(0), -1) if x.size(0) else x,
    "negative": lambda x: x.narrow(0, 0, x.size(0)).roll(-x.size(0) + 1, 0),
    "last": lambda x: x[x.size(0) - 1] if x.size(0) else x,
    "minus one": lambda x: x[-1:] * 2,
    "five": lambda x: x[:5] * 2,
    "from five": lambda x: x[5:].sum(0),
    "every second": lambda x: x[::2] * 2,
    "list subscripted": lambda x: x * [1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11][x.size(0)],
    "list sliced": lambda x: x * sum([1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11][:x.size(0)]),
    "another view": lambda x: x * len(Other(double).view(x.size(0))),
    "a type as view": lambda x: x * len(Other(range).view(x.size(0))),
    "chunks": lambda x: sum((c.sum() * (i + 1) for i, c in enumerate(x.chunk(3))), x.sum()),
    "split": lambda x: tg.cat([c * 2 for c in x.split(2)]) if x.numel() else x,
    "squeeze": lambda x: x.unsqueeze(0).squeeze() * 2,
    "ndim": lambda x: x.squeeze(0).ndim * x,
    "transposed": lambda x: x.squeeze(0).T * 2 if x.squeeze(0).ndim == 2 else x * 3,
    "contiguous": lambda x: x.t() * 2 if x.t().is_contiguous() else x * 3,
    "stride": lambda x: x * x.t().stride(1),
    "numel": lambda x: x.sum() / x.numel() if x.numel() else x,
    "nbytes": lambda x: x * x.nbytes,
    "same size": lambda x: x * 2 if x.is_same_size(weight[:3]) else x * 3,
    "broadcast": lambda x: x.sum(1, keepdim=True) + x.sum(1),
    "own matrix": lambda x: x @ x.t(),
    "normalized": lambda x: F.layer_norm(x.t(), (x.size(0),)) if x.size(0) else x,
    "padded": lambda x: F.pad(x, (0, 0, 0, 10 - x.size(0))),
    "repeat": lambda x: x.repeat(x.size(0), 1),
    "pooled": lambda x: F.adaptive_avg_pool1d(x.t().unsqueeze(0), max(x.size(0) // 2, 1)) if x.size(0) else x,
    "interpolated": lambda x: F.interpolate(x.view(1, 1, *x.shape), scale_factor=2) if x.size(0) else x,
    "dropped": lambda x: F.dropout(x, 0.5),
    "random": lambda x: x + tg.randn(x.size(0), 6),
    "permutation": lambda x: x[tg.randperm(x.size(0))],
    "triangle": lambda x: tg.tril(tg.ones(x.size(0), x.size(0))) @ x,
    "returned": lambda x: (x * 2, x.size(0)),
    "item": lambda x: x.sum().item(),
    "item and size": lambda x: (x.sum().item(), x * 2),
    "where": lambda x: tg.where(x > 0, x, 0.0),
    "einsum": lambda x: tg.einsum("ij,kj->ik", x, x),
    "cumsum": lambda x: x.cumsum(0),
    "sorted": lambda x: x.sort(0)[0],
    "topk": lambda x: x.topk(min(x.size(0), 2), 0)[0],
    "detached": lambda x: x.relu().detach().view(x.size(0), 3, 2),
    "data": lambda x: x.relu().data.view(x.size(0), 3, 2),
    "unfolded": lambda x: x.unfold(1, 2, 2).reshape(x.size(0), -1),
    "hash": lambda x: x * len({x.size(0): 1, 3: 2}),
    "sum of shape": lambda x: x * sum(x.shape),
    "sorted shape": lambda x: x.reshape(sorted(x.shape)),
    "max": lambda x: x * max(x.shape),
    "str": lambda x: x * len(str(x.shape)),
    "bits": lambda x: x * (x.size(0) & 3) + (x.size(0) << 2),
    "divmod": lambda x: x * divmod(x.size(0), 3)[1],
    "round": lambda x: x * round(x.size(0), -1),
    "getattr": lambda x: x.view(getattr(x, "shape")[0], 6),  # noqa: B009
    "walrus": lambda x: x.view(n, 6) * n if (n := x.size(0)) > 2 else x,
    "map": lambda x: x.view(list(map(int, x.shape))),
    "comprehension": lambda x: x.view([n for n in x.shape]),  # noqa: C416
    "star": lambda x: x.view(*x.shape),
    "keyword": lambda x: tg.ones(size=(x.size(0), 6)) + x,
    "identity": lambda x: x * 2 if F.dropout(x, 0.5) is x else x * 3,
    "identity by id": lambda x: x * 2 if id(F.dropout(x, 0.5)) == id(x) else x * 3,
    "itself": lambda x: (F.dropout(x, 0.5), x * 2),
    "itself contiguous": lambda x: x.t().contiguous() * 2,
    "in place of a copy or itself": lambda x: (x.t().contiguous().mul_(2), x * 1),
    "out of range": lambda x: x.view(x.size(0) * 2, 3),
}
FOLLOWED = ("scale,mean,arange,full,shape,numel,in place,swapped,expand,random,repeat,triangle,detached,data,out of range,minus one,five,every second,item,"
            "einsum,dropped,negative,padded,from five").split(",")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    program = PROGRAMS[name]
    step = tg.record(program)
    for i, n in enumerate((5, 5, 5, 3, 7, 4, 1, 2, 0, 5, 9, 4, 4, 4, 2, 3, 1, 10)):
        tg.manual_seed(n)
        try:
            run_both(step, program, None, None, (tg.randn(n, 6),), seed=i)
        except (RuntimeError, ValueError, IndexError) as expected:  # as eager
            with pytest.raises(type(expected)):
                step(tg.randn(n, 6))
    if name in FOLLOWED:
        assert step._replays.made > 2, (step._notes, step._reasons)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_where_the_first_size_is_special(name):
    program = PROGRAMS[name]
    for first in (1, 0, 6, 2):
        step = tg.record(program)
        for i, n in enumerate((first, first, first, 5, 2, first, 6, 3, 1, 0, 4)):
            tg.manual_seed(n)
            try:
                run_both(step, program, None, None, (tg.randn(n, 6),), seed=i)
            except (RuntimeError, ValueError, IndexError) as expected:
                with pytest.raises(type(expected)):
                    step(tg.randn(n, 6))


def test_each_way_has_its_plans():
    step = tg.record(chosen)
    for n in (5, 5, 1, 1, 5, 1, 7, 2, 3, 9, 4):  # 2 would be one of the other numbers that view() is given
        run_both(step, chosen, None, None, (tg.randn(n, 6),))
    assert step._replays.made == 5, (step._notes, plans(step))


def test_plans_of_many_sizes_are_bounded():
    step, eager, a, b = steps(mlp)
    for n in [4, 4, *range(1, 41), 40, 4]:
        run_both(step, eager, a, b, images(n))
    assert plans(step) == 16 and step._replays.made == 40


def test_sizes_that_never_come_again(caplog):
    """A cache that grows by a row in each call: a plan for each would cost more than the calls. Sizes that come again have plans again."""
    def grown(x, past):
        now = tg.cat([past, x], -2)
        return (x @ now.mT).softmax(-1) @ now, now

    step = tg.record(grown, fullgraph=True)
    past = tg.randn(3, 4)
    for _ in range(3):
        step(tg.randn(1, 4), past)
    for _ in range(300):
        x = tg.randn(1, 4)
        result, expected = step(x, past), grown(x, past)
        assert result[0].equal(expected[0]) and result[1].equal(expected[1])
        past = result[1]
    assert 48 <= step._replays.made <= 72, step.summary()
    assert [record.getMessage() for record in caplog.records if "other sizes in each call" in record.getMessage()]
    before = step._replays.count
    for i in range(60):
        x, past = tg.randn(1, 4), tg.randn(400 + i % 3, 4)
        assert step(x, past)[0].equal(grown(x, past)[0])
    assert step._replays.count - before >= 30


def test_several_inputs_and_broadcasting():
    def program(x, y):
        return (x + y) * y.sum(), x * y.mean(0)

    step = tg.record(program)
    for n, m in ((5, 5), (5, 5), (5, 1), (1, 5), (1, 1), (4, 4), (3, 1), (0, 1), (0, 0), (1, 0), (5, 5)):
        run_both(step, program, None, None, (tg.randn(n, 3), tg.randn(m, 3)))
    with pytest.raises(RuntimeError, match="size"):
        step(tg.randn(3, 3), tg.randn(2, 3))
    assert step._replays.made == 8, step._notes


def test_masks_that_are_arguments():
    tg.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def program(x, mask):
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask), layer(x, x, x, key_padding_mask=mask[:, 0], need_weights=False)[0].detach()

    step = tg.record(program)
    for b, t in ((2, 5), (2, 5), (2, 3), (4, 5), (1, 1), (3, 7), (2, 5)):
        run_both(step, program, None, None, (tg.randn(b, t, 8), tg.zeros(b, t, t)))


def test_a_weight_that_is_exchanged():
    net = mlp()
    step = tg.record(lambda x: net(x).detach())
    for n in (4, 4, 4, 6):
        assert same(step(tg.ones(n, 6)), net(tg.ones(n, 6)).detach())
    assert step._replays.made == 1
    net[0] = nn.Linear(6, 8)
    for n in (3, 6, 4, 4, 4, 5, 6):
        assert same(step(tg.ones(n, 6)), net(tg.ones(n, 6)).detach())
    assert step._replays.made > 1


def test_budgets_hold_for_other_sizes():
    step, eager, a, b = steps(mlp, zero="after")
    step.budget = 0.6
    for n in (64, 64, 64, 32, 128):
        run_both(step, eager, a, b, images(n))
    assert step._replays.made == 2


class Doubled(tg.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@pytest.mark.parametrize("layer", [Doubled.apply, lambda h: tg.utils.checkpoint.checkpoint(lambda t: t.relu() * 2, h, use_reentrant=False)])
def test_backward_passes_in_python(layer):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            tg.manual_seed(0)
            self.linear = nn.Linear(6, 3)

        def forward(self, x):
            return layer(self.linear(x))

    step, eager, a, b = steps(Net)
    for n in (5, 5, 5, 3, 3, 2, 7, 5):
        run_both(step, eager, a, b, images(n))


def test_gradients_that_add_up():
    step, eager, a, b = steps(mlp, zero="never")
    for n in (5, 5, 5, 3, 4, 5):
        run_both(step, eager, a, b, images(n))
    assert step._replays.made == 2, step.summary()


def test_a_loss_as_a_number():
    net = mlp()
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)

    @tg.record
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss.item(), "mean": loss.detach() / x.size(0)}

    other = mlp()
    theirs = tg.optim.SGD(other.parameters(), lr=0.1)
    for n in (5, 5, 5, 3, 4, 1, 5):
        x, y = images(n)
        got = step(x, y)
        theirs.zero_grad()
        loss = F.cross_entropy(other(x), y)
        loss.backward()
        theirs.step()
        assert got["loss"] == loss.item() and tg.equal(got["mean"], loss.detach() / n)
        assert_same(net, other, f"{n} rows")
    assert step._replays.made == 3, step._notes


def test_values_that_a_step_goes_on_by():
    net = mlp()

    def program(x):
        h = net(x).detach()
        return h * 2 if h.sum() > 0 else h * 3

    step = tg.record(program)
    for i, n in enumerate((5, 5, 5, 3, 3, 3, 4, 5)):
        run_both(step, program, None, None, (tg.randn(n, 6),), seed=i)
    assert step._replays.made == 0 and any("it goes on by a value" in note for note in step._notes)


def test_forward_passes_that_wait_for_their_backward_pass():
    a, b = mlp(), mlp()
    model = tg.compile(a)
    for n in (4, 4, 4):
        for net in (model, b):
            net(tg.ones(n, 6)).sum().backward()
    for sizes in ((5, 6), (5, 5), (7, 4)):
        for net in (model, b):
            first, second = (net(tg.ones(n, 6)) for n in sizes)
            (first.sum() * 2).backward()
            second.sum().backward()
        assert_same(a, b, f"{sizes}")
    assert a.forward._replays.made == 3


def test_steps_in_several_threads():
    net = mlp()

    @tg.record
    def infer(x):
        with tg.no_grad():
            return net(x)

    for _ in range(3):
        infer(tg.ones(4, 6))
    expected = {n: net(tg.full((n, 6), n / 7)).detach() for n in range(1, 24)}

    def work(seed):
        for i in range(60):
            n = 1 + (i * (seed + 1)) % 23
            assert tg.equal(infer(tg.full((n, 6), n / 7)), expected[n])

    in_threads(work, range(4))
    assert infer._replays.made > 10


def test_ctrl_c():
    step, eager, a, b = steps(mlp)
    for _ in range(3):
        run_both(step, eager, a, b, images(4))
    armed = False

    def interrupt(*_):
        if armed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    stopped = 0
    try:
        for n in range(5, 85):
            x, y = images(n)
            weights = copy.deepcopy(a.state_dict())
            armed = True
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5 + n * 4e-6)
                step(x, y)
                armed = False
                taken = True
            except KeyboardInterrupt:
                armed = False
                stopped += 1
                taken = any(not tg.equal(p, weights[name]) for name, p in a.state_dict().items())
            if taken:  # the step as a whole, or not at all
                eager(x, y)
            assert_weights(a, b, n)
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped > 0
    for n in (4, 4, 90):
        run_both(step, eager, a, b, images(n))


def assert_weights(a, b, where):
    for (name, p), (_, q) in zip(a.state_dict().items(), b.state_dict().items(), strict=True):
        assert tg.equal(p, q), f"{where}: {name}"


def test_the_generator_and_gradients_stand_where_they_stood_when_a_size_cannot_be():
    step, eager, a, b = steps(lambda: Convolutions(FLAT["flatten"]))
    for i, n in enumerate((5, 5, 5, 4)):
        run_both(step, eager, a, b, (tg.randn(n, 1, 10, 10), tg.randint(0, 3, (n,))), seed=i)
    x, y = tg.randn(3, 1, 8, 8), tg.randint(0, 3, (3,))  # the linear layer wants another size
    stands = []
    for f in (eager, step):
        tg.manual_seed(0)
        with pytest.raises(RuntimeError, match="shape|size"):
            f(x, y)
        stands.append(tg.rand(3))
    assert tg.equal(*stands)
    assert_same(a, b, "after an error")  # the statistics of batch norm, too


def test_batches_of_three_sizes():
    compare(lambda: (net := mlp(), tg.optim.Adam(net.parameters())), [*batches(3), *batches(2, 3), *batches(2, 7), *batches(2, 5)], least=6)


def written(x):
    x[: x.size(0) // 2] *= 2
    x[x.size(0) - 1:] = 0.5
    x.view(x.size(0), 2, 3)[:, 1].add_(x.numel())
    return x


def strided(x):
    x[::2].mul_(x.shape[0])
    return x.t().view(6, x.size(0)).sum(1)


def turned(x):  # which no replay does
    return x.mul_(2).t_()


@pytest.mark.parametrize("program", [written, strided, lambda x: x.mul_(2).narrow(0, 0, x.size(0) // 2), turned])
def test_arguments_that_are_written_to(program):
    step, kept = tg.record(program), []
    for n in (4, 4, 4, 7, 1, 2, 5, 4, 7):
        x = tg.randn(n, 6)
        y = x.clone()
        version = x._version
        got, expected = step(x), program(y)
        assert same(got, expected) and same(x, y) and x._version > version, n
        kept.append((got, expected))
    assert all(same(*pair) for pair in kept)  # of which each is a view of its own argument
    assert (step._replays.made == 4) == (program is not turned), step._notes


def test_a_step_that_draws_in_other_numbers():
    @tg.record
    def step(x):
        mask = tg.rand(x.size(0), 1) < 0.5
        return tg.where(mask, x, tg.randn_like(x)) + tg.randint(0, 9, (x.size(0),)).unsqueeze(1), tg.bernoulli(x.sigmoid())

    for i, n in enumerate((4, 4, 4, 7, 1, 0, 5, 4)):
        run_both(step, step.function, None, None, (tg.randn(n, 6),), seed=i)
    assert step._replays.made == 4, step._notes


def test_memory_that_lacks_once_keeps_no_other_size_from_a_plan(caplog):
    step = tg.record(lambda x: (x[:, None] * x[None, :] * 2).sum())
    for _ in range(4):
        step(tg.ones(3))
    with pytest.raises(tg.OutOfMemoryError):
        step(tg.ones(10_000_000))
    for n in (4, 5, 6):
        assert step(tg.ones(n)).item() == 2 * n * n
    assert step._replays.made == 3 and not caplog.records
