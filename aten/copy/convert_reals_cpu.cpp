#include "tapegrad/aten/copy/convert.h"

namespace tapegrad::cpu::TG_ISA {

namespace {
template <class T>
TG_INLINE void convert_block(const float* from, T* to) {
  half_blocks::store(from, to);
}
template <class T>
TG_INLINE void convert_block(const T* from, float* to) {
  half_blocks::load(from, to);
}

template <class To, class From>
TG_INLINE void convert_in_blocks(void* to, const void* from, int64_t n) {
  constexpr int64_t kBlock = half_blocks::kBlock;
  const auto* f = static_cast<const From*>(from);
  auto* t = static_cast<To*>(to);
  int64_t i = 0;
  if constexpr (std::is_same_v<From, float>)
    for (; i + 2 * kBlock <= n; i += 2 * kBlock) half_blocks::store_two(f + i, t + i);
  for (; i + kBlock <= n; i += kBlock) convert_block(f + i, t + i);
  if (i < n && n >= kBlock)  // the last block converts some elements again
    return convert_block(f + n - kBlock, t + n - kBlock);
#pragma GCC ivdep
  for (; i < n; ++i) t[i] = cast_element<To>(f[i]);
}
}  // namespace

// Between float and a 16-bit format blocks go by the processor's own conversions with nothing in between: by way of an
// array on the stack AVX2 took three times as long.
template <>
void convert_dense<Half, float>(void* to, const void* from, int64_t n) {
  convert_in_blocks<Half, float>(to, from, n);
}
template <>
void convert_dense<BFloat16, float>(void* to, const void* from, int64_t n) {
  convert_in_blocks<BFloat16, float>(to, from, n);
}
template <>
void convert_dense<float, Half>(void* to, const void* from, int64_t n) {
  convert_in_blocks<float, Half>(to, from, n);
}
template <>
void convert_dense<float, BFloat16>(void* to, const void* from, int64_t n) {
  convert_in_blocks<float, BFloat16>(to, from, n);
}

const ConvertColumn& convert_to_reals(DType to) {
  switch (to) {
    case DType::float16:
      return convert_column<Half>();
    case DType::bfloat16:
      return convert_column<BFloat16>();
    case DType::float32:
      return convert_column<float>();
    case DType::float8_e4m3fn:
      return convert_column<Float8E4M3FN>();
    case DType::float8_e5m2:
      return convert_column<Float8E5M2>();
    case DType::float8_e4m3fnuz:
      return convert_column<Float8E4M3FNUZ>();
    case DType::float8_e5m2fnuz:
      return convert_column<Float8E5M2FNUZ>();
    case DType::float8_e8m0fnu:
      return convert_column<Float8E8M0FNU>();
    default:
      return convert_column<double>();
  }
}

}  // namespace tapegrad::cpu::TG_ISA
