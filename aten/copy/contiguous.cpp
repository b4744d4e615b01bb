#include "tapegrad/aten/copy/contiguous.h"

#include "tapegrad/aten/functions_copy.h"

namespace tapegrad {

Tensor contiguous_as(const Tensor& t, IntSpan sizes, DType dtype, Device device) {
  if (t.dtype() == dtype && t.device() == device && t.sizes() == sizes && t.is_contiguous()) return t;
  const Tensor copy = empty_tensor(sizes, dtype, device);
  raw::copy_(copy, t, true);
  return copy;
}

Tensor contiguous_apart(const Tensor& t, IntSpan sizes, DType dtype, const Tensor& out) {
  const Tensor same = contiguous_as(t, sizes, dtype, out.device());
  if (!may_overlap(out, same)) return same;
  const Tensor copy = empty_tensor(sizes, dtype, out.device());
  raw::copy_(copy, same, true);
  return copy;
}

Tensor leading_part(const Tensor& t, IntSpan sizes) {
  if (t.sizes() == sizes) return t;
  const auto plain = contiguous_strides(sizes);
  const bool same_rank = t.ndim() == static_cast<int>(sizes.size());
  return alias_tensor(t, sizes, same_rank ? t.strides() : IntSpan(plain), t.storage_offset());
}

}  // namespace tapegrad
