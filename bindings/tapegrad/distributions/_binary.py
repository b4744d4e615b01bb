"""Parameters of distributions of two outcomes: probabilities or log odds."""

from __future__ import annotations

from numbers import Number

import tapegrad

from .utils import broadcast_all, lazy_property, logits_to_probs, probs_to_logits


class BinaryParameters:
    """`probs` and `logits`, of which one is given and the other computed when it is asked for."""

    def _set_parameters(self, probs, logits):
        """Takes what was given: the batch shape."""
        if (probs is None) == (logits is None):
            raise ValueError(f"{type(self).__name__}: Either `probs` or `logits` must be specified, but not both.")
        given = logits if probs is None else probs
        name = "logits" if probs is None else "probs"
        (value,) = broadcast_all(given)
        setattr(self, name, value)
        return tapegrad.Size() if isinstance(given, Number) else value.size()

    @property
    def _param(self):
        return self.__dict__["probs"] if "probs" in self.__dict__ else self.logits

    def _new(self, *args, **kwargs):
        return self._param.new(*args, **kwargs)

    @property
    def param_shape(self):
        return self._param.size()

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, is_binary=True)
