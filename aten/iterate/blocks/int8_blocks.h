// Numbers of int8 as floats, a vector at a time.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "tapegrad/aten/iterate/blocks/float_vector.h"

namespace tapegrad::cpu::TG_ISA::int8_blocks {

#if defined(__AVX512F__)
TG_INLINE Vector load(const int8_t* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, bytes));
}
#elif defined(__AVX2__)
TG_INLINE Vector load(const int8_t* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}
#else
TG_INLINE Vector load(const int8_t* from) {
  Vector v;
  for (int l = 0; l < kVector; ++l) v[l] = from[l];
  return v;
}
#endif

}  // namespace tapegrad::cpu::TG_ISA::int8_blocks
