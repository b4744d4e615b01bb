// Device functions for sparse tensors besides the kernels of their rows.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::cuda {

// Records the first of `indices` (sparse dimensions, entries) that is not within its size (sparse_tensor.h).
void record_out_of_bounds(const Tensor& indices, IntSpan sizes);

}  // namespace tapegrad::cuda
