// As many floats as the instruction set's vectors hold, for kernels that keep sums in registers.
#pragma once

#include <cstring>
#include <utility>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cpu::TG_ISA {

#if defined(__AVX512F__)
inline constexpr int kVector = 16;
#elif defined(__AVX2__)
inline constexpr int kVector = 8;
#else
inline constexpr int kVector = 4;
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

namespace detail {

// The first half of the lanes from `a` and the second from `b`, each of which consists of kGroups groups of lanes: the
// halves of each group added up.
template <int kGroups, class V, int... kLane>
TG_INLINE V add_halves(const V& a, const V& b, std::integer_sequence<int, kLane...>) {
  constexpr int kGroup = kVector / kGroups, kHalf = kGroup / 2;
  constexpr auto at = [](int lane) {
    const int l = lane % (kVector / 2);
    return l / kHalf * kGroup + l % kHalf + lane / (kVector / 2) * kVector;
  };
  return __builtin_shufflevector(a, b, at(kLane)...) + __builtin_shufflevector(a, b, (at(kLane) + kHalf)...);
}

// kEnd / kFrom vectors of kFrom groups each become one of kEnd groups.
template <int kFrom, int kEnd, class V>
TG_INLINE void add_all_halves(V* v) {
  if constexpr (kFrom < kEnd) {
    for (int i = 0; i < kEnd / (2 * kFrom); ++i)
      v[i] = add_halves<kFrom>(v[2 * i], v[2 * i + 1], std::make_integer_sequence<int, kVector>());
    add_all_halves<2 * kFrom, kEnd>(v);
  }
}

}  // namespace detail

// total() of each vector, a lane for each; `v` is overwritten. Of integers, too.
template <class V>
TG_INLINE V totals(V (&v)[kVector]) {
  detail::add_all_halves<1, kVector>(v);
  return v[0];
}

}  // namespace tapegrad::cpu::TG_ISA
