// As many floats as the instruction set's vectors hold, for kernels that keep sums in registers.
#pragma once

#include <cstring>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cpu::TG_ISA {

#if defined(__AVX512F__)
inline constexpr int kVector = 16;
#else
inline constexpr int kVector = 8;
#endif
typedef float Vector __attribute__((vector_size(4 * kVector), aligned(4), may_alias));

TG_INLINE const Vector& vector_at(const float* p) { return *reinterpret_cast<const Vector*>(p); }
TG_INLINE Vector& vector_at(float* p) { return *reinterpret_cast<Vector*>(p); }

// The sum of the lanes, always in the same order.
inline float total(const Vector& v) {
  float x[kVector];
  std::memcpy(x, &v, sizeof x);
  for (int width = kVector / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) x[l] += x[l + width];
  return x[0];
}

}  // namespace tapegrad::cpu::TG_ISA
