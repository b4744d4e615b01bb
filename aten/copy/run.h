// Copies of single rows with strides.
#pragma once

#include "tapegrad/aten/copy/bytes.h"

namespace tapegrad::cpu::TG_ISA {

// n elements, strides in bytes, to memory that does not overlap theirs, or is the same. The longer loops are unrolled:
// of an element that is moved alone, its load and its store should be all.
template <class T>
void copy_run(char* to, int64_t ts, const char* from, int64_t fs, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  if (ts == kSize && fs == kSize) {
    copy_bytes(to, from, n * kSize);
  } else if (ts == kSize && fs == 0) {
    const T value = *reinterpret_cast<const T*>(from);
    T* t = reinterpret_cast<T*>(to);
    for (int64_t i = 0; i < n; ++i) t[i] = value;
  } else if (ts == kSize && fs == 2 * kSize) {  // a constant stride: vectors
    T* __restrict t = reinterpret_cast<T*>(to);
    const T* f = reinterpret_cast<const T*>(from);
    for (int64_t i = 0; i < n; ++i) t[i] = f[2 * i];
  } else if (ts == kSize) {
    T* t = reinterpret_cast<T*>(to);
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; ++i) t[i] = *reinterpret_cast<const T*>(from + i * fs);
  } else {
#pragma GCC unroll 4
    for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(to + i * ts) = *reinterpret_cast<const T*>(from + i * fs);
  }
}

}  // namespace tapegrad::cpu::TG_ISA
