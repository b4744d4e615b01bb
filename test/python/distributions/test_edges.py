"""Every distribution at the edges of its support and of its parameters against PyTorch (test/python/edges/__init__.py)."""

import math

import edges
import pytest
import tapegrad as tg
from distributions import cases

torch = pytest.importorskip("torch")

KNOWN = edges.load_known()
INF = math.inf
VALUES = [-INF, -1e300, -1.0, -1e-320, -0.0, 0.0, 1e-320, 1e-12, 0.5, 1 - 2 ** -53, 1.0, 1 + 2 ** -52, 2.0, 7.0, 1e300, INF, math.nan]
VECTORS = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5], [INF, 0.0, 0.0], [math.nan, 0.5, 0.5], [-1.0, 1.0, 1.0], [6.0, 0.0, 0.0]]
PROBABILITIES = [0.0, -0.0, 1e-320, 0.25, 1.0, -0.5, 1.5, math.nan]
PARAMETERS = [0.0, 1e-320, 1e-8, 1.0, 1e8, 1e300, INF, -INF, math.nan]


@pytest.fixture(autouse=True)
def double():
    with cases.double_precision(tg, torch):
        yield


# Saturated and even chances, beside the parameters of cases.py.
MORE = {"Bernoulli": [{"logits": [0.0, -0.0, 800.0, -800.0, INF, -INF]}, {"probs": [0.5, 1e-320]}],
        "Binomial": [{"total_count": 5.0, "logits": [0.0, -0.0, 800.0, -800.0]}, {"total_count": 0.0, "probs": [0.0, 1.0, 0.5]}],
        "Geometric": [{"logits": [0.0, 800.0, -800.0]}], "NegativeBinomial": [{"total_count": 5.0, "logits": [0.0, -800.0]}],
        "Categorical": [{"logits": [0.0, -INF, 800.0]}, {"probs": [0.0, 0.0, 1.0]}], "ContinuousBernoulli": [{"probs": [0.0, 1.0, 0.5]}]}


def made(lib, name, parameters):
    place = lib.distributions.relaxed_bernoulli if name == "LogitRelaxedBernoulli" else lib.distributions
    return getattr(place, name)(**parameters, validate_args=False)


def subject(name, method):
    """A method of a distribution as a function of its value and the parameters that are tensors."""
    def function(lib):
        return lambda *value, **parameters: getattr(made(lib, name, parameters), method)(*value)
    return edges.Callable(f"distributions.{name}", function(tg), function(torch))


def calls(name, parameters):
    """(method, case): values at the edges for the parameters as they are, and single edges among the parameters."""
    usual = {k: tg.tensor(v) if isinstance(v, list) else v for k, v in parameters.items()}
    theirs = made(torch, name, {k: torch.tensor(v) if isinstance(v, list) else v for k, v in parameters.items()})
    batch, event = len(theirs.batch_shape), theirs.event_shape
    if len(event) == 0:
        value, inside = tg.tensor(VALUES).reshape(-1, *[1] * batch), tg.tensor([0.25, 1.0]).reshape(-1, *[1] * batch)
    elif len(event) == 1:
        value = tg.tensor([v[:event[0]] for v in VECTORS]).reshape(-1, *[1] * batch, min(3, event[0]))
        inside = value[3:4]
    else:
        value = inside = tg.eye(event[0])[None]
    probability = tg.tensor(PROBABILITIES).reshape(-1, *[1] * batch)
    for method, argument in (("log_prob", [value]), ("cdf", [value]), ("icdf", [probability]), ("entropy", [])):
        yield method, edges.Case(method, tuple(argument), usual)
    if not event:  # PyTorch checks the values of parts whatever validate_args says
        yield "log_prob", edges.Case("log_prob inside", (tg.tensor([0.0, 1e-320, 0.5, 1.0]).reshape(-1, *[1] * batch),), usual)
    numbers = [k for k, v in parameters.items() if isinstance(v, float)]
    for key in numbers:
        for method, argument in (("log_prob", [inside]), ("entropy", []), ("cdf", [inside])):
            edge = tg.tensor(PARAMETERS).reshape(-1, 1)
            yield method, edges.Case(f"{method} {key} ", tuple(argument), {**usual, key: edge})


def differences_of(name):
    found, ran, compared = [], 0, 0
    for parameters in cases.CASES[name] + MORE.get(name, []):
        for method, case in calls(name, parameters):
            result = edges.Comparison(subject(name, method), case, "float64")
            found, ran, compared = found + result.differences, ran + 1, compared + result.compared
    return found, ran, compared


@pytest.mark.parametrize("name", cases.CASES)
def test_distribution(name):
    found, _, compared = differences_of(name)
    assert compared, f"{name}: no case that PyTorch takes"
    edges.check(f"distributions.{name}", found, KNOWN)
