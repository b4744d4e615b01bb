"""Divergences of two classes of distributions.

Of different classes most are -H(p) - E[log q(x)], for which the means of x, log x and the like under p are collected in
`_mean_log` and `_laplace`. Between distributions of one class, formulas that do not cancel.
"""

import math

import tapegrad

from .continuous.cauchy import Cauchy
from .continuous.exponential import Exponential
from .continuous.gamma import Gamma
from .continuous.gumbel import Gumbel
from .continuous.half_normal import HalfNormal
from .continuous.laplace import Laplace
from .continuous.normal import Normal
from .continuous.pareto import Pareto
from .discrete.bernoulli import Bernoulli
from .discrete.binomial import Binomial
from .discrete.categorical import Categorical
from .discrete.geometric import Geometric
from .discrete.one_hot_categorical import OneHotCategorical
from .discrete.poisson import Poisson
from .exp_family import ExponentialFamily
from .independent import Independent
from .interval.beta import Beta
from .interval.continuous_bernoulli import ContinuousBernoulli
from .interval.uniform import Uniform
from .kl import kl_divergence, register_kl
from .multivariate.dirichlet import Dirichlet
from .multivariate.lowrank_multivariate_normal import LowRankMultivariateNormal, _batch_lowrank_mahalanobis
from .multivariate.multivariate_normal import MultivariateNormal, _batch_mahalanobis
from .transformed_distribution import TransformedDistribution
from .utils import _softplus, _sum_rightmost, euler_constant

_INF = float("inf")


# --- of one class ---


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p, q):
    one = p.probs * (_softplus(-q.logits) - _softplus(-p.logits))
    one = one.masked_fill(q.probs == 0, _INF).masked_fill(p.probs == 0, 0)
    zero = (1 - p.probs) * (_softplus(q.logits) - _softplus(p.logits))
    return one + zero.masked_fill(q.probs == 1, _INF).masked_fill(p.probs == 1, 0)


@register_kl(Beta, Beta)
def _beta(p, q):
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p, q):
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    norm = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norm + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Binomial, Binomial)
def _binomial(p, q):
    if (p.total_count < q.total_count).any():
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return tapegrad.where(p.total_count > q.total_count, _INF, kl)


@register_kl(Categorical, Categorical)
def _categorical(p, q):
    t = p.probs * (p.logits - q.logits)
    return tapegrad.where(p.probs == 0, 0.0, tapegrad.where(q.probs == 0, _INF, t)).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p, q):
    return _categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p, q):
    return p.mean * (p.logits - q.logits) + p._cont_bern_log_norm() + (-p.probs).log1p() - q._cont_bern_log_norm() - (-q.probs).log1p()


@register_kl(Exponential, Exponential)
def _exponential(p, q):
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p, q):
    """The Bregman divergence of the log-normaliser."""
    if type(p) is not type(q):
        raise NotImplementedError(f"The cross KL-divergence between different exponential families cannot be computed using Bregman divergences: "
                                  f"{type(p).__name__} and {type(q).__name__}")
    at_p = [n.detach().requires_grad_() for n in p._natural_params]
    with tapegrad.enable_grad():
        normalizer = p._log_normalizer(*at_p)
        gradients = tapegrad.autograd.grad(normalizer.sum(), at_p, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - normalizer
    for a, b, g in zip(at_p, q._natural_params, gradients):
        result = result - _sum_rightmost((b - a) * g, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma(p, q):
    a, b = p.concentration, q.concentration
    return b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma() + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Gumbel, Gumbel)
def _gumbel(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return -ratio.log() + distance + euler_constant * (ratio - 1) + ((1 + ratio).lgamma() - distance).exp() - 1


@register_kl(Geometric, Geometric)
def _geometric(p, q):
    return -p.entropy() - (-q.probs).log1p() / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p, q):
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace_laplace(p, q):
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _normal(p, q):
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto(p, q):
    ratio = q.alpha / p.alpha
    kl = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return tapegrad.where(p.scale < q.scale, _INF, kl)


@register_kl(Poisson, Poisson)
def _poisson(p, q):
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p, q):
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL between TransformedDistributions is implemented for the same transforms and event shapes")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p, q):
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL between Independents is implemented for one number of reinterpreted dimensions")
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(Cauchy, Cauchy)
def _cauchy(p, q):
    # F. Chyzak and F. Nielsen, "A closed-form formula for the Kullback-Leibler divergence between Cauchy distributions", 2019
    return ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()


