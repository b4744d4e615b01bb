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
    const uint32_t special = (0x477fffffu - (u & 0x7fffffffu)) >> 31;  // 1 from 2^16 on
    return std::bit_cast<float>(u | ((0u - special) & 0x7f800000u));
  }
  static constexpr Half from_bits(uint16_t b) {
    Half r;
    r.bits = b;
    return r;
  }

 private:
  // Round to nearest even with overflow to infinity. The float unit rounds: it adds the power of two whose last place
  // is the last place of the result, 2^13 times the value's own power of two, or that of the smallest normal number. No
  // conditions: a loop around this must stay free of branches to be vectorised.
  TG_HD TG_INLINE static uint16_t round(uint32_t u) {
    constexpr uint32_t kSmallest = 0x38800000u, kOverflow = 0x47800000u;  // 2^-14 and 2^16
    const uint32_t magnitude = u & 0x7fffffffu;
    const uint32_t a = magnitude < kOverflow ? magnitude : kOverflow;
    const uint32_t exponent = a & 0x7f800000u, power = exponent > kSmallest ? exponent : kSmallest;
    const uint32_t magic = power + (13u << 23);
    const uint32_t digits = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(magic)) - magic;
    const uint32_t nan = (0x7f800000u - magnitude) >> 31;
    return static_cast<uint16_t>((((power - kSmallest) >> 13) + digits) | nan << 9 | ((u >> 16) & 0x8000u));
  }
};

static_assert(sizeof(BFloat16) == 2 && sizeof(Half) == 2);

}  // namespace tapegrad
