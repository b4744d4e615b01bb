"""What plans leave out: calls of constants, made once with the plan, and calls that equal others. The bits are eager's with every pass on and off, and what
plans need to be right (versions, results of their own, audits, writes, random numbers, other sizes) is as without them."""

import pytest
import tapegrad as tg
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import F, bits_of, replays
from tapegrad import nn

DEAD, CONSTANTS, SAME, CHAINS, TAKE_OVER, ALL = 1, 2, 4, 8, 16, 31


@pytest.fixture(autouse=True)
def _all_passes():
    yield
    tg._C._set_passes(ALL)


def use_of(step):
    return step._replays.memory()[0]


def checked(function, make, folded=None, same=None, n=20, **options):
    """Runs it recorded and eagerly, past an audit; its plan leaves out so many calls. Returns the step."""
    step = tg.record(function, **options)
    for seed in range(n):
        tg.manual_seed(seed)
        args = make()
        again = [a.clone() for a in args]
        tg.manual_seed(seed)
        expected = function(*again)
        after = tg.rand(1)
        tg.manual_seed(seed)
        step._replays.scribble()
        got = step(*args)
        assert tg.equal(tg.rand(1), after)
        assert bits_of([got, args]) == bits_of([expected, again]), f"seed {seed}: {step.summary()}"
    assert replays(step) >= n - 3, step.summary()
    use = use_of(step)
    assert folded is None or use["folded"] == folded, step.summary()
    assert same is None or use["same"] == same, step.summary()
    return step


# --- constants ---


def masked(x):
    size = x.size(0)
    places = tg.arange(0, size)
    mask = places.unsqueeze(0) <= places.unsqueeze(1)
    weights = tg.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])[:size]
    return x.masked_fill(mask.logical_not(), -1e9).softmax(-1) @ weights


def test_constants_are_made_once():
    step = checked(masked, lambda: [tg.randn(5, 5)], folded=3)  # arange, <=, not; the numbers of the host, too
    assert use_of(step)["constants"] == 25 + 6 * 4
    assert "0 calls that equal others, 3 that are the same in each call (49 bytes are kept)" in step.summary()
    for size in (3, 6, 1, 4):  # plans of other sizes have constants of theirs
        for _ in range(3):
            x = tg.randn(size, size)
            assert tg.equal(step(x), masked(x))
            step._replays.scribble()
        assert use_of(step)["constants"] == size * size + 24


def test_what_is_written_later_is_no_constant():
    def one_element(x):
        mask = tg.zeros(4)
        mask[1] = x[0]
        return x * mask

    def all_of_it(x):
        mask = tg.zeros(4)
        first = x + mask
        mask.fill_(2)  # a constant then, but not what was read before
        return first * mask

    def before_it_is_read(x):
        mask = tg.zeros(4)
        mask[1:].add_(1).mul_(tg.tensor([3.0, 4.0, 5.0]))
        return x * mask

    def from_the_host(x):
        table = tg.tensor([1.0, 2.0, 3.0, 4.0])
        table.mul_(x)
        return table + x

    def both(x):
        table = tg.tensor([1.0, 2.0, 3.0, 4.0])
        y = table * 2
        table.copy_(x)
        return y + table

    checked(one_element, lambda: [tg.randn(4)], folded=0)
    checked(all_of_it, lambda: [tg.randn(4)], folded=0)
    checked(before_it_is_read, lambda: [tg.randn(4)], folded=3)
    checked(from_the_host, lambda: [tg.randn(4)], folded=0)
    checked(both, lambda: [tg.randn(4)], folded=0)


def test_what_leaves_the_step_is_no_constant():
    step = checked(lambda x: (tg.arange(0, 4) * 2, x + tg.arange(0, 4)), lambda: [tg.randn(4)])
    first, second = step(tg.zeros(4)), step(tg.zeros(4))
    first[0].fill_(7), first[1].fill_(7)
    assert second[0].tolist() == [0, 2, 4, 6] and second[1].tolist() == [0, 1, 2, 3]
    assert step(tg.zeros(4))[0].tolist() == [0, 2, 4, 6]
    weight = tg.ones(3, requires_grad=True)

    def sums(x):
        weight.grad = None
        loss = weight.sum() * 2 + x.sum()
        loss.backward()
        return loss

    summed = tg.record(sums)
    for _ in range(6):
        loss = summed(tg.ones(2))
        assert weight.grad.tolist() == [2, 2, 2] and loss.item() == 8
        weight.grad.fill_(5)  # the program's own
        loss.detach().fill_(5)
    assert replays(summed) > 2


def test_random_numbers_and_what_is_made_of_them_are_none():
    checked(lambda x: x + tg.rand(4) * tg.arange(0, 4) + tg.rand(4).round(), lambda: [tg.randn(4)], folded=1)


