#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_copy.h"

namespace tapegrad::composite {

const Tensor& fill_diagonal_(const Tensor& self, const Scalar& fill_value, bool wrap) {
  TG_CHECK(self.ndim() >= 2, Runtime, "fill_diagonal_: expected at least 2 dimensions: got sizes {}",
           format_ints(self.sizes()));
  int64_t least = self.size(0), step = 0;
  for (int d = 0; d < self.ndim(); ++d) {
    TG_CHECK(self.ndim() == 2 || self.size(d) == least, Runtime,
             "fill_diagonal_: expected equal sizes in all of more than 2 dimensions: got {}",
             format_ints(self.sizes()));
    least = std::min(least, self.size(d));
    step += self.stride(d);
  }
  if (self.numel() == 0) return self;
  fill_(as_strided(self, {least}, {step}, self.storage_offset()), Operand(fill_value));
  if (!wrap || self.ndim() != 2 || self.size(0) <= self.size(1) + 1) return self;
  // Below a gap of one row the diagonal begins again.
  const int64_t width = self.size(1);
  const int64_t all = (self.numel() + width) / (width + 1);
  for (int64_t first = width + 1; least < all; first += width + 1) {
    const int64_t many = std::min(width, self.size(0) - first);
    fill_(as_strided(self, {many}, {step}, self.storage_offset() + first * self.stride(0)), Operand(fill_value));
    least += many;
  }
  return self;
}

}  // namespace tapegrad::composite