def _spread(factor, by):
    """tr((L L^T)^-1 W W^T) for W = `by`, per matrix."""
    batch = tapegrad.broadcast_shapes(factor.shape[:-2], by.shape[:-2])
    solved = tapegrad.linalg.solve_triangular(factor.expand((*batch, *factor.shape[-2:])), by.expand((*batch, *by.shape[-2:])), upper=False)
    return solved.square().sum((-2, -1))


def _check_events(p, q) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(f"KL-divergence between two {type(p).__name__} and {type(q).__name__} with different event shapes cannot be computed: "
                         f"{p.event_shape} and {q.event_shape}")


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p, q):
    _check_events(p, q)
    factor = q._unbroadcasted_scale_tril
    distance = _batch_mahalanobis(factor, q.loc - p.loc)
    return q._half_log_det() - p._half_log_det() + 0.5 * (_spread(factor, p._unbroadcasted_scale_tril) + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _low_rank_full(p, q):
    _check_events(p, q)
    factor = q._unbroadcasted_scale_tril
    diagonal = p._unbroadcasted_cov_diag.sqrt().diag_embed()
    trace = _spread(factor, p._unbroadcasted_cov_factor) + _spread(factor, diagonal)
    return q._half_log_det() - 0.5 * p._log_det() + 0.5 * (trace + _batch_mahalanobis(factor, q.loc - p.loc) - p.event_shape[0])


def _low_rank_trace(q, by):
    """tr((W W^T + D)^-1 A A^T) for A = `by`, by Woodbury's identity."""
    d = q._unbroadcasted_cov_diag.unsqueeze(-1)
    return (by / d.sqrt()).square().sum((-2, -1)) - _spread(q._capacitance_tril, (q._unbroadcasted_cov_factor / d).mT @ by)


def _to_low_rank(p, q, p_half_log_det, trace):
    distance = _batch_lowrank_mahalanobis(q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q.loc - p.loc, q._capacitance_tril)
    return 0.5 * q._log_det() - p_half_log_det + 0.5 * (trace + distance - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _full_low_rank(p, q):
    _check_events(p, q)
    return _to_low_rank(p, q, p._half_log_det(), _low_rank_trace(q, p._unbroadcasted_scale_tril))


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _low_rank(p, q):
    _check_events(p, q)
    trace = _low_rank_trace(q, p._unbroadcasted_cov_factor) + _low_rank_trace(q, p._unbroadcasted_cov_diag.sqrt().diag_embed())
    return _to_low_rank(p, q, 0.5 * p._log_det(), trace)


# --- of different classes ---


def _x_log_x(x):
    return tapegrad.xlogy(x, x)


def _mean_log(p):
    """The mean of log x."""
    if isinstance(p, Beta):
        return p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    if isinstance(p, Exponential):
        return -euler_constant - p.rate.log()
    if isinstance(p, Gamma):
        return p.concentration.digamma() - p.rate.log()
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1  # Uniform


def _laplace(p, t):
    """The mean of exp(-t x)."""
    if isinstance(p, Exponential):
        return p.rate / (p.rate + t)
    if isinstance(p, Gamma):
        return (1 + t / p.rate) ** (-p.concentration)
    if isinstance(p, Normal):
        return (-p.loc * t + 0.5 * (p.scale * t).square()).exp()
    return ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low))  # Uniform


def _lower(p):
    return 0 if isinstance(p, (Beta, Exponential, Gamma, ContinuousBernoulli)) else p.scale if isinstance(p, Pareto) else p.low


def _to_exponential(p, q):
    return -p.entropy() - q.rate.log() + q.rate * p.mean


def _to_gamma(p, q):
    a = q.concentration
    return -p.entropy() - a * q.rate.log() + a.lgamma() - (a - 1) * _mean_log(p) + q.rate * p.mean


def _to_normal(p, q):
    spread = p.variance + (p.mean - q.loc).square()
    return -p.entropy() + 0.5 * (2 * math.pi * q.scale.square()).log() + 0.5 * spread / q.scale.square()


def _to_gumbel(p, q):
    return -p.entropy() + q.scale.log() + (p.mean - q.loc) / q.scale + (q.loc / q.scale).exp() * _laplace(p, q.scale.reciprocal())


