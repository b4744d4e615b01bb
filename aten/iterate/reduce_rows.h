// The typed side of reductions, included by the generated *_cpu.cpp files, once per instruction set.
//
// A reduction runs over blocks of accumulators, one per lane: either the lanes are outputs that lie side by side
// (columns: the input is walked row by row), or they are partial results of one output (rows: a long row is dealt
// out to kLanes lanes, which are merged at the end). Both are plain loops over contiguous input of the compute
// type; anything else is staged through a buffer, as in rows.h. Accumulation is wider than the input (float sums
// in double), so results are good to the last bits and need no compensation. All splits depend on sizes only.
#pragma once

#include <algorithm>

#include "tapegrad/aten/iterate/convert.h"
#include "tapegrad/aten/iterate/dispatch.h"
#include "tapegrad/aten/iterate/reduce_iterator.h"

namespace tapegrad::reduce {
using pointwise::dispatch;
}

namespace tapegrad::cpu::TG_ISA::reduce_rows {

inline constexpr int kLanes = 32;   // partial results of one output
inline constexpr int kBlock = 512;  // lanes per block; the planes of an accumulator are this far apart

// What the engine (reduce_cpu.cpp) knows of a functor. `acc` points to a lane of a block; n lanes are meant.
struct Loops {
  int passes;    // over the input
  int acc_size;  // bytes of one lane in one plane
  int planes;    // of a block: planes * kBlock * acc_size bytes
  DType result;  // of what finish writes
  // Lanes before a pass. Pass 1 starts from what pass 0 gave: one lane of `before` per lane, or the same for all.
  void (*start)(const void* functor, int pass, char* acc, int64_t n, const char* before, bool one_for_all,
                int64_t count);
  void (*columns)(const void* functor, int pass, char* acc, const char* x, int64_t n);  // lane j takes x[j]
  void (*rows)(const void* functor, int pass, char* acc, const char* x, int64_t n);     // kLanes lanes take n values
  void (*merge)(const void* functor, int pass, char* acc, const char* other, int64_t n);
  void (*finish)(const void* functor, const char* acc, char* out, int64_t n, int64_t count);
};

void run_loops(const reduce::Iterator& it, const Loops& loops, const void* functor);

// Loops of a functor with one accumulator: identity, step, merge, finish (aten/functors/reduce.h).
template <class T, class F>
struct OnePass {
  using Acc = typename F::Acc;

  [[gnu::flatten]] static void start(const void* functor, int, char* acc, int64_t n, const char*, bool, int64_t) {
    std::fill_n(reinterpret_cast<Acc*>(acc), n, static_cast<const F*>(functor)->identity());
  }
  [[gnu::flatten]] static void columns(const void* functor, int, char* acc, const char* x, int64_t n) {
    const F f = *static_cast<const F*>(functor);
    Acc* a = reinterpret_cast<Acc*>(acc);
    const T* v = reinterpret_cast<const T*>(x);
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) a[j] = f.step(a[j], v[j]);
  }
  [[gnu::flatten]] static void rows(const void* functor, int, char* acc, const char* x, int64_t n) {
    const F f = *static_cast<const F*>(functor);
    const T* v = reinterpret_cast<const T*>(x);
    Acc a[kLanes];
    std::copy_n(reinterpret_cast<Acc*>(acc), kLanes, a);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
#pragma GCC ivdep
      for (int l = 0; l < kLanes; ++l) a[l] = f.step(a[l], v[i + l]);
    for (int l = 0; i + l < n; ++l) a[l] = f.step(a[l], v[i + l]);
    std::copy_n(a, kLanes, reinterpret_cast<Acc*>(acc));
  }
  [[gnu::flatten]] static void merge(const void* functor, int, char* acc, const char* other, int64_t n) {
    const F f = *static_cast<const F*>(functor);
    Acc* a = reinterpret_cast<Acc*>(acc);
    const Acc* b = reinterpret_cast<const Acc*>(other);
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) a[j] = f.merge(a[j], b[j]);
  }
  [[gnu::flatten]] static void finish(const void* functor, const char* acc, char* out, int64_t n, int64_t count) {
    const F f = *static_cast<const F*>(functor);
    const Acc* a = reinterpret_cast<const Acc*>(acc);
    auto* o = reinterpret_cast<decltype(f.finish(a[0], count))*>(out);
    for (int64_t j = 0; j < n; ++j) o[j] = f.finish(a[j], count);
  }
  using Result = decltype(std::declval<F>().finish(std::declval<Acc>(), int64_t{}));
  static constexpr Loops loops{1, sizeof(Acc), 1, dtype_of_v<Result>, &start, &columns, &rows, &merge, &finish};
};

