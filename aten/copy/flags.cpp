#include "tapegrad/aten/copy/flags.h"

#include <atomic>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad {

namespace {

bool all_clean(const uint8_t* flags, int64_t n) {
  std::atomic<bool> clean{true};
  parallel_for(0, n, 1 << 18, [&](int64_t begin, int64_t end) {
    uint8_t bits = 0;
    for (int64_t i = begin; i < end; ++i) bits |= flags[i];
    if (bits > 1) clean.store(false, std::memory_order_relaxed);
  });
  return clean.load(std::memory_order_relaxed);
}

}  // namespace

Tensor clean_flags(const Tensor& t) {
  if (t.dtype() != DType::bool_ || t.is_meta() || t.numel() == 0) return t;
  if (t.is_cpu() && !record::active()) {  // what a recorded step does must not depend on values
    const Tensor dense = raw::contiguous(t);
    if (all_clean(static_cast<const uint8_t*>(dense.data_ptr()), dense.numel())) return t;
  }
  return raw::ne(t, Operand(Scalar(false)));  // pointwise kernels take any byte for true
}

}  // namespace tapegrad
