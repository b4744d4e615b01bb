#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/kernels_join.h"

namespace tapegrad::cpu::TG_ISA {

// Each tensor is one copy into its place.
void cat_cpu(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  const int64_t d = wrap_dim(dim, out.ndim(), "cat");
  const int64_t stride = out.impl()->stride(static_cast<int>(d));
  int64_t offset = out.storage_offset();
  for (const Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    copy_cpu(alias_tensor(out, t.sizes(), out.strides(), offset), t, false);
    offset += t.size(d) * stride;
  }
}

void stack_cpu(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  const int64_t d = wrap_dim(dim, out.ndim(), "stack");
  DimVector strides(out.strides());
  const int64_t step = strides[d];
  strides.erase(d);
  int64_t offset = out.storage_offset();
  for (const Tensor& t : tensors) {
    copy_cpu(alias_tensor(out, t.sizes(), strides, offset), t, false);
    offset += step;
  }
}

}  // namespace tapegrad::cpu::TG_ISA
