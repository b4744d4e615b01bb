#include "tapegrad/aten/copy/flags.h"

#include <atomic>

#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad {

namespace {

constexpr int64_t kGrain = 1 << 18;

bool all_clean(const uint8_t* flags, int64_t n) {
  std::atomic<bool> clean{true};
  parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    uint8_t bits = 0;
    for (int64_t i = begin; i < end; ++i) bits |= flags[i];
    if (bits > 1) clean.store(false, std::memory_order_relaxed);
  });
  return clean.load(std::memory_order_relaxed);
}

}  // namespace

Tensor clean_flags(const Tensor& t) {
  if (t.dtype() != DType::bool_ || t.is_meta() || t.numel() == 0) return t;
  if (!t.is_cpu()) return raw::ne(t, Operand(Scalar(false)));
  const Tensor dense = t.is_contiguous() ? t : raw::contiguous(t);
  const uint8_t* flags = static_cast<const uint8_t*>(dense.data_ptr());
  if (all_clean(flags, dense.numel())) return t;
  const Tensor result = empty_tensor(dense.sizes(), DType::bool_);
  uint8_t* to = static_cast<uint8_t*>(result.data_ptr());
  parallel_for(0, dense.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = flags[i] != 0;
  });
  return result;
}

}  // namespace tapegrad
