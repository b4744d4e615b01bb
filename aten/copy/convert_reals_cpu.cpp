#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "tapegrad/aten/copy/convert.h"

namespace tapegrad::cpu::TG_ISA {

#if defined(__F16C__)
// The compiler does not find these instructions in the portable formulas.
template <>
void convert_dense<float, Half>(void* to, const void* from, int64_t n) {
  float* t = static_cast<float*>(to);
  const Half* f = static_cast<const Half*>(from);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(t + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(f + i))));
  for (; i < n; ++i) t[i] = static_cast<float>(f[i]);
}

template <>
void convert_dense<Half, float>(void* to, const void* from, int64_t n) {
  Half* t = static_cast<Half*>(to);
  const float* f = static_cast<const float*>(from);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(t + i),
                     _mm256_cvtps_ph(_mm256_loadu_ps(f + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  for (; i < n; ++i) t[i] = Half(f[i]);
}
#endif

const ConvertColumn& convert_to_reals(DType to) {
  switch (to) {
    case DType::float16:
      return convert_column<Half>();
    case DType::bfloat16:
      return convert_column<BFloat16>();
    case DType::float32:
      return convert_column<float>();
    default:
      return convert_column<double>();
  }
}

}  // namespace tapegrad::cpu::TG_ISA
