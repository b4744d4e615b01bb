// What bincount takes, on any device.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

inline void check_bincount(const Tensor& input, const Tensor& weights, int64_t minlength) {
  TG_CHECK(input.ndim() == 1 || input.numel() == 0, Runtime, "bincount: expected a vector: got {}",
           format_ints(input.sizes()));
  TG_CHECK(is_integral(input.dtype()), Runtime, "bincount: expected integers: got {}", input.dtype());
  TG_CHECK(minlength >= 0, Runtime, "bincount: minlength must not be negative: got {}", minlength);
  TG_CHECK(!weights.defined() || weights.sizes() == input.sizes(), Runtime,
           "bincount: input and weights differ in size: {} and {}", format_ints(input.sizes()),
           weights.defined() ? format_ints(weights.sizes()) : "");
  TG_CHECK(!weights.defined() || !weights.is_complex(), Runtime, "bincount: not implemented for complex weights");
}

}  // namespace tapegrad
