"""Exponential families: densities exp(<t(x), eta> - F(eta) + k(x))."""

from .distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """The base of distributions that know their natural parameters eta and log-normaliser F. The entropy and the divergence
    from one of the same class then follow from F's gradient (Nielsen and Nock, 2010)."""

    @property
    def _natural_params(self):
        raise NotImplementedError

    def _log_normalizer(self, *natural_params):
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self):
        """The mean of k(x)."""
        raise NotImplementedError

    def entropy(self):
        import tapegrad

        parameters = [p.detach().requires_grad_() for p in self._natural_params]
        with tapegrad.enable_grad():
            normalizer = self._log_normalizer(*parameters)
            gradients = tapegrad.autograd.grad(normalizer.sum(), parameters, create_graph=True)
        result = normalizer - self._mean_carrier_measure
        for p, g in zip(parameters, gradients):
            result = result - (p * g).reshape(self._batch_shape + (-1,)).sum(-1)
        return result
