#include "tapegrad/aten/iterate/convert.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "tapegrad/aten/iterate/cast.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// The processor's own conversions, of as many elements as they can take; how many that were. They round as Half and
// BFloat16 do; NaNs of float16 keep more of their payload.
template <class To, class From>
int64_t convert_natively(const From*, To*, int64_t) {
  return 0;
}

#if defined(__AVX512F__)
// A vector of 16 elements at a time, the last one as long as is left.
template <class F>
int64_t by_vectors(int64_t n, F&& one) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) one(i, static_cast<__mmask16>(0xffff));
  if (i < n) one(i, static_cast<__mmask16>((1u << (n - i)) - 1));
  return n;
}
template <>
int64_t convert_natively(const Half* src, float* dst, int64_t n) {
  return by_vectors(n, [=](int64_t i, __mmask16 mask) {
    _mm512_mask_storeu_ps(dst + i, mask, _mm512_maskz_cvtph_ps(mask, _mm256_maskz_loadu_epi16(mask, src + i)));
  });
}
template <>
int64_t convert_natively(const float* src, Half* dst, int64_t n) {
  return by_vectors(n, [=](int64_t i, __mmask16 mask) {
    const __m512 x = _mm512_maskz_loadu_ps(mask, src + i);
    _mm256_mask_storeu_epi16(dst + i, mask, _mm512_maskz_cvtps_ph(mask, x, _MM_FROUND_TO_NEAREST_INT));
  });
}
template <>
int64_t convert_natively(const BFloat16* src, float* dst, int64_t n) {
  return by_vectors(n, [=](int64_t i, __mmask16 mask) {
    const __m512i wide = _mm512_maskz_cvtepu16_epi32(mask, _mm256_maskz_loadu_epi16(mask, src + i));
    _mm512_mask_storeu_epi32(dst + i, mask, _mm512_maskz_slli_epi32(mask, wide, 16));
  });
}

// The instruction takes subnormal numbers for zero: up to the first 32 elements with one among them.
[[gnu::target("avx512bf16")]] int64_t to_bfloat16_until_subnormal(const float* src, BFloat16* dst, int64_t n) {
  constexpr int kSubnormal = 0x20;  // of vfpclassps
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const __m512 low = _mm512_loadu_ps(src + i), high = _mm512_loadu_ps(src + i + 16);
    if (_mm512_fpclass_ps_mask(low, kSubnormal) | _mm512_fpclass_ps_mask(high, kSubnormal)) return i;
    const auto both = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    _mm512_storeu_si512(reinterpret_cast<__m512i*>(dst + i), both);
  }
  for (; i < n; i += 16) {
    const auto mask = static_cast<__mmask16>(n - i >= 16 ? 0xffff : (1u << (n - i)) - 1);
    const __m512 x = _mm512_maskz_loadu_ps(mask, src + i);
    if (_mm512_fpclass_ps_mask(x, kSubnormal)) return i;
    _mm256_mask_storeu_epi16(dst + i, mask, (__m256i)_mm512_cvtneps_pbh(x));
  }
  return n;
}
const bool has_bfloat16 = __builtin_cpu_supports("avx512bf16") != 0;

template <>
int64_t convert_natively(const float* src, BFloat16* dst, int64_t n) {
  return has_bfloat16 ? to_bfloat16_until_subnormal(src, dst, n) : 0;
}
#elif defined(__F16C__)
template <>
int64_t convert_natively(const Half* src, float* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  return i;
}
template <>
int64_t convert_natively(const float* src, Half* dst, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
  return i;
}
#endif

template <class To, class From>
[[gnu::flatten]] void convert_contiguous(const From* src, To* dst, int64_t n) {
  if constexpr (std::is_same_v<To, From>) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(To));
  } else {
    constexpr int64_t kBlock = 256;  // where the native conversion gave up, it is tried again after so many elements
    for (int64_t i = 0; i < n;) {
      i += convert_natively(src + i, dst + i, n - i);
      const int64_t end = std::min(n, i + (std::is_same_v<To, BFloat16> && std::is_same_v<From, float> ? kBlock : n));
#pragma GCC ivdep
      for (; i < end; ++i) dst[i] = cast_element<To>(src[i]);
    }
  }
}

template <class T>
void fill(T* dst, T value, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dst[i] = value;
}

// Gathers and scatters are limited by loads, not by the conversion: one element at a time.
template <class To, class From>
[[gnu::flatten, gnu::optimize("no-tree-vectorize")]] void convert_strided(const char* src, int64_t src_stride,
                                                                          char* dst, int64_t dst_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<To*>(dst + i * dst_stride) =
        cast_element<To>(*reinterpret_cast<const From*>(src + i * src_stride));
}

template <class To, class From>
void convert(const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1, int64_t n0, int64_t n1) {
  if (ds0 == sizeof(To) && ss0 == sizeof(From)) {
    if (ss1 == n0 * ss0 && ds1 == n0 * ds0) {
      n0 *= n1;
      n1 = 1;
    }
    for (int64_t j = 0; j < n1; ++j)
      convert_contiguous(reinterpret_cast<const From*>(src + j * ss1), reinterpret_cast<To*>(dst + j * ds1), n0);
  } else if (ds0 == sizeof(To) && ss0 == 0) {
    for (int64_t j = 0; j < n1; ++j)
      fill(reinterpret_cast<To*>(dst + j * ds1), cast_element<To>(*reinterpret_cast<const From*>(src + j * ss1)), n0);
  } else {
    for (int64_t j = 0; j < n1; ++j) convert_strided<To, From>(src + j * ss1, ss0, dst + j * ds1, ds0, n0);
  }
}

#define TG_TYPE(name, type) , type
using Types = std::tuple<void TG_FORALL_DTYPES(TG_TYPE)>;
#undef TG_TYPE
template <int I>
using type_at = std::tuple_element_t<I + 1, Types>;

template <int... I>
constexpr ConvertTable make_table(std::integer_sequence<int, I...>) {
  return {{&convert<type_at<I % kNumDTypes>, type_at<I / kNumDTypes>>...}};
}

}  // namespace

const ConvertTable convert_table = make_table(std::make_integer_sequence<int, kNumDTypes * kNumDTypes>{});

}  // namespace tapegrad::cpu::TG_ISA
