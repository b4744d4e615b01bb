"""What a training loop on CUDA stands on: optimizer steps, GradScaler, waits that are named, memory shared with other libraries.

Runs where the environment asks for a device, as test_operators.py does; test_simulated.py starts it on the simulated one.
"""

import copy
import io
import pickle

import device_asked_for  # noqa: F401
import pytest
import tapegrad as tg
from devices import COUNT, LAST, several

OPTIMIZERS = [("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), ("Adam", {}), ("Adam", {"amsgrad": True, "maximize": True}),
              ("AdamW", {}), ("Adagrad", {}), ("RMSprop", {"centered": True, "momentum": 0.5}), ("Adadelta", {}), ("Adamax", {}), ("NAdam", {}),
              ("RAdam", {}), ("Rprop", {}), ("ASGD", {})]


def parameters(device):
    """More tensors than one launch takes: small and large ones, 16 bits, complex, transposed, with gaps, and empty."""
    tg.manual_seed(2)
    made = [tg.randn(n % 7 + 1, n) for n in range(30)] + [tg.randn(9000), tg.randn(6, 4).double(), tg.randn(5000).bfloat16(), tg.randn(33).half()]
    made += [tg.randn(4, 5, dtype=tg.complex64), tg.randn(5, 6).t(), tg.randn(8, 8)[:, ::2], tg.randn(3, 0)]
    grads = [tg.randn(p.shape, dtype=p.dtype) for p in made]
    grads[0] = tg.randn(0, 1).t() if made[0].numel() == 0 else grads[0]
    grads[20] = tg.randn(made[20].shape[::-1]).t()  # lies otherwise than its parameter
    made = [p.to(device).requires_grad_() for p in made]
    for p, g in zip(made, grads, strict=True):
        p.grad = g.to(device).reshape(p.shape)
    return made


@pytest.mark.parametrize("name, options", OPTIMIZERS, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_steps_are_those_of_the_cpu(name, options):
    states = {}
    for device in ("cpu", "cuda"):
        made = parameters(device)
        optimizer = getattr(tg.optim, name)(made, lr=0.1, **options)
        if device == "cuda":
            tg.cuda.set_sync_debug_mode("error")  # a step waits for nothing
        try:
            for _ in range(3):
                optimizer.step()
        finally:
            if device == "cuda":
                tg.cuda.set_sync_debug_mode("default")
        states[device] = [[p.detach(), *(v for v in optimizer.state[p].values() if isinstance(v, tg.Tensor))] for p in made]
    for host, there in zip(states["cpu"], states["cuda"], strict=True):
        for h, t in zip(host, there, strict=True):
            tolerance = 2e-2 if h.dtype in (tg.bfloat16, tg.float16) else 1e-5
            tg.testing.assert_close(t.cpu(), h.cpu(), rtol=tolerance, atol=tolerance)


def through_steps(device, name, options):
    """A loss of what three recorded steps make of a parameter, and its gradients by the start and by what the gradients depend on."""
    start, factors = (tg.tensor(v, dtype=tg.float64, device=device, requires_grad=True) for v in ([0.6, -1.1, 2.0], [1.0, 0.5, -0.3]))
    p = start.clone()
    p.retain_grad()
    optimizer = getattr(tg.optim, name)([p], lr=0.1, **options, differentiable=True)
    for step in range(3):
        p.grad = factors * (step + 1) * tg.tensor([1.0, 2.0, 3.0], dtype=tg.float64, device=device) + start
        optimizer.step()
    loss = (p * tg.tensor([1.0, -2.0, 0.5], dtype=tg.float64, device=device)).sum()
    return [t.cpu() for t in (loss, *tg.autograd.grad(loss, (start, factors), allow_unused=True, materialize_grads=True))]


@pytest.mark.parametrize("name, options", OPTIMIZERS, ids=lambda v: v if isinstance(v, str) else ",".join(v))
def test_gradients_flow_through_steps(name, options):
    host, there = (through_steps(device, name, options) for device in ("cpu", "cuda"))
    assert name == "Rprop" or any(h.abs().max() > 1e-3 for h in host[1:])
    for h, t in zip(host, there, strict=True):
        tg.testing.assert_close(t, h, rtol=1e-12, atol=1e-12)


def test_parameters_on_several_devices():
    made = [tg.ones(3, requires_grad=True), tg.ones(3, device="cuda:0", requires_grad=True), tg.ones(3, device=LAST, requires_grad=True)]
    for p in made:
        p.grad = tg.full_like(p, 2)
    tg.optim.SGD(made, lr=0.25).step()
    assert [p.tolist() for p in made] == [[0.5] * 3] * 3
    made[1].data = made[1].data.cpu()
    with pytest.raises(RuntimeError, match="another device"):
        made[1].grad = None
        p = tg.ones(2, device="cuda", requires_grad=True)
        p.grad = tg.ones(2, device="cuda")
        optimizer = tg.optim.SGD([p], lr=0.1, momentum=0.9)
        optimizer.step()
        optimizer.state[p]["momentum_buffer"] = tg.zeros(2)
        optimizer.step()


def test_training_on_the_device_is_that_of_the_cpu():
    losses = {}
    for device in ("cpu", "cuda"):
        tg.manual_seed(0)
        model = tg.nn.Sequential(tg.nn.Linear(5, 16), tg.nn.ReLU(), tg.nn.Linear(16, 3)).to(device)
        x, y = tg.randn(20, 5).to(device), tg.randint(0, 3, (20,)).to(device)
        optimizer = tg.optim.AdamW(model.parameters(), lr=0.05)
        losses[device] = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = tg.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-4) and losses["cuda"][-1] < losses["cuda"][0]


def test_grad_scaler():
    p, q = tg.ones(5000, device="cuda", requires_grad=True), tg.ones(3, 4, device="cuda", dtype=tg.float64).t().requires_grad_()
    optimizer = tg.optim.SGD([p, q], lr=1.0)
    scaler = tg.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
    for round_, bad in enumerate((None, float("inf"), None, None, float("nan"))):
        optimizer.zero_grad()
        scaler.scale((p.sum() + q.sum()) * 0.5).backward()
        if bad is not None:
            p.grad[4321] = bad
        before, scale = p[0].item(), scaler.get_scale()
        with tg.strict("sync"):  # unscaling and finding infinities wait for nothing
            scaler.unscale_(optimizer)
        assert p.grad[0].item() == 0.5 and q.grad[2, 1].item() == 0.5
        scaler.step(optimizer)
        with tg.strict("sync"):
            scaler.update()
        assert p[0].item() == (before if bad is not None else before - 0.5)
        assert scaler.get_scale() == scale * (0.5 if bad is not None else 2 if round_ == 3 else 1)
    flag = tg.zeros((), device="cuda")
    gaps = tg.full((4, 4), 6.0, device="cuda")[:, ::2]
    tg._C._unscale([gaps, tg.zeros(0, device="cuda")], flag, tg.tensor(0.5, device="cuda"))
    assert flag.item() == 0 and gaps.tolist() == [[3.0, 3.0]] * 4
    gaps[1, 1] = float("-inf")
    tg._C._unscale([gaps], flag, tg.tensor(0.5, device="cuda"))
    assert flag.item() == 1


def scaled_training(make, on_device, rounds):
    """Parameters, state and factor after each round; the gradient of a round is its number, and None is an infinity."""
    params = [tg.linspace(1, 2, 5000, device="cuda").requires_grad_(), tg.ones(3, 4, device="cuda", dtype=tg.float64).t().requires_grad_(),
              tg.ones(2, device="cuda", dtype=tg.bfloat16).requires_grad_()]
    optimizer = make(params)
    scaler = tg.amp.GradScaler("cuda", init_scale=8.0, growth_interval=3)
    seen = []
    for number in rounds:
        optimizer.zero_grad()
        scaler.scale(sum(p.sum().float() for p in params) * (number or 1.0)).backward()
        if number is None:
            params[0].grad[4321] = float("inf")
        waits = not optimizer._step_supports_amp_scaling
        if on_device and not waits:
            with tg.strict("sync"):
                scaler.step(optimizer), scaler.update()
        else:
            optimizer.__class__ = type("Asked", (type(optimizer),), {"_step_supports_amp_scaling": False})
            scaler.step(optimizer), scaler.update()
            optimizer.__class__ = type(optimizer).__base__
        seen.append(([p.tolist() for p in params], [{k: v.tolist() for k, v in optimizer.state[p].items()} for p in params], scaler.get_scale(), waits))
    return seen


AMP = [("SGD", {}, 0), ("SGD", {"momentum": 0.9, "dampening": 0.5}, 3), ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "fused": True}, 3),
       ("Adam", {"capturable": True}, 3), ("AdamW", {"fused": True, "amsgrad": True}, 3), ("NAdam", {"capturable": True}, 3), ("ASGD", {"capturable": True, "t0": 1}, 3),
       ("RMSprop", {"capturable": True, "momentum": 0.5, "centered": True}, 3), ("Adagrad", {"fused": True}, 0), ("Adam", {}, 9), ("Adadelta", {}, 9)]


