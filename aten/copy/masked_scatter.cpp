#include <cstring>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/kernels_copy.h"

namespace tapegrad::cpu {

// Serial: the place of an element in the source is the number of true ones before it.
void masked_scatter_cpu(const Tensor& input, const Tensor& mask, const Tensor& source, const Tensor& out) {
  Tensor dense_mask = raw::contiguous(raw::expand(mask, out.sizes()));
  Tensor from = raw::contiguous(source);
  const uint8_t* m = stored(dense_mask.data<bool>());
  const int64_t n = out.numel();
  int64_t wanted = 0;
  for (int64_t i = 0; i < n; ++i) wanted += m[i] != 0;
  TG_CHECK(wanted <= from.numel(), Runtime, "masked_scatter: the mask has {} true elements, the source only {}", wanted,
           from.numel());
  if (may_overlap(out, from)) from = raw::clone(from);
  if (may_overlap(out, mask) && dense_mask.data_ptr() == mask.data_ptr()) {
    dense_mask = raw::clone(dense_mask);
    m = stored(dense_mask.data<bool>());
  }
  if (!out.is_same(input)) raw::copy_(out, input);
  const size_t size = out.itemsize();
  char* to = static_cast<char*>(out.data_ptr());
  const char* p = static_cast<const char*>(from.data_ptr());
  for (int64_t i = 0; i < n; ++i) {
    if (!m[i]) continue;
    std::memcpy(to + static_cast<size_t>(i) * size, p, size);
    p += size;
  }
}

}  // namespace tapegrad::cpu
