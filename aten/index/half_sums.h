// Sums at places of a tensor of a 16-bit format. Compiled per instruction set.
#pragma once

#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {

// Where elements are combined: the output itself, or, for 16-bit formats unless there is little to do, a copy in
// float32, which is rounded once. `added` is how many elements come.
struct HalfSums {
  const Tensor& out;
  Tensor sums;
  HalfSums(const Tensor& result, int64_t added) : out(result), sums(result) {
    if (is_half(out.dtype()) && added >= out.numel() / 4) sums = empty_tensor(out.sizes(), DType::float32);
  }
  void finish() const {
    if (!sums.is_same(out)) copy_cpu(out, sums, false);
  }
};

}  // namespace tapegrad::cpu::TG_ISA