@pytest.mark.parametrize("name, options, first", AMP, ids=lambda v: v if isinstance(v, str) else ",".join(v) if isinstance(v, dict) else "")
def test_grad_scaler_leaves_steps_out_on_the_device(name, options, first):
    """As where the host asks, bit for bit; and it asks only while there is no state, or where it counts the steps (9)."""
    rounds = [None, None, 0.5, 1.5, None, -2.0, None, None, 3.0]

    def make(params):
        return getattr(tg.optim, name)(params, lr=0.01, **options)

    asked, left = scaled_training(make, False, rounds), scaled_training(make, True, rounds)
    assert [waits for *_, waits in left] == [i < first for i in range(len(rounds))]
    assert left == asked
    assert left[4][:2] == left[3][:2] and left[5][0] != left[4][0]


def test_grad_scaler_steps_are_recorded():
    """A graph of everything from the scaled loss to update(): rounds with an infinity move the factor and nothing else."""
    def run(graphed, make, capturable):
        tg.manual_seed(3)
        model = tg.nn.Linear(4, 3).cuda()
        optimizer = make(model.parameters())
        scaler = tg.amp.GradScaler("cuda", init_scale=8.0, growth_interval=2)
        x = tg.zeros(5, 4, device="cuda")

        def step():
            optimizer.zero_grad(set_to_none=False)
            scaler.scale(model(x).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()

        replay, seen = step, []
        for i, value in enumerate((1.0, 2.0, float("inf"), 3.0, -1.0, float("nan"), 0.5, 0.25)):
            x.copy_(tg.linspace(0, value, 20).reshape(5, 4)) if value == value else x.fill_(value)
            if graphed and i == 1:
                graph = tg.cuda.CUDAGraph()
                with tg.cuda.graph(graph):
                    step()
                replay = graph.replay
            replay()
            seen.append(([p.tolist() for p in model.parameters()], [{k: v.tolist() for k, v in s.items()} for s in optimizer.state.values()], scaler.get_scale()))
        return seen

    for name, options in (("Adam", {"capturable": True}), ("SGD", {"momentum": 0.9})):
        def make(params, name=name, options=options):
            return getattr(tg.optim, name)(params, lr=0.01, **options)

        assert run(True, make, True) == run(False, make, True)
    with pytest.raises(RuntimeError, match=r"GradScaler.step: the host would have to ask.*\nmake the optimizer with capturable=True"):
        run(True, lambda params: tg.optim.Adam(params), False)


@several
def test_an_infinity_of_one_device_leaves_out_the_step_of_all():
    params = [tg.ones(3, device=f"cuda:{i}", requires_grad=True) for i in (0, 1)]
    optimizer = tg.optim.Adam(params, lr=0.5, capturable=True)
    scaler = tg.amp.GradScaler("cuda", init_scale=2.0)
    seen = []
    for bad in (None, 1, None, 0):
        optimizer.zero_grad()
        scaler.scale(params[0].sum() + params[1].to("cuda:0").sum()).backward()
        if bad is not None:
            params[bad].grad[2] = float("nan")
        scaler.step(optimizer), scaler.update()
        seen.append([p.tolist() for p in params] + [optimizer.state[p]["step"].item() for p in params])
    assert seen[0] == seen[1] and seen[2] == seen[3] and seen[1][2:] == [1, 1] and seen[3][2:] == [2, 2] and seen[2][:2] != seen[1][:2]


def test_found_inf_is_given_to_optimizers():
    """PyTorch's protocol, for those who write optimizers of their own, and for ours without a GradScaler."""
    class Mine(tg.optim.Optimizer):
        _step_supports_amp_scaling = True

        def step(self, closure=None):
            self.given = (self.grad_scale, self.found_inf.item(), self.param_groups[0]["params"][0].grad.tolist())
            return "stepped"

    p = tg.ones(2, device="cuda", requires_grad=True)
    mine = Mine([p], {})
    scaler = tg.amp.GradScaler("cuda", init_scale=4.0)
    for bad in (False, True):
        p.grad = None
        scaler.scale(p.sum() * (float("inf") if bad else 1.0)).backward()
        assert scaler.step(mine) == "stepped" and mine.given[0] == 1 and mine.given[1] == float(bad) and (bad or mine.given[2] == [1, 1])
        scaler.update()
        assert not hasattr(mine, "found_inf") and not hasattr(mine, "grad_scale")
    sgd = tg.optim.SGD([p], lr=1.0)
    for found, expected in ((1.0, [1, 1]), (0.0, [0.5, 0.5])):
        p.grad = tg.full((2,), 4.0, device="cuda")
        sgd.grad_scale, sgd.found_inf = tg.tensor(8.0, device="cuda"), tg.tensor(found, device="cuda")
        sgd.step()
        assert p.tolist() == expected and p.grad.tolist() == [0.5, 0.5]
    adam = tg.optim.Adam([p])
    adam.step()
    before = p.tolist()
    adam.found_inf = tg.zeros((), device="cuda")
    with pytest.raises(RuntimeError, match="Adam: with found_inf the host does not know .*\n.*capturable=True"):
        adam.step()
    host = tg.ones(2, requires_grad=True)
    host.grad = tg.ones(2)
    with pytest.raises(RuntimeError, match=r"SGD: found_inf must have one element of float32 on a CUDA device: got shape \[\] of float32 on cpu"):
        tg._C._optimizer_step("SGD", tg.optim.SGD([host]).param_groups, {}, None, [tg.zeros(())])
    with pytest.raises(RuntimeError, match="SGD: found_inf is not on the device of a parameter: got a parameter on cpu"):
        tg._C._optimizer_step("SGD", tg.optim.SGD([host]).param_groups, {}, None, [tg.zeros((), device="cuda")])
    with pytest.raises(RuntimeError, match="SGD: found_inf does not go with differentiable=True"):
        tg._C._optimizer_step("SGD", tg.optim.SGD([p], differentiable=True).param_groups, {}, None, [tg.zeros((), device="cuda")])
    host.grad = tg.eye(2)[0].to_sparse()
    with pytest.raises(RuntimeError, match="SGD: found_inf does not go with sparse gradients"):
        tg._C._optimizer_step("SGD", tg.optim.SGD([host]).param_groups, {}, None, [tg.zeros((), device="cuda")])
    assert p.tolist() == before and host.tolist() == [1, 1]
    assert not tg.optim.SGD([host])._step_supports_amp_scaling


# A value that the program asks for, a copy that nobody can leave to the device, a size that depends on values, an operator of the host.
WAITS = [lambda x: x.sum().item(), lambda x: bool(x[0]), lambda x: int(x[1]), lambda x: f"{x[1]:.1f}", lambda x: x.tolist(), repr,
         lambda x: tg.equal(x, x), lambda x: tg.allclose(x, x), lambda x: tg.is_nonzero(x[1]), lambda x: list(range(x[2].long())), lambda x: 3 in x,
         lambda x: x.cpu(), lambda x: x.to("cpu"), lambda x: tg.empty(6).copy_(x), lambda x: tg.empty(6).pin_memory().copy_(x),
         lambda x: x.copy_(tg.ones(6)), lambda x: tg.tensor([1.0], device="cuda"), lambda x: tg.save({"x": x}, io.BytesIO()), pickle.dumps,
         lambda x: x.nonzero(), lambda x: x[x > 2], lambda x: tg.masked_select(x, x > 2), lambda x: tg.argwhere(x), lambda x: tg.where(x > 2),
         lambda x: x.unique(), lambda x: x.unique_consecutive(), lambda x: x.long().bincount(), lambda x: x.histc(3),
         lambda x: x.repeat_interleave(x.long()), lambda x: x.to_sparse(), lambda x: tg.linalg.eigvalsh(tg.eye(2, device="cuda")),
         lambda x: tg.nn.utils.clip_grad_norm_([leaf(x)], 1.0, error_if_nonfinite=True)]


def leaf(x):
    made = x.detach().clone()
    made.grad = x.detach().clone()
    return made


def test_strict_names_the_line_that_waits():
    x = tg.arange(6.0, device="cuda")
    with tg.strict("sync"):
        y = x * 2 + x.sum()
        for wait in WAITS:
            with pytest.raises(RuntimeError, match=r"the host waits for the device at .*test_device_training\.py"):
                wait(x)
        tg.cuda.synchronize()
    assert y.sum().item() == 30 + 90
    check = tg.strict()
    with pytest.raises(RuntimeError, match="the host waits for the device at"):
        x[0].item()
    check.close()
    assert x[1].item() == 1
    with pytest.raises(ValueError, match="expected one of sync: got 'sink'"):
        tg.strict("sink")


def test_dlpack_both_ways():
    x = tg.arange(12.0, device=LAST).reshape(3, 4)[:, 1:]
    y = tg.from_dlpack(x)
    assert y.device == x.device and y.data_ptr() == x.data_ptr() and y.stride() == (4, 1)
    y[0, 0] = 99
    assert x[0, 0].item() == 99
    z = tg.utils.dlpack.from_dlpack(tg.utils.dlpack.to_dlpack(x))
    del x, y
    assert z[2].tolist() == [9, 10, 11]
    # Work of a stream that the consumer's waits for.
    side = tg.cuda.Stream()
    a = tg.zeros(1000, device="cuda")
    with tg.cuda.stream(side):
        side.wait_stream(tg.cuda.default_stream())
        a.add_(5)
        capsule = a.__dlpack__(stream=1)
    assert tg.from_dlpack(capsule).sum().item() == 5000
    assert tg.zeros(0, 3, device="cuda").__dlpack_device__() == (2, 0) and tg.from_dlpack(tg.zeros(0, 3, device="cuda")).shape == (0, 3)


class Foreign:
    def __init__(self, facts, keep=None):
        self.__cuda_array_interface__, self.keep = facts, keep


def test_cuda_array_interface_both_ways():
    x = tg.arange(12, device="cuda").reshape(3, 4)
    facts = x.t()[1:].__cuda_array_interface__
    assert facts["shape"] == (3, 3) and facts["strides"] == (8, 32) and facts["typestr"] == "<i8" and facts["data"] == (x.data_ptr() + 8, False)
    y = tg.as_tensor(Foreign(facts, x), device="cuda")
    assert y.tolist() == x.t()[1:].tolist() and y.data_ptr() == x.data_ptr() + 8
    y.zero_()
    assert x.sum().item() == 0 + 4 + 8
    if COUNT > 1:  # memory of another device than the current one is found there
        far = tg.arange(5, device=LAST)
        taken = tg.as_tensor(Foreign(far.__cuda_array_interface__, far))
        assert taken.device == far.device and taken.data_ptr() == far.data_ptr() and taken.tolist() == [0, 1, 2, 3, 4]
        assert tg.cuda.current_device() == 0
    host = tg.ones(3)
    with pytest.raises(ValueError, match="is on no CUDA device: got the address 0x"):
        tg.as_tensor(Foreign({**facts, "shape": (3,), "strides": None, "data": (host.data_ptr(), False), "stream": None}, host))
    assert tg.tensor(Foreign(x.__cuda_array_interface__, x), dtype=tg.float32).sum().item() == 12
    for bad, error in (({"typestr": ">i8"}, TypeError), ({"typestr": "<U4"}, TypeError), ({"strides": (-8, 8)}, ValueError), ({"mask": 1}, ValueError)):
        with pytest.raises(error):
            tg.as_tensor(Foreign({**facts, **bad}))
    assert not hasattr(tg.ones(2), "__cuda_array_interface__") and not hasattr(tg.ones(2, device="cuda").bfloat16(), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="requires grad"):
        tg.ones(2, device="cuda", requires_grad=True).__cuda_array_interface__  # noqa: B018


def test_old_classes_of_tensors():
    assert tg.cuda.FloatTensor(2, 3).shape == (2, 3) and tg.cuda.FloatTensor(2, 3).is_cuda
    x = tg.cuda.LongTensor([1, 2])
    assert x.tolist() == [1, 2] and x.device.type == "cuda" and x.dtype == tg.int64
    assert isinstance(x, tg.cuda.LongTensor) and not isinstance(x, tg.LongTensor) and not isinstance(x, tg.cuda.FloatTensor)
    assert tg.cuda.get_arch_list() == [] or all(name.startswith(("sm_", "compute_")) for name in tg.cuda.get_arch_list())


def test_indices_of_the_host():
    x = tg.arange(12.0, device="cuda").reshape(3, 4)
    assert x[tg.tensor([0, 2])].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11]]
    assert x[tg.tensor([True, False, True]), tg.tensor([0, 1], device="cuda")].tolist() == [0, 9]
    x[tg.tensor([1])] = -1.0
    assert x[1].tolist() == [-1] * 4 and x.device.type == "cuda"


def test_copies_and_pickles_keep_device_and_strides():
    base = tg.arange(12.0, device=LAST)
    every = base.view(3, 4).t()[1::2]
    for copied in (copy.deepcopy(every), pickle.loads(pickle.dumps(every))):
        assert copied.device == every.device and copied.stride() == every.stride() and copied.tolist() == every.tolist()
        assert copied.data_ptr() != every.data_ptr()
    # What shares memory shares it afterwards.
    weight = tg.nn.Parameter(base[4:])
    for a, b in (copy.deepcopy([base, base[4:]]), pickle.loads(pickle.dumps([base, weight]))):
        assert b.device == tg.device(LAST)
        a[4:] += 1
        assert b.tolist() == [k + 5.0 for k in range(8)] and base.tolist() == [float(k) for k in range(12)]
    assert isinstance(b, tg.nn.Parameter) and b.requires_grad
    storage = base.untyped_storage()
    assert storage.cpu().device.type == "cpu" and storage.cpu().nbytes() == 48 and pickle.loads(pickle.dumps(storage)).device == tg.device(LAST)
    with tg.strict("sync"):  # a copy on the device is no business of the host
        copied = copy.deepcopy(tg.nn.Parameter(base))
    assert copied.tolist() == base.tolist()
