#include "tapegrad/aten/copy/channels_last.h"

#include <algorithm>
#include <limits>

#include "tapegrad/aten/functions_copy.h"

namespace tapegrad {

bool has_channels_last(IntSpan sizes, IntSpan strides) {
  const size_t n = sizes.size();
  if (n < 4 || n > 5 || strides[1] == 0) return false;
  int64_t least = 0;
  for (size_t k = 0; k < n; ++k) {
    const size_t d = k == 0 ? 1 : k == n - 1 ? 0 : n - k;  // 1, then the spatial dimensions from the last, then 0
    if (sizes[d] == 0 || strides[d] < least || (d == 0 && least == strides[1])) return false;
    least = strides[d] * sizes[d];
  }
  return true;
}

bool goes_along_channels(const Tensor& t, int64_t spatial) {
  constexpr int64_t kFewest = 8, kMost = std::numeric_limits<int32_t>::max();  // places are 32-bit numbers
  if (t.ndim() != spatial + 2 || t.is_contiguous() || t.is_cuda()) return false;
  return has_channels_last(t) && t.size(1) >= kFewest && t.numel() / (t.size(0) * t.size(1)) <= kMost;
}

TensorSpec spec_like_image(const Tensor& from, DimVector sizes, std::optional<DType> dtype,
                           std::optional<int64_t> spatial) {
  DimVector strides;
  if (!from.is_cuda() && from.ndim() == spatial.value_or(from.ndim() - 2) + 2 && has_channels_last(from))
    strides = channels_last_strides(sizes);
  return {std::move(sizes), dtype.value_or(from.dtype()), from.device(), std::move(strides)};
}

Tensor channels_last_or_copy(const Tensor& t) { return raw::contiguous(t, MemoryFormat::ChannelsLast); }

Tensor channels_behind(const Tensor& t) {
  DimVector sizes(t.sizes()), strides(t.strides());
  std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  std::rotate(strides.begin() + 1, strides.begin() + 2, strides.end());
  return alias_tensor(t, sizes, strides, t.storage_offset());
}

Tensor planes_for(const Tensor& out) { return out.is_contiguous() ? out : empty_tensor(out.sizes(), out.dtype()); }

void finish_planes(const Tensor& out, const Tensor& planes) {
  if (planes.impl() != out.impl()) raw::copy_(out, planes, true);
}

}  // namespace tapegrad