def _to_continuous_bernoulli(p, q):
    return -p.entropy() - p.mean * q.logits - (-q.probs).log1p() - q._cont_bern_log_norm()


def _where_inside(function):
    """`function`, but infinite where values of p lie before the support of q, the numbers from 0."""
    return lambda p, q: tapegrad.where(tapegrad.as_tensor(_lower(p)) < 0, _INF, function(p, q))


for _p, _q, _function in (
        (Beta, ContinuousBernoulli, _to_continuous_bernoulli), (Beta, Exponential, _to_exponential), (Beta, Gamma, _to_gamma),
        (Beta, Normal, _to_normal), (ContinuousBernoulli, Exponential, _to_exponential), (ContinuousBernoulli, Normal, _to_normal),
        (Exponential, Gamma, _to_gamma), (Exponential, Gumbel, _to_gumbel), (Exponential, Normal, _to_normal),
        (Gamma, Exponential, _to_exponential), (Gamma, Gumbel, _to_gumbel), (Gamma, Normal, _to_normal), (Gumbel, Normal, _to_normal),
        (Laplace, Normal, _to_normal), (Normal, Gumbel, _to_gumbel), (Uniform, Gumbel, _to_gumbel), (Uniform, Normal, _to_normal),
        (Uniform, Exponential, _where_inside(_to_exponential)), (Uniform, Gamma, _where_inside(_to_gamma)),
        (Pareto, Gamma, _to_gamma), (Pareto, Exponential, _to_exponential), (Pareto, Normal, _to_normal)):
    register_kl(_p, _q)(_function)


def _infinite(p, q):
    """p has mass where q has none, whatever the parameters."""
    like = p.mean
    return tapegrad.full(tapegrad.broadcast_shapes(p.batch_shape, q.batch_shape), _INF, dtype=like.dtype, device=like.device)


for _p, _qs in ((Beta, (Pareto,)), (ContinuousBernoulli, (Pareto,)), (Exponential, (Beta, ContinuousBernoulli, Pareto, Uniform)),
                (Gamma, (Beta, ContinuousBernoulli, Pareto, Uniform)),
                (Gumbel, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
                (Laplace, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
                (Normal, (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
                (Pareto, (Beta, ContinuousBernoulli, Uniform)), (Poisson, (Bernoulli, Binomial))):
    for _q in _qs:
        register_kl(_p, _q)(_infinite)


@register_kl(Uniform, Uniform)
def _uniform(p, q):
    return tapegrad.where((q.low > p.low) | (q.high < p.high), _INF, ((q.high - q.low) / (p.high - p.low)).log())


@register_kl(Beta, Uniform)
@register_kl(ContinuousBernoulli, Uniform)
def _unit_to_uniform(p, q):
    return tapegrad.where((q.low > 0) | (q.high < 1), _INF, -p.entropy() + (q.high - q.low).log())


@register_kl(Uniform, Beta)
def _uniform_beta(p, q):
    a, b, width = q.concentration1, q.concentration0, p.high - p.low
    log_beta = a.lgamma() + b.lgamma() - (a + b).lgamma()
    log_rest = (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / width - 1  # the mean of log(1 - x)
    kl = -width.log() + log_beta - (a - 1) * _mean_log(p) - (b - 1) * log_rest
    return tapegrad.where((p.high > 1) | (p.low < 0), _INF, kl)


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p, q):
    return tapegrad.where((p.high > 1) | (p.low < 0), _INF, _to_continuous_bernoulli(p, q))


@register_kl(Uniform, Pareto)
def _uniform_pareto(p, q):
    kl = -p.entropy() - q.alpha.log() - q.alpha * q.scale.log() + (q.alpha + 1) * _mean_log(p)
    return tapegrad.where(p.low < q.scale, _INF, kl)


@register_kl(Normal, Laplace)
def _normal_laplace(p, q):
    # The mean of |x - m|: that of a folded normal distribution.
    d = p.loc - q.loc
    z = d / p.scale
    mean_distance = p.scale * math.sqrt(2 / math.pi) * (-0.5 * z.square()).exp() + d * (z * math.sqrt(0.5)).erf()
    return -p.entropy() + (2 * q.scale).log() + mean_distance / q.scale


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p, q):
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)