def test_constants_take_a_mebibyte_at_most():
    def large(x):
        return x + tg.arange(0, 1 << 17).float() * 0.5 + tg.arange(0, 300_000).float().sum() + tg.full((1 << 16,), 2.0).sum()

    step = checked(large, lambda: [tg.randn(1 << 17)], n=6)
    assert 0 < use_of(step)["constants"] <= 1 << 20

    def many(x):
        for i in range(40):
            x = x + tg.full((1 << 14,), i * 0.5)
        return x

    step = checked(many, lambda: [tg.randn(1 << 14)], n=6)
    assert (1 << 20) - (1 << 16) <= use_of(step)["constants"] <= 1 << 20 and use_of(step)["folded"] == 16


def test_with_a_budget_nothing_is_kept():
    step = checked(masked, lambda: [tg.randn(5, 5)], folded=0, memory=0.9)
    assert use_of(step)["constants"] == 0


def test_an_error_in_a_constant_of_another_size():
    def divided(x):
        return x.sum() + tg.arange(0, 6) // (x.size(0) - 3)

    step = tg.record(divided)
    for size in (6, 6, 6, 6, 1, 6, 1):
        assert tg.equal(step(tg.ones(size)), divided(tg.ones(size)))
    for _ in range(2):
        for call in (divided, step):
            with pytest.raises((ZeroDivisionError, RuntimeError), match="[Zz]ero"):
                call(tg.ones(3))
    assert tg.equal(step(tg.ones(6)), divided(tg.ones(6)))


# --- equal calls ---


def test_equal_calls_are_made_once():
    def products(x, y):
        return (x.t() @ y).sum() + (x.t() @ y).mean() * (x.t() @ y).amax()

    step = checked(products, lambda: [tg.randn(5, 4), tg.randn(5, 3)], same=2)
    assert "2 calls that equal others" in step.summary()

    def whole_expressions(x):
        a = ((x * 2).sin() + 1).exp()
        b = ((x * 2).sin() + 1).log1p()
        return a * b + (x * 2).sin()

    checked(whole_expressions, lambda: [tg.randn(6)], same=5)
    checked(whole_expressions, lambda: [tg.randn(20_000)], same=5)  # in a chain


def test_other_numbers_shapes_and_operands_are_other_calls():
    checked(lambda x: (x * 2).sum() + (x * 2.5).sum() + (x * -2).sum() + (x + 2).sum() + (x[:2] * 2).sum() + (x[1:3] * 2).sum(), lambda: [tg.randn(5)], same=0)
    checked(lambda x: x.sum(0) + x.sum(1) + x.mean(0) + x.t().sum(0), lambda: [tg.randn(4, 4)], same=1)  # columns of the transposed are rows
    checked(lambda x: (x * 0.0).sum() + (x * -0.0).sum(), lambda: [tg.randn(4)], same=0)
    checked(lambda x: (x.argmax(0), x.cumsum(0) + x.cumsum(1), x.clamp(0, 1) * x.clamp(0, 2)), lambda: [tg.randn(4, 4)], same=0)


def test_a_write_in_between_makes_two_of_them():
    def operand(x):
        y = x * 1
        a = y.exp() + 0
        y[1:].mul_(0.5)
        return a + y.exp()

    def argument(x):
        a = x.exp() * 2
        x.add_(1)
        return a + x.exp() * 2

    def first(x):
        a, b = x.exp(), x.exp()
        a.mul_(3)
        return a + b

    def second(x):
        a, b = x.exp(), x.exp()
        b[:2].mul_(3)
        return a + b

    def later(x):
        a = x.exp()
        c = a + 1
        b = x.exp()
        a.mul_(3)
        return b + a + c

    for function in (operand, argument, first, second, later):
        checked(function, lambda: [tg.randn(5)], same=0)


def test_two_tensors_over_one_memory():
    numpy = pytest.importorskip("numpy")
    memory = numpy.ones(4, dtype=numpy.float32)
    one, other = tg.from_numpy(memory), tg.from_numpy(memory)

    def step(x):
        a = (one * 2).sum()
        other.add_(x)
        return a + (one * 2).sum()

    recorded = tg.record(step)
    for i in range(8):
        before = memory.copy()
        expected = step(tg.ones(4))
        memory[:] = before
        assert tg.equal(recorded(tg.ones(4)), expected), i
    assert replays(recorded) > 3


