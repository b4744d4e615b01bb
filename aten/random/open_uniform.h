#pragma once

#include "tapegrad/c10/random/philox.h"

namespace tapegrad {

// Uniform in (0, 1), as logarithms want it.
TG_HD static inline float open_uniform(uint32_t x) {
  return std::fma(static_cast<float>(static_cast<int32_t>(x >> 1)), 0x1p-31f, 0x1p-32f);
}
TG_HD static inline double open_uniform(uint64_t x) {
  return std::bit_cast<double>(x >> 12 | 0x3FF0000000000000u) - (1.0 - 0x1p-53);
}

}  // namespace tapegrad
