// The placement of tensors by cat and stack, for every device: calls `copy(part of the result, tensor)` for each tensor
// in order.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

template <class Copy>
void cat_pieces(TensorSpan tensors, int64_t d, const Tensor& out, Copy&& copy) {
  const int64_t stride = out.impl()->stride(static_cast<int>(d));
  int64_t offset = out.storage_offset();
  for (const Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    copy(alias_tensor(out, t.sizes(), out.strides(), offset), t);
    offset += t.size(d) * stride;
  }
}

template <class Copy>
void stack_pieces(TensorSpan tensors, int64_t dim, const Tensor& out, Copy&& copy) {
  if (out.numel() == 0) return;
  const int64_t d = wrap_dim(dim, out.ndim(), "stack");
  DimVector strides(out.strides());
  const int64_t step = strides[d];
  strides.erase(d);
  int64_t offset = out.storage_offset();
  for (const Tensor& t : tensors) {
    copy(alias_tensor(out, t.sizes(), strides, offset), t);
    offset += step;
  }
}

}  // namespace tapegrad
