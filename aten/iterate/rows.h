// The typed side of pointwise kernels, included by the generated *_cpu.cpp files, once per instruction set.
//
// A functor is compiled into one loop per compute type: contiguous arrays of that type in, one out, which the compiler
// vectorises together with the calls of exp, tanh, ... in it; a cheap one also into a loop over arrays of float16 and
// one of bfloat16 (or, where it has a type HalfPrecision, that). Whatever is not such an array (another dtype, strides,
// a broadcast operand) is staged through a small buffer that stays in the first-level cache, by conversion functions
// that all functors share (convert_cpu.cpp). The loop always gets multiples of kLane elements: a remainder goes through
// a padded buffer, so every element is computed by the same vector instructions wherever it lies, and results have the
// same bits for any layout and any split between threads.
#pragma once

#include <cstring>
#include <type_traits>

#include "tapegrad/aten/iterate/blocks/half_blocks.h"
#include "tapegrad/aten/iterate/convert/convert.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/iterate/dispatch.h"
#include "tapegrad/aten/iterate/pointwise_iterator.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA::rows {

// Elements per call are a multiple of this: the lanes of the widest float vector.
inline constexpr int64_t kLane = half_blocks::kBlock;

// `functor` points to the functor, `out` and `in` to contiguous arrays.
using Loop = void (*)(const void* functor, char* out, const char* const* in, int64_t n);

// The loop over arrays of a 16-bit format, or null. Bit k of `constants`: input k is one number, and in[k] an array of
// at least kLane copies of it in float.
using Loop16 = Loop (*)(DType format, unsigned constants);

// Loops over two inputs one of which is a single number, the first or the second.
struct NumberLoops {
  Loop number[2];
};

// Runs a loop over all elements, in parallel if there are many. `numbers`: null, or what is taken where an input has
// one number for each row. `cost`: the approximate cost of an element in additions, which determines how many elements
// are worth a thread; `hint`: the measured cost at this call site (c10/threads/parallel.h).
void run_loop(const pointwise::Iterator& it, Loop loop, Loop16 loop16, const NumberLoops* numbers, const void* functor,
              int cost, detail::CostHint& hint);

template <class F>
constexpr int cost_of() {
  if constexpr (requires { F::kCost; })
    return F::kCost;
  else
    return 1;
}

inline constexpr int kCheap = 40;  // up to this cost, conversion through the staging buffers would show

template <int N, class F>
TG_INLINE auto call(const F& fn, const float (*x)[kLane], int j) {
  if constexpr (N == 1)
    return fn(x[0][j]);
  else if constexpr (N == 2)
    return fn(x[0][j], x[1][j]);
  else if constexpr (N == 3)
    return fn(x[0][j], x[1][j], x[2][j]);
  else
    return fn(x[0][j], x[1][j], x[2][j], x[3][j]);
}

