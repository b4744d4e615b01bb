"""Transforms, constraints and the maps between them, against PyTorch's."""

import numpy as np
import pytest
import tapegrad
from distributions import cases

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def double():
    with cases.double_precision(tapegrad, torch):
        torch.manual_seed(2)
        yield


def transforms(lib):
    t, x = lib.distributions.transforms, lib.tensor
    return {
        "abs": t.AbsTransform(), "affine": t.AffineTransform(x([1.0, -1.0, 0.5]), x(2.0)), "affine_numbers": t.AffineTransform(1.5, -0.5),
        "affine_event": t.AffineTransform(x([1.0, -1.0, 0.5]), x([2.0, 0.1, -3.0]), event_dim=1), "exp": t.ExpTransform(), "power": t.PowerTransform(x(2.5)),
        "sigmoid": t.SigmoidTransform(), "softplus": t.SoftplusTransform(), "tanh": t.TanhTransform(), "softmax": t.SoftmaxTransform(),
        "stick": t.StickBreakingTransform(), "corr": t.CorrCholeskyTransform(), "lower": t.LowerCholeskyTransform(), "definite": t.PositiveDefiniteTransform(),
        "reshape": t.ReshapeTransform((3,), (3, 1)), "independent": t.IndependentTransform(t.ExpTransform(), 1),
        "compose": t.ComposeTransform([t.AffineTransform(0.5, x([1.0, 2.0, 3.0])), t.IndependentTransform(t.TanhTransform(), 1), t.ExpTransform()]),
        "compose_stick": t.ComposeTransform([t.ExpTransform(), t.StickBreakingTransform(), t.AffineTransform(0.0, 2.0)]),
        "cat": t.CatTransform([t.ExpTransform(), t.TanhTransform()], dim=-1, lengths=[1, 2]), "stack": t.StackTransform([t.ExpTransform(), t.SigmoidTransform(), t.identity_transform], dim=-1),
        "cdf": t.CumulativeDistributionTransform(lib.distributions.Normal(x(0.5), x(2.0))), "identity": t.identity_transform,
    }


def outcome(function):
    try:
        return function()
    except Exception as error:
        return type(error).__name__


def same(ours, theirs, what):
    if isinstance(theirs, torch.Tensor):
        assert tuple(ours.shape) == tuple(theirs.shape), what
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=what)
    else:
        assert ours == theirs, f"{what}: {ours}, expected {theirs}"


@pytest.mark.parametrize("name", sorted(transforms(tapegrad)))
def test_transforms(name):
    ours, theirs = transforms(tapegrad)[name], transforms(torch)[name]
    x = torch.randn((2, 3, 3) if name in ("lower", "definite") else (4, 3))
    if name == "power":
        x = x.abs()
    a = tapegrad.tensor(x.numpy())
    b, y = ours(a), theirs(x)
    same(b, y, name)
    again, expected = outcome(lambda: ours.inv(b)), outcome(lambda: theirs.inv(y))
    same(again, expected, f"{name}.inv")
    for what in ("bijective", "sign"):
        same(outcome(lambda: getattr(ours, what)), outcome(lambda: getattr(theirs, what)), f"{name}.{what}")
    if theirs.bijective:
        same(outcome(lambda: ours.log_abs_det_jacobian(a, b)), outcome(lambda: theirs.log_abs_det_jacobian(x, y)), f"{name}.log_abs_det_jacobian")
        same(outcome(lambda: ours.inv.log_abs_det_jacobian(b, a)), outcome(lambda: theirs.inv.log_abs_det_jacobian(y, x)), f"{name}.inv.log_abs_det_jacobian")
    for side in ("domain", "codomain"):
        assert outcome(lambda: repr(getattr(ours, side)).replace("tapegrad", "torch")) == outcome(lambda: repr(getattr(theirs, side))), name
        same(outcome(lambda: getattr(ours, side).event_dim), outcome(lambda: getattr(theirs, side).event_dim), name)
    assert ours.inv.inv is ours
    for shape in ((5, 3), (3,), (7, 2)):
        for which in ("forward_shape", "inverse_shape"):
            got, wanted = (outcome(lambda t=t, s=s: tuple(getattr(t, which)(s))) for t, s in ((ours, tapegrad.Size(shape)), (theirs, torch.Size(shape))))
            assert got == wanted, f"{name}.{which}({shape})"
    assert (ours == transforms(tapegrad)[name]) == (theirs == transforms(torch)[name])
    assert repr(ours).replace("tapegrad", "torch") == repr(theirs) or "object at" in repr(theirs)
    cached = outcome(lambda: ours.with_cache(1))
    if not isinstance(cached, str) and name not in ("identity",):
        same(cached(a), y, f"{name}, cached")


