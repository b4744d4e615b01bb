"""func: gradients, Jacobians and maps, alone and inside one another, as torch.func's."""

import pytest
import tapegrad as tg
from autograd.leaves import Cube

torch = pytest.importorskip("torch")


def _data(lib):
    return (lib.tensor([[0.3, -0.7, 0.2], [1.1, 0.4, -0.5]], dtype=lib.float64), lib.tensor([0.5, -1.5, 0.8], dtype=lib.float64),
            lib.tensor([[0.1, 0.2, -0.3], [0.4, -0.6, 0.9], [1.0, -0.2, 0.3], [0.7, 0.7, 0.1]], dtype=lib.float64))


def _f(lib):
    return lambda w, x: ((w @ x).tanh() ** 2).sum()


def _g(lib):
    return lambda x: (x * x.sin(), {"a": x.sum(), "b": [x[1:] ** 2]})


CASES = {
    "grad": lambda t, w, x, xs: t.func.grad(_f(t))(w, x),
    "grad_argnums": lambda t, w, x, xs: t.func.grad(_f(t), argnums=(1, 0))(w, x),
    "grad_last": lambda t, w, x, xs: t.func.grad(_f(t), argnums=-1)(w, x),
    "grad_aux": lambda t, w, x, xs: t.func.grad(lambda a: ((a**2).sum(), {"twice": a * 2}), has_aux=True)(x),
    "grad_and_value": lambda t, w, x, xs: t.func.grad_and_value(_f(t))(w, x),
    "grad_and_value_aux": lambda t, w, x, xs: t.func.grad_and_value(lambda a: ((a**2).sum(), a + 1), has_aux=True)(x),
    "grad_of_tree": lambda t, w, x, xs: t.func.grad(lambda p: _f(t)(p["w"], p["b"][0]))({"w": w, "b": [x]}),
    "grad_keyword": lambda t, w, x, xs: t.func.grad(lambda a, *, scale: (a * scale).sum())(x, scale=3.0),
    "grad_grad": lambda t, w, x, xs: t.func.grad(lambda a: t.func.grad(lambda b: (b**3 * a).sum())(a).sum())(x),
    "grad_unused": lambda t, w, x, xs: t.func.grad(lambda a, b: b.sum())(x, x),
    "third": lambda t, w, x, xs: t.func.grad(t.func.grad(t.func.grad(lambda a: a.sin() * a**2)))(x[0]),
    "perturbation": lambda t, w, x, xs: t.func.grad(lambda a: a * t.func.grad(lambda b: a + b)(a))(x[0]),
    "in_no_grad": lambda t, w, x, xs: t.no_grad()(t.func.grad(_f(t)))(w, x),
    "inner_no_grad": lambda t, w, x, xs: t.func.grad(lambda a: (a * t.no_grad()(lambda b: b * 2)(a)).sum())(x),
    "vjp": lambda t, w, x, xs: t.func.vjp(_g(t), x)[1]((x, {"a": x[0], "b": [x[1:]]})),
    "vjp_two": lambda t, w, x, xs: t.func.vjp(_f(t), w, x)[1](x[0]),
    "vjp_output": lambda t, w, x, xs: t.func.vjp(_g(t), x)[0],
    "vjp_aux": lambda t, w, x, xs: t.func.vjp(lambda a: (a**2, a * 3), x, has_aux=True)[2],
    "vjp_vmap": lambda t, w, x, xs: t.vmap(t.func.vjp(lambda a: a.sin(), x)[1])(xs),
    "jvp": lambda t, w, x, xs: t.func.jvp(_g(t), (x,), (x * 2,)),
    "jvp_two": lambda t, w, x, xs: t.func.jvp(_f(t), (w, x), (w * 2, x + 1)),
    "jvp_aux": lambda t, w, x, xs: t.func.jvp(lambda a: (a**2, a * 3), (x,), (x,), has_aux=True),
    "jvp_constant": lambda t, w, x, xs: t.func.jvp(lambda a: t.ones(2, dtype=t.float64), (x,), (x,)),
    "linearize": lambda t, w, x, xs: (lambda out, f: [out, f(x), f(x * 2)])(*t.func.linearize(lambda a: a.sin() * a, x)),
    "jacrev": lambda t, w, x, xs: t.func.jacrev(lambda a: (w @ a).sin())(x),
    "jacrev_tree": lambda t, w, x, xs: t.func.jacrev(_g(t))(x),
    "jacrev_argnums": lambda t, w, x, xs: t.func.jacrev(lambda a, b: (a @ b).sin(), argnums=(0, 1))(w, x),
    "jacrev_chunk": lambda t, w, x, xs: t.func.jacrev(lambda a: (w @ a).sin(), chunk_size=1)(x),
    "jacrev_aux": lambda t, w, x, xs: t.func.jacrev(lambda a: (a**2, a * 3), has_aux=True)(x),
    "jacrev_unused": lambda t, w, x, xs: t.func.jacrev(lambda a, b: a * 2, argnums=1)(x, x),
    "jacfwd": lambda t, w, x, xs: t.func.jacfwd(lambda a: (w @ a).sin())(x),
    "jacfwd_tree": lambda t, w, x, xs: t.func.jacfwd(_g(t))(x),
    "jacfwd_argnums": lambda t, w, x, xs: t.func.jacfwd(lambda a, b: (a @ b).sin(), argnums=(0, 1))(w, x),
    "jacfwd_aux": lambda t, w, x, xs: t.func.jacfwd(lambda a: (a**2, a * 3), has_aux=True)(x),
    "hessian": lambda t, w, x, xs: t.func.hessian(lambda a: _f(t)(w, a))(x),
    "hessian_argnums": lambda t, w, x, xs: t.func.hessian(_f(t), argnums=(0, 1))(w, x),
    "jacrev_jacrev": lambda t, w, x, xs: t.func.jacrev(t.func.jacrev(lambda a: (w @ a).sin()))(x),
    "jacfwd_jacfwd": lambda t, w, x, xs: t.func.jacfwd(t.func.jacfwd(lambda a: (w @ a).sin()))(x),
    "vmap": lambda t, w, x, xs: t.vmap(lambda a: w @ a)(xs),
    "vmap_both": lambda t, w, x, xs: t.vmap(t.dot)(xs, xs * 2),
    "vmap_dims": lambda t, w, x, xs: t.vmap(lambda a, b: a @ b, in_dims=(None, 1), out_dims=1)(xs, xs.t().contiguous()[:, :, None].expand(3, 4, 2)),
    "vmap_negative": lambda t, w, x, xs: t.vmap(lambda a: a * 2, in_dims=-1, out_dims=-1)(xs),
    "vmap_tree": lambda t, w, x, xs: t.vmap(lambda d, c: {"s": d["x"] + d["y"] * c}, in_dims=({"x": 0, "y": None}, None))({"x": xs, "y": x}, 2.0),
    "vmap_nested": lambda t, w, x, xs: t.vmap(lambda a: t.vmap(lambda b: a * b)(a))(xs),
    "vmap_nested_outer": lambda t, w, x, xs: t.vmap(lambda a: t.vmap(lambda b: (a * b).sum())(xs))(xs),
    "vmap_constant": lambda t, w, x, xs: t.vmap(lambda a: x)(xs),
    "vmap_none_out": lambda t, w, x, xs: t.vmap(lambda a: (a, x * 2), out_dims=(0, None))(xs),
    "vmap_keyword": lambda t, w, x, xs: t.vmap(lambda a, b: a * b)(xs, b=xs + 1),
    "vmap_chunk": lambda t, w, x, xs: t.vmap(lambda a: w @ a, chunk_size=3)(xs),
    "vmap_decorated": lambda t, w, x, xs: t.vmap(lambda a: [a.sum(), (a > 0).any()])(xs),
    "vmap_index": lambda t, w, x, xs: t.vmap(lambda a: a[t.tensor([0, 2])] + a[1] + a[-1:])(xs),
    "vmap_mask": lambda t, w, x, xs: t.vmap(lambda a: t.where(a > 0, a, 0.0))(xs),
    "vmap_inplace": lambda t, w, x, xs: t.vmap(lambda a: a.clone().add_(x).mul_(a))(xs),
    "vmap_write_view": lambda t, w, x, xs: t.vmap(lambda a: t.zeros_like(a).index_fill_(0, t.tensor([1]), 3.0) + a)(xs),
    "vmap_new_zeros": lambda t, w, x, xs: t.vmap(lambda a: _filled(a))(xs),
    "vmap_einsum": lambda t, w, x, xs: t.vmap(lambda a, b: t.einsum("i,j->ij", a, b))(xs, xs),
    "vmap_linear": lambda t, w, x, xs: t.vmap(t.nn.functional.linear, in_dims=(0, None))(xs, w),
    "vmap_scalars": lambda t, w, x, xs: t.vmap(lambda a: a.sum() * t.ones(3, dtype=t.float32))(xs),
    "vmap_types": lambda t, w, x, xs: t.vmap(lambda a: a * t.ones(2, dtype=t.float32) + 1)(xs[:, 0]),
    "per_sample": lambda t, w, x, xs: t.vmap(t.func.grad(_f(t)), in_dims=(None, 0))(w, xs),
    "per_sample_both": lambda t, w, x, xs: t.vmap(t.func.grad_and_value(_f(t), argnums=(0, 1)), in_dims=(None, 0))(w, xs),
    "grad_of_vmap": lambda t, w, x, xs: t.func.grad(lambda v: t.vmap(lambda a: (v @ a).tanh().sum())(xs).sum())(w),
    "grad_of_vmap_views": lambda t, w, x, xs: t.func.grad(lambda v: t.vmap(lambda a: (a[1:].unsqueeze(0).t() @ a[:2].view(1, 2)).diagonal().sum() *
                                                                           a.expand(2, 3).sum())(v).sum())(xs),
    "grad_of_vmap_grad": lambda t, w, x, xs: t.func.grad(lambda v: t.vmap(t.func.grad(_f(t), argnums=1), in_dims=(None, 0))(v, xs).pow(2).sum())(w),
    "vmap_jacrev": lambda t, w, x, xs: t.vmap(t.func.jacrev(lambda a: (w @ a).sin()))(xs),
    "vmap_jacfwd": lambda t, w, x, xs: t.vmap(t.func.jacfwd(lambda a: (w @ a).sin()))(xs),
    "vmap_hessian": lambda t, w, x, xs: t.vmap(t.func.hessian(lambda a: _f(t)(w, a)))(xs),
    "vmap_jvp": lambda t, w, x, xs: t.vmap(lambda a: t.func.jvp(lambda b: (w @ b).sin(), (a,), (x,)))(xs),
    "vmap_vjp": lambda t, w, x, xs: t.vmap(lambda a: t.func.vjp(lambda b: (w @ b).sin(), a)[1](w[:, 0]))(xs),
    "functionalize": lambda t, w, x, xs: t.func.functionalize(lambda a: a.clone().add_(1))(x),
}


