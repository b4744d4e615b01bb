"""Switches of PyTorch's compiler, kept for scripts that set them."""

from contextlib import contextmanager

cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = 256
suppress_errors = verbose = dynamic_shapes = optimize_ddp = False
automatic_dynamic_shapes = True
capture_scalar_outputs = capture_dynamic_output_shape_ops = guard_nn_modules = inline_inbuilt_nn_modules = False
log_level = None
skip_fwd_side_effects_in_bwd_under_checkpoint = False


@contextmanager
def patch(arg1=None, arg2=None, **changes):
    """Other values within a context: patch(name=value), patch({name: value}) or patch("name", value)."""
    changes = {**(arg1 if isinstance(arg1, dict) else {} if arg1 is None else {arg1: arg2}), **changes}
    before = {name: globals()[name] for name in changes if name in globals()}
    globals().update(changes)
    try:
        yield
    finally:
        for name in changes:
            globals().pop(name)
        globals().update(before)

