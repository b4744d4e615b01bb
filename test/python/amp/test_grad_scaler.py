"""GradScaler: factors, skipped steps and states as PyTorch's, over runs in which gradients overflow now and then."""

import pickle

import pytest
import tapegrad as tg

torch = pytest.importorskip("torch")


def _run(lib, overflow, **options):
    scaler = lib.amp.GradScaler("cpu", **options)
    weight = lib.nn.Parameter(lib.tensor([[0.5, -1.0], [2.0, 0.25]]))
    optimizer = lib.optim.SGD([weight], lr=0.01)
    seen = []
    for i in range(12):
        optimizer.zero_grad()
        x = lib.tensor([[1.0, 2.0 + 0.125 * i]])
        loss = (x @ weight).pow(2).mean()
        if i in overflow:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if i % 3 == 1:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), scaler._get_growth_tracker(), weight.detach().flatten().tolist()))
    return seen, scaler.state_dict()


@pytest.mark.parametrize("overflow", [(), (0,), (2, 3, 9)])
@pytest.mark.parametrize("options", [{"init_scale": 128.0, "growth_interval": 3}, {"init_scale": 2.0, "growth_factor": 4.0, "backoff_factor": 0.25,
                                                                                   "growth_interval": 2}])
def test_run_equals_torch(overflow, options):
    (mine, state), (theirs, their_state) = _run(tg, overflow, **options), _run(torch, overflow, **options)
    assert state == their_state
    for a, b in zip(mine, theirs, strict=True):
        assert a[:2] == b[:2]
        assert a[2] == pytest.approx(b[2], rel=1e-5, abs=1e-6)


def test_order_of_calls_is_checked_as_torch_does():
    def problems(lib):
        scaler = lib.amp.GradScaler("cpu")
        p = lib.nn.Parameter(lib.ones(1))
        optimizer = lib.optim.SGD([p], lr=0.1)
        kinds = []

        def attempt(f):
            try:
                f()
                kinds.append(None)
            except Exception as error:
                kinds.append(type(error).__name__)

        attempt(lambda: scaler.step(optimizer))
        attempt(scaler.update)
        scaler.scale((p * 2).sum()).backward()
        attempt(lambda: scaler.unscale_(optimizer))
        attempt(lambda: scaler.unscale_(optimizer))
        attempt(lambda: scaler.step(optimizer, closure=lambda: 0))
        attempt(lambda: pickle.dumps(scaler))
        attempt(lambda: scaler.step(optimizer))
        attempt(lambda: scaler.step(optimizer))
        attempt(lambda: scaler.unscale_(optimizer))
        scaler.update()
        attempt(lambda: scaler.load_state_dict({}))
        attempt(lambda: scaler.scale("loss"))
        attempt(lambda: lib.amp.GradScaler("cpu", growth_factor=1.0))
        attempt(lambda: lib.amp.GradScaler("cpu", backoff_factor=1.0))
        return kinds

    mine, theirs = problems(tg), problems(torch)
    # A string is an iterable of strings without end for PyTorch: it recurses. Ours raises what it raises for a number.
    assert mine == theirs


def test_scales_nested_outputs_and_passes_state_on():
    scaler = tg.amp.GradScaler("cpu", init_scale=8.0)
    a, (b, c) = scaler.scale([tg.ones(2), (tg.ones(1), tg.ones(1, dtype=tg.float16))])
    assert a.tolist() == [8.0, 8.0] and b.tolist() == [8.0] and c.dtype == tg.float16
    copy = pickle.loads(pickle.dumps(scaler))
    assert copy.state_dict() == scaler.state_dict()
    other = tg.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8.0
    scaler.update(3.0)
    assert scaler.get_scale() == 3.0
    scaler.update(tg.tensor(5.0))
    assert scaler.get_scale() == 5.0


def test_disabled_passes_through():
    scaler = tg.amp.GradScaler("cpu", enabled=False)
    loss = tg.ones(1, requires_grad=True)
    assert scaler.scale(loss) is loss and scaler.get_scale() == 1.0 and scaler.state_dict() == {} and not scaler.is_enabled()
    p = tg.nn.Parameter(tg.ones(1))
    optimizer = tg.optim.SGD([p], lr=0.5)
    p.grad = tg.ones(1)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert p.tolist() == [0.5]
    with pytest.warns(UserWarning, match="CUDA is not available"):
        assert not tg.amp.GradScaler().is_enabled()
    with pytest.warns(FutureWarning):
        assert tg.cpu.amp.GradScaler(init_scale=4.0).get_scale() == 4.0
    assert issubclass(tg.cuda.amp.GradScaler, tg.amp.grad_scaler.GradScaler)


def test_float16_gradients_are_refused():
    p = tg.nn.Parameter(tg.ones(1, dtype=tg.float16))
    scaler = tg.amp.GradScaler("cpu", init_scale=2.0)
    optimizer = tg.optim.SGD([p], lr=0.1)
    scaler.scale(p.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients."):
        scaler.unscale_(optimizer)


def test_an_optimizer_may_ask_for_the_scaler():
    seen = []

    class Asks(tg.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None, *, grad_scaler=None):
            seen.append((grad_scaler, hasattr(self, "found_inf")))

    class Looks(tg.optim.SGD):
        _step_supports_amp_scaling = True

        def step(self, closure=None):
            seen.append((self.grad_scale, self.found_inf.item()))

    p = tg.nn.Parameter(tg.ones(2))
    scaler = tg.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(p.sum()).backward()
    with pytest.warns(FutureWarning, match="stop passing itself"):
        scaler.step(Asks([p], lr=1))
    scaler.step(Looks([p], lr=1))
    assert seen[0] == (scaler, False) and seen[1][0].item() == 1 and seen[1][1] == 0 and p.grad.tolist() == [1, 1]


def test_what_the_scaler_does_by_pytorch_s_names():
    grads, found = [tg.full((2,), 4.0), tg.tensor([1.0, float("inf")])], tg.zeros(1)
    tg._amp_foreach_non_finite_check_and_unscale_(grads[:1], found, tg.full((1,), 0.25))
    assert grads[0].tolist() == [1, 1] and found.item() == 0
    tg._amp_foreach_non_finite_check_and_unscale_(grads, found, tg.ones(1))
    assert found.item() == 1
    scale, tracker = tg.full((1,), 4.0), tg.zeros(1, dtype=tg.int32)
    seen = []
    for inf in (0.0, 0.0, 1.0):
        tg._amp_update_scale_(scale, tracker, tg.full((1,), inf), 2.0, 0.25, 2)
        seen.append((scale.item(), tracker.item()))
    assert seen == [(4, 1), (8, 0), (2, 0)]
