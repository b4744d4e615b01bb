// Floating numbers of 8 bits and complex numbers of two halves, as storage formats: each type is only conversions to
// and from float (complex64), exact one way, rounded to the nearest (ties to even) the other. Formats: OCP 8-bit
// Floating Point Specification 1.0 (2023) for e4m3fn and e5m2, Noune et al., "8-bit numerical formats for deep neural
// networks" (2022) for the fnuz ones, OCP Microscaling Formats 1.0 (2023) for e8m0fnu.
#pragma once

#include <complex>
#include <type_traits>

#include "tapegrad/c10/tensor/half.h"

namespace tapegrad {

// What is no finite number. Ieee: as IEEE 754 has it. TopIsNaN: the largest code is NaN, and what is too large for the
// format becomes the largest number, as in PyTorch 2.13. MinusZeroIsNaN: the code of -0 is NaN, which also stands for
// what is too large; zero has no sign.
enum class Specials : uint8_t { Ieee, TopIsNaN, MinusZeroIsNaN };

// A sign, 7 - kDigits bits of exponent, kDigits of significand.
template <int kDigits, int kBias, Specials kSpecials>
struct Float8 {
  uint8_t bits = 0;
  Float8() = default;
  TG_HD TG_INLINE explicit Float8(float f) : bits(round(std::bit_cast<uint32_t>(f))) {}
  TG_HD TG_INLINE explicit operator float() const {
    constexpr uint32_t kInfinity = 0x80u - (1u << kDigits);
    const uint32_t sign = (bits & 0x80u) << 24, magnitude = bits & 0x7fu;
    if (kSpecials == Specials::MinusZeroIsNaN && bits == 0x80) return std::bit_cast<float>(0x7fc00000u);
    if (kSpecials == Specials::TopIsNaN && magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
    if (kSpecials == Specials::Ieee && magnitude >= kInfinity)
      return std::bit_cast<float>(sign | (magnitude == kInfinity ? 0x7f800000u : 0x7fc00000u));
    const uint32_t exponent = magnitude >> kDigits, hidden = exponent != 0 ? 1u << kDigits : 0;
    const uint32_t digits = (magnitude & ((1u << kDigits) - 1)) | hidden;
    const float place = std::bit_cast<float>((exponent + (hidden == 0) + (127 - kBias - kDigits)) << 23);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(digits) * place) | sign);
  }

 private:
  // As Half::round: the float unit rounds, by adding the power of two whose last place is that of the result.
  TG_HD TG_INLINE static uint8_t round(uint32_t u) {
    constexpr uint32_t kSmallest = (128u - kBias) << 23;  // of the normal numbers
    constexpr uint32_t kOverflow = (127u + (1u << (7 - kDigits)) - (kSpecials == Specials::Ieee) - kBias) << 23;
    const uint32_t magnitude = u & 0x7fffffffu, sign = (u >> 24) & 0x80u;
    if (kSpecials != Specials::MinusZeroIsNaN && magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7f);
    const uint32_t a = magnitude < kOverflow ? magnitude : kOverflow;
    const uint32_t exponent = a & 0x7f800000u, power = exponent > kSmallest ? exponent : kSmallest;
    const uint32_t magic = power + ((23u - kDigits) << 23);
    const uint32_t digits = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(magic)) - magic;
    const uint32_t code = ((power - kSmallest) >> (23 - kDigits)) + digits;
    if constexpr (kSpecials == Specials::MinusZeroIsNaN)
      return static_cast<uint8_t>(code == 0 || code >= 0x80 ? code : code | sign);
    return static_cast<uint8_t>((code < 0x7f ? code : 0x7e) | sign);
  }
};

using Float8E4M3FN = Float8<3, 7, Specials::TopIsNaN>;
using Float8E5M2 = Float8<2, 15, Specials::Ieee>;
using Float8E4M3FNUZ = Float8<3, 8, Specials::MinusZeroIsNaN>;
using Float8E5M2FNUZ = Float8<2, 16, Specials::MinusZeroIsNaN>;

// A power of two alone: 8 bits of exponent, without sign and zero; the sign of what is converted is dropped.
struct Float8E8M0FNU {
  uint8_t bits = 0;
  Float8E8M0FNU() = default;
  TG_HD TG_INLINE explicit Float8E8M0FNU(float f) : bits(round(std::bit_cast<uint32_t>(f) & 0x7fffffffu)) {}
  TG_HD TG_INLINE explicit operator float() const {
    return std::bit_cast<float>(bits == 0xff ? 0x7fc00000u : bits == 0 ? 0x00400000u : uint32_t{bits} << 23);
  }

 private:
  // The nearest on the scale of the significand: from 1.5 on upwards, but 1.5 itself only from a normal number.
  TG_HD TG_INLINE static uint8_t round(uint32_t magnitude) {
    const uint32_t exponent = magnitude >> 23, rest = magnitude & 0x7fffffu;
    return static_cast<uint8_t>(exponent + (exponent != 0xff && (rest > 0x400000u || (rest == 0x400000u && exponent))));
  }
};

struct ComplexHalf {
  Half real, imag;
  ComplexHalf() = default;
  TG_HD TG_INLINE explicit ComplexHalf(std::complex<float> z) : real(z.real()), imag(z.imag()) {}
  TG_HD TG_INLINE explicit operator std::complex<float>() const {
    return {static_cast<float>(real), static_cast<float>(imag)};
  }
};

template <class T>
inline constexpr bool is_float8_type =
    std::is_same_v<T, Float8E4M3FN> || std::is_same_v<T, Float8E5M2> || std::is_same_v<T, Float8E4M3FNUZ> ||
    std::is_same_v<T, Float8E5M2FNUZ> || std::is_same_v<T, Float8E8M0FNU>;
// Converted by way of float or complex64, whatever the other type is.
template <class T>
inline constexpr bool is_narrow_type = is_float8_type<T> || std::is_same_v<T, ComplexHalf>;

static_assert(sizeof(Float8E4M3FN) == 1 && sizeof(Float8E8M0FNU) == 1 && sizeof(ComplexHalf) == 4);

}  // namespace tapegrad
