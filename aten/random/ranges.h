// Ranges of random numbers, as the fills of every device draw from them. Of integers a range of 0 is all of 2^64.
#pragma once

#include <cmath>
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

// The largest number below b that a 16-bit format holds.
template <class H>
inline float largest_below(float b) {
  H h(b);
  if (static_cast<float>(h) >= b)
    h = H::from_bits(static_cast<uint16_t>((h.bits & 0x7FFF) == 0 ? 0x8001 : h.bits + (h.bits >> 15 != 0 ? 1 : -1)));
  return static_cast<float>(h);
}
// What no draw from [a, b) may exceed, so that it is not b when it has been rounded to a format.
template <class T>
inline T last_of(T a, T b, DType format) {
  if (!(a < b)) return a;
  if (format == DType::bfloat16) return static_cast<T>(largest_below<BFloat16>(static_cast<float>(b)));
  if (format == DType::float16) return static_cast<T>(largest_below<Half>(static_cast<float>(b)));
  return std::nextafter(b, a);
}

}  // namespace tapegrad::random
