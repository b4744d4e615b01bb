"""What is drawn: distribution functions and moments, gradients of samples at fixed quantiles."""

import numpy as np
import pytest
import tapegrad
from distributions import cases

torch = pytest.importorskip("torch")

COUNT = 20000


@pytest.fixture(autouse=True)
def seeds():
    with cases.double_precision(tapegrad, torch):
        tapegrad.manual_seed(7)
        torch.manual_seed(8)
        yield


def largest_distance(a, b):
    """Kolmogorov's and Smirnov's statistic of two samples."""
    points = np.concatenate([a, b])
    return np.abs(np.searchsorted(np.sort(a), points, "right") / len(a) - np.searchsorted(np.sort(b), points, "right") / len(b)).max()


def check(ours, theirs, what):
    """Each coordinate has one distribution function in both; that two samples of one differ more has probability 1e-7."""
    limit = np.sqrt(np.log(2 / 1e-7) / 2) * np.sqrt(2 / COUNT)
    ours, theirs = ours.numpy().reshape(COUNT, -1), theirs.numpy().reshape(COUNT, -1)
    assert np.isfinite(ours).all(), what
    for k in range(ours.shape[1]):
        assert largest_distance(ours[:, k], theirs[:, k]) < limit, f"{what}: coordinate {k}"
    if ours.shape[1] > 1:  # how coordinates belong together: a sum of them
        assert largest_distance(ours @ np.arange(1, ours.shape[1] + 1), theirs @ np.arange(1, ours.shape[1] + 1)) < limit, f"{what}: together"


@pytest.mark.parametrize("name,i", cases.ALL)
def test_same_distribution_as_torch(name, i):
    ours, theirs = cases.make(tapegrad, name, i), cases.make(torch, name, i)
    with torch.no_grad():
        check(ours.sample((COUNT,)), theirs.sample((COUNT,)), name)


@pytest.mark.parametrize("name", cases.COMPOSED)
def test_composed(name):
    check(cases.composed(tapegrad)[name].sample((COUNT,)), cases.composed(torch)[name].sample((COUNT,)), name)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("shape", [0.02, 0.5, 1.0, 40.0])
def test_standard_gamma(dtype, shape):
    x = tapegrad._standard_gamma(tapegrad.full((COUNT,), shape, dtype=getattr(tapegrad, dtype)))
    assert (x > 0).all() and x.isfinite().all()
    x = x.double()
    for value in (0.1, 0.5, 0.9):
        quantile = x.quantile(value).item()
        if quantile > 1e-4:
            found = tapegrad.igamma(tapegrad.tensor(shape), tapegrad.tensor(quantile)).item()
            assert abs(found - value) < 5 * (value * (1 - value) / COUNT) ** 0.5 + (0.002 if dtype == "float16" else 0)


def test_tiny_concentrations_stay_on_the_simplex():
    x = tapegrad._sample_dirichlet(tapegrad.full((2000, 3), 1e-3, dtype=tapegrad.float32))
    assert ((x.sum(-1) - 1).abs() < 1e-6).all() and (x > 0).all() and (x < 1).all()
    assert ((x > 0.99).sum(0) > 500).all()  # nearly all of it in one corner, each as often


def test_samples_do_not_depend_on_the_number_of_threads():
    drawn = []
    for n in (1, 3):
        tapegrad.set_num_threads(n)
        tapegrad.manual_seed(3)
        drawn.append((tapegrad._standard_gamma(tapegrad.full((5000,), 0.7)), tapegrad._sample_dirichlet(tapegrad.full((5000, 2), 0.7))))
    assert all(a.equal(b) for a, b in zip(*drawn))


WITH_CDF = ["Normal", "Uniform", "Exponential", "Laplace", "Cauchy", "Gamma", "Chi2", "LogNormal", "Gumbel", "HalfNormal", "HalfCauchy", "Pareto", "Weibull",
            "Kumaraswamy", "ContinuousBernoulli", "GeneralizedPareto", "InverseGamma"]


@pytest.mark.parametrize("name", WITH_CDF)
def test_gradients_of_samples(name):
    """dx/dp = -(dF/dp) / density at each sample, F's derivative by finite differences."""
    kind = getattr(tapegrad.distributions, name)
    count, step = 200, 1e-6
    given = {k: np.array(v, dtype="float64").reshape(-1)[-1] for k, v in cases.CASES[name][0].items()}
    leaves = {k: tapegrad.full((count,), v).requires_grad_() for k, v in given.items()}
    x = kind(**leaves, validate_args=False).rsample()
    gradients = tapegrad.autograd.grad(x.sum(), list(leaves.values()))
    x = x.detach()
    density = kind(**{k: tapegrad.tensor(v) for k, v in given.items()}, validate_args=False).log_prob(x).exp()
    for (k, v), gradient in zip(given.items(), gradients, strict=True):
        def at(value, k=k):
            return kind(**{**{n: tapegrad.tensor(p) for n, p in given.items()}, k: tapegrad.tensor(value)}, validate_args=False).cdf(x)

        expected = -(at(v + step) - at(v - step)) / (2 * step) / density
        np.testing.assert_allclose(gradient.numpy(), expected.numpy(), rtol=2e-3, atol=1e-5, err_msg=f"{name}, {k}")


