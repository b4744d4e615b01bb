// Argument checks of bincount for all devices, and counting for bincount and histc on the CPU.
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

// Counts places in kInTurn tables in turn, each `pitch` after the previous one, so that equal neighbouring values do
// not depend on each other's store. always_inline: compiled for whoever calls it.
inline constexpr int kInTurn = 4;
template <class Count>
TG_INLINE void count_in_turn(const int64_t* p, int64_t n, Count* tables, int64_t pitch) {
  int64_t i = 0;
  for (; i + kInTurn <= n; i += kInTurn) {
    const int64_t x = p[i], y = p[i + 1], z = p[i + 2], w = p[i + 3];
    ++tables[x];
    ++tables[y + pitch];
    ++tables[z + 2 * pitch];
    ++tables[w + 3 * pitch];
  }
  for (; i < n; ++i) ++tables[p[i]];
}

}  // namespace tapegrad