def _filled(a):
    buffer = a.new_zeros(2, 3)
    buffer[1] = a
    return buffer


def _plain(value):
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if hasattr(value, "detach"):
        return value.requires_grad, str(value.dtype).rpartition(".")[2], tuple(value.shape), value.detach().flatten().tolist()
    return value


def _same(a, b, where):
    if isinstance(b, dict):
        assert sorted(a) == sorted(b), where
        for k in b:
            _same(a[k], b[k], where)
    elif isinstance(b, list) and b and not isinstance(b[0], float):
        assert len(a) == len(b), where
        for x, y in zip(a, b, strict=True):
            _same(x, y, where)
    elif isinstance(b, tuple):
        assert a[:3] == b[:3], f"{where}: {a}, expected {b}"
        assert a[3] == pytest.approx(b[3], rel=1e-9, abs=1e-12), where
    else:
        assert a == (pytest.approx(b) if isinstance(b, list) else b), where


@pytest.mark.parametrize("name", CASES)
def test_equals_torch(name):
    _same(_plain(CASES[name](tg, *_data(tg))), _plain(CASES[name](torch, *_data(torch))), name)


def _needing(lib, flags):
    values = _data(lib)
    for v, flag in zip(values, flags, strict=True):
        v.requires_grad_(flag)
    return values


