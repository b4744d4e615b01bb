"""CUDA graphs: what is recorded once gives, replayed, what the same work gives eagerly, bit for bit; random numbers and optimizers included.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""


import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg

cuda = tg.cuda


def recorded(work):
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        result = work()
    return graph, result


def fills():
    weights, rates = tg.tensor([[1.0, 2, 3, 4]] * 3, device="cuda"), tg.tensor([0.5, 3, 40.0], device="cuda")
    target = tg.empty(37, device="cuda")
    return {
        "rand": lambda: tg.rand(70, device="cuda"), "double": lambda: tg.rand(7, dtype=tg.float64, device="cuda"),
        "randn": lambda: tg.randn(33, device="cuda"), "half": lambda: tg.randn(9, dtype=tg.float16, device="cuda"),
        "randint": lambda: tg.randint(0, 1000, (50,), device="cuda"), "random_": lambda: tg.empty(9, dtype=tg.int64, device="cuda").random_(),
        "randperm": lambda: tg.randperm(100, device="cuda"), "bernoulli": lambda: tg.bernoulli(rates / 50), "p": lambda: tg.bernoulli(target, 0.3),
        "multinomial": lambda: tg.multinomial(weights, 2), "replacement": lambda: tg.multinomial(weights, 5, True),
        "poisson": lambda: tg.poisson(rates), "binomial": lambda: tg.binomial(rates.ceil(), rates / 50), "gamma": lambda: tg._standard_gamma(rates),
        "dirichlet": lambda: tg._sample_dirichlet(rates), "normal": lambda: tg.normal(rates, 2.0), "exponential_": lambda: target.exponential_(2).clone(),
        "cauchy_": lambda: target.cauchy_().clone(), "log_normal_": lambda: target.log_normal_().clone(),
        "geometric_": lambda: target.geometric_(0.1).clone(), "uniform_": lambda: target.uniform_(-1, 1).clone(),
        "dropout": lambda: tg.nn.functional.dropout(target.fill_(1.0), 0.5),
    }


@pytest.mark.parametrize("name", fills() if cuda.is_available() else [])
def test_every_draw_is_new_in_each_replay(name):
    draw = fills()[name]
    tg.manual_seed(7)
    graph, result = recorded(draw)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append(result.tolist())
    after = tg.rand(3, device="cuda").tolist()
    tg.manual_seed(7)
    assert replayed == [draw().tolist() for _ in range(3)] and after == tg.rand(3, device="cuda").tolist()
    assert replayed[0] != replayed[1] or len(replayed[0]) < 4


def test_a_graph_goes_on_from_where_its_generators_are():
    own = tg.Generator("cuda")
    own.manual_seed(3)
    tg.manual_seed(5)

    def work():
        return tg.rand(4, device="cuda"), tg.rand(4, device="cuda", generator=own), tg.randn(2, device="cuda")

    graph, results = recorded(work)
    graph.register_generator_state(own)
    assert own.get_offset() == 0  # a capture draws nothing

    def replayed():
        graph.replay()
        return [r.tolist() for r in results]

    first = replayed()
    assert own.get_offset() == 1
    tg.rand(2, device="cuda")  # between replays
    second = replayed()
    own.manual_seed(11), tg.manual_seed(12)
    third = replayed()
    own.manual_seed(3), tg.manual_seed(5)

    def drawn():
        return [r.tolist() for r in work()]

    assert first == drawn()
    tg.rand(2, device="cuda")
    assert second == drawn()
    own.manual_seed(11), tg.manual_seed(12)
    assert third == drawn()


def test_graphs_draw_from_the_state_that_a_generator_was_given():
    """As trackers of random states do: a section of the graph draws from a state of its own, through the default generator."""
    default = cuda.default_generators[0]
    own = tg.Generator("cuda")
    own.manual_seed(3)
    tg.manual_seed(5)

    def work():
        first = tg.rand(4, device="cuda")
        before = default.graphsafe_get_state()
        default.graphsafe_set_state(own)
        section = tg.rand(4, device="cuda")
        default.graphsafe_set_state(before)
        return first, section, tg.rand(4, device="cuda")

    def drawn():
        return [r.tolist() for r in work()]

    graph, results = recorded(work)
    graph.register_generator_state(own)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append([r.tolist() for r in results])
    assert own.get_offset() == 3 and default.get_offset() == 6
    own.manual_seed(3), tg.manual_seed(5)
    assert replayed == [drawn() for _ in range(3)]
    own.manual_seed(3)
    assert replayed[0][1] == tg.rand(4, device="cuda", generator=own).tolist()


def test_generators_share_states():
    a, b = tg.Generator("cuda"), tg.Generator("cuda")
    a.manual_seed(1), b.manual_seed(2)
    expected = [tg.rand(3, device="cuda", generator=b).tolist() for _ in range(2)]
    b.manual_seed(2)
    same = a.graphsafe_get_state()
    tg.rand(3, device="cuda", generator=same)
    assert a.get_offset() == 1 and same.device == a.device
    assert a.graphsafe_set_state(b) is a
    assert [tg.rand(3, device="cuda", generator=g).tolist() for g in (a, b)] == expected and a.get_offset() == b.get_offset() == 2
    assert same.get_offset() == 1  # what a was
    default = cuda.default_generators[0]
    original = default.graphsafe_get_state()
    try:
        default.graphsafe_set_state(a)
        b.manual_seed(2)
        assert tg.rand(3, device="cuda").tolist() == expected[0] and cuda.default_generators[0].get_offset() == 1
        tg.manual_seed(9)  # seeds what is there
        assert b.initial_seed() == 9 and original.initial_seed() != 9
        for i in range(1100):  # old ones are forgotten
            default.graphsafe_set_state(tg.Generator("cuda").manual_seed(i))
        assert default.initial_seed() == 1099 and tg.rand(3, device="cuda").shape == (3,)
    finally:
        default.graphsafe_set_state(original)
    for call in (tg.Generator().graphsafe_get_state, lambda: tg.default_generator.graphsafe_set_state(tg.Generator())):
        with pytest.raises(RuntimeError, match="expected a generator of CUDA: got one of cpu"):
            call()
    with pytest.raises(TypeError, match="graphsafe_set_state: expected a Generator as state: got tapegrad.Tensor"):
        a.graphsafe_set_state(a.get_state())
    if cuda.device_count() > 1:
        with pytest.raises(RuntimeError, match="graphsafe_set_state: expected a state of cuda:0: got one of cuda:1"):
            a.graphsafe_set_state(tg.Generator("cuda:1"))


def test_what_no_replay_can_repeat_is_said():
    with pytest.raises(RuntimeError, match="seeded, or set back, during the capture"), cuda.graph(cuda.CUDAGraph()):
        tg.rand(2, device="cuda")
        tg.manual_seed(1)
        tg.rand(2, device="cuda")
    tg.manual_seed(4)
    with pytest.raises(ZeroDivisionError), cuda.graph(cuda.CUDAGraph()):
        tg.rand(2, device="cuda")
        1 / 0  # noqa: B018
    with pytest.raises(RuntimeError, match="not permitted"), cuda.graph(cuda.CUDAGraph()):
        tg.rand(2, device="cuda")
        cuda.synchronize()
    seen = tg.rand(2, device="cuda").tolist()
    tg.manual_seed(4)
    assert seen == tg.rand(2, device="cuda").tolist()  # spoilt captures leave the generator where it was


def test_the_memory_of_the_numbers_goes_with_the_graph():
    cuda.empty_cache()
    before = cuda.memory_reserved()
    for keep in (False, True):
        graph = cuda.CUDAGraph(keep_graph=keep)
        with cuda.graph(graph):
            x = tg.rand(5, device="cuda")
        graph.replay(), graph.replay()
        graph.reset()
        del x
    cuda.empty_cache()
    assert cuda.memory_reserved() == before


def network():
    tg.manual_seed(0)
    return tg.nn.Sequential(tg.nn.Linear(4, 16), tg.nn.Dropout(0.3), tg.nn.Tanh(), tg.nn.Linear(16, 8), tg.nn.Dropout1d(0.5), tg.nn.Linear(8, 2)).cuda()


def trained(make_optimizer, graphed, between=lambda optimizer: None):
    """The parameters after three steps and four more, which are replays if graphed. The model has dropout in it."""
    model = network()
    x, y = tg.randn(6, 4).cuda(), tg.randn(6, 2).cuda()
    optimizer = make_optimizer(model.parameters())

    def step():
        optimizer.zero_grad(set_to_none=False)
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()

    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(3):
            step()
    cuda.current_stream().wait_stream(side)
    if graphed:
        step = recorded(step)[0].replay
    for _ in range(4):
        step()
        between(optimizer)
    return [p.tolist() for p in model.parameters()]


def test_steps_that_are_all_alike():
    for make in (lambda p: tg.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: tg.optim.RMSprop(p, lr=0.01), lambda p: tg.optim.Rprop(p, lr=0.01),
                 lambda p: tg.optim.Adadelta(p, lr=0.1)):
        assert trained(make, True) == trained(make, False)


def near(mine, theirs, ulps=8):
    """What the number of the step changes is computed by the host in one of two ways, and by the device in the other: its
    powers are within an ulp or two, and it may contract what the host does not."""
    for a, b in zip(mine, theirs, strict=True):
        a, b = (t if isinstance(t, tg.Tensor) else tg.tensor(t) for t in (a, b))
        wide = tg.complex128 if a.is_complex() else tg.float64
        rtol = ulps * tg.finfo(a.dtype).eps
        tg.testing.assert_close(a.cpu().to(wide), b.cpu().to(wide), rtol=rtol, atol=rtol * b.abs().max().item())


CAPTURABLE = [("Adam", {}), ("Adam", {"amsgrad": True, "maximize": True, "weight_decay": 0.1}), ("AdamW", {}), ("NAdam", {"decoupled_weight_decay": True}),
              ("RAdam", {}), ("Adamax", {}), ("ASGD", {"t0": 2, "lambd": 0.1}), ("RMSprop", {"momentum": 0.5}), ("Rprop", {}), ("Adadelta", {})]


@pytest.mark.parametrize("name, options", CAPTURABLE, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_a_whole_training_step_as_a_graph(name, options):
    """Forward pass with dropout, backward pass and the step: seven steps, of which RAdam changes its formula at the sixth."""
    def make(**more):
        return lambda p: getattr(tg.optim, name)(p, lr=0.01, **options, **more)

    counted = trained(make(capturable=True), False)
    assert trained(make(capturable=True), True) == counted
    near(counted, trained(make(), False))

    def slower(optimizer):
        lr = optimizer.param_groups[0]["lr"]
        lr.mul_(0.5) if isinstance(lr, tg.Tensor) else optimizer.param_groups[0].update(lr=lr / 2)

    lr = tg.tensor(0.25, device="cuda")  # what halving leaves exact
    read = trained(lambda p: getattr(tg.optim, name)(p, lr=lr, capturable=True, **options), True, slower)
    assert lr.item() == 0.25 / 16
    near(read, trained(lambda p: getattr(tg.optim, name)(p, lr=0.25, **options), False, slower))


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1, "maximize": True}, {"d": 2.0, "eps": (1e-3, 1e-2)}], ids=str)
def test_adafactor_as_a_graph(options):
    def make(**more):
        return lambda p: tg.optim.Adafactor(p, **{"lr": 0.05, **options, **more})

    counted = trained(make(capturable=True), False)
    assert trained(make(capturable=True), True) == counted
    for mine, theirs in zip(counted, trained(make(), False), strict=True):
        tg.testing.assert_close(tg.tensor(mine), tg.tensor(theirs), rtol=1e-5, atol=1e-6)
    lr = tg.tensor(0.25, device="cuda")

    def slower(optimizer):
        rate = optimizer.param_groups[0]["lr"]
        rate.mul_(0.5) if isinstance(rate, tg.Tensor) else optimizer.param_groups[0].update(lr=rate / 2)

    assert trained(make(lr=lr, capturable=True), True, slower) == trained(make(lr=0.25, capturable=True), False, slower) and lr.item() == 0.25 / 16
    params = [tg.ones(3, 2, device="cuda"), tg.ones(4, dtype=tg.float64, device="cuda"), tg.ones(2, dtype=tg.bfloat16, device="cuda")]
    optimizer = make(capturable=True)(params)
    stepped(optimizer, params)
    with tg.strict("sync"):
        stepped(optimizer, params)
    assert all(optimizer.state[p]["step"].device == p.device and optimizer.state[p]["step"].item() == 2 for p in params)
    other = make(capturable=True)(params)
    state = optimizer.state_dict()
    for s in state["state"].values():
        s["step"] = s["step"].cpu()
    other.load_state_dict(state)
    assert all(other.state[p]["step"].device == p.device for p in params)


def stepped(optimizer, params, steps=1):
    for k in range(steps):
        for i, p in enumerate(params):
            p.grad = tg.full_like(p, 0.5 + i + k)
        optimizer.step()


@pytest.mark.parametrize("name", ["Adam", "NAdam", "ASGD"])
def test_the_number_of_the_step_lies_on_the_device(name):
    """More parameters than one launch plans, in 16 to 64 bits and complex; on the CPU and in float64, too."""
    def make(capturable):
        params = [tg.ones(n % 3 + 1, dtype=dtype, device=device) for n, dtype, device in
                  [(n, tg.float32, "cuda") for n in range(70)] + [(1, tg.bfloat16, "cuda"), (2, tg.float64, "cuda"), (2, tg.complex64, "cuda"), (1, tg.float32, "cpu")]]
        return params, getattr(tg.optim, name)(params, lr=0.1, capturable=capturable)

    plain, planned = make(False), make(True)
    stepped(plain[1], plain[0], 3), stepped(planned[1], planned[0], 3)
    near(planned[0], plain[0])
    for mine, theirs in zip(planned[0], plain[0], strict=True):
        for key in planned[1]._numbers:
            assert planned[1].state[mine][key].device == mine.device and plain[1].state[theirs][key].device.type == "cpu"
            near([planned[1].state[mine][key]], [plain[1].state[theirs][key]])
    for source in (plain, planned):
        params, optimizer = make(True)
        optimizer.load_state_dict(source[1].state_dict())
        optimizer.param_groups[0]["capturable"] = True  # of plain's it was not: counted on the host so far
        stepped(optimizer, params)
        assert all(optimizer.state[p]["step"].device == p.device and optimizer.state[p]["step"].item() == 4 for p in params)
    back = make(True)[1]
    back.load_state_dict(planned[1].state_dict())
    assert all(back.state[p]["step"].device == p.device for p in back.param_groups[0]["params"])


def test_planned_steps_wait_for_nothing():
    params = [tg.ones(3, device="cuda") for _ in range(2)]
    lr = tg.tensor(0.5, device="cuda")
    for make in (lambda: tg.optim.AdamW(params, lr=lr, capturable=True), lambda: tg.optim.SGD(params, lr=lr, momentum=0.9)):
        optimizer = make()
        stepped(optimizer, params)
        with tg.strict("sync"):
            stepped(optimizer, params)
    twice = tg.ones(3, device="cuda")
    sgd = tg.optim.SGD([twice], lr=lr)
    stepped(sgd, [twice])
    assert twice.tolist() == [0.75] * 3


def test_what_a_recorded_step_needs():
    p = tg.ones(2, device="cuda")
    p.grad = tg.ones(2, device="cuda")
    for make, text in ((lambda: tg.optim.Adam([p]), "Adam: a step in a CUDA graph would repeat the number.*\nmake the optimizer with capturable=True"),
                       (lambda: tg.optim.Adagrad([p]), "Adagrad: a step in a CUDA graph.*\ncapture the forward and backward pass"),
                       (lambda: tg.optim.Adafactor([p]), "Adafactor: a step in a CUDA graph.*\nmake the optimizer with capturable=True"),
                       (lambda: tg.optim.Adafactor([p], capturable=True), "Adafactor: the state would be made in each replay.*\ntake a step before the capture"),
                       (lambda: tg.optim.SparseAdam([p]), "SparseAdam: a step cannot be recorded.* depends on the values of the gradient\ncapture the forward"),
                       (lambda: tg.optim.Adam([p], capturable=True), "would be made in each replay of the CUDA graph\ntake a step before the capture"),
                       (lambda: tg.optim.SGD([p], momentum=0.9), "momentum_buffer would be made in each replay")):
        optimizer = make()
        with pytest.raises(RuntimeError, match=text), cuda.graph(cuda.CUDAGraph()):
            optimizer.step()
    assert p.tolist() == [1, 1]


def test_graphed_callables_draw_anew():
    def run(graphed):
        first, second = network(), network()
        x = tg.randn(6, 4).cuda().requires_grad_()
        if graphed:
            samples = [(tg.randn(6, 4, device="cuda", requires_grad=True),) for _ in range(2)]
            first, second = cuda.make_graphed_callables((first, second), tuple(samples))
        tg.manual_seed(9)
        results = []
        for _ in range(3):
            out = first(x) + second(x * 2)
            x.grad = None
            out.sum().backward()
            results += [out.tolist(), x.grad.tolist()]
        return results, [p.grad.tolist() for m in (first, second) for p in m.parameters()]

    assert run(True) == run(False)


def test_the_state_of_a_draw_lies_apart_from_workspaces_before_it():
    """A kernel whose workspace was given back when the graph first drew: the numbers were its scratch, of the replay that wrote them."""
    model, x = tg.nn.LSTM(8, 8, batch_first=True).cuda(), tg.randn(5, 4, 8, device="cuda")

    def work():
        with tg.no_grad():
            return model(x)[0].sum(), tg.sort(x.flatten()).values, tg.rand(70, device="cuda")

    tg.manual_seed(7)
    graph, (_, _, drawn) = recorded(work)
    replayed = []
    for _ in range(2):
        graph.replay()
        replayed.append(drawn.tolist())
    tg.manual_seed(7)
    assert replayed == [work()[2].tolist() for _ in range(2)]