def test_an_optimizer_in_between():
    def make():
        tg.manual_seed(0)
        net = nn.Linear(3, 3)
        optimizer = tg.optim.SGD(net.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            loss = (net(x) * net(x)).sum()
            loss.backward()
            before = net.weight.detach().exp().sum()
            optimizer.step()
            return loss.detach() + before + net.weight.detach().exp().sum()

        return step

    eager, step = make(), tg.record(make())
    for seed in range(20):
        tg.manual_seed(seed)
        x = tg.randn(4, 3)
        assert tg.equal(step(x), eager(x)), seed
    assert replays(step) > 15 and use_of(step)["same"] == 2  # the layer's second product, and one of its gradients


def test_results_are_tensors_of_their_own():
    step = checked(lambda x: (x * 2, x * 2, (x * 2).sum()), lambda: [tg.randn(4)], same=1)
    a, b, _ = step(tg.ones(4))
    a.fill_(9)
    assert b.tolist() == [2] * 4 and tg.equal(step(tg.ones(4))[1], b)


def test_random_calls_are_no_equals():
    checked(lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5) + tg.rand_like(x) * tg.rand_like(x), lambda: [tg.randn(50)], same=0)


def test_what_a_checkpoint_frees_is_not_kept():
    def make(wide):
        tg.manual_seed(0)
        blocks = nn.ModuleList(nn.Sequential(nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, wide), nn.Tanh()) for _ in range(3))
        optimizer = tg.optim.SGD(blocks.parameters(), lr=0.1)

        def step(x):
            optimizer.zero_grad()
            for block in blocks:
                x = tg.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            loss = x.square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    taken = []
    for passes in (ALL & ~SAME, ALL):
        tg._C._set_passes(passes)
        eager, step = make(64), tg.record(make(64))
        for seed in range(6):
            tg.manual_seed(seed)
            x = tg.randn(40, 64)
            assert tg.equal(step(x), eager(x))
        assert replays(step) > 2
        taken.append(use_of(step)["live"])
    assert taken[1] <= taken[0]


