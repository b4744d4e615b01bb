// Geometry of iterations over several tensors: the shape they broadcast to, the layout of a fresh result, and
// the order in which memory is walked.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

struct Layout {
  DimVector sizes;
  DimVector strides;  // in elements, of a fresh result; empty: contiguous
};

// The shape that all broadcast to. With `with_strides`, a fresh result keeps the operands' common dense order of
// dimensions (channels_last, transposed), as PyTorch's does; the first operand that determines an order decides.
TG_API Layout broadcast_layout(std::span<const Tensor* const> inputs, const char* op, bool with_strides);

// Fills shape and byte strides for walking all operands together: dimensions in the order of the first
// operand's strides (ties by the next), the last one the fastest; sizes of 1 dropped, neighbours merged where all
// operands allow. Returns the number of dimensions, at least 1. Operands broadcast to `sizes`.
TG_API int iteration_space(std::span<const Tensor* const> operands, IntSpan sizes, int64_t* shape,
                           int64_t* const* strides);

}  // namespace tapegrad
