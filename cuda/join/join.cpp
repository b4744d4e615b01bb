// cat and stack: one copy per tensor into its place. Few launches, each at the rate of a copy.
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {

void cat_cuda(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  const int64_t d = wrap_dim(dim, out.ndim(), "cat");
  const int64_t stride = out.impl()->stride(static_cast<int>(d));
  int64_t offset = out.storage_offset();
  for (const Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    copy_any(alias_tensor(out, t.sizes(), out.strides(), offset), t, true);
    offset += t.size(d) * stride;
  }
}

void stack_cuda(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  const int64_t d = wrap_dim(dim, out.ndim(), "stack");
  DimVector strides(out.strides());
  const int64_t step = strides[d];
  strides.erase(d);
  int64_t offset = out.storage_offset();
  for (const Tensor& t : tensors) {
    copy_any(alias_tensor(out, t.sizes(), strides, offset), t, true);
    offset += step;
  }
}

}  // namespace tapegrad::cuda
