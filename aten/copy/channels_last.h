// Operands and results whose channels (dimension 1) lie innermost, as the kernels of the CPU that go along channels
// have them: a result keeps the layout of the operand that it comes from, and neither is copied to planes. Any thread.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Whether the strides say that channels lie innermost, in PyTorch's reading: where sizes of 1 leave it open, they do
// not.
TG_API bool has_channels_last(const Tensor& t);

// Whether kernels of the CPU go along the channels of this operand (N, C, and as many dimensions as `spatial`): it has
// that layout, and enough channels to fill vectors. With fewer, a copy to planes takes less time.
TG_API bool goes_along_channels(const Tensor& t, int64_t spatial);

// The dtypes of such kernels: those that networks of images have.
constexpr bool can_go_along_channels(DType t) { return is_half(t) || t == DType::float32; }

// What a kernel makes of its operand: of the same layout, or contiguous.
TG_API TensorSpec spec_along_channels(const Tensor& from, DimVector sizes, int64_t spatial,
                                      std::optional<DType> dtype = {});

// The operand with its channels innermost and without gaps: itself, or a copy.
TG_API Tensor channels_last_or_copy(const Tensor& t);

}  // namespace tapegrad