// Loops of a functor that needs the mean first (variance): pass 0 sums; pass 1 sums d and d^2 of the distances d
// from that mean, whose rounding the sum of d takes out again (Chan, Golub and LeVeque, The American Statistician
// 37 (1983), the corrected two-pass algorithm). Planes: the mean, sum of d, sum of d^2.
template <class T, class F>
struct Centered {
  [[gnu::flatten]] static void start(const void*, int pass, char* acc, int64_t n, const char* before, bool one_for_all,
                                     int64_t count) {
    double* a = reinterpret_cast<double*>(acc);
    const double* sums = reinterpret_cast<const double*>(before);
    for (int64_t j = 0; j < n; ++j) {
      a[j] = pass == 0 ? 0.0 : sums[one_for_all ? 0 : j] / static_cast<double>(count);
      a[j + kBlock] = 0;
      a[j + 2 * kBlock] = 0;
    }
  }
  [[gnu::flatten]] static void columns(const void*, int pass, char* acc, const char* x, int64_t n) {
    double* __restrict__ a = reinterpret_cast<double*>(acc);
    const T* __restrict__ v = reinterpret_cast<const T*>(x);
    if (pass == 0) {
      for (int64_t j = 0; j < n; ++j) a[j] += static_cast<double>(v[j]);
      return;
    }
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
      const double d = static_cast<double>(v[j]) - a[j];
      a[j + kBlock] += d;
      a[j + 2 * kBlock] += d * d;
    }
  }
  [[gnu::flatten]] static void rows(const void*, int pass, char* acc, const char* x, int64_t n) {
    double* a = reinterpret_cast<double*>(acc);
    const T* v = reinterpret_cast<const T*>(x);
    double s[kLanes], q[kLanes];
    const double mean = a[0];
    const int plane = pass == 0 ? 0 : 1;
    std::copy_n(a + plane * kBlock, kLanes, s);
    std::copy_n(a + 2 * kBlock, kLanes, q);
    int64_t i = 0;
    if (pass == 0) {
      for (; i + kLanes <= n; i += kLanes)
#pragma GCC ivdep
        for (int l = 0; l < kLanes; ++l) s[l] += static_cast<double>(v[i + l]);
      for (int l = 0; i + l < n; ++l) s[l] += static_cast<double>(v[i + l]);
    } else {
      auto take = [&](int l, T value) {
        const double d = static_cast<double>(value) - mean;
        s[l] += d;
        q[l] += d * d;
      };
      for (; i + kLanes <= n; i += kLanes)
#pragma GCC ivdep
        for (int l = 0; l < kLanes; ++l) take(l, v[i + l]);
      for (int l = 0; i + l < n; ++l) take(l, v[i + l]);
    }
    std::copy_n(s, kLanes, a + plane * kBlock);
    std::copy_n(q, kLanes, a + 2 * kBlock);
  }
  static void merge(const void*, int pass, char* acc, const char* other, int64_t n) {
    double* a = reinterpret_cast<double*>(acc);
    const double* b = reinterpret_cast<const double*>(other);
    for (int64_t j = 0; j < n; ++j) {
      if (pass == 0) a[j] += b[j];
      a[j + kBlock] += b[j + kBlock];
      a[j + 2 * kBlock] += b[j + 2 * kBlock];
    }
  }
  static void finish(const void* functor, const char* acc, char* out, int64_t n, int64_t count) {
    const F f = *static_cast<const F*>(functor);
    const double* a = reinterpret_cast<const double*>(acc);
    T* o = reinterpret_cast<T*>(out);
    for (int64_t j = 0; j < n; ++j) o[j] = f.finish(a[j + kBlock], a[j + 2 * kBlock], count);
  }
  static constexpr Loops loops{2, sizeof(double), 3, dtype_of_v<T>, &start, &columns, &rows, &merge, &finish};
};

template <class T, class F>
void run(const reduce::Iterator& it, const F& functor) {
  if constexpr (requires { F::kCentered; })
    run_loops(it, Centered<T, F>::loops, &functor);
  else
    run_loops(it, OnePass<T, F>::loops, &functor);
}

}  // namespace tapegrad::cpu::TG_ISA::reduce_rows
