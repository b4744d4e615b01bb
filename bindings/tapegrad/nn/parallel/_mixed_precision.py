"""What DistributedDataParallel(mixed_precision=...) does in a forward pass: copies of the parameters in fewer bits take their places.

The copies are on the tape: gradients come back to the parameters in these' dtype, and what the program, the optimizer and states see stays
in it. Sums over the ranks are made in reduce_dtype (`_buckets.GradientSync`).
"""

import contextlib
from dataclasses import dataclass

from ... import no_grad
from ...utils.checkpoint import inside

__all__ = ["LowPrecision", "_MixedPrecision"]


@dataclass
class _MixedPrecision:
    """dtypes of parameters and inputs in forward and backward, of the reduction of gradients, and of buffers, which are cast once; None: as they are."""

    param_dtype: object = None
    reduce_dtype: object = None
    buffer_dtype: object = None


class LowPrecision:
    """A module's forward pass with parameters in another dtype."""

    def __init__(self, module, config: _MixedPrecision, ignored: set):
        for name in ("param_dtype", "reduce_dtype", "buffer_dtype"):
            chosen = getattr(config, name, 0)
            if chosen is not None and not getattr(chosen, "is_floating_point", False):
                raise TypeError(f"DistributedDataParallel: mixed_precision must be a _MixedPrecision of floating dtypes: got {config!r}")
        self.module, self.config, self.ignored = module, config, set(ignored)
        with no_grad():
            for name, b in module.named_buffers() if config.buffer_dtype is not None else ():
                if b.is_floating_point() and name not in self.ignored:
                    b.data = b.data.to(config.buffer_dtype)

    @contextlib.contextmanager
    def standing(self):
        """Inside, copies stand in the places of parameters."""
        dtype = self.config.param_dtype
        left_out = {id(p) for n, p in self.module.named_parameters() if n in self.ignored} if self.ignored else ()
        copies: dict = {}
        places = []
        try:
            for m in self.module.modules() if dtype is not None else ():
                for name, p in m._parameters.items():
                    if p is not None and p.is_floating_point() and p.dtype != dtype and id(p) not in left_out:
                        if id(p) not in copies:
                            copies[id(p)] = p.to(dtype)
                        places.append((m._parameters, name, p))
                        m._parameters[name] = copies[id(p)]
            yield
        finally:
            for table, name, p in places:
                table[name] = p

    def __call__(self, *args, **kwargs):
        from ...distributed.utils import _cast_forward_inputs

        args, kwargs = _cast_forward_inputs(self.config.param_dtype, *args, **kwargs)
        with inside(self.standing), self.standing():
            return self.module(*args, **kwargs)