# PyTorch's linearize makes constants of what it traces; ours can be differentiated on.
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("in_no_grad", "linearize", "vmap_decorated", "vmap_scalars", "vmap_types")])
def test_results_are_part_of_the_tape_around(name):
    def gradients(lib):
        values = _needing(lib, (True, True, True))
        results = []

        def collect(v):
            if isinstance(v, dict):
                [collect(x) for x in v.values()]
            elif isinstance(v, (tuple, list)):
                [collect(x) for x in v]
            else:
                results.append(v)

        collect(CASES[name](lib, *values))
        live = [r for r in results if r.requires_grad]
        total = sum((r * (i + 1)).pow(2).sum() for i, r in enumerate(live))
        found = lib.autograd.grad(total, values, allow_unused=True) if live else (None,) * 3
        return [r.requires_grad for r in results], [lib.zeros(1) if g is None else g for g in found]

    (mine, my_grads), (theirs, their_grads) = gradients(tg), gradients(torch)
    assert mine == theirs
    for a, b in zip(my_grads, their_grads, strict=True):
        if float(b.abs().sum()) == 0 and float(a.abs().sum()) == 0:
            continue
        assert a.flatten().tolist() == pytest.approx(b.flatten().tolist(), rel=1e-8, abs=1e-10)


def _wrong(t):
    w, x, xs = _data(t)
    return {
        "no inputs": lambda: t.vmap(lambda: 1)(),
        "nothing mapped": lambda: t.vmap(lambda a: a, in_dims=None)(xs),
        "in_dims type": lambda: t.vmap(lambda a: a, in_dims="a")(xs),
        "in_dims tree": lambda: t.vmap(lambda a: a, in_dims=(0, 0))(xs),
        "no tensor": lambda: t.vmap(lambda a: a)(3),
        "sizes": lambda: t.vmap(lambda a, b: a + b)(xs, x),
        "dim range": lambda: t.vmap(lambda a: a, in_dims=2)(xs),
        "returns number": lambda: t.vmap(lambda a: 3)(xs),
        "out_dims tree": lambda: t.vmap(lambda a: a, out_dims=(0, 1))(xs),
        "out_dims type": lambda: t.vmap(lambda a: a, out_dims="x")(xs),
        "out_dims range": lambda: t.vmap(lambda a: a, out_dims=3)(xs),
        "out_dims none": lambda: t.vmap(lambda a: a, out_dims=None)(xs),
        "randomness": lambda: t.vmap(lambda a: a, randomness="maybe")(xs),
        "chunk": lambda: t.vmap(lambda a: a, chunk_size=0)(xs),
        "item": lambda: t.vmap(lambda a: a.sum().item())(xs),
        "if": lambda: t.vmap(lambda a: a if a.sum() > 0 else -a)(xs),
        "write": lambda: t.vmap(lambda a: x.clone().add_(a))(xs),
        "out": lambda: t.vmap(lambda a: t.add(a, a, out=t.empty(3, dtype=t.float64)))(xs),
        "random": lambda: t.vmap(lambda a: a + t.rand(3))(xs),
        "inner error": lambda: t.vmap(lambda a: a @ w)(xs),
        "grad not scalar": lambda: t.func.grad(lambda a: a)(x),
        "grad not tensor": lambda: t.func.grad(lambda a: 3)(x),
        "grad argnum": lambda: t.func.grad(lambda a: a.sum(), argnums=1)(x),
        "grad argnums twice": lambda: t.func.grad(lambda a, b: (a * b).sum(), argnums=(0, 0))(x, x),
        "grad argnums empty": lambda: t.func.grad(lambda a: a.sum(), argnums=())(x),
        "grad aux": lambda: t.func.grad(lambda a: a.sum(), has_aux=True)(x),
        "vjp structure": lambda: t.func.vjp(lambda a: (a, a), x)[1](x),
        "jvp tuple": lambda: t.func.jvp(lambda a: a, x, x),
        "jvp structure": lambda: t.func.jvp(lambda a: a, (x,), (x, x)),
        "jvp strict": lambda: t.func.jvp(lambda a: t.ones(1), (x,), (x,), strict=True),
        "chunk jacrev": lambda: t.func.jacrev(lambda a: a, chunk_size=0)(x),
    }


