// Loops over rows of floating-point elements for kernels that are not one functor per element: norms, softmax, losses.
// The elements may be stored in a 16-bit format; f gets them in the compute type. Then kWidth of them are converted at
// a time, in registers, so that a row is read and written once. Rows of float and double are plain loops. Compiled per
// instruction set.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tapegrad/aten/iterate/blocks/half_blocks.h"
#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::cpu::TG_ISA::blocks {

// The lanes of loops over one line, such as the partial sums of a sum: two blocks, above 16, up to which g++ unrolls a
// loop before it would vectorise it.
inline constexpr int64_t kWidth = 2 * half_blocks::kBlock;
// The lanes of loops over independent lines side by side: numbers that fill 64 bytes, the vectors of AVX-512.
template <class T>
inline constexpr int kVectorLanes = 64 / static_cast<int>(sizeof(T));

template <class... T>
inline constexpr bool any_half = (is_half_type<T> || ...);

// kWidth elements at p in the compute type: the elements themselves, or converted ones.
template <class T, bool = is_half_type<T>>
struct Loaded {
  const T* at;
  TG_INLINE explicit Loaded(const T* p) : at(p) {}
};
template <class T>
struct Loaded<T, true> {
  alignas(64) float at[kWidth];
  TG_INLINE explicit Loaded(const T* p) {
    for (int64_t l = 0; l < kWidth; l += half_blocks::kBlock) half_blocks::load(p + l, at + l);
  }
};

// f(l, element l of each) for l < kWidth.
template <class F, class... In>
TG_INLINE void each(F&& f, const In*... in) {
  [&](const auto&... loaded) {
#pragma GCC ivdep
    for (int64_t l = 0; l < kWidth; ++l) f(l, loaded.at[l]...);
  }(Loaded<In>(in)...);
}

// f(i, element i of each) for i < n.
template <class F, class... In>
TG_INLINE void visit(int64_t n, F&& f, const In*... in) {
  int64_t i = 0;
  if constexpr (any_half<In...>)
    for (; i + kWidth <= n; i += kWidth) each([&](int64_t l, auto... x) { f(i + l, x...); }, (in + i)...);
#pragma GCC ivdep
  for (; i < n; ++i) f(i, static_cast<compute_t<In>>(in[i])...);
}

template <class Out, class F, class... In>
TG_INLINE void map_block(Out* out, F&& f, const In*... in) {
  alignas(64) compute_t<Out> y[kWidth];
  each([&](int64_t l, auto... x) { y[l] = f(x...); }, in...);
  if constexpr (is_half_type<Out>)
    half_blocks::store_two(y, out);
  else
    std::copy_n(y, kWidth, out);
}

// A block that is not full.
template <class T>
struct Padded {
  T at[kWidth] = {};
  Padded(const T* p, int64_t n) { std::copy_n(p, n, at); }
};

// out[i] = f(element i of each) for i < n; out may be one of the rows. With 16-bit elements in any row each element
// goes through the same instructions wherever it lies.
template <class Out, class F, class... In>
TG_INLINE void map(int64_t n, Out* out, F f, const In*... in) {
  int64_t i = 0;
  if constexpr (any_half<Out, In...>) {
    for (; i + kWidth <= n; i += kWidth) map_block(out + i, f, (in + i)...);
    if (i == n) return;
    Out rest[kWidth];
    [&](const auto&... padded) { map_block(rest, f, padded.at...); }(Padded<In>(in + i, n - i)...);
    std::copy_n(rest, n - i, out + i);
  } else {
#pragma GCC ivdep
    for (; i < n; ++i) out[i] = f(in[i]...);
  }
}

// The elements of `in`, converted.
template <class Out, class In>
TG_INLINE void copy(int64_t n, Out* out, const In* in) {
  map(n, out, [](auto x) { return static_cast<compute_t<Out>>(x); }, in);
}

}  // namespace tapegrad::cpu::TG_ISA::blocks
