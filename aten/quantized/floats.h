// What products with weights of few bits share: their inputs as floats.
#pragma once

#include "tapegrad/aten/iterate/blocks/half_blocks.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

// `n` numbers as floats: themselves, or a copy.
inline const float* as_floats(int64_t, const float* x, Tensor&) { return x; }
template <class T>
const float* as_floats(int64_t n, const T* x, Tensor& holder) {
  holder = empty_tensor({n}, DType::float32);
  auto* to = static_cast<float*>(holder.data_ptr());
  parallel_for(0, n, 1 << 16, [&](int64_t first, int64_t last) {
    int64_t i = first;
    for (; i + half_blocks::kBlock <= last; i += half_blocks::kBlock) half_blocks::load(x + i, to + i);
    for (; i < last; ++i) to[i] = static_cast<float>(x[i]);
  });
  return to;
}

}  // namespace tapegrad::cpu::TG_ISA
