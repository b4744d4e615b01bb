"""Divergences of all registered pairs, against PyTorch's."""

import warnings

import numpy as np
import pytest
import tapegrad
from distributions import cases

torch = pytest.importorskip("torch")

NAMES = ["Normal", "Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "ContinuousBernoulli", "Dirichlet", "Exponential", "Gamma", "Gumbel", "Geometric",
         "HalfNormal", "HalfCauchy", "Laplace", "LogNormal", "MultivariateNormal", "LowRankMultivariateNormal", "OneHotCategorical", "Pareto", "Poisson", "Uniform",
         "StudentT", "Chi2"]
OTHER = {  # second parameters, so that q is not p
    "Normal": {"loc": [1.0, -0.5], "scale": [0.7, 3.0]}, "Bernoulli": {"probs": [0.6, 0.1]}, "Beta": {"concentration1": [0.5, 4.0], "concentration0": [2.0, 1.5]},
    "Binomial": {"total_count": 7, "probs": [0.6, 0.9]}, "Categorical": {"probs": [0.5, 0.3, 0.2]}, "Cauchy": {"loc": [1.0, 0.0], "scale": [0.5, 4.0]},
    "ContinuousBernoulli": {"probs": [0.8, 0.5]}, "Dirichlet": {"concentration": [2.0, 0.3, 1.0]}, "Exponential": {"rate": [0.2, 3.0]},
    "Gamma": {"concentration": [0.7, 5.0], "rate": [2.0, 0.4]}, "Gumbel": {"loc": [1.0, 0.0], "scale": [3.0, 0.8]}, "Geometric": {"probs": [0.6, 0.2]},
    "HalfNormal": {"scale": [0.5, 3.0]}, "HalfCauchy": {"scale": [1.0, 2.0]}, "Laplace": {"loc": [1.0, -0.5], "scale": [0.7, 3.0]},
    "LogNormal": {"loc": [0.3, 0.0], "scale": [0.4, 2.0]}, "MultivariateNormal": {"loc": [0.0, 0.0, 0.0], "scale_tril": [[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [0.1, 0.2, 0.6]]},
    "LowRankMultivariateNormal": {"loc": [0.0, 0.1, 0.2], "cov_factor": [[1.0], [0.2], [-0.7]], "cov_diag": [0.5, 1.0, 2.0]},
    "OneHotCategorical": {"probs": [0.5, 0.3, 0.2]}, "Pareto": {"scale": [0.5, 2.0], "alpha": [1.5, 2.5]}, "Poisson": {"rate": [2.0, 9.0]},
    "Uniform": {"low": [-2.0, -0.5], "high": [3.0, 1.5]}, "StudentT": {"df": [3.0]}, "Chi2": {"df": [4.0, 2.0]},
}


@pytest.fixture(autouse=True)
def double():
    with cases.double_precision(tapegrad, torch):
        yield


def divergence(lib, p, q):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return lib.distributions.kl_divergence(p, q)
    except Exception as error:
        return type(error).__name__


def other(lib, name):
    return getattr(lib.distributions, name)(**{k: lib.tensor(v) if isinstance(v, list) else v for k, v in OTHER[name].items()})


@pytest.mark.parametrize("name", NAMES)
def test_pairs(name):
    found = 0
    for q in NAMES:
        firsts = [(cases.make(tapegrad, name, i), cases.make(torch, name, i)) for i in range(1)]
        if name == "Uniform":  # inside the support of the others, too
            firsts += [tuple(lib.distributions.Uniform(lib.tensor([0.6, 0.1]), lib.tensor([0.9, 0.4])) for lib in (tapegrad, torch))]
        firsts.append((other(tapegrad, name), other(torch, name)))
        for ours, theirs in firsts:
            for second in (other, lambda lib, n: cases.make(lib, n, 0)):
                got, wanted = divergence(tapegrad, ours, second(tapegrad, q)), divergence(torch, theirs, second(torch, q))
                if isinstance(wanted, str):
                    assert got == wanted or wanted in ("RuntimeError", "IndexError", "ValueError"), f"{name}, {q}: {got}, expected {wanted}"
                    continue
                if got == "RuntimeError":  # PyTorch's infinities have the shape of p, whatever that of q
                    with pytest.raises(RuntimeError):
                        tapegrad.broadcast_shapes(ours.batch_shape, second(tapegrad, q).batch_shape)
                    continue
                found += 1
                got, wanted = got.broadcast_to(tapegrad.broadcast_shapes(got.shape, tuple(wanted.shape))), wanted
                np.testing.assert_allclose(got.numpy(), np.broadcast_to(wanted.numpy(), got.shape), rtol=1e-7, atol=1e-9, err_msg=f"{name}, {q}")
    assert found or name in ("StudentT", "HalfCauchy")


def test_composed_and_expanded():
    for lib in (tapegrad, torch):
        d = lib.distributions
        p = d.Independent(d.Normal(lib.zeros(3, 2), lib.ones(3, 2)), 1)
        q = d.Independent(d.Normal(lib.ones(3, 2), 2 * lib.ones(3, 2)), 1)
        value = d.kl_divergence(p, q)
        assert tuple(value.shape) == (3,)
        lib.testing.assert_close(value, 2 * d.kl_divergence(d.Normal(lib.zeros(3), 1.0), d.Normal(lib.ones(3), 2.0))) if lib is torch else \
            np.testing.assert_allclose(value.numpy(), 2 * d.kl_divergence(d.Normal(lib.zeros(3), 1.0), d.Normal(lib.ones(3), 2.0)).numpy())
        for other_one in (d.Independent(d.Normal(lib.zeros(3, 2), 1.0), 2), d.Poisson(lib.ones(3))):
            with pytest.raises(NotImplementedError):
                d.kl_divergence(p, other_one)


def test_own_divergences():
    d = tapegrad.distributions

    class Base(d.Normal):
        pass

    class Derived(Base):
        pass

    p, q = Derived(0.0, 1.0), Derived(1.0, 1.0)
    assert d.kl_divergence(p, q).item() == pytest.approx(0.5)
    d.register_kl(Base, Derived)(lambda p, q: "left")
    d.register_kl(Derived, Base)(lambda p, q: "right")
    with pytest.warns(RuntimeWarning, match="Ambiguous"):
        assert d.kl_divergence(p, q) == "right"
    d.register_kl(Derived, Derived)(lambda p, q: "best")
    assert d.kl_divergence(p, q) == "best"
    with pytest.raises(TypeError):
        d.register_kl(3, d.Normal)

    class Foreign:  # a library's own, derived from nothing of ours
        pass

    d.register_kl(Foreign, d.Normal)(lambda p, q: "foreign")
    assert d.kl_divergence(Foreign(), d.Normal(0.0, 1.0)) == "foreign"


def test_exponential_families_by_their_normalizer():
    from tapegrad.distributions import _kl_pairs

    for name in ("Normal", "Gamma", "Beta", "Dirichlet", "Exponential", "Poisson", "Bernoulli"):
        p, q = cases.make(tapegrad, name, 0), other(tapegrad, name)
        np.testing.assert_allclose(_kl_pairs._exponential_family(p, q).detach().numpy(), tapegrad.distributions.kl_divergence(p, q).numpy(), rtol=1e-7, atol=1e-10)


def test_entropies_by_the_log_normalizer():
    """What the base class says of an exponential family, where it says anything, is what the class says itself."""
    from tapegrad.distributions import exp_family

    d, seen = tapegrad.distributions, 0
    for of in (d.Beta(2.0, 3.0), d.Gamma(2.0, 3.0), d.Normal(0.5, 2.0), d.Bernoulli(0.3), d.Dirichlet(tapegrad.tensor([1.0, 2.0])), d.Exponential(2.0)):
        try:
            given = exp_family.ExponentialFamily.entropy(of)
        except NotImplementedError:
            continue
        seen += 1
        np.testing.assert_allclose(given.item(), of.entropy().item(), rtol=1e-5)
    assert seen == 4


def test_private_names_of_pytorch():
    from tapegrad.distributions import kl
    from tapegrad.distributions.multivariate.dirichlet import _Dirichlet_backward

    p, q = tapegrad.distributions.Gamma(2.0, 3.0), tapegrad.distributions.Gamma(1.0, 2.0)
    np.testing.assert_allclose(kl._kl_expfamily_expfamily(p, q).item(), tapegrad.distributions.kl_divergence(p, q).item(), rtol=1e-5)
    for t, backward in ((tapegrad, _Dirichlet_backward), (torch, torch.distributions.dirichlet._Dirichlet_backward)):
        x, c, grad = t.tensor([0.2, 0.8]), t.tensor([1.5, 2.5]), t.tensor([1.0, -1.0])
        result = backward(x, c, grad).tolist()
        expected = result if t is tapegrad else expected  # noqa: F821
    np.testing.assert_allclose(expected, result, rtol=1e-4)
