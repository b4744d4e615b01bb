"""Switches of PyTorch's generator of kernels, kept for scripts that set them."""

import types as _types

coordinate_descent_tuning = coordinate_descent_check_all_directions = epilogue_fusion = max_autotune = fx_graph_cache = False
force_fuse_int_mm_with_mul = use_mixed_mm = shape_padding = False
conv_1x1_as_mm = debug = False
triton = _types.SimpleNamespace(unique_kernel_names=False, cudagraphs=False, cudagraph_trees=True)
cpp = _types.SimpleNamespace(threads=-1, simdlen=None)
