// Philox4x32-10, a counter-based random generator: J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC11. Word w of block b of call k is a pure function of (seed, k, b, w), so
// element i gets the same number on every device, for any grid and any number of threads. For host and
// device.
//
// Which words an element i of one call uses:
//   32-bit draws (uniform float, normal float, Bernoulli)       word i
//   64-bit draws (uniform double, normal double, bounded ints)  words 2i (low) and 2i + 1 (high)
// A normal is half of a Box-Muller pair, so it takes the words of its neighbour as well. Transforms use only
// operations that IEEE 754 rounds correctly, with every fused multiply-add spelled out: no libm, no freedom
// for the compiler, hence equal bits everywhere. Functions are static because this header is compiled once
// per instruction set, and the linker must not merge those copies.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

// Identifies the numbers of one call of a random operator.
struct PhiloxState {
  uint64_t seed = 0;
  uint64_t offset = 0;  // the number of the call
};

struct PhiloxBlock {
  uint32_t word[4];
};

TG_HD static inline PhiloxBlock philox4x32_10(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(p0);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// Words 4 * block to 4 * block + 3 of a call.
TG_HD static inline PhiloxBlock philox_block(PhiloxState s, uint64_t block) {
  return philox4x32_10({{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(s.offset), static_cast<uint32_t>(s.offset >> 32)}},
                       static_cast<uint32_t>(s.seed), static_cast<uint32_t>(s.seed >> 32));
}

TG_HD static inline uint32_t philox_word(PhiloxState s, uint64_t i) { return philox_block(s, i / 4).word[i % 4]; }

TG_HD static inline uint64_t philox_word64(PhiloxState s, uint64_t i) {
  const PhiloxBlock b = philox_block(s, i / 2);
  return i % 2 == 0 ? b.word[0] | uint64_t{b.word[1]} << 32 : b.word[2] | uint64_t{b.word[3]} << 32;
}

// A seed of its own for each (seed, a, b), such as (seed, epoch, index of a sample).
TG_HD static inline uint64_t philox_derive_seed(uint64_t seed, uint64_t a, uint64_t b) {
  const PhiloxBlock w = philox_block({seed, a}, b);
  return w.word[0] | uint64_t{w.word[1]} << 32;
}

// ---- uniform in [0, 1): multiples of 2^-24 and 2^-53

TG_HD static inline float philox_uniform(uint32_t x) {
  return static_cast<float>(static_cast<int32_t>(x >> 8)) * 0x1p-24f;
}

TG_HD static inline double philox_uniform(uint64_t x) {
  // 52 bits go into the fraction of a number in [1, 2), the 53rd adds 2^-53 or nothing: no conversion from
  // 64-bit integers, which few vector units have.
  const double high = std::bit_cast<double>(x >> 12 | 0x3FF0000000000000u) - 1.0;
  return high + std::bit_cast<double>((uint64_t{0} - (x >> 11 & 1)) & 0x3CA0000000000000u);
}

// ---- integers in [0, range); the bias is at most range / 2^64. A range of 0 stands for 2^64.

TG_HD static inline uint64_t philox_bounded(uint64_t x, uint64_t range) {
  if (range == 0) return x;
  // The high word of the 128-bit product, by halves.
  const uint64_t x0 = x & 0xFFFFFFFFu, x1 = x >> 32, r0 = range & 0xFFFFFFFFu, r1 = range >> 32;
  const uint64_t middle = x1 * r0 + (x0 * r0 >> 32);
  const uint64_t other = x0 * r1 + (middle & 0xFFFFFFFFu);
  return x1 * r1 + (middle >> 32) + (other >> 32);
}

// The same for ranges below 2^32, in a form that vectorises.
TG_HD static inline uint32_t philox_bounded32(uint64_t x, uint32_t range) {
  const uint64_t x0 = x & 0xFFFFFFFFu, x1 = x >> 32;
  return static_cast<uint32_t>((x1 * range + (x0 * range >> 32)) >> 32);
}

// ---- normal: Box-Muller

template <class T>
struct NormalPair {
  T first, second;
};

namespace detail {

// Horner's rule from the highest coefficient down, each step fused.
template <class T, class... C>
TG_HD static inline T polynomial(T x, T sum, C... rest) {
  ((sum = std::fma(x, sum, rest)), ...);
  return sum;
}

// log of u in (0, 1]: exponent, and 2 atanh(s) of the mantissa in [sqrt(1/2), sqrt(2)) as its series.
TG_HD static inline float philox_log(float u) {
  const uint32_t bits = std::bit_cast<uint32_t>(u);
  const int32_t exponent = static_cast<int32_t>(bits - 0x3F3504F3u) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(exponent) << 23)) - 1.0f;
  const float s = f / (2.0f + f), s2 = s * s, t = 2.0f * s;
  const float p = polynomial(s2, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3);
  return std::fma(static_cast<float>(exponent), 0x1.62e43p-1f, std::fma(t * s2, p, t));
}

