#include "tapegrad/aten/create/unset.h"

#include <atomic>
#include <limits>

#include "tapegrad/aten/functions_copy.h"

namespace tapegrad {

namespace {

std::atomic<bool> fills{false};

Scalar unset_value(DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return Scalar(true);
    case DType::uint8:
      return Scalar(int64_t{UINT8_MAX});
    case DType::int8:
      return Scalar(int64_t{INT8_MAX});
    case DType::uint16:
      return Scalar(int64_t{UINT16_MAX});
    case DType::int16:
      return Scalar(int64_t{INT16_MAX});
    case DType::uint32:
      return Scalar(int64_t{UINT32_MAX});
    case DType::int32:
      return Scalar(int64_t{INT32_MAX});
    case DType::uint64:
      return Scalar(uint64_t{UINT64_MAX});
    case DType::int64:
      return Scalar(int64_t{INT64_MAX});
    default:
      return Scalar(std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace

void set_fills_unset(bool on) noexcept { fills.store(on, std::memory_order_relaxed); }
bool fills_unset() noexcept { return fills.load(std::memory_order_relaxed); }

void fill_unset(const Tensor& t) {
  if (TG_LIKELY(!fills_unset()) || t.is_meta() || t.numel() == 0) return;
  raw::fill_(t, unset_value(t.dtype()));
}

}  // namespace tapegrad