def test_the_last_pair_is_kept():
    t = tapegrad.distributions.TanhTransform(cache_size=1)
    x = tapegrad.tensor([40.0])  # tanh is 1 exactly
    assert t.inv(t(x)) is x and t(x) is t(x)
    assert not tapegrad.distributions.TanhTransform().inv(t(x)).isfinite().all()
    with pytest.raises(ValueError):
        tapegrad.distributions.ExpTransform(cache_size=2)


def test_a_transform_may_be_a_module():
    class Scale(tapegrad.distributions.Transform, tapegrad.nn.Module):
        bijective, domain, codomain = True, tapegrad.distributions.constraints.real, tapegrad.distributions.constraints.real

        def __init__(self):
            super().__init__(cache_size=1)
            self.factor = tapegrad.nn.Parameter(tapegrad.tensor(2.0))

        __hash__ = object.__hash__

        def _call(self, x):
            return x * self.factor

        def _inverse(self, y):
            return y / self.factor

        def log_abs_det_jacobian(self, x, y):
            return self.factor.log().expand(x.shape)

    scale = Scale()
    assert [name for name, _ in scale.named_parameters()] == ["factor"] and scale.inv(scale(tapegrad.ones(3))).tolist() == [1, 1, 1]
    made = tapegrad.distributions.TransformedDistribution(tapegrad.distributions.Normal(tapegrad.zeros(3), 1.0), [scale])
    made.log_prob(tapegrad.ones(3)).sum().backward()
    assert scale.factor.grad is not None


