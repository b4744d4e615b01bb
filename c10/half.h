// The two 16-bit floating types as storage formats: arithmetic happens in float, so each type is only
// conversions, written with integer operations that compilers vectorise and nvcc accepts.
#pragma once

#include <bit>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  TG_HD explicit BFloat16(float f) : bits(round(std::bit_cast<uint32_t>(f))) {}
  TG_HD explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static constexpr BFloat16 from_bits(uint16_t b) {
    BFloat16 r;
    r.bits = b;
    return r;
  }

 private:
  // Round to nearest even; every NaN becomes a quiet NaN of the same sign.
  TG_HD static uint16_t round(uint32_t u) {
    uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    uint32_t quiet = (u >> 16) | 0x40u;
    return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
};

struct Half {
  uint16_t bits = 0;
  Half() = default;
  TG_HD explicit Half(float f) : bits(round(std::bit_cast<uint32_t>(f))) {}
  TG_HD explicit operator float() const {
    // Widen by moving the fields and rescaling; exact, subnormals included.
    uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
    float scaled = std::bit_cast<float>(magnitude) * std::bit_cast<float>(0x77800000u);  // * 2^112
    uint32_t special = (bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
  }
  static constexpr Half from_bits(uint16_t b) {
    Half r;
    r.bits = b;
    return r;
  }

 private:
  // Round to nearest even with overflow to infinity. Adding a constant whose last place is the target's
  // last place makes the float unit do the rounding for subnormal results.
  TG_HD static uint16_t round(uint32_t u) {
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
