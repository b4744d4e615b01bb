// Operands as kernels read them: contiguous, with the given dtype, sizes and device. Each function returns the tensor
// itself if it already satisfies this, otherwise a fresh copy that no other tensor shares. Any thread.
// contiguous_or_copy(t), which changes the layout alone, is declared in iterate/outputs.h.
#pragma once

#include "tapegrad/aten/iterate/outputs.h"

namespace tapegrad {

// Broadcast to `sizes`.
TG_API Tensor contiguous_as(const Tensor& t, IntSpan sizes, DType dtype, Device device);
inline Tensor contiguous_as(const Tensor& t, DType dtype) { return contiguous_as(t, t.sizes(), dtype, t.device()); }

// On out's device and apart from its memory: a source that writing `out` does not change.
TG_API Tensor contiguous_apart(const Tensor& t, IntSpan sizes, DType dtype, const Tensor& out);

// The leading part of a tensor: the elements whose indices lie below `sizes`. A number counts as a vector of one, and
// the other way round.
TG_API Tensor leading_part(const Tensor& t, IntSpan sizes);

}  // namespace tapegrad
