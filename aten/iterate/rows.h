// The typed side of pointwise kernels, included by the generated *_cpu.cpp files, once per instruction set.
//
// A functor is compiled into exactly one loop per compute type: contiguous arrays of that type in, one out,
// which the compiler vectorises together with the calls of exp, tanh, ... in it. Whatever is not such an array
// (another dtype, a 16-bit format, strides, a broadcast operand) is staged through a small buffer that stays in
// the first-level cache, by conversion functions that all functors share (convert_cpu.cpp). The loop only ever
// sees multiples of kLane elements: a rest goes through a padded buffer, so an element meets the same vector
// instructions wherever it lies, and results have the same bits for any layout and any split between threads.
#pragma once

#include <type_traits>

#include "tapegrad/aten/iterate/convert.h"
#include "tapegrad/aten/iterate/dispatch.h"
#include "tapegrad/aten/iterate/pointwise_iterator.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::cpu::TG_ISA::rows {

// Elements per call are a multiple of this: the lanes of the widest float vector.
inline constexpr int64_t kLane = 16;

// `functor` points to the functor, `out` and `in` to contiguous arrays.
using Loop = void (*)(const void* functor, char* out, const char* const* in, int64_t n);

// Runs the loop over all elements, in parallel when there are many. `cost`: how many times dearer an element is
// than an addition, roughly; it sets how many elements are worth a thread;
// `hint` is the memory of this functor's call site (c10/parallel.h).
void run_loop(const pointwise::Iterator& it, Loop loop, const void* functor, int cost, detail::CostHint& hint);

template <class F>
constexpr int cost_of() {
  if constexpr (requires { F::kCost; })
    return F::kCost;
  else
    return 1;
}

// flatten: a call that stays a call in here would not be vectorised.
template <int N, class T, class F>
__attribute__((flatten)) void loop(const void* functor, char* out, const char* const* in, int64_t n) {
  const F fn = *static_cast<const F*>(functor);
  if (n % kLane != 0) __builtin_unreachable();
  const T* a = reinterpret_cast<const T*>(in[0]);
  if constexpr (N == 1) {
    auto* o = reinterpret_cast<std::decay_t<decltype(fn(a[0]))>*>(out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = fn(a[i]);
  } else if constexpr (N == 2) {
    const T* b = reinterpret_cast<const T*>(in[1]);
    auto* o = reinterpret_cast<std::decay_t<decltype(fn(a[0], b[0]))>*>(out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = fn(a[i], b[i]);
  } else if constexpr (N == 3) {
    const T* b = reinterpret_cast<const T*>(in[1]);
    const T* c = reinterpret_cast<const T*>(in[2]);
    auto* o = reinterpret_cast<std::decay_t<decltype(fn(a[0], b[0], c[0]))>*>(out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = fn(a[i], b[i], c[i]);
  } else {
    static_assert(N == 4);
    const T* b = reinterpret_cast<const T*>(in[1]);
    const T* c = reinterpret_cast<const T*>(in[2]);
    const T* d = reinterpret_cast<const T*>(in[3]);
    auto* o = reinterpret_cast<std::decay_t<decltype(fn(a[0], b[0], c[0], d[0]))>*>(out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = fn(a[i], b[i], c[i], d[i]);
  }
}

template <int N, class T, class F>
void run(const pointwise::Iterator& it, const F& functor) {
  static constinit detail::CostHint hint{0};
  run_loop(it, &loop<N, T, F>, &functor, cost_of<F>(), hint);
}

}  // namespace tapegrad::cpu::TG_ISA::rows