@pytest.mark.parametrize("a", [0.01, 0.3, 1.0, 4.0, 50.0, 1500.0, 3e4])
def test_standard_gamma_gradient(a):
    """Against finite differences of the distribution function, and PyTorch's approximation."""
    x = tapegrad._standard_gamma(tapegrad.full((300,), a))
    shape = tapegrad.full_like(x, a)
    ours = tapegrad._standard_gamma_grad(shape, x)
    step = 1e-5 * a
    slope = (tapegrad.igamma(shape + step, x) - tapegrad.igamma(shape - step, x)) / (2 * step)
    expected = -slope / ((shape - 1) * x.log() - x - shape.lgamma()).exp()
    np.testing.assert_allclose(ours.numpy(), expected.numpy(), rtol=1e-4 if a > 1e4 else 1e-6)
    theirs = torch._standard_gamma_grad(torch.full((300,), a), torch.tensor(x.numpy()))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2e-3)
    for far in (1e-3 * a, 3 * a + 40):  # where no sample is: finite, and of the right sign
        value = tapegrad._standard_gamma_grad(tapegrad.tensor(a), tapegrad.tensor(far)).item()
        assert 0 < value < 1e4
    assert tapegrad._standard_gamma_grad(tapegrad.tensor([-1.0, float("nan"), 1.0]), tapegrad.tensor([1.0, 1.0, -1.0])).isnan().all()


@pytest.mark.parametrize("a", [0.05, 0.6, 1.0, 5.0, 300.0])
@pytest.mark.parametrize("b", [0.05, 0.6, 1.0, 5.0, 300.0])
def test_dirichlet_gradient(a, b):
    x = tapegrad._sample_dirichlet(tapegrad.tensor([[a, b]]).expand(200, 2))[:, 0].clamp(1e-12, 1 - 1e-12)
    shape, total = tapegrad.full_like(x, a), tapegrad.full_like(x, a + b)
    ours = tapegrad._dirichlet_grad(x, shape, total)
    theirs = torch._dirichlet_grad(*(torch.tensor(t.numpy()) for t in (x, shape, total)))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=6e-3)
    assert tapegrad._dirichlet_grad(tapegrad.tensor([0.5, 2.0]), tapegrad.tensor([-1.0, 1.0]), tapegrad.tensor([1.0, 2.0])).isnan().all()


def test_dirichlet_gradient_tends_to_that_of_the_gamma_distribution():
    """Beta(a, b) times b is Gamma(a) for large b; PyTorch's approximation is off by a third there."""
    a, b = 3.0, 1e7
    x = tapegrad._standard_gamma(tapegrad.full((100,), a))
    ours = tapegrad._dirichlet_grad(x / b, tapegrad.tensor(a), tapegrad.tensor(a + b)) * b
    np.testing.assert_allclose(ours.numpy(), tapegrad._standard_gamma_grad(tapegrad.tensor(a), x).numpy(), rtol=1e-4)


def test_backward_of_dirichlet_samples_is_torchs():
    from torch.distributions.dirichlet import _Dirichlet_backward

    concentration = tapegrad.tensor([[0.4, 2.0, 5.0], [1.0, 1.0, 0.2]], requires_grad=True)
    x = tapegrad.distributions.Dirichlet(concentration).rsample()
    weight = tapegrad.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, 2.0]])
    x.backward(weight)
    theirs = _Dirichlet_backward(*(torch.tensor(t.detach().numpy()) for t in (x, concentration, weight)))
    np.testing.assert_allclose(concentration.grad.numpy(), theirs.numpy(), rtol=2e-3)
    with pytest.raises(NotImplementedError):
        again = tapegrad._sample_dirichlet(concentration)
        (g,) = tapegrad.autograd.grad(again.square().sum(), concentration, create_graph=True)
        g.sum().backward()


def test_straight_through_and_location_scale_gradients():
    probs = tapegrad.tensor([0.2, 0.8], requires_grad=True)
    x = tapegrad.distributions.OneHotCategoricalStraightThrough(probs=probs).rsample((5,))
    assert ((x == 0) | (x - 1).abs().lt(1e-12)).all()
    x[:, 0].sum().backward()
    np.testing.assert_allclose(probs.grad.numpy(), [5 * 0.8, -5 * 0.2], rtol=1e-12)  # of probs / probs.sum()
    loc, factor = tapegrad.zeros(2, requires_grad=True), tapegrad.tensor([[2.0, 0.0], [0.5, 1.0]], requires_grad=True)
    y = tapegrad.distributions.MultivariateNormal(loc, scale_tril=factor).rsample()
    y.sum().backward()
    eps = tapegrad.linalg.solve_triangular(factor.detach(), y.detach().unsqueeze(-1), upper=False).squeeze(-1)
    np.testing.assert_allclose(loc.grad.numpy(), [1.0, 1.0])
    np.testing.assert_allclose(factor.grad.numpy(), np.stack([eps.numpy()] * 2), rtol=1e-9)