@pytest.mark.parametrize("name", _wrong(tg))
def test_mistakes_raise_what_torch_raises(name):
    def kind(lib):
        try:
            _wrong(lib)[name]()
        except Exception as error:
            assert lib is torch or str(error), "an error says what is wrong"
            return type(error).__name__
        return None

    mine, theirs = kind(tg), kind(torch)
    assert theirs is not None and mine == theirs
    assert tg._C._vmap_depth() == 0  # the level has ended


def test_a_tensor_does_not_outlive_its_map():
    kept = []
    tg.vmap(lambda a: kept.append(a) or a)(tg.ones(2, 3))
    for use in (lambda: kept[0] + 1, lambda: kept[0].sum(), lambda: kept[0].numpy(), lambda: kept[0].tolist(), lambda: kept[0].reshape(3, 1),
                lambda: tg.vmap(lambda b: b + kept[0])(tg.ones(2, 3)), lambda: tg.ones(3).copy_(kept[0]), lambda: tg.cat([kept[0]])):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            use()
    with pytest.raises(RuntimeError, match="a level of vmap: this device is not available: it is over, and a tensor that was made inside"):
        kept[0] + 1
    assert kept[0].shape == (3,) and kept[0].dtype == tg.float32 and kept[0].device.type == "cpu" and repr(kept[0])