def test_compiled_models():
    """Constants and equal calls in both passes, and a result that the program writes to between them."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            mask = (tg.arange(0, 4) > 1).float()
            y = self.inner(x)
            return y.sigmoid() * mask + self.inner(x).sigmoid(), y.exp() * 2, y.exp() * 2

    nets = [Model() for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    tg.compile(nets[1])
    for seed in range(20):
        grads = []
        for net in nets:
            tg.manual_seed(seed)
            net.zero_grad()
            a, b, c = net(tg.randn(3, 4))
            b.detach().fill_(3) if seed % 2 else None  # exp's own result is kept for the backward pass, not this one
            (a * a + c).sum().backward()
            grads.append([p.grad.clone() for p in net.parameters()] + [a, b, c])
        assert bits_of(grads[0]) == bits_of(grads[1]), seed
    use = use_of(nets[1].forward)
    assert nets[1].forward._replays.count > 10 and use["same"] > 1 and use["folded"] > 1, nets[1].forward.summary()


# --- programs, with every pass on and off ---

OPS = ["twice", "again", "constant", "host", "mask", "view", "write", "slice", "random", "drop", "linear", "norm", "buffer", "weight", "argument", "if", "grad", "step", "cond"]
CHANGES = ["child", "training", "buffer", "data", "number", "lr", "frozen", "grads"]
programs = st.lists(st.tuples(st.sampled_from(OPS), st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12)
changes = st.lists(st.tuples(st.integers(2, 8), st.sampled_from(CHANGES)), max_size=2)


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        tg.manual_seed(3)
        self.width, self.number = width, 0.75
        self.layer, self.norm, self.drop = nn.Linear(width, width) if width < 100 else nn.Identity(), nn.LayerNorm(width), nn.Dropout(0.4)
        self.weight = nn.Parameter(tg.linspace(-1, 1, width))
        self.register_buffer("kept", tg.linspace(0, 1, width))

    def forward(self, program, x, optimizer):
        pool = [x * 1, x * self.number]
        for name, i, k in program:
            a, b = pool[i % len(pool)], pool[k % len(pool)]
            if name == "twice":
                made = (a * 2 + 1).sin() * b + (a * 2 + 1).sin()
            elif name == "again":
                made = (x * self.number + 0.5).tanh()
            elif name == "constant":
                made = a * tg.arange(0, self.width) / (self.width * 0.5) + tg.arange(0, self.width) * b * 0.001
            elif name == "host":
                made = a * tg.tensor([0.5, -0.25, 1.0])[k % 3] + tg.full((self.width,), 0.125)
            elif name == "mask":
                mask = tg.zeros(self.width)
                mask[i:].fill_(1)
                mask[: k + 1].add_(tg.arange(0, k + 1))
                made = tg.where(mask > 0.5, a, b)
            elif name == "view":
                made = a.flip(0).view(-1, 5).t().reshape(-1)
            elif name == "write":
                a.add_(b * 0.25)
                made = a * 1
            elif name == "slice":
                a[..., 1:] = b[..., :-1].detach() * 0.5
                made = a + 0.25
            elif name == "random":
                made = a + tg.rand(self.width) * 0.5
            elif name == "drop":
                made = self.drop(a) + self.drop(a)
            elif name == "linear":
                made = self.layer(a) * 0.5 + self.layer(a)
            elif name == "norm":
                made = self.norm(a) + self.norm(a) * self.weight
            elif name == "buffer":
                self.kept[1:] += a.detach()[:-1] * 0.1
                made = b + self.kept * 0.1
            elif name == "weight":
                with tg.no_grad():
                    self.weight.mul_(0.9)
                made = a * self.weight.detach()
            elif name == "argument":
                x.mul_(0.5)
                made = x + b
            elif name == "if":
                made = a + 1 if a.detach().sum() > 0.2 else b - 1
            elif name == "grad":
                (self.weight * a.detach()).sum().backward()
                made = a * 0.5
            elif name == "cond":
                made = tg.cond(b.detach().mean() > 0, lambda t: t * 2 + 1, lambda t: t - tg.arange(0, t.size(0)), (a.detach(),))
            else:
                optimizer.step()
                made = a - self.weight.detach()
            pool = [made, *pool[:3]]
        return pool[0] * 1, pool[1].detach() + 0


def change(net, optimizer, what):
    if what == "child":
        net.norm = nn.LayerNorm(net.width)
    elif what == "training":
        net.train(not net.training)
    elif what == "buffer":
        net.kept.fill_(0.25)
    elif what == "data":
        net.weight.data = tg.linspace(1, 2, net.width)
    elif what == "number":
        net.number = 1.5
    elif what == "lr":
        optimizer.param_groups[0]["lr"] = 0.01
    elif what == "frozen":
        net.norm.weight.requires_grad_(False)
    else:
        net.zero_grad()


def seen(net, results):
    state = [*net.parameters(), *net.buffers()]
    grads = [p.grad for p in net.parameters()]
    return bits_of([results, state, [g for g in grads if g is not None]]), [g is None for g in grads], [t.requires_grad for t in results]


def run(program, between, width, seed, passes, backward):
    tg._C._set_passes(passes if passes is not None else ALL)
    net = Net(width)
    optimizer = tg.optim.SGD([net.weight], lr=0.1, momentum=0.5)

    def step(x):
        results = net(program, x, optimizer)
        if backward and results[0].requires_grad:
            results[0].square().mean().backward()
            results = tuple(r.detach() for r in results)
        return results

    call = step if passes is None else tg.record(step, pure=True)
    found = []
    for k in range(10):
        for at, what in between:
            if at == k:
                change(net, optimizer, what)
        tg.manual_seed(seed + k)
        x = tg.randn(width) * (0.3 + k % 2)
        if k % 3 == 0:
            net.zero_grad()
        before = net.weight._version, net.kept._version, x._version
        try:
            results = call(x)
        except RuntimeError as error:  # a tensor that the tape needs was written to
            found.append((type(error), bits_of([x])))
            continue
        risen = [now > then for now, then in zip((net.weight._version, net.kept._version, x._version), before, strict=True)]  # once, however many writes
        found.append((seen(net, results), bits_of([x, tg.rand(1)]), risen))
        if passes is not None:
            call._replays.scribble()
    return found, call


COUNTED = {"replays": 0, "folded": 0, "same": 0}


@settings(max_examples=100, deadline=None)
@given(programs, changes, st.sampled_from([5, 10, 10_000]), st.integers(0, 2**20), st.sampled_from([ALL, ALL, 0, SAME, CONSTANTS, DEAD, ALL & ~DEAD, ALL & ~CHAINS, SAME | CHAINS,
                                                                                                    CONSTANTS | TAKE_OVER | CHAINS]), st.booleans())
def test_programs(program, between, width, seed, passes, backward):
    """Results, weights, buffers, arguments, gradients, versions and the generator are those of eager calls, after each call."""
    expected, _ = run(program, between, width, seed, None, backward)
    got, step = run(program, between, width, seed, passes, backward)
    for k, (a, b) in enumerate(zip(expected, got, strict=True)):
        assert a == b, f"call {k}: {step.summary()}"
    COUNTED["replays"] += step._replays.count
    for use in step._replays.memory():
        COUNTED["folded"] += use["folded"]
        COUNTED["same"] += use["same"]


def test_the_programs_have_what_is_tested():
    """Runs last: where the programs above ran in this process."""
    if COUNTED["replays"] == 0:
        pytest.skip("the programs ran elsewhere")
    assert all(COUNTED.values()), COUNTED  # the programs are drawn anew in each run: how many fold differs tenfold
