"""SyncBatchNorm: batch normalisation over the batches of all ranks of a process group.

Each rank sends one vector per pass: in forward its count, mean and sum of squared deviations per channel, which are put together as
Chan, Golub and LeVeque (1979) do, in the order of ranks and in float64, so that all ranks get the same bits; in backward two sums per channel.
"""

from .. import autograd, cat, float32, float64, no_grad, zeros
from ._layers import BatchNorm1d

__all__ = ["SyncBatchNorm"]


def _statistics(x, dims, group):
    """Mean, biased variance and count over all ranks; float64 on the input's device."""
    from ..distributed import all_gather

    channels, count = x.size(1), x.numel() // max(1, x.size(1))
    mine = zeros(2 * channels + 1, dtype=float64, device=x.device)
    if count:
        wide = x.double() if x.dtype == float64 else x.float()
        mean = wide.mean(dims)
        shape = [1, channels] + [1] * (x.dim() - 2)
        mine[:channels] = mean
        mine[channels:-1] = (wide - mean.view(shape)).square().sum(dims)
        mine[-1] = count
    rows = [zeros(mine.shape, dtype=float64, device=x.device) for _ in range(group.size())]
    all_gather(rows, mine, group=group)
    total, mean, squares = 0.0, zeros(channels, dtype=float64, device=x.device), zeros(channels, dtype=float64, device=x.device)
    for row in rows:
        n = row[-1].item()
        if n:
            delta, both = row[:channels] - mean, total + n
            mean = mean + delta * (n / both)
            squares = squares + row[channels:-1] + delta.square() * (total * n / both)
            total = both
    return mean, squares, total


class _Normalise(autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, mean, variance, total, eps, group):
        kind = float64 if x.dtype == float64 else float32
        shape = [1, x.size(1)] + [1] * (x.dim() - 2)
        scale = (variance + eps).rsqrt().to(kind).view(shape)
        centre = mean.to(kind).view(shape)
        normal = (x.to(kind) - centre) * scale
        ctx.save_for_backward(x, weight, centre, scale)
        ctx.total, ctx.group, ctx.has_bias = total, group, bias is not None
        if weight is not None:
            normal = normal * weight.to(kind).view(shape)
        if bias is not None:
            normal = normal + bias.to(kind).view(shape)
        return normal.to(x.dtype)

    @staticmethod
    @autograd.function.once_differentiable
    def backward(ctx, grad):
        from ..distributed import all_reduce

        x, weight, centre, scale = ctx.saved_tensors
        kind, channels = scale.dtype, x.size(1)
        dims = [d for d in range(x.dim()) if d != 1]
        grad = grad.to(kind)
        normal = (x.to(kind) - centre) * scale
        of_bias, of_weight = grad.sum(dims), (grad * normal).sum(dims)
        sums = cat([of_bias, of_weight]).double()
        all_reduce(sums, group=ctx.group)
        means = (sums / ctx.total).to(kind)
        shape = [1, channels] + [1] * (x.dim() - 2)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (grad - means[:channels].view(shape) - normal * means[channels:].view(shape)) * scale
            if weight is not None:
                of_x = of_x * weight.to(kind).view(shape)
            of_x = of_x.to(x.dtype)
        return (of_x, of_weight.to(weight.dtype) if weight is not None else None,
                of_bias.to(weight.dtype if weight is not None else x.dtype) if ctx.has_bias else None, None, None, None, None, None)


class SyncBatchNorm(BatchNorm1d):
    """Batch normalisation over the batches of all ranks of `process_group` (None: the world), for input of any two or more dimensions.

    Ranks may have batches of different lengths, also none. In evaluation, without a process group, and in a group of one, it is batch
    normalisation. Gradients of its parameters are this rank's part, which DistributedDataParallel averages like all others.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group=None, device=None, dtype=None, *, bias: bool = True) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _check_non_zero_input_channels(self, input) -> None:
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def _group(self):
        from .. import distributed

        if not distributed.is_initialized():
            return None
        group = self.process_group if self.process_group is not None else distributed.group.WORLD
        return group if group.size() > 1 else None

    def forward(self, input):
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        group = self._group() if self.training else None
        if group is None:
            return self._batch_norm(input)
        momentum, count = self.momentum, self.num_batches_tracked
        with no_grad():
            if count is not None:
                count.add_(1)
                if momentum is None:
                    momentum = 1.0 / float(count)
            mean, squares, total = _statistics(input.detach(), [d for d in range(input.dim()) if d != 1], group)
            if total <= 1:
                raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(input.shape)}")
            if self.running_mean is not None:
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum or 0.0)
                self.running_var.lerp_((squares / (total - 1)).to(self.running_var.dtype), momentum or 0.0)
        return _Normalise.apply(input, self.weight, self.bias, mean, squares / total, total, self.eps, group)

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """The module with every batch normalisation in it replaced."""
        from ._bases import _BatchNorm

        result = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            result = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            for name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked"):
                setattr(result, name, getattr(module, name))
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result