// flatten: a call that stays a call in here would not be vectorised.
template <int N, class T, class F>
__attribute__((flatten)) void loop(const void* functor, char* out, const char* const* in, int64_t n) {
  const F fn = *static_cast<const F*>(functor);
  if (n % kLane != 0) __builtin_unreachable();
  auto elements = [&](int k) { return reinterpret_cast<const stored_t<T>*>(in[k]); };
  auto see = [](const stored_t<T>& x) { return value_of<T>(x); };
  const auto* a = elements(0);
  if constexpr (N == 1) {
    auto* o = reinterpret_cast<std::decay_t<decltype(fn(see(a[0])))>*>(out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = fn(see(a[i]));
  } else if constexpr (N == 2) {
    const auto* b = elements(1);
    auto* o = reinterpret_cast<std::decay_t<decltype(fn(see(a[0]), see(b[0])))>*>(out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = fn(see(a[i]), see(b[i]));
  } else if constexpr (N == 3) {
    const auto* b = elements(1);
    const auto* c = elements(2);
    auto* o = reinterpret_cast<std::decay_t<decltype(fn(see(a[0]), see(b[0]), see(c[0])))>*>(out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = fn(see(a[i]), see(b[i]), see(c[i]));
  } else {
    static_assert(N == 4);
    const auto* b = elements(1);
    const auto* c = elements(2);
    const auto* d = elements(3);
    auto* o = reinterpret_cast<std::decay_t<decltype(fn(see(a[0]), see(b[0]), see(c[0]), see(d[0])))>*>(out);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = fn(see(a[i]), see(b[i]), see(c[i]), see(d[i]));
  }
}

// The same with one number for input kNumber of two.
template <class T, int kNumber, class F>
__attribute__((flatten)) void number_loop(const void* functor, char* out, const char* const* in, int64_t n) {
  const F fn = *static_cast<const F*>(functor);
  if (n % kLane != 0) __builtin_unreachable();
  const T number = *reinterpret_cast<const T*>(in[kNumber]);
  const T* a = reinterpret_cast<const T*>(in[1 - kNumber]);
  auto join = [&](const T& x) { return kNumber == 0 ? fn(number, x) : fn(x, number); };
  auto* o = reinterpret_cast<std::decay_t<decltype(join(a[0]))>*>(out);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = join(a[i]);
}

// One or two blocks of a 16-bit format S at a time; the functor's loop over a block is unrolled into as many vectors as
// it has.
template <int N, class S, unsigned kConstants, class F>
__attribute__((flatten)) void loop16(const void* functor, char* out, const char* const* in, int64_t n) {
  const F fn = *static_cast<const F*>(functor);
  auto is_constant = [](int k) { return kConstants >> k & 1; };
  alignas(64) float numbers[N][kLane];
  for (int k = 0; k < N; ++k)
    if (is_constant(k)) std::memcpy(numbers[k], in[k], sizeof numbers[k]);
  using R = std::decay_t<decltype(call<N>(fn, numbers, 0))>;
  auto elements = [&](int k, int64_t i) { return reinterpret_cast<const S*>(in[k]) + i; };
  if constexpr (std::is_same_v<R, float> && half_blocks::is_deinterleaved<S>) {
    S* o = reinterpret_cast<S*>(out);
    for (int64_t i = 0; i < n; i += 2 * kLane) {
      const bool both = i + kLane < n;
      alignas(64) float x[2][N][kLane], y[2 * kLane];
      for (int k = 0; k < N; ++k) {
        if (is_constant(k)) {
          for (auto& half : x) std::memcpy(half[k], numbers[k], sizeof numbers[k]);
          continue;
        }
        alignas(64) float pair[2 * kLane];
        half_blocks::load_deinterleaved(elements(k, i), pair, both);
        for (int half = 0; half < 2; ++half) std::memcpy(x[half][k], pair + half * kLane, sizeof x[half][k]);
      }
      for (int half = 0; half < 2; ++half) {
#pragma GCC unroll 1  // unrolled first, short loops are not vectorised
        for (int j = 0; j < kLane; ++j) y[half * kLane + j] = call<N>(fn, x[half], j);
      }
      half_blocks::store_interleaved(y, o + i, both);
    }
  } else {
    using Y = std::conditional_t<std::is_same_v<R, bool>, int32_t, R>;
    auto* o = reinterpret_cast<std::conditional_t<std::is_same_v<R, bool>, bool, S>*>(out);
    for (int64_t i = 0; i < n; i += kLane) {
      alignas(64) float x[N][kLane];
      alignas(64) Y y[kLane];
      for (int k = 0; k < N; ++k) {
        if (is_constant(k))
          std::memcpy(x[k], numbers[k], sizeof x[k]);
        else
          half_blocks::load(elements(k, i), x[k]);
      }
#pragma GCC unroll 1
      for (int j = 0; j < kLane; ++j) y[j] = call<N>(fn, x, j);
      half_blocks::store(y, o + i);
    }
  }
}

template <int N, class S, class F>
Loop loop16_for(unsigned constants) {
  if (constants == 0) return &loop16<N, S, 0, F>;
  if constexpr (N == 2) return constants == 1 ? &loop16<N, S, 1, F> : constants == 2 ? &loop16<N, S, 2, F> : nullptr;
  if constexpr (N == 3) return constants == 4 ? &loop16<N, S, 4, F> : constants == 6 ? &loop16<N, S, 6, F> : nullptr;
  return nullptr;
}
template <int N, class F>
Loop choose16(DType format, unsigned constants) {
  if (format == DType::bfloat16) return loop16_for<N, BFloat16, F>(constants);
  return format == DType::float16 ? loop16_for<N, Half, F>(constants) : nullptr;
}

template <int N, class T, class F>
void run(const pointwise::Iterator& it, const F& functor) {
  static constinit detail::CostHint hint{0};
  Loop16 loop16 = nullptr;
  if constexpr (std::is_same_v<T, float> && requires { typename F::HalfPrecision; }) {
    static_assert(std::is_empty_v<F> && std::is_empty_v<typename F::HalfPrecision>);  // one stands for the other
    loop16 = &choose16<N, typename F::HalfPrecision>;
  } else if constexpr (std::is_same_v<T, float> && cost_of<F>() <= kCheap) {
    loop16 = &choose16<N, F>;
  }
  const NumberLoops* numbers = nullptr;
  if constexpr (N == 2 && std::is_same_v<T, float> && cost_of<F>() == 1) {
    static constexpr NumberLoops loops{{&number_loop<T, 0, F>, &number_loop<T, 1, F>}};
    numbers = &loops;
  }
  run_loop(it, &loop<N, T, F>, loop16, numbers, &functor, cost_of<F>(), hint);
}

}  // namespace tapegrad::cpu::TG_ISA::rows
