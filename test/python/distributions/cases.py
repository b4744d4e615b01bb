"""Distributions with parameters, made alike in tapegrad and in PyTorch. Parameters are nested lists, so that both can be built."""

import contextlib


@contextlib.contextmanager
def double_precision(*libraries):
    """float64 is the default of all of them inside."""
    before = [lib.get_default_dtype() for lib in libraries]
    for lib in libraries:
        lib.set_default_dtype(lib.float64)
    try:
        yield
    finally:
        for lib, dtype in zip(libraries, before, strict=True):
            lib.set_default_dtype(dtype)


COVARIANCE = [[1.5, 0.4, 0.1], [0.4, 0.9, -0.2], [0.1, -0.2, 0.7]]

# name: parameters. A list becomes a tensor, a number stays one.
CASES = {
    "Normal": [{"loc": 0.5, "scale": 2.0}, {"loc": [0.0, 1.0, -3.0], "scale": [0.5, 1.0, 2.0]}, {"loc": [[0.0], [1.0]], "scale": [0.3, 4.0]}],
    "Bernoulli": [{"probs": 0.3}, {"probs": [0.0, 0.2, 0.5, 1.0]}, {"logits": [-2.0, 0.0, 3.0]}],
    "Categorical": [{"probs": [0.1, 0.2, 0.7]}, {"logits": [[0.1, 2.0], [-1.0, 0.5]]}, {"probs": [[1.0, 3.0, 0.0], [2.0, 2.0, 4.0]]}],
    "OneHotCategorical": [{"probs": [0.1, 0.2, 0.7]}, {"logits": [[0.1, 2.0], [-1.0, 0.5]]}],
    "OneHotCategoricalStraightThrough": [{"probs": [[0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]}],
    "Uniform": [{"low": -1.0, "high": 2.5}, {"low": [0.0, 1.0], "high": [1.0, 4.0]}],
    "Beta": [{"concentration1": 2.0, "concentration0": 3.0}, {"concentration1": [0.3, 1.0, 7.0], "concentration0": [0.8, 1.0, 2.0]}],
    "Gamma": [{"concentration": 2.5, "rate": 0.7}, {"concentration": [0.2, 1.0, 30.0], "rate": [1.0, 3.0, 0.1]}],
    "Dirichlet": [{"concentration": [0.5, 1.5, 3.0]}, {"concentration": [[0.2, 0.3], [5.0, 6.0]]}],
    "Exponential": [{"rate": 1.7}, {"rate": [0.1, 1.0, 30.0]}],
    "Laplace": [{"loc": 0.5, "scale": 2.0}, {"loc": [0.0, 1.0], "scale": [0.5, 3.0]}],
    "LogNormal": [{"loc": 0.2, "scale": 0.7}, {"loc": [0.0, -1.0], "scale": [0.3, 0.9]}],
    "MultivariateNormal": [{"loc": [0.3, -0.2, 1.0], "covariance_matrix": COVARIANCE}, {"loc": [0.3, -0.2, 1.0], "precision_matrix": COVARIANCE},
                           {"loc": [[0.3, -0.2], [1.0, 0.0]], "scale_tril": [[1.2, 0.0], [-0.4, 0.8]]}],
    "LowRankMultivariateNormal": [{"loc": [0.3, -0.2, 1.0], "cov_factor": [[0.5, 0.1], [-0.3, 0.8], [0.2, 0.4]], "cov_diag": [0.4, 0.9, 0.2]},
                                  {"loc": [[0.3, -0.2], [0.1, 0.1]], "cov_factor": [[[0.5], [-0.3]]], "cov_diag": [0.4, 0.9]}],
    "Poisson": [{"rate": 4.0}, {"rate": [0.5, 1.0, 30.0]}],
    "Binomial": [{"total_count": 7, "probs": 0.3}, {"total_count": [3, 10, 50], "probs": [0.1, 0.5, 0.9]}, {"total_count": 4, "logits": [-1.0, 2.0]}],
    "NegativeBinomial": [{"total_count": 3.5, "probs": 0.4}, {"total_count": [1.0, 8.0], "logits": [-1.0, 0.3]}],
    "Multinomial": [{"total_count": 6, "probs": [0.2, 0.3, 0.5]}, {"total_count": 3, "logits": [[0.1, 2.0], [-1.0, 0.5]]}],
    "Geometric": [{"probs": 0.3}, {"probs": [0.1, 0.5, 1.0]}, {"logits": [-1.0, 2.0]}],
    "Gumbel": [{"loc": 0.5, "scale": 2.0}, {"loc": [0.0, 1.0], "scale": [0.5, 3.0]}],
    "Cauchy": [{"loc": 0.5, "scale": 2.0}, {"loc": [0.0, 1.0], "scale": [0.5, 3.0]}],
    "HalfNormal": [{"scale": 2.0}, {"scale": [0.5, 3.0]}],
    "HalfCauchy": [{"scale": 2.0}, {"scale": [0.5, 3.0]}],
    "StudentT": [{"df": 5.0}, {"df": [0.7, 1.5, 4.0], "loc": [0.0, 1.0, -1.0], "scale": [1.0, 2.0, 0.5]}],
    "Chi2": [{"df": [0.5, 3.0, 20.0]}],
    "FisherSnedecor": [{"df1": 3.0, "df2": 7.0}, {"df1": [1.5, 5.0], "df2": [3.0, 12.0]}],
    "Pareto": [{"scale": 1.5, "alpha": 3.0}, {"scale": [0.5, 2.0], "alpha": [0.8, 2.5]}],
    "Weibull": [{"scale": 1.5, "concentration": 2.0}, {"scale": [0.5, 2.0], "concentration": [0.8, 3.0]}],
    "Kumaraswamy": [{"concentration1": 2.0, "concentration0": 3.0}, {"concentration1": [0.5, 1.0, 4.0], "concentration0": [0.7, 1.0, 2.0]}],
    "VonMises": [{"loc": 0.4, "concentration": 1.5}, {"loc": [0.0, 3.0], "concentration": [0.1, 40.0]}],
    "RelaxedBernoulli": [{"temperature": [0.7], "probs": [0.2, 0.6]}, {"temperature": [2.0], "logits": [-1.0, 0.5]}],
    "LogitRelaxedBernoulli": [{"temperature": [0.7], "probs": [0.2, 0.6]}],
    "RelaxedOneHotCategorical": [{"temperature": [0.7], "probs": [0.2, 0.3, 0.5]}, {"temperature": [1.3], "logits": [[0.1, 2.0], [-1.0, 0.5]]}],
    "LogisticNormal": [{"loc": [0.1, -0.3], "scale": [0.5, 1.2]}],
    "ContinuousBernoulli": [{"probs": 0.3}, {"probs": [0.05, 0.5, 0.4995, 0.9]}, {"logits": [-2.0, 0.0, 1.0]}],
    "InverseGamma": [{"concentration": 3.5, "rate": 0.7}, {"concentration": [0.5, 1.5, 5.0], "rate": [1.0, 3.0, 0.5]}],
    "GeneralizedPareto": [{"loc": 0.5, "scale": 2.0, "concentration": 0.3}, {"loc": [0.0, 1.0, 0.0], "scale": [1.0, 2.0, 3.0], "concentration": [0.0, -0.7, 1.2]}],
    "Wishart": [{"df": 5.0, "covariance_matrix": COVARIANCE}, {"df": [4.0, 6.5], "scale_tril": [[1.2, 0.0], [-0.4, 0.8]]},
                {"df": 5.0, "precision_matrix": COVARIANCE}],
    "LKJCholesky": [{"dim": 3, "concentration": 1.5}, {"dim": 2, "concentration": [0.5, 3.0]}, {"dim": 4}],
}

ALL = [(name, i) for name, parameters in CASES.items() for i in range(len(parameters))]


def make(lib, name, i, dtype="float64", **more):
    """The distribution in a library; numbers are of its default dtype."""
    parameters = {k: lib.tensor(v, dtype=getattr(lib, dtype)) if isinstance(v, list) else v for k, v in CASES[name][i].items()}
    place = lib.distributions.relaxed_bernoulli if name == "LogitRelaxedBernoulli" else lib.distributions
    return getattr(place, name)(**parameters, **more)


def composed(lib):
    """Distributions made of others, by name."""
    d, t = lib.distributions, lib.distributions.transforms
    x = lambda v: lib.tensor(v, dtype=lib.float64)  # noqa: E731
    normal = d.Normal(x([[0.0, 1.0], [2.0, 3.0], [0.5, -0.5]]), x([[1.0, 2.0], [0.5, 1.5], [1.0, 1.0]]))
    return {
        "independent": d.Independent(normal, 1),
        "independent_twice": d.Independent(normal, 2),
        "independent_none": d.Independent(d.Bernoulli(x([0.2, 0.6])), 0),
        "mixture": d.MixtureSameFamily(d.Categorical(x([[0.3, 0.7], [0.5, 0.5], [0.9, 0.1]])), normal),
        "mixture_vectors": d.MixtureSameFamily(d.Categorical(x([0.2, 0.3, 0.5])), d.Independent(normal, 1)),
        "transformed": d.TransformedDistribution(normal, [t.AffineTransform(x(1.0), x(-2.0)), t.ExpTransform()]),
        "transformed_sigmoid": d.TransformedDistribution(d.Uniform(x(0.0), x(1.0)), [t.SigmoidTransform().inv, t.AffineTransform(loc=x(0.3), scale=x(2.0))]),
        "transformed_vectors": d.TransformedDistribution(d.Normal(x([0.0, 1.0]), x([1.0, 1.0])), [t.StickBreakingTransform()]),
        "transformed_tanh": d.TransformedDistribution(normal, t.TanhTransform(cache_size=1)),
        "multivariate_in_mixture": d.MixtureSameFamily(d.Categorical(x([0.4, 0.6])), d.MultivariateNormal(
            x([[0.0, 0.0], [1.0, 2.0]]), x([[[1.0, 0.2], [0.2, 2.0]], [[0.5, 0.0], [0.0, 0.5]]]))),
    }


COMPOSED = ["independent", "independent_twice", "independent_none", "mixture", "mixture_vectors", "transformed", "transformed_sigmoid", "transformed_vectors",
            "transformed_tanh", "multivariate_in_mixture"]
