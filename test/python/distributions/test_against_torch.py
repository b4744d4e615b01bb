"""Every method of every distribution against PyTorch's, at values that PyTorch drew."""

import pickle
import warnings

import numpy as np
import pytest
import tapegrad
from distributions import cases

torch = pytest.importorskip("torch")

ATTRIBUTES = ("mean", "mode", "variance", "stddev", "batch_shape", "event_shape", "has_rsample", "has_enumerate_support", "param_shape",
              "probs", "logits", "scale_tril", "covariance_matrix", "precision_matrix", "df", "concentration0")
RELATIVE = {"VonMises": 1e-4}  # PyTorch's Bessel functions are approximate
# What PyTorch gets wrong: it writes nan into Wishart's own parameters, Kumaraswamy's mode is nan always, an expanded Multinomial
# has no entropy. And Geometric has a parameter's shape here.
NOT_COMPARED = {("Wishart", "mode"), ("Kumaraswamy", "mode"), ("Multinomial", "entropy"), ("Multinomial", "perplexity"), ("Geometric", "param_shape")}


@pytest.fixture(autouse=True)
def double():
    with cases.double_precision(tapegrad, torch):
        torch.manual_seed(5)
        yield


def outcome(function):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function()
    except Exception as error:
        return type(error).__name__


def same(ours, theirs, what, rtol=1e-9):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(ours, tapegrad.Tensor), f"{what}: got {ours}"
        assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: {ours.shape} {theirs.shape}"
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1], f"{what}: {ours.dtype}"
        np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=rtol, atol=1e-10, err_msg=what)
    else:
        assert (tuple(ours) == tuple(theirs)) if isinstance(theirs, torch.Size) else ours == theirs, f"{what}: {ours} {theirs}"


def compare(ours, theirs, name, values):
    rtol = RELATIVE.get(name, 1e-8)
    for attribute in ATTRIBUTES:
        if (name, attribute) in NOT_COMPARED:
            continue
        same(outcome(lambda: getattr(ours, attribute)), outcome(lambda: getattr(theirs, attribute)), f"{name}.{attribute}", rtol)
    for method in ("entropy", "perplexity"):
        if (name, method) in NOT_COMPARED and len(theirs.batch_shape) > 1:
            continue
        same(outcome(getattr(ours, method)), outcome(getattr(theirs, method)), f"{name}.{method}", max(rtol, 1e-8))
    assert outcome(lambda: repr(ours.support)) == outcome(lambda: repr(theirs.support)), name
    for v in values:
        x = tapegrad.tensor(v.numpy())
        same(outcome(lambda: ours.log_prob(x)), outcome(lambda: theirs.log_prob(v)), f"{name}.log_prob({v})", rtol)
        same(outcome(lambda: ours.cdf(x)), outcome(lambda: theirs.cdf(v)), f"{name}.cdf({v})", rtol)
    p = torch.rand(tuple(theirs.batch_shape)).clamp(0.02, 0.98)
    same(outcome(lambda: ours.icdf(tapegrad.tensor(p.numpy()))), outcome(lambda: theirs.icdf(p)), f"{name}.icdf", max(rtol, 1e-8))
    for expand in (True, False):
        same(outcome(lambda: ours.enumerate_support(expand)), outcome(lambda: theirs.enumerate_support(expand)), f"{name}.enumerate_support")


@pytest.mark.parametrize("name,i", cases.ALL)
def test_methods(name, i):
    ours, theirs = cases.make(tapegrad, name, i), cases.make(torch, name, i)
    values = [theirs.sample(), theirs.sample((3, 2))]
    compare(ours, theirs, name, values)
    if name != "Wishart":
        assert repr(ours).replace("tapegrad.", "torch.") == repr(theirs)
    shape = (3, 2, *theirs.batch_shape)
    wider_ours, wider_theirs = ours.expand(shape), theirs.expand(torch.Size(shape))
    assert type(wider_ours) is type(ours)
    compare(wider_ours, wider_theirs, name, [wider_theirs.sample()])
    drawn = wider_ours.sample((4,))
    assert tuple(drawn.shape) == (4, *wider_theirs.batch_shape, *wider_theirs.event_shape) and not drawn.requires_grad
    assert wider_ours.log_prob(drawn).isfinite().all() or name in ("Kumaraswamy", "Beta", "Dirichlet", "LogisticNormal")
    assert tuple(ours.sample((0, 2)).shape) == (0, 2, *theirs.batch_shape, *theirs.event_shape)


@pytest.mark.parametrize("name", cases.COMPOSED)
def test_composed(name):
    ours, theirs = cases.composed(tapegrad)[name], cases.composed(torch)[name]
    values = [theirs.sample(), theirs.sample((3, 2))]
    compare(ours, theirs, name, values)
    shape = (2, *theirs.batch_shape)
    compare(ours.expand(shape), theirs.expand(torch.Size(shape)), name, [theirs.expand(torch.Size(shape)).sample()])
    assert repr(ours).replace("tapegrad.", "torch.") == repr(theirs)
    assert tuple(ours.sample((4,)).shape) == tuple(theirs.sample((4,)).shape)


