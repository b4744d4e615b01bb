// The two 16-bit floating types as storage formats: arithmetic happens in float, so each type is only
// conversions, written with integer operations that compilers vectorise and nvcc accepts. Always inlined: a call per
// element would cost a loop its vectors.
#pragma once

#include <bit>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  TG_HD TG_INLINE explicit BFloat16(float f) : bits(round(std::bit_cast<uint32_t>(f))) {}
  TG_HD TG_INLINE explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static constexpr BFloat16 from_bits(uint16_t b) {
    BFloat16 r;
    r.bits = b;
    return r;
  }

 private:
  // Round to nearest even; every NaN becomes a quiet NaN of the same sign.
  TG_HD TG_INLINE static uint16_t round(uint32_t u) {
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40u;
    return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
};

struct Half {
  uint16_t bits = 0;
  Half() = default;
  TG_HD TG_INLINE explicit Half(float f) : bits(round(std::bit_cast<uint32_t>(f))) {}
  TG_HD TG_INLINE explicit operator float() const {
    // Widen by moving the fields, sign-extended to begin with, and rescaling; exact, subnormals included. What had the
    // largest exponent is infinity or NaN and gets float's largest.
    const uint32_t moved = static_cast<uint32_t>(static_cast<int32_t>(static_cast<int16_t>(bits))) << 13;
    const float scaled = std::bit_cast<float>(moved & 0x8fffe000u) * std::bit_cast<float>(0x77800000u);  // * 2^112
    const uint32_t u = std::bit_cast<uint32_t>(scaled);
    return std::bit_cast<float>((u & 0x7fffffffu) >= 0x47800000u ? u | 0x7f800000u : u);
  }
  static constexpr Half from_bits(uint16_t b) {
    Half r;
    r.bits = b;
    return r;
  }

 private:
  // Round to nearest even with overflow to infinity. Adding a constant whose last place is the target's
  // last place makes the float unit do the rounding for subnormal results.
  TG_HD TG_INLINE static uint16_t round(uint32_t u) {
    uint32_t sign = (u >> 16) & 0x8000u;
    uint32_t a = u & 0x7fffffffu;
    uint32_t normal = (a + 0xc8000fffu + ((a >> 13) & 1u)) >> 13;  // exponent - 112, rounded
    uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(0x3f000000u)) - 0x3f000000u;
    uint32_t r = a < 0x38800000u ? subnormal : normal;
    r = a >= 0x477ff000u ? 0x7c00u : r;
    r = a > 0x7f800000u ? 0x7e00u : r;
    return static_cast<uint16_t>(sign | r);
  }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Half) == 2);

}  // namespace tapegrad
