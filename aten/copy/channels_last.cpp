#include "tapegrad/aten/copy/channels_last.h"

#include <limits>

#include "tapegrad/aten/functions_copy.h"

namespace tapegrad {

bool has_channels_last(const Tensor& t) {
  const int n = t.ndim();
  if (n < 4 || n > 5 || t.impl()->stride(1) == 0) return false;
  int64_t least = 0;
  for (int k = 0; k < n; ++k) {
    const int d = k == 0 ? 1 : k == n - 1 ? 0 : n - k;  // 1, then the spatial dimensions from the last, then 0
    const int64_t size = t.impl()->size(d), stride = t.impl()->stride(d);
    if (size == 0 || stride < least || (d == 0 && least == t.impl()->stride(1))) return false;
    least = stride * size;
  }
  return true;
}

bool goes_along_channels(const Tensor& t, int64_t spatial) {
  constexpr int64_t kFewest = 8, kMost = std::numeric_limits<int32_t>::max();  // places are 32-bit numbers
  if (t.ndim() != spatial + 2 || t.is_contiguous() || t.is_cuda()) return false;
  return has_channels_last(t) && t.size(1) >= kFewest && t.numel() / (t.size(0) * t.size(1)) <= kMost;
}

TensorSpec spec_along_channels(const Tensor& from, DimVector sizes, int64_t spatial, std::optional<DType> dtype) {
  DimVector strides;
  if (can_go_along_channels(from.dtype()) && goes_along_channels(from, spatial)) strides = channels_last_strides(sizes);
  return {std::move(sizes), dtype.value_or(from.dtype()), from.device(), std::move(strides)};
}

Tensor channels_last_or_copy(const Tensor& t) { return raw::contiguous(t, MemoryFormat::ChannelsLast); }

}  // namespace tapegrad
