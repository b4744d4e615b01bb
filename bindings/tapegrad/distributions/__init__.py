"""Probability distributions: sampling, densities, entropies, divergences; constraints and transforms.

Those of one kind are in one folder; each has PyTorch's path, too: `tapegrad.distributions.normal` is `.continuous.normal`.
"""

import sys

from . import _kl_pairs, constraints, continuous, discrete, interval, multivariate, transforms
from .constraint_registry import biject_to, transform_to
from .continuous.cauchy import Cauchy
from .continuous.chi2 import Chi2
from .continuous.exponential import Exponential
from .continuous.fishersnedecor import FisherSnedecor
from .continuous.gamma import Gamma
from .continuous.generalized_pareto import GeneralizedPareto
from .continuous.gumbel import Gumbel
from .continuous.half_cauchy import HalfCauchy
from .continuous.half_normal import HalfNormal
from .continuous.inverse_gamma import InverseGamma
from .continuous.laplace import Laplace
from .continuous.log_normal import LogNormal
from .continuous.normal import Normal
from .continuous.pareto import Pareto
from .continuous.studentT import StudentT
from .continuous.von_mises import VonMises
from .continuous.weibull import Weibull
from .discrete.bernoulli import Bernoulli
from .discrete.binomial import Binomial
from .discrete.categorical import Categorical
from .discrete.geometric import Geometric
from .discrete.multinomial import Multinomial
from .discrete.negative_binomial import NegativeBinomial
from .discrete.one_hot_categorical import OneHotCategorical, OneHotCategoricalStraightThrough
from .discrete.poisson import Poisson
from .distribution import Distribution
from .exp_family import ExponentialFamily
from .independent import Independent
from .interval.beta import Beta
from .interval.continuous_bernoulli import ContinuousBernoulli
from .interval.kumaraswamy import Kumaraswamy
from .interval.relaxed_bernoulli import RelaxedBernoulli
from .interval.uniform import Uniform
from .kl import kl_divergence, register_kl
from .mixture_same_family import MixtureSameFamily
from .multivariate.dirichlet import Dirichlet
from .multivariate.lkj_cholesky import LKJCholesky
from .multivariate.logistic_normal import LogisticNormal
from .multivariate.lowrank_multivariate_normal import LowRankMultivariateNormal
from .multivariate.multivariate_normal import MultivariateNormal
from .multivariate.relaxed_categorical import RelaxedOneHotCategorical
from .multivariate.wishart import Wishart
from .transformed_distribution import TransformedDistribution
from .transforms import (
    AbsTransform,
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    CumulativeDistributionTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    PowerTransform,
    ReshapeTransform,
    SigmoidTransform,
    SoftmaxTransform,
    SoftplusTransform,
    StackTransform,
    StickBreakingTransform,
    TanhTransform,
    Transform,
    identity_transform,
)

__all__ = ["AbsTransform", "AffineTransform", "Bernoulli", "Beta", "Binomial", "CatTransform", "Categorical", "Cauchy", "Chi2",
           "ComposeTransform", "ContinuousBernoulli", "CorrCholeskyTransform", "CumulativeDistributionTransform", "Dirichlet",
           "Distribution", "ExpTransform", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto",
           "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "IndependentTransform", "InverseGamma", "Kumaraswamy",
           "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal",
           "LowerCholeskyTransform", "MixtureSameFamily", "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal",
           "OneHotCategorical", "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "PositiveDefiniteTransform", "PowerTransform",
           "RelaxedBernoulli", "RelaxedOneHotCategorical", "ReshapeTransform", "SigmoidTransform", "SoftmaxTransform",
           "SoftplusTransform", "StackTransform", "StickBreakingTransform", "StudentT", "TanhTransform", "Transform",
           "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to", "constraints", "identity_transform",
           "kl_divergence", "register_kl", "transform_to", "transforms"]


def _as_in_pytorch() -> None:
    """Every module of the folders is one of this package, too, and what is in it says so: PyTorch has no folders, and pickled objects name a path."""
    package = sys.modules[__name__]
    for folder in (continuous, discrete, interval, multivariate):
        for name, module in vars(folder).items():
            if not name.startswith("_"):
                setattr(package, name, module)
                sys.modules[f"{__name__}.{name}"] = module
                for member in module.__all__:
                    getattr(module, member).__module__ = f"{__name__}.{name}"


_as_in_pytorch()
