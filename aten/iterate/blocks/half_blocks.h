// Sixteen elements of a 16-bit format at a time, to and from float. The array between conversion and arithmetic is as
// wide as the vectors of the instruction set, so that compilers keep it in registers: a loop over such blocks reads and
// writes 16 bits per element and nothing else. Booleans are 1 or 0. Rounding is that of Half and BFloat16; NaNs of
// float16 keep their payload.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <cstring>

#include "tapegrad/c10/tensor/half.h"

namespace tapegrad::cpu::TG_ISA::half_blocks {

inline constexpr int kBlock = 16;

// Whether it is faster to read two blocks of S at once with load_deinterleaved() and to store them with
// store_interleaved(): true for bfloat16. It is the upper half of a float, so elements of even and
// of odd indices become floats by one shift or one mask.
template <class S>
inline constexpr bool is_deinterleaved = false;

#if defined(__AVX512F__)
// The masked forms: g++ 12 warns about the others, which leave what is masked out undefined.
inline constexpr __mmask16 kAll = 0xffff;

TG_INLINE __m256i bits_at(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
TG_INLINE void put_bits(void* to, __m256i bits) { _mm256_storeu_si256(static_cast<__m256i*>(to), bits); }

TG_INLINE void load(const Half* from, float* to) { _mm512_storeu_ps(to, _mm512_maskz_cvtph_ps(kAll, bits_at(from))); }
TG_INLINE void store(const float* from, Half* to) {
  put_bits(to, _mm512_maskz_cvtps_ph(kAll, _mm512_loadu_ps(from), _MM_FROUND_TO_NEAREST_INT));
}
// bfloat16 is the upper half of float.
TG_INLINE void load(const BFloat16* from, float* to) {
  const __m512i words = _mm512_maskz_cvtepu16_epi32(kAll, bits_at(from));
  _mm512_storeu_ps(to, _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, words, 16)));
}
// Loads two blocks, elements with even indices first and those with odd indices after them, which is cheaper than
// keeping their order; for uses in which the order does not matter. Without `both`, one block, and it again in place of
// the second one: after a masked load a Zen 5 does not read ahead, and a sum of two long rows took three times as long.
TG_INLINE void load_deinterleaved(const BFloat16* from, float* to, bool both = true) {
  const __m512i first = _mm512_castsi256_si512(bits_at(from));
  const __m512i pairs = _mm512_maskz_inserti64x4(0xff, first, bits_at(from + (both ? kBlock : 0)), 1);
  _mm512_storeu_ps(to, _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAll, pairs, 16)));
  const __m512i odd = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
  _mm512_storeu_ps(to + kBlock, _mm512_castsi512_ps(odd));
}
// In assembly, since no file is compiled for an ISA with this instruction. It treats subnormal numbers as zero.
inline const bool has_bfloat16 = __builtin_cpu_supports("avx512bf16") != 0;
TG_INLINE __m256i converted(__m512 x) {
  __m256i bits;
  asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(x));
  return bits;
}
TG_INLINE __m256i first_half(__m512i bits) {  // written so that no lanes are undefined
  __m256i half;
  std::memcpy(&half, &bits, sizeof half);
  return half;
}
// The results are the upper halves.
TG_INLINE __m512i rounded_words(__m512 x) {
  const __m512i u = _mm512_castps_si512(x), up = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
  const __mmask16 odd = _mm512_test_epi32_mask(u, _mm512_set1_epi32(0x10000));
  const __m512i even = _mm512_mask_add_epi32(up, odd, up, _mm512_set1_epi32(1));
  const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(even, nan, u, _mm512_set1_epi32(0x400000));
}
TG_INLINE __m256i rounded(__m512 x) {
  constexpr short kOdd[32] = {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31};
  return first_half(_mm512_maskz_permutexvar_epi16(0xffffffff, _mm512_loadu_si512(kOdd), rounded_words(x)));
}
TG_INLINE __mmask16 subnormal(__m512 x) { return _mm512_fpclass_ps_mask(x, 0x20); }
TG_INLINE void store(const float* from, BFloat16* to) {
  const __m512 x = _mm512_loadu_ps(from);
  put_bits(to, has_bfloat16 && TG_LIKELY(subnormal(x) == 0) ? converted(x) : rounded(x));
}
// Two blocks by one instruction, unless it is not available or a number is subnormal. Both blocks share one test for
// subnormals, which costs as much as four additions.
TG_INLINE bool convert_two(__m512 low, __m512 high, __m512i* bits) {
  if (!has_bfloat16 || TG_UNLIKELY(!_kortestz_mask16_u8(subnormal(low), subnormal(high)))) return false;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(*bits) : "v"(low), "v"(high));
  return true;
}
// As the template below.
TG_INLINE void store_two(const float* from, BFloat16* to) {
  const __m512 x = _mm512_loadu_ps(from), y = _mm512_loadu_ps(from + kBlock);
  if (__m512i bits; convert_two(x, y, &bits)) {
    _mm512_storeu_si512(to, bits);
  } else {
    put_bits(to, rounded(x));
    put_bits(to + kBlock, rounded(y));
  }
}
// What load_deinterleaved() gave.
template <>
inline constexpr bool is_deinterleaved<BFloat16> = true;
TG_INLINE void store_interleaved(const float* from, BFloat16* to, bool both) {
  constexpr short kInTurn[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512 even = _mm512_loadu_ps(from), odd = _mm512_loadu_ps(from + kBlock);
  __m512i bits;
  if (convert_two(even, odd, &bits)) {
    bits = _mm512_maskz_permutexvar_epi16(0xffffffff, _mm512_loadu_si512(kInTurn), bits);
  } else {
    const __m512i low = _mm512_maskz_srli_epi32(kAll, rounded_words(even), 16);
    bits = _mm512_mask_blend_epi16(0xaaaaaaaa, low, rounded_words(odd));
  }
  if (TG_LIKELY(both))
    _mm512_storeu_si512(to, bits);
  else
    put_bits(to, first_half(bits));
}
// Whether all numbers of a block lie between these two.
TG_INLINE bool within(const float* x, float least, float most) {
  const __m512 v = _mm512_loadu_ps(x);
  const __mmask16 enough = _mm512_cmp_ps_mask(v, _mm512_set1_ps(least), _CMP_GE_OQ);
  return _mm512_mask_cmp_ps_mask(enough, v, _mm512_set1_ps(most), _CMP_LE_OQ) == kAll;
}
TG_INLINE void store(const int32_t* from, bool* to) {
  const __m128i bytes = _mm512_maskz_cvtepi32_epi8(kAll, _mm512_load_si512(from));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}
#elif defined(__AVX2__)
TG_INLINE __m128i bits_at(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

TG_INLINE void load(const Half* from, float* to) {
  for (int i = 0; i < kBlock; i += 8) _mm256_storeu_ps(to + i, _mm256_cvtph_ps(bits_at(from + i)));
}
TG_INLINE void store(const float* from, Half* to) {
  for (int i = 0; i < kBlock; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
}
TG_INLINE void load(const BFloat16* from, float* to) {
  for (int i = 0; i < kBlock; i += 8)
    _mm256_storeu_ps(to + i, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits_at(from + i)), 16)));
}
TG_INLINE void load_deinterleaved(const BFloat16* from, float* to, bool both = true) {
  for (int i = 0; i < 2; ++i) {
    const auto* pairs_at = reinterpret_cast<const __m256i*>(from) + i;
    const __m256i pairs = i == 0 || both ? _mm256_loadu_si256(pairs_at) : _mm256_setzero_si256();
    _mm256_storeu_ps(to + 8 * i, _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)));
    const __m256i odd = _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
    _mm256_storeu_ps(to + kBlock + 8 * i, _mm256_castsi256_ps(odd));
  }
}
// The results are the upper halves.
TG_INLINE __m256i rounded_words(const float* from) {
  const __m256 x = _mm256_loadu_ps(from);
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7fff));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(up, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
}
TG_INLINE __m256i rounded(const float* from) { return _mm256_srli_epi32(rounded_words(from), 16); }
TG_INLINE void store(const float* from, BFloat16* to) {
  const __m256i packed = _mm256_packus_epi32(rounded(from), rounded(from + 8));  // quarters in the order 0 2 1 3
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xd8));
}
// What load_deinterleaved() gave.
template <>
inline constexpr bool is_deinterleaved<BFloat16> = true;
TG_INLINE void store_interleaved(const float* from, BFloat16* to, bool both) {
  for (int i = 0; i < (both ? 2 : 1); ++i) {
    const __m256i odd = rounded_words(from + kBlock + 8 * i);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to) + i, _mm256_blend_epi16(rounded(from + 8 * i), odd, 0xaa));
  }
}
TG_INLINE bool within(const float* x, float least, float most) {
  const __m256 low = _mm256_set1_ps(least), high = _mm256_set1_ps(most);
  auto in = [&](__m256 v) {
    return _mm256_and_ps(_mm256_cmp_ps(v, low, _CMP_GE_OQ), _mm256_cmp_ps(v, high, _CMP_LE_OQ));
  };
  return _mm256_movemask_ps(_mm256_and_ps(in(_mm256_loadu_ps(x)), in(_mm256_loadu_ps(x + 8)))) == 0xff;
}
TG_INLINE void store(const int32_t* from, bool* to) {
  const __m256i* p = reinterpret_cast<const __m256i*>(from);
  const __m256i words =
      _mm256_permute4x64_epi64(_mm256_packs_epi32(_mm256_load_si256(p), _mm256_load_si256(p + 1)), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}
#else
TG_INLINE bool within(const float* x, float least, float most) {
  int in = 1;
  for (int i = 0; i < kBlock; ++i) in &= (x[i] >= least) & (x[i] <= most);
  return in != 0;
}
TG_INLINE void store(const int32_t* from, bool* to) {
  for (int i = 0; i < kBlock; ++i) to[i] = from[i] != 0;
}
// What load_deinterleaved() gives.
template <>
inline constexpr bool is_deinterleaved<BFloat16> = true;

}  // namespace tapegrad::cpu::TG_ISA::half_blocks

// Conversions in plain loops that g++ vectorises: of float16, and of one and two blocks of bfloat16, for the
// instruction sets that none of the above is written for, as NEON.
#include "tapegrad/aten/iterate/blocks/half_blocks_plain.h"

namespace tapegrad::cpu::TG_ISA::half_blocks {
#endif

// Two blocks.
template <class S>
TG_INLINE void store_two(const float* from, S* to) {
  store(from, to);
  store(from + kBlock, to + kBlock);
}

// The original index of element l of two blocks that load_deinterleaved() returned.
constexpr int place_of(BFloat16, int l) { return l % kBlock * 2 + l / kBlock; }
constexpr int place_of(Half, int l) { return l; }
TG_INLINE void load_deinterleaved(const Half* from, float* to) {
  load(from, to);
  load(from + kBlock, to + kBlock);
}

}  // namespace tapegrad::cpu::TG_ISA::half_blocks