def test_copies_from_what_has_no_memory():
    for source in (tg.ones(3, device="meta"), tg.ones((), device="meta")):
        for use in (lambda: tg.ones(3).copy_(source), lambda: tg.ones(3).fill_(source.sum())):
            with pytest.raises((RuntimeError, NotImplementedError)):
                use()


def test_randomness():
    tg.manual_seed(3)
    x = tg.zeros(4, 1000)
    same = tg.vmap(lambda a: a + tg.rand(1000), randomness="same")(x)
    assert (same == same[0]).all() and same.std() > 0
    for draw in (lambda a: a + tg.rand(1000), lambda a: tg.rand_like(a), lambda a: a.clone().normal_(), lambda a: tg.bernoulli(a + 0.5),
                 lambda a: tg.nn.functional.dropout(a + 1), lambda a: tg.randperm(1000), lambda a: tg.multinomial(a + 1, 500),
                 lambda a: tg.normal(a, 1.0), lambda a: tg.poisson(a + 3)):
        different = tg.vmap(draw, randomness="different")(x)
        assert different.shape[0] == 4 and all(not (different[0] == different[i]).all() for i in range(1, 4))
        equal = tg.vmap(draw, randomness="same")(x)
        assert (equal == equal[0]).all()
        with pytest.raises(RuntimeError, match="random"):
            tg.vmap(draw)(x)
    with pytest.raises(RuntimeError, match="in place"):
        tg.vmap(lambda a: a + tg.zeros(1000).normal_(), randomness="different")(x)
    inner = tg.vmap(lambda a: tg.vmap(lambda b: b + tg.rand(2), randomness="different")(a), randomness="same")(tg.zeros(3, 4, 2))
    assert (inner[0] == inner[1]).all() and not (inner[0, 0] == inner[0, 1]).all()


def _network(lib):
    lib.manual_seed(0)
    return lib.nn.Sequential(lib.nn.Conv2d(1, 2, 3, padding=1), lib.nn.ReLU(), lib.nn.MaxPool2d(2), lib.nn.GroupNorm(1, 2), lib.nn.Flatten(),
                             lib.nn.Linear(8, 3))


def test_per_sample_gradients_of_a_network():
    theirs = _network(torch)
    mine = _network(tg)
    mine.load_state_dict({k: tg.tensor(v.detach().numpy()) for k, v in theirs.state_dict().items()})
    x, y = torch.randn(5, 1, 4, 4), torch.tensor([0, 2, 1, 1, 0])

    def gradients(lib, model, x, y):
        params = {k: v.detach() for k, v in model.named_parameters()}

        def loss(p, a, b):
            return lib.nn.functional.cross_entropy(lib.func.functional_call(model, p, (a.unsqueeze(0),)), b.unsqueeze(0))

        return lib.func.vmap(lib.func.grad(loss), in_dims=(None, 0, 0))(params, x, y)

    expected = gradients(torch, theirs, x, y)
    got = gradients(tg, mine, tg.tensor(x.numpy()), tg.tensor(y.numpy()))
    assert list(got) == list(expected)
    for key, value in expected.items():
        assert got[key].shape == value.shape
        assert tg.allclose(got[key], tg.tensor(value.numpy()), rtol=1e-4, atol=1e-6), key


