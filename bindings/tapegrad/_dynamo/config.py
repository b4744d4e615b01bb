"""Switches of PyTorch's compiler, kept for scripts that set them."""

cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = 256
suppress_errors = verbose = dynamic_shapes = optimize_ddp = False
automatic_dynamic_shapes = True
capture_scalar_outputs = capture_dynamic_output_shape_ops = guard_nn_modules = inline_inbuilt_nn_modules = False
log_level = None