TG_HD static inline double philox_log(double u) {
  const uint64_t bits = std::bit_cast<uint64_t>(u);
  // The exponent as a small integer; the shift is done in 32 bits, which vectors can convert.
  const int32_t exponent = static_cast<int32_t>(static_cast<uint32_t>(bits >> 32) - 0x3FE6A09Eu) >> 20;
  const uint64_t shift = static_cast<uint64_t>(static_cast<uint32_t>(exponent) << 20) << 32;
  const double f = std::bit_cast<double>(bits - shift) - 1.0;
  const double s = f / (2.0 + f), s2 = s * s, t = 2.0 * s;
  const double p =
      polynomial(s2, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3);
  return std::fma(static_cast<double>(exponent), 0x1.62e42fefa39efp-1, std::fma(t * s2, p, t));
}

// Taylor series on [-pi/4, pi/4].
TG_HD static inline void philox_sincos(float a, float& sine, float& cosine) {
  const float a2 = a * a;
  const float p = polynomial(a2, 1.0f / 362880, -1.0f / 5040, 1.0f / 120, -1.0f / 6);
  sine = std::fma(a * a2, p, a);
  const float q = polynomial(a2, -1.0f / 3628800, 1.0f / 40320, -1.0f / 720, 1.0f / 24, -0.5f);
  cosine = std::fma(a2, q, 1.0f);
}

TG_HD static inline void philox_sincos(double a, double& sine, double& cosine) {
  const double a2 = a * a;
  const double p = polynomial(a2, 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                              1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6);
  sine = std::fma(a * a2, p, a);
  const double q = polynomial(a2, 1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
                              1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5);
  cosine = std::fma(a2, q, 1.0);
}

}  // namespace detail

// Standard normals 2k and 2k + 1 of a call from words 2k and 2k + 1. The angle is a quadrant (the two top
// bits) plus an angle in [-pi/4, pi/4).
TG_HD static inline NormalPair<float> philox_normal_pair(uint32_t x, uint32_t y) {
  const float u = std::fma(static_cast<float>(static_cast<int32_t>(x >> 1)), 0x1p-31f, 0x1p-32f);
  const float radius = std::sqrt(-2.0f * detail::philox_log(u));
  const float a = static_cast<float>(static_cast<int32_t>(y & 0x3FFFFFFFu) - (1 << 29)) * 0x1.921fb6p-30f;
  float sine, cosine;
  detail::philox_sincos(a, sine, cosine);
  const uint32_t s = std::bit_cast<uint32_t>(sine), c = std::bit_cast<uint32_t>(cosine);
  const uint32_t odd = 0u - (y >> 30 & 1), half = y & 0x80000000u, flip = half ^ (odd & 0x80000000u);
  return {radius * std::bit_cast<float>(((c & ~odd) | (s & odd)) ^ flip),
          radius * std::bit_cast<float>(((s & ~odd) | (c & odd)) ^ half)};
}

// The same in double from the 64-bit words 2k and 2k + 1.
TG_HD static inline NormalPair<double> philox_normal_pair(uint64_t x, uint64_t y) {
  const double u = std::bit_cast<double>(x >> 12 | 0x3FF0000000000000u) - (1.0 - 0x1p-53);
  const double radius = std::sqrt(-2.0 * detail::philox_log(u));
  const double fraction = std::bit_cast<double>((y << 2) >> 12 | 0x3FF0000000000000u) - 1.5;
  const double a = fraction * 0x1.921fb54442d18p+0;
  double sine, cosine;
  detail::philox_sincos(a, sine, cosine);
  const uint64_t s = std::bit_cast<uint64_t>(sine), c = std::bit_cast<uint64_t>(cosine);
  const uint64_t top = uint64_t{1} << 63, odd = uint64_t{0} - (y >> 62 & 1), half = y & top;
  const uint64_t flip = half ^ (odd & top);
  return {radius * std::bit_cast<double>(((c & ~odd) | (s & odd)) ^ flip),
          radius * std::bit_cast<double>(((s & ~odd) | (c & odd)) ^ half)};
}

}  // namespace tapegrad
