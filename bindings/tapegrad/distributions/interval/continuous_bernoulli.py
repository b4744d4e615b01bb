"""The continuous Bernoulli distribution (Loaiza-Ganem and Cunningham, 2019)."""

import math

import tapegrad

from .. import constraints
from .._probs_or_logits import BinaryParameters
from ..exp_family import ExponentialFamily
from ..utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(BinaryParameters, ExponentialFamily):
    """Density proportional to probs^x (1 - probs)^(1 - x) on [0, 1]. Between the `lims` around 1/2, where the formulas
    cancel, series around 1/2 take their place."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    _mean_carrier_measure = 0
    has_rsample, _batched = True, ("probs", "logits")
    _kept = ("_lims",)

    def __init__(self, probs=None, logits=None, lims=(0.499, 0.501), validate_args=None):
        batch_shape = self._set_outcome(probs, logits)
        if probs is not None:
            # Clamped ones would always pass.
            if validate_args is not None and not self.arg_constraints["probs"].check(self.probs).all():
                raise ValueError("ContinuousBernoulli: The parameter probs has invalid values")
            self.probs = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(batch_shape, validate_args=validate_args)

    @lazy_property
    def probs(self):
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _split(self):
        """Where the formulas hold, the probabilities with the lower limit elsewhere, and their log odds."""
        stable = (self.probs <= self._lims[0]) | (self.probs > self._lims[1])
        p = tapegrad.where(stable, self.probs, self._lims[0])
        return stable, p, p.log() - (-p).log1p()

    def _cont_bern_log_norm(self):
        # log(2 artanh(1 - 2 p) / (1 - 2 p)), and its series.
        stable, p, log_odds = self._split()
        x = (self.probs - 0.5).square()
        return tapegrad.where(stable, log_odds.abs().log() - (1 - 2 * p).abs().log(), math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self):
        stable, p, log_odds = self._split()
        x = self.probs - 0.5
        return tapegrad.where(stable, p / (2 * p - 1) - 1 / log_odds, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self):
        stable, p, log_odds = self._split()
        x = (self.probs - 0.5).square()
        return tapegrad.where(stable, p * (p - 1) / (1 - 2 * p).square() + log_odds.square().reciprocal(),
                              1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def rsample(self, sample_shape=()):
        return self.icdf(tapegrad.rand(self._extended_shape(sample_shape), dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value):
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        return self._cont_bern_log_norm() - tapegrad.nn.functional.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def cdf(self, value):
        value = self._checked(value)
        stable, p, _ = self._split()
        inside = tapegrad.where(stable, (p.pow(value) * (1 - p).pow(1 - value) + p - 1) / (2 * p - 1), value)
        return tapegrad.where(value <= 0, 0.0, tapegrad.where(value >= 1, 1.0, inside))

    def icdf(self, value):
        stable, p, log_odds = self._split()
        return tapegrad.where(stable, ((value * (2 * p - 1) - p).log1p() - (-p).log1p()) / log_odds, value)

    def entropy(self):
        log_0, log_1 = (-self.probs).log1p(), self.probs.log()
        return self.mean * (log_0 - log_1) - self._cont_bern_log_norm() - log_0

    _natural_params = property(lambda self: (self.logits,))

    def _log_normalizer(self, x):
        low, high = self._lims
        stable = (x <= math.log(low / (1 - low))) | (x > math.log(high / (1 - high)))
        cut = tapegrad.where(stable, x, math.log(low / (1 - low)))
        log_norm = cut.expm1().abs().log() - cut.abs().log()
        return tapegrad.where(stable, log_norm, 0.5 * x + x.square() / 24.0 - x.pow(4) / 2880.0)
