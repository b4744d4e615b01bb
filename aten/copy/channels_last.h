// Operands and results whose channels (dimension 1) lie innermost, as the kernels of the CPU that go along channels
// have them: a result keeps the layout of the operand that it comes from, and neither is copied to planes. Any thread.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Whether the strides say that channels lie innermost, in PyTorch's reading: where sizes of 1 leave it open, they do
// not.
TG_API bool has_channels_last(IntSpan sizes, IntSpan strides);
inline bool has_channels_last(const Tensor& t) { return has_channels_last(t.sizes(), t.strides()); }

// Whether kernels of the CPU go along the channels of this operand (N, C, and as many dimensions as `spatial`): it has
// that layout, and enough channels to fill vectors. With fewer, a copy to planes takes less time.
TG_API bool goes_along_channels(const Tensor& t, int64_t spatial);

// The dtypes of such kernels: those that networks of images have.
constexpr bool can_go_along_channels(DType t) { return is_half(t) || t == DType::float32; }

// What the CPU makes of an operand: of the same layout, or contiguous. With `spatial`, of operands (N, C) and as many
// dimensions alone.
TG_API TensorSpec spec_like_image(const Tensor& from, DimVector sizes, std::optional<DType> dtype = {},
                                  std::optional<int64_t> spatial = {});

// The operand with its channels innermost and without gaps: itself, or a copy.
TG_API Tensor channels_last_or_copy(const Tensor& t);

// The same memory with the channels as the last dimension.
TG_API Tensor channels_behind(const Tensor& t);

// Where a kernel that computes planes writes: to the result or, if its channels lie innermost, to a tensor of planes
// that `finish_planes` copies to it.
TG_API Tensor planes_for(const Tensor& out);
TG_API void finish_planes(const Tensor& out, const Tensor& planes);
template <class Kernel>
void in_planes(const Tensor& out, Kernel&& kernel) {
  const Tensor planes = planes_for(out);
  kernel(planes);
  finish_planes(out, planes);
}

}  // namespace tapegrad
