#include "tapegrad/aten/create/unset.h"

#include <atomic>
#include <limits>

#include "tapegrad/aten/functions_copy.h"

namespace tapegrad {

namespace {

std::atomic<bool> fills{false};

Scalar unset_value(DType dtype) {
  if (dtype == DType::bool_) return Scalar(true);
  if (!is_integral(dtype)) return Scalar(std::numeric_limits<double>::quiet_NaN());
  const uint64_t all = UINT64_MAX >> (64 - 8 * element_size(dtype));
  return is_signed(dtype) ? Scalar(static_cast<int64_t>(all >> 1)) : Scalar(all);
}

}  // namespace

void set_fills_unset(bool on) noexcept { fills.store(on, std::memory_order_relaxed); }
bool fills_unset() noexcept { return fills.load(std::memory_order_relaxed); }

void fill_unset(const Tensor& t) {
  if (TG_LIKELY(!fills_unset()) || t.is_meta() || t.numel() == 0) return;
  raw::fill_(t, unset_value(t.dtype()));
}

}  // namespace tapegrad