def test_ensembles():
    models = [tg.nn.Linear(3, 2) for _ in range(4)]
    params, buffers = tg.func.stack_module_state(models)
    assert params["weight"].shape == (4, 2, 3) and params["weight"].requires_grad and not buffers
    x = tg.randn(5, 3)
    together = tg.vmap(lambda p, b: tg.func.functional_call(models[0], (p, b), (x,)))(params, buffers)
    assert tg.allclose(together, tg.stack([m(x) for m in models]), rtol=1e-5, atol=1e-6)
    together.sum().backward()
    assert params["weight"].grad.shape == (4, 2, 3)
    with pytest.raises(RuntimeError, match="at least one model"):
        tg.func.stack_module_state([])
    with pytest.raises(RuntimeError, match="same class"):
        tg.func.stack_module_state([models[0], tg.nn.ReLU()])
    with pytest.raises(ValueError, match="multiple dictionaries"):
        tg.func.functional_call(models[0], (params, params), x)
    norm = tg.nn.Sequential(tg.nn.BatchNorm1d(3))
    assert tg.func.replace_all_batch_norm_modules_(norm)[0].running_mean is None


def test_autocast_and_custom_functions_inside():
    x, w = tg.randn(4, 3), tg.randn(3, 2)
    with tg.autocast("cpu"):
        assert tg.vmap(lambda a: a @ w)(x).dtype is tg.bfloat16
        assert tg.vmap(lambda a: tg.nn.functional.mse_loss(a @ w, w[0]))(x).dtype is tg.float32

    assert tg.allclose(tg.vmap(Cube.apply)(x), x**3)
    assert tg.allclose(tg.vmap(tg.func.grad(lambda a: Cube.apply(a).sum()))(x), 3 * x**2)


def test_debug_unwrap_and_print():
    seen = []
    tg.vmap(lambda a: seen.append((tg.func.debug_unwrap(a).clone(), repr(a), a.shape)) or a)(tg.ones(2, 3))
    assert seen[0][0].shape == (2, 3) and "Batched" in seen[0][1] and seen[0][2] == (3,)


def test_numbers_of_a_sample_are_indices():
    """PyTorch takes them only within a context of its compiler, and gives this."""
    x, y = tg.arange(24.0).view(2, 3, 4), tg.arange(3)
    rows = tg.vmap(lambda i: x[:, i])(tg.tensor([2, 0]))
    assert rows.equal(x[:, [2, 0]].movedim(1, 0))
    table = tg.vmap(tg.vmap(lambda i, j: x[1, i, j], (None, 0)), (0, None))(y, tg.arange(4))
    assert table.equal(x[1])
    assert tg.vmap(lambda a, i: a[i])(x, tg.tensor([0, 2])).equal(tg.stack([x[0, 0], x[1, 2]]))
    with pytest.raises(RuntimeError, match="vmap"):
        tg.vmap(lambda i: x[i > 1])(y)


@pytest.mark.parametrize("jacobian", [tg.func.jacrev, tg.func.jacfwd])
def test_jacobians_of_numbers(jacobian):
    x = tg.tensor(3.0)
    assert jacobian(lambda x: x * x)(x).item() == 6 and jacobian(lambda x: x * x)(x).shape == ()
    assert tg.autograd.functional.jacobian(lambda x: x * x, x, vectorize=True).item() == 6


def _relu_of_a_row(x):
    y = x * 1
    tg.nn.functional.relu_(y[0])
    return y


@pytest.mark.parametrize("f", [
    lambda x: x.gather(0, tg.tensor([[0, 1, 2, 0], [2, 2, 1, 0]])), lambda x: x.select_scatter(x[:, 0] * 2, 1, 1), _relu_of_a_row,
    lambda x: tg.nn.functional.embedding_bag(tg.tensor([[0, 1], [1, 2]]), x, mode="max"),
    lambda x: tg.nn.functional.multi_margin_loss(x, tg.tensor([0, 1, 2]))], ids=["gather", "select_scatter", "write to a view", "embedding_bag", "multi_margin_loss"])
def test_vmap_over_backward(f):
    x = tg.tensor([[0.3, -0.75, 1.1, 0.2], [-0.4, 0.9, -1.3, 0.6], [0.8, -0.1, 0.5, -0.9]], dtype=tg.float64, requires_grad=True)
    assert tg.autograd.gradcheck(f, x, check_batched_grad=True)
    y = f(x)
    weights = tg.rand(3, *y.shape, dtype=tg.float64)
    at_once, = tg.autograd.grad(y, x, weights, is_grads_batched=True, retain_graph=True)
    assert at_once.allclose(tg.stack([tg.autograd.grad(y, x, w, retain_graph=True)[0] for w in weights]))
