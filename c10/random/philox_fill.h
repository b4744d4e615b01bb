// Filling ranges with the numbers of philox.h on the host: elements [first, first + n) of one call, in loops
// over consecutive counters that compilers vectorise. Any range can be filled on its own, so threads share
// the work freely. Included by kernel files, once per instruction set; hence static, and no state.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tapegrad/c10/random/philox.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace tapegrad {

namespace detail {

// Words of one tile; its transforms give as many elements (32-bit draws) or half as many (64-bit draws).
inline constexpr int kPhiloxTile = 256;

#if defined(__SSE2__)

// One block per 64-bit lane, each word in the low half of its lane (the high half is whatever the arithmetic
// left there). The one instruction that compilers do not find by themselves is the 32 x 32 -> 64 bit product.
// Lanes hold the even blocks of the vector's first half and so on, so that the interleaving at the end comes
// out in order with one unpack each.
#if defined(__AVX512F__)
typedef uint64_t PhiloxVector __attribute__((vector_size(64)));
// The masked form with all lanes on: the plain one makes g++ 12 warn about its own header.
#define TG_PHILOX_MUL(a, b) (PhiloxVector) _mm512_maskz_mul_epu32(0xFF, (__m512i)(a), (__m512i)(b))
#define TG_PHILOX_LANES {0, 4, 1, 5, 2, 6, 3, 7}
#define TG_PHILOX_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14)
#define TG_PHILOX_HIGH(a, b) __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15)
#elif defined(__AVX2__)
typedef uint64_t PhiloxVector __attribute__((vector_size(32)));
#define TG_PHILOX_MUL(a, b) (PhiloxVector) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define TG_PHILOX_LANES {0, 2, 1, 3}
#define TG_PHILOX_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 2, 6)
#define TG_PHILOX_HIGH(a, b) __builtin_shufflevector(a, b, 1, 5, 3, 7)
#else
typedef uint64_t PhiloxVector __attribute__((vector_size(16)));
#define TG_PHILOX_MUL(a, b) (PhiloxVector) _mm_mul_epu32((__m128i)(a), (__m128i)(b))
#define TG_PHILOX_LANES {0, 1}
#define TG_PHILOX_LOW(a, b) __builtin_shufflevector(a, b, 0, 2)
#define TG_PHILOX_HIGH(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif

static inline void philox_tile(uint32_t* words, uint64_t first_block, PhiloxState state) {
  constexpr int kLanes = sizeof(PhiloxVector) / 8;
  const PhiloxVector zero = {}, lanes = TG_PHILOX_LANES;
  const PhiloxVector m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
  for (int k = 0; k < kPhiloxTile / 4; k += kLanes) {
    PhiloxVector c0 = lanes + (first_block + static_cast<uint64_t>(k)), c1 = c0 >> 32;
    PhiloxVector c2 = zero + state.offset, c3 = c2 >> 32;
    uint32_t key0 = static_cast<uint32_t>(state.seed), key1 = static_cast<uint32_t>(state.seed >> 32);
#if defined(__GNUC__)
#pragma GCC unroll 10
#endif
    for (int round = 0; round < 10; ++round) {
      const PhiloxVector p0 = TG_PHILOX_MUL(c0, m0), p1 = TG_PHILOX_MUL(c2, m1);
      c0 = (p1 >> 32) ^ c1 ^ uint64_t{key0};
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ uint64_t{key1};
      c3 = p0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    const PhiloxVector a = (c0 & 0xFFFFFFFFu) | c1 << 32, b = (c2 & 0xFFFFFFFFu) | c3 << 32;
    const PhiloxVector low = TG_PHILOX_LOW(a, b), high = TG_PHILOX_HIGH(a, b);
    std::memcpy(words + 4 * k, &low, sizeof(low));
    std::memcpy(words + 4 * k + 2 * kLanes, &high, sizeof(high));
  }
}

#undef TG_PHILOX_MUL
#undef TG_PHILOX_LANES
#undef TG_PHILOX_LOW
#undef TG_PHILOX_HIGH

#else

static inline void philox_tile(uint32_t* words, uint64_t first_block, PhiloxState state) {
  for (int k = 0; k < kPhiloxTile / 4; ++k) {
    const PhiloxBlock b = philox_block(state, first_block + static_cast<uint64_t>(k));
    std::memcpy(words + 4 * k, b.word, sizeof(b.word));
  }
}

#endif

// Cuts [first, first + n) at multiples of Elements. Whole tiles are written in place; of the tiles at both ends only
// the requested part is copied.
template <int Elements, class T, class MakeTile>
static inline void philox_for_tiles(T* out, int64_t first, int64_t n, MakeTile make_tile) {
  const int64_t end = first + n;
  for (int64_t tile = first / Elements; tile * Elements < end; ++tile) {
    const int64_t begin = tile * Elements, from = std::max(begin, first), to = std::min(begin + Elements, end);
    if (to - from == Elements) {
      make_tile(out + (begin - first), static_cast<uint64_t>(tile));
    } else {
      T part[Elements];
      make_tile(part, static_cast<uint64_t>(tile));
      std::memcpy(out + (from - first), part + (from - begin), static_cast<size_t>(to - from) * sizeof(T));
    }
  }
}

}  // namespace detail

// Words first ... first + n - 1 of a call.
static inline void philox_fill_uniform_bits(uint32_t* out, int64_t first, int64_t n, PhiloxState state) {
  detail::philox_for_tiles<detail::kPhiloxTile>(out, first, n, [&](uint32_t* to, uint64_t tile) {
    detail::philox_tile(to, tile * (detail::kPhiloxTile / 4), state);
  });
}

// 64-bit words first ... first + n - 1 of a call.
static inline void philox_fill_uniform_bits(uint64_t* out, int64_t first, int64_t n, PhiloxState state) {
  constexpr int kElements = detail::kPhiloxTile / 2;
  detail::philox_for_tiles<kElements>(out, first, n, [&](uint64_t* to, uint64_t tile) {
    uint32_t words[detail::kPhiloxTile];
    detail::philox_tile(words, tile * (detail::kPhiloxTile / 4), state);
    for (int i = 0; i < kElements; ++i) to[i] = words[2 * i] | uint64_t{words[2 * i + 1]} << 32;
  });
}

// Uniform in [from, to); where rounding would give `to` itself, the next smaller number.
static inline void philox_fill_uniform(float* out, int64_t first, int64_t n, PhiloxState state, float from = 0,
                                       float to = 1) {
  const float width = to - from, last = std::nextafter(to, from);
  detail::philox_for_tiles<detail::kPhiloxTile>(out, first, n, [&](float* __restrict tile_out, uint64_t tile) {
    uint32_t words[detail::kPhiloxTile];
    detail::philox_tile(words, tile * (detail::kPhiloxTile / 4), state);
    for (int i = 0; i < detail::kPhiloxTile; ++i) {
      tile_out[i] = std::min(std::fma(philox_uniform(words[i]), width, from), last);
    }
  });
}

static inline void philox_fill_uniform(double* out, int64_t first, int64_t n, PhiloxState state, double from = 0,
                                       double to = 1) {
  constexpr int kElements = detail::kPhiloxTile / 2;
  const double width = to - from, last = std::nextafter(to, from);
  detail::philox_for_tiles<kElements>(out, first, n, [&](double* __restrict tile_out, uint64_t tile) {
    uint32_t words[detail::kPhiloxTile];
    detail::philox_tile(words, tile * (detail::kPhiloxTile / 4), state);
    for (int i = 0; i < kElements; ++i) {
      tile_out[i] =
          std::min(std::fma(philox_uniform(words[2 * i] | uint64_t{words[2 * i + 1]} << 32), width, from), last);
    }
  });
}

// Normal with a mean and a standard deviation.
static inline void philox_fill_normal(float* out, int64_t first, int64_t n, PhiloxState state, float mean = 0,
                                      float deviation = 1) {
  detail::philox_for_tiles<detail::kPhiloxTile>(out, first, n, [&](float* __restrict to, uint64_t tile) {
    uint32_t words[detail::kPhiloxTile];
    detail::philox_tile(words, tile * (detail::kPhiloxTile / 4), state);
    for (int i = 0; i < detail::kPhiloxTile; i += 2) {
      const NormalPair<float> z = philox_normal_pair(words[i], words[i + 1]);
      to[i] = std::fma(z.first, deviation, mean);
      to[i + 1] = std::fma(z.second, deviation, mean);
    }
  });
}

static inline void philox_fill_normal(double* out, int64_t first, int64_t n, PhiloxState state, double mean = 0,
                                      double deviation = 1) {
  constexpr int kElements = detail::kPhiloxTile / 2;
  detail::philox_for_tiles<kElements>(out, first, n, [&](double* __restrict to, uint64_t tile) {
    uint32_t words[detail::kPhiloxTile];
    detail::philox_tile(words, tile * (detail::kPhiloxTile / 4), state);
    for (int i = 0; i < kElements; i += 2) {
      const uint32_t* w = words + 2 * i;
      const NormalPair<double> z = philox_normal_pair(w[0] | uint64_t{w[1]} << 32, w[2] | uint64_t{w[3]} << 32);
      to[i] = std::fma(z.first, deviation, mean);
      to[i + 1] = std::fma(z.second, deviation, mean);
    }
  });
}

// Integers in [low, low + range); a range of 0 stands for 2^64. Arithmetic wraps, so T may be signed or
// narrow.
template <class T>
static inline void philox_fill_bounded(T* out, int64_t first, int64_t n, PhiloxState state, int64_t low,
                                       uint64_t range) {
  constexpr int kElements = detail::kPhiloxTile / 2;
  detail::philox_for_tiles<kElements>(out, first, n, [&](T* __restrict to, uint64_t tile) {
    uint32_t words[detail::kPhiloxTile];
    detail::philox_tile(words, tile * (detail::kPhiloxTile / 4), state);
    const uint64_t base = static_cast<uint64_t>(low);
    if (range - 1 < 0xFFFFFFFFu) {
      const uint32_t small = static_cast<uint32_t>(range);
      for (int i = 0; i < kElements; ++i)
        to[i] = static_cast<T>(base + philox_bounded32(words[2 * i] | uint64_t{words[2 * i + 1]} << 32, small));
    } else {
      for (int i = 0; i < kElements; ++i)
        to[i] = static_cast<T>(base + philox_bounded(words[2 * i] | uint64_t{words[2 * i + 1]} << 32, range));
    }
  });
}

}  // namespace tapegrad
