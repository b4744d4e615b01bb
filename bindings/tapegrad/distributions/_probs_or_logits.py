"""Parameters of distributions of two outcomes or of several: probabilities or their logits."""

from .utils import lazy_property, logits_to_probs, probs_to_logits, same_as

__all__ = ["BinaryParameters", "CategoricalParameters", "OfCategorical"]


class _ProbsOrLogits:
    """`probs` and `logits`, of which one is given and the other computed when it is asked for."""

    _is_binary: bool

    def _given(self, probs, logits) -> dict:
        """The one that was given, by its name."""
        if (probs is None) == (logits is None):
            raise ValueError(f"{type(self).__name__}: Either `probs` or `logits` must be specified, but not both.")
        return {"logits": logits} if probs is None else {"probs": probs}

    _param = property(lambda self: self.__dict__["probs"] if "probs" in self.__dict__ else self.logits)

    def _new(self, *args, **kwargs):
        return self._param.new(*args, **kwargs)

    param_shape = property(lambda self: self._param.size())

    @lazy_property
    def logits(self):
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self):
        return logits_to_probs(self.logits, self._is_binary)


class BinaryParameters(_ProbsOrLogits):
    """The probability of one of two outcomes, or its log odds."""

    _is_binary = True

    def _set_outcome(self, probs, logits):
        """Takes what was given: the batch shape."""
        return self._set_parameters(**self._given(probs, logits))

    def _set_counted(self, total_count, probs, logits):
        """The same with a number of trials of the same dtype."""
        batch_shape = self._set_parameters(total_count=total_count, **self._given(probs, logits))
        self.total_count = self.total_count.type_as(self._param)
        return batch_shape


class CategoricalParameters(_ProbsOrLogits):
    """Probabilities along the last dimension, or their logarithms."""

    _is_binary = False


class OfCategorical:
    """What distributions that are made of a `_categorical` take from it."""

    probs = same_as("_categorical.probs")
    logits = same_as("_categorical.logits")
    param_shape = same_as("_categorical.param_shape")

    def _new(self, *args, **kwargs):
        return self._categorical._new(*args, **kwargs)
