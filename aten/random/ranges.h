// Ranges of random integers, as the fills of every device draw from them: a range of 0 is all of 2^64.
#pragma once

#include <cstdint>

#include "tapegrad/c10/dtype.h"

namespace tapegrad::random {

inline uint64_t width(int64_t low, int64_t high) { return static_cast<uint64_t>(high) - static_cast<uint64_t>(low); }

// The largest integer up to which a dtype holds all integers, plus one.
inline uint64_t exact_range(DType t) {
  switch (t) {
    case DType::bool_:
      return 2;
    case DType::float16:
      return (uint64_t{1} << 11) + 1;
    case DType::bfloat16:
      return (uint64_t{1} << 8) + 1;
    case DType::float32:
    case DType::complex64:
      return (uint64_t{1} << 24) + 1;
    case DType::float64:
    case DType::complex128:
      return (uint64_t{1} << 53) + 1;
    default:
      return uint64_t{1} << (8 * element_size(t) - (is_signed(t) ? 1 : 0));
  }
}

}  // namespace tapegrad::random