CONSTRAINTS = {
    "boolean": [[0.0, 1.0, 2.0]], "one_hot": [[0.0, 1.0, 0.0], [1.0, 1.0, 0.0]], "real": [[1.0, float("nan"), float("inf")]], "positive": [[0.0, 1.0, -1.0]],
    "nonnegative": [[0.0, 1.0, -1.0]], "unit_interval": [[0.0, 1.0, 1.1, -0.1]], "nonnegative_integer": [[0.0, 1.5, -1.0]], "positive_integer": [[0.0, 1.0, 2.5]],
    "simplex": [[0.2, 0.8], [0.5, 0.6], [-0.1, 1.1]], "real_vector": [[1.0, 2.0], [float("nan"), 1.0]], "lower_triangular": [[[1.0, 0.0], [2.0, -1.0]], [[1.0, 1.0], [0.0, 1.0]]],
    "lower_cholesky": [[[1.0, 0.0], [2.0, 1.0]], [[1.0, 0.0], [2.0, -1.0]]], "corr_cholesky": [[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.7]]],
    "square": [[[1.0, 0.0], [2.0, 1.0]]], "symmetric": [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 2.0], [3.0, 1.0]]], "positive_semidefinite": [[[1.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]],
    "positive_definite": [[[1.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]],
}
MADE = {
    "greater_than": lambda c, x: c.greater_than(2.0), "greater_than_eq": lambda c, x: c.greater_than_eq(2.0), "less_than": lambda c, x: c.less_than(-1.0),
    "interval": lambda c, x: c.interval(-1.0, 4.0), "half_open": lambda c, x: c.half_open_interval(x(-1.0), x(4.0)), "integers": lambda c, x: c.integer_interval(-1, 4),
    "independent": lambda c, x: c.independent(c.positive, 1), "multinomial": lambda c, x: c.multinomial(3),
    "cat": lambda c, x: c.cat([c.positive, c.unit_interval], dim=-1, lengths=[2, 1]), "stack": lambda c, x: c.stack([c.positive, c.real, c.boolean], dim=-1),
}


@pytest.mark.parametrize("name", sorted({**CONSTRAINTS, **MADE}))
def test_constraints_and_maps(name):
    def make(lib):
        c = lib.distributions.constraints
        return MADE[name](c, lib.tensor) if name in MADE else getattr(c, name)

    ours, theirs = make(tapegrad), make(torch)
    values = CONSTRAINTS.get(name, [[3.0, -2.0, 1.0], [0.5, 0.2, 0.1], [4.0, 2.0, -1.0]])
    for v in values:
        got, wanted = outcome(lambda: ours.check(tapegrad.tensor(v))), outcome(lambda: theirs.check(torch.tensor(v)))
        assert (got if isinstance(got, str) else got.tolist()) == (wanted if isinstance(wanted, str) else wanted.tolist()), name
    assert repr(ours) == repr(theirs) or "object at" in repr(theirs)
    assert (ours.is_discrete, ours.event_dim) == (theirs.is_discrete, theirs.event_dim)
    for registry in ("biject_to", "transform_to"):
        t, u = (outcome(lambda lib=lib, c=c: getattr(lib.distributions, registry)(c)) for lib, c in ((tapegrad, ours), (torch, theirs)))
        if isinstance(u, str):
            assert t == u
            continue
        event = {"corr_cholesky": (6,), "lower_cholesky": (3, 3), "positive_definite": (3, 3), "positive_semidefinite": (3, 3)}.get(name, (3,))
        x = torch.randn((4, *event))
        y = t(tapegrad.tensor(x.numpy()))
        np.testing.assert_allclose(y.numpy(), u(x).numpy(), rtol=1e-10, atol=1e-12)
        assert ours.check(y).all()


def test_dependent_and_registered():
    c = tapegrad.distributions.constraints
    assert c.is_dependent(c.dependent) and c.is_dependent(tapegrad.distributions.Uniform.support) and not c.is_dependent(c.real)
    for broken in (lambda: c.dependent.is_discrete, lambda: c.dependent.event_dim):
        with pytest.raises(NotImplementedError):
            broken()
    assert c.dependent(is_discrete=True, event_dim=2).event_dim == 2
    with pytest.raises(ValueError):
        c.dependent.check(tapegrad.ones(1))
    with pytest.raises(NotImplementedError):
        tapegrad.distributions.biject_to(c.boolean)
    with pytest.raises(TypeError):
        tapegrad.distributions.biject_to.register(3, lambda x: x)

    class Even(c.Constraint):
        def check(self, value):
            return value % 2 == 0

    @tapegrad.distributions.transform_to.register(Even)
    def twice(constraint):
        return tapegrad.distributions.AffineTransform(0, 2)

    assert tapegrad.distributions.transform_to(Even())(tapegrad.tensor(3.0)).item() == 6


def test_triangles_as_vectors():
    from tapegrad.distributions import utils as ours
    from torch.distributions import utils as theirs

    x = torch.randn(2, 4, 4)
    for diagonal in (-2, -1, 0, 1):
        got, wanted = ours.tril_matrix_to_vec(tapegrad.tensor(x.numpy()), diagonal), theirs.tril_matrix_to_vec(x, diagonal)
        assert got.tolist() == wanted.tolist()
        if diagonal <= 0:
            assert ours.vec_to_tril_matrix(got, diagonal).tolist() == theirs.vec_to_tril_matrix(wanted, diagonal).tolist()
    with pytest.raises(ValueError):
        ours.vec_to_tril_matrix(tapegrad.ones(4))
    with pytest.raises(ValueError):
        ours.tril_matrix_to_vec(tapegrad.ones(3, 3), 3)
    with pytest.raises(ValueError):
        ours.broadcast_all("a", 1.0)