@pytest.mark.parametrize("name,i", [(n, 0) for n in cases.CASES])
def test_gradients_of_log_prob(name, i):
    """With respect to all parameters and the value."""
    def run(lib, value):
        parameters = {}
        for k, v in cases.CASES[name][i].items():
            parameters[k] = lib.tensor(v, dtype=lib.float64, requires_grad=True) if k not in ("total_count", "dim") else v
        x = lib.tensor(value, requires_grad=True)
        place = lib.distributions.relaxed_bernoulli if name == "LogitRelaxedBernoulli" else lib.distributions
        result = getattr(place, name)(**parameters, validate_args=False).log_prob(x).sum()
        leaves = [p for p in parameters.values() if isinstance(p, lib.Tensor)] + [x]
        return [None if g is None else g.numpy() for g in lib.autograd.grad(result, leaves, allow_unused=True)]

    value = cases.make(torch, name, i).sample((3,)).numpy().astype("float64")
    if name == "Categorical":
        pytest.skip("integers have no gradient")
    rtol = 1e-6 if name == "VonMises" else 1e-8
    for ours, theirs in zip(run(tapegrad, value), run(torch, value), strict=True):
        ours = np.zeros(()) if ours is None else ours
        np.testing.assert_allclose(ours + np.zeros_like(theirs if theirs is not None else 0.0), theirs if theirs is not None else 0.0 * ours, rtol=rtol, atol=1e-9)


WRONG = [
    ("Normal", {"loc": 0.0, "scale": -1.0}), ("Normal", {"loc": float("nan"), "scale": 1.0}), ("Bernoulli", {"probs": 1.5}),
    ("Bernoulli", {}), ("Bernoulli", {"probs": 0.5, "logits": 0.0}), ("Categorical", {"probs": [-1.0, 2.0]}), ("Categorical", {"probs": 0.5}),
    ("Categorical", {"logits": [float("nan"), 1.0]}), ("Uniform", {"low": 1.0, "high": 0.0}), ("Gamma", {"concentration": 0.0, "rate": 1.0}),
    ("Exponential", {"rate": -2.0}), ("Dirichlet", {"concentration": [1.0, -1.0]}), ("Dirichlet", {"concentration": 1.0}),
    ("Poisson", {"rate": -1.0}), ("Binomial", {"total_count": -1, "probs": 0.5}), ("Geometric", {"probs": 0.0}), ("Normal", {"loc": "a", "scale": 1.0}),
    ("MultivariateNormal", {"loc": [0.0, 0.0]}), ("MultivariateNormal", {"loc": [0.0, 0.0], "covariance_matrix": [[1.0, 2.0], [2.0, 1.0]]}),
    ("MultivariateNormal", {"loc": [0.0, 0.0], "scale_tril": [1.0, 2.0]}), ("Multinomial", {"total_count": 2.5, "probs": [0.5, 0.5]}),
    ("LKJCholesky", {"dim": 1}), ("Wishart", {"df": 1.0, "covariance_matrix": [[1.0, 0.0], [0.0, 1.0]]}),
    ("LowRankMultivariateNormal", {"loc": [0.0, 0.0], "cov_factor": [[1.0]], "cov_diag": [1.0, 1.0]}),
    ("Beta", {"concentration1": -1.0, "concentration0": 1.0}), ("StudentT", {"df": -1.0}), ("NegativeBinomial", {"total_count": 1.0, "probs": 1.0}),
]


@pytest.mark.parametrize("name,given", WRONG)
def test_wrong_parameters(name, given):
    def run(lib):
        parameters = {k: lib.tensor(v) if isinstance(v, list) or (name in ("Dirichlet", "Categorical") and isinstance(v, float)) else v for k, v in given.items()}
        return outcome(lambda: getattr(lib.distributions, name)(**parameters, validate_args=True))

    theirs = run(torch)
    assert isinstance(theirs, str) and run(tapegrad) == theirs


@pytest.mark.parametrize("name,value", [("Normal", [1.0, 2.0]), ("Normal", 3), ("Bernoulli", [0.5]), ("Gamma", [-1.0]), ("Categorical", [3]),
                                        ("Dirichlet", [0.5, 0.6]), ("Uniform", [7.0]), ("OneHotCategorical", [1.0, 1.0, 0.0]), ("Beta", [2.0])])
def test_wrong_values(name, value):
    def run(lib):
        d = cases.make(lib, name, 0 if name != "Normal" else 1, validate_args=True)
        return outcome(lambda: d.log_prob(lib.tensor(value) if isinstance(value, list) else value))

    assert run(torch) == "ValueError" and run(tapegrad) == "ValueError"
    assert not isinstance(outcome(lambda: cases.make(tapegrad, name, 0, validate_args=False)), str)


def test_message_names_the_parameter_and_the_values():
    with pytest.raises(ValueError, match=r"Expected parameter scale \(Tensor of shape \(2,\)\) of distribution Normal\(loc: tapegrad.Size\(\[2\]\)|scale") as error:
        tapegrad.distributions.Normal(tapegrad.zeros(2), tapegrad.tensor([1.0, -2.0]))
    assert "GreaterThan(lower_bound=0.0)" in str(error.value) and "-2." in str(error.value)


def test_default_validation_can_be_switched_off():
    try:
        tapegrad.distributions.Distribution.set_default_validate_args(False)
        tapegrad.distributions.Normal(0.0, -1.0)
    finally:
        tapegrad.distributions.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        tapegrad.distributions.Normal(0.0, -1.0)
    with pytest.raises(ValueError):
        tapegrad.distributions.Distribution.set_default_validate_args("no")


def test_expand_of_subclasses():
    class Own(tapegrad.distributions.Normal):
        def __init__(self):
            super().__init__(0.0, 1.0)

    with pytest.raises(NotImplementedError, match="must also"):
        Own().expand((2,))


def test_pickle_and_sample_n():
    d = tapegrad.distributions.Normal(tapegrad.tensor([1.0, 2.0]), 1.0)
    again = pickle.loads(pickle.dumps(d))
    assert again.loc.tolist() == [1.0, 2.0]
    with pytest.warns(FutureWarning):
        assert tuple(d.sample_n(3).shape) == (3, 2)
