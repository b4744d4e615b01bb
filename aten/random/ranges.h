// Ranges of random integers and reals, shared by the fills of all devices.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::random {

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
    case DType::uint64:
      return 0;  // 2^64
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
// The first integer that is drawn, and how many there are; of 0 all of 2^64.
struct Integers {
  int64_t low;
  uint64_t range;
};

// The range drawn for [low, high), such that a draw does not leave the range when it is rounded to a format: its ends
// are numbers of the format. A range of 0 means that there is none.
inline Integers integers_in(int64_t low, int64_t high, DType format) {
  const auto rounded = [format](int64_t x) {
    const float f = static_cast<float>(x);
    return format == DType::bfloat16  ? static_cast<double>(static_cast<float>(BFloat16(f)))
           : format == DType::float16 ? static_cast<double>(static_cast<float>(Half(f)))
           : format == DType::float64 ? static_cast<double>(x)
                                      : static_cast<double>(f);
  };
  const auto below = [format](int64_t x) {
    const float f = static_cast<float>(x), least = -std::numeric_limits<float>::infinity();
    return format == DType::bfloat16  ? static_cast<double>(largest_below<BFloat16>(f))
           : format == DType::float16 ? static_cast<double>(largest_below<Half>(f))
           : format == DType::float64 ? std::nextafter(static_cast<double>(x), static_cast<double>(least))
                                      : static_cast<double>(std::nextafter(f, least));
  };
  int64_t last = high - 1;
  if (!is_integral(format) && format != DType::bool_) {
    const double top = rounded(last);
    if (top >= 0x1p63 || static_cast<int64_t>(top) > last) last = static_cast<int64_t>(below(high));
    if (static_cast<int64_t>(rounded(low)) < low) low = -static_cast<int64_t>(below(-low));
  }
  return {low, low > last ? 0 : static_cast<uint64_t>(last) - static_cast<uint64_t>(low) + 1};
}
// For all from `low` on up to which the format holds every integer.
inline Integers integers_from(int64_t low, DType format) {
  if (is_integral(format) || format == DType::bool_) return {low, exact_range(format) - static_cast<uint64_t>(low)};
  return integers_in(low, static_cast<int64_t>(exact_range(format)), format);
}

// The upper limit of draws from [a, b), such that none becomes b when it is rounded to a format.
template <class T>
inline T last_of(T a, T b, DType format) {
  if (!(a < b)) return a;
  if (format == DType::bfloat16) return static_cast<T>(largest_below<BFloat16>(static_cast<float>(b)));
  if (format == DType::float16) return static_cast<T>(largest_below<Half>(static_cast<float>(b)));
  return std::nextafter(b, a);
}

}  // namespace tapegrad::random
