// The typed side of reductions, included by the generated *_cpu.cpp files, once per instruction set.
//
// A reduction runs over blocks of accumulators, one per lane: either the lanes are adjacent outputs (columns: the input
// is read row by row), or they are partial results of one output (rows: a long row is distributed over kLanes lanes,
// which are merged at the end). Both are plain loops over contiguous input of the compute type; anything else is staged
// through a buffer, as in rows.h. Accumulation is wider than the input (float sums in double), so results are good to
// the last bits and need no compensation; at most four elements, eight of 16 bits, are first added in float (conversion
// to double is the bottleneck of a float sum). All splits depend on sizes only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "tapegrad/aten/iterate/blocks/half_blocks.h"
#include "tapegrad/aten/iterate/convert/convert.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/iterate/dispatch.h"
#include "tapegrad/aten/iterate/reduce_iterator.h"

namespace tapegrad::reduce {
using pointwise::dispatch;
}

namespace tapegrad::cpu::TG_ISA::reduce_rows {

inline constexpr int kLanes = 32;   // partial results of one output
inline constexpr int kBlock = 512;  // lanes per block; the planes of an accumulator are this far apart
// In rows from this length on, cache lines are prefetched in memory order before the lanes read them in another order:
// the hardware prefetcher recognises only the former, which makes large tensors a quarter to a half faster. Lanes read
// eight lines at a time: with sixteen the gain is lost.
inline constexpr int64_t kFarElements = 2048;

// The interface of a functor to the engine (reduce_cpu.cpp). `acc` points to a lane of a block; n lanes are meant.
struct Loops {
  int passes;    // over the input
  int acc_size;  // bytes of one lane in one plane
  int planes;    // of a block: planes * kBlock * acc_size bytes
  DType input;   // of the elements that the loops read
  DType result;  // of the elements that finish writes
  // Initialises lanes before a pass. Pass 1 starts from the result of pass 0: one lane of `before` per lane, or the
  // same for all.
  void (*start)(const void* functor, int pass, char* acc, int64_t n, const char* before, bool one_for_all,
                int64_t count);
  // Lane j takes x[j] of `rows` rows, `stride` bytes apart.
  void (*columns)(const void* functor, int pass, char* acc, const char* x, int64_t n, int64_t stride, int64_t rows);
  void (*rows)(const void* functor, int pass, char* acc, const char* x, int64_t n);  // kLanes lanes take n values
  void (*merge)(const void* functor, int pass, char* acc, const char* other, int64_t n);
  void (*fold)(const void* functor, int pass, char* acc);  // merges kLanes lanes into the first one
  void (*finish)(const void* functor, const char* acc, char* out, int64_t n, int64_t count);
  // From start to fold for `rows` rows of n values, `stride` bytes apart: lane j gets what row j gives, with
  // the bits that start, rows and fold give. Null where there are several passes.
  void (*lines)(const void* functor, char* acc, const char* x, int64_t n, int64_t stride, int64_t rows);
};

void run_loops(const reduce::Iterator& it, const Loops& loops, const void* functor);

// Loops of a functor with one accumulator: identity, step, merge, finish (aten/functors/reduce.h). Elements lie in
// memory as In and are converted to T in registers.
template <class T, class F, class In>
struct OnePass {
  using Acc = typename F::Acc;
  static constexpr bool kBlocks = is_half_type<In>;
  static constexpr bool kEight = kBlocks && requires(F f, T x) { f.join(x, x); };
  static T in(const stored_t<In>& x) { return static_cast<T>(value_of<In>(x)); }

  [[gnu::flatten]] static void start(const void* functor, int, char* acc, int64_t n, const char*, bool, int64_t) {
    std::fill_n(reinterpret_cast<Acc*>(acc), n, static_cast<const F*>(functor)->identity());
  }
  // Several elements, joined first where the functor can.
  template <class X>
  TG_INLINE static Acc take(const F& f, Acc a, X x) {
    return f.step(a, x);
  }
  template <class X>
  TG_INLINE static Acc take(const F& f, Acc a, X x, X y) {
    if constexpr (requires { f.join(x, y); })
      return f.step(a, f.join(x, y));
    else
      return f.step(f.step(a, x), y);
  }
  template <class X>
  TG_INLINE static Acc take(const F& f, Acc a, X x, X y, X z, X w) {
    if constexpr (std::is_same_v<In, Half> && requires { f.step4_half(a, x, y, z, w); })
      return f.step4_half(a, x, y, z, w);
    else if constexpr (requires { f.step4(a, x, y, z, w); })
      return f.step4(a, x, y, z, w);
    else if constexpr (requires { f.join(x, y); })
      return f.step(a, f.join(f.join(x, y), f.join(z, w)));
    else
      return take(f, take(f, a, x, y), z, w);
  }
  template <class X>
  TG_INLINE static Acc take(const F& f, Acc a, X x, X y, X z, X w, X p, X q, X r, X s) {
    return f.step(a, f.join(f.join(f.join(x, y), f.join(z, w)), f.join(f.join(p, q), f.join(r, s))));
  }
  // Lane l of `kCount` takes an element of each q, which `load(q, to)` gives for all lanes.
  template <int kCount, class Load, size_t... Q>
  TG_INLINE static void take_block(const F& f, Acc* a, Load&& load, std::index_sequence<Q...>) {
    if constexpr (std::is_same_v<In, BFloat16> && sizeof...(Q) == 4 && requires(T x) { f.join4(x, x, x, x); }) {
      take_joined<kCount>(f, a, load);
    } else {
      alignas(64) T x[sizeof...(Q)][kCount];
      (load(static_cast<int>(Q), x[Q]), ...);
#pragma GCC unroll 1  // unrolled first, short loops are not vectorised
      for (int l = 0; l < kCount; ++l) a[l] = take(f, a[l], x[Q][l]...);
    }
  }
  // Joins four elements where that is exact enough. The condition is tested for all lanes at once, but the result of a
  // lane depends on its own elements only.
  template <int kCount, class Load>
  TG_INLINE static void take_joined(const F& f, Acc* a, Load& load) {
    alignas(64) float four[kCount];
    {
      alignas(64) T x[4][kCount];
      for (int q = 0; q < 4; ++q) load(q, x[q]);
#pragma GCC unroll 1
      for (int l = 0; l < kCount; ++l) four[l] = f.join4(x[0][l], x[1][l], x[2][l], x[3][l]);
    }
    if (TG_UNLIKELY(!all_joined<kCount>(four))) {
      alignas(64) T x[4][kCount];  // loaded anew, for the others to stay in registers
      for (int q = 0; q < 4; ++q) load(q, x[q]);
      auto bits = [](T v) { return std::bit_cast<uint32_t>(v); };
      alignas(64) float but_zeros[kCount];
#pragma GCC unroll 1
      for (int l = 0; l < kCount; ++l) {
        const uint32_t any = (bits(x[0][l]) | bits(x[1][l]) | bits(x[2][l]) | bits(x[3][l])) << 1;  // but the signs
        but_zeros[l] = any == 0 ? F::kJoinedLeast : four[l];
      }
      if (!all_joined<kCount>(but_zeros)) {
#pragma GCC unroll 1
        for (int l = 0; l < kCount; ++l) {
          const bool joined = (four[l] >= F::kJoinedLeast) & (four[l] <= F::kJoinedMost);
          a[l] = joined ? f.step_joined(a[l], four[l]) : take(f, a[l], x[0][l], x[1][l], x[2][l], x[3][l]);
        }
        return;
      }
    }
#pragma GCC unroll 1
    for (int l = 0; l < kCount; ++l) a[l] = f.step_joined(a[l], four[l]);
  }
  template <int kCount>
  TG_INLINE static bool all_joined(const float* four) {
    bool all = true;
    for (int l = 0; l < kCount; l += half_blocks::kBlock)
      all &= half_blocks::within(four + l, F::kJoinedLeast, F::kJoinedMost);
    return all;
  }
  // Lane j of `kCount` takes eight elements, which `load(q, to)` gives for all lanes; four of them at a time lie in
  // registers.
  template <int kCount, class Load>
  TG_INLINE static void take_eight(const F& f, Acc* a, Load&& load) {
    alignas(64) T four[2][kCount];
    for (int h = 0; h < 2; ++h) {
      alignas(64) T x[4][kCount];
      for (int q = 0; q < 4; ++q) load(4 * h + q, x[q]);
#pragma GCC unroll 1
      for (int l = 0; l < kCount; ++l) four[h][l] = f.join(f.join(x[0][l], x[1][l]), f.join(x[2][l], x[3][l]));
    }
#pragma GCC unroll 1
    for (int l = 0; l < kCount; ++l) a[l] = f.step(a[l], f.join(four[0][l], four[1][l]));
  }
  // Lane j takes v[q * stride + j] of Q rows: the accumulators are loaded and stored once for all of them.
  template <size_t... Q>
  TG_INLINE static void take_rows(const F& f, Acc* a, const stored_t<In>* v, int64_t stride, int64_t n,
                                  std::index_sequence<Q...>) {
    int64_t j = 0;
    if constexpr (kBlocks) {
      for (; j + half_blocks::kBlock <= n; j += half_blocks::kBlock) {
        if constexpr (sizeof...(Q) == 8) {
          take_eight<half_blocks::kBlock>(f, a + j, [&](int q, T* to) { half_blocks::load(v + q * stride + j, to); });
        } else {
          take_block<half_blocks::kBlock>(
              f, a + j, [&](int q, T* to) { half_blocks::load(v + q * stride + j, to); }, std::index_sequence<Q...>{});
        }
      }
    }
#pragma GCC ivdep
    for (; j < n; ++j) a[j] = take(f, a[j], in(v[static_cast<int64_t>(Q) * stride + j])...);
  }
  [[gnu::flatten]] static void columns(const void* functor, int, char* acc, const char* x, int64_t n, int64_t stride,
                                       int64_t rows) {
    const F f = *static_cast<const F*>(functor);
    Acc* a = reinterpret_cast<Acc*>(acc);
    auto row = [&](int64_t i) { return reinterpret_cast<const stored_t<In>*>(x + i * stride); };
    const int64_t step = stride / static_cast<int64_t>(sizeof(In));
    int64_t i = 0;
    if constexpr (kEight)
      for (; i + 8 <= rows; i += 8) take_rows(f, a, row(i), step, n, std::make_index_sequence<8>{});
    for (; i + 4 <= rows; i += 4) take_rows(f, a, row(i), step, n, std::make_index_sequence<4>{});
    if (i + 2 <= rows) {
      take_rows(f, a, row(i), step, n, std::make_index_sequence<2>{});
      i += 2;
    }
    if (i < rows) take_rows(f, a, row(i), step, n, std::make_index_sequence<1>{});
  }
  // Accumulates Q * kLanes elements of a row: of every kLanes elements, lane l takes the one at place(l).
  static constexpr int place(int l) {
    if constexpr (kBlocks)
      return half_blocks::place_of(In{}, l);
    else
      return l;
  }
  template <size_t... Q>
  TG_INLINE static void take_lanes(const F& f, Acc* a, const stored_t<In>* v, std::index_sequence<Q...>) {
    if constexpr (kBlocks) {
      take_block<kLanes>(
          f, a, [&](int q, T* to) { half_blocks::load_deinterleaved(v + q * kLanes, to); },
          std::index_sequence<Q...>{});
    } else {
#pragma GCC ivdep
      for (int l = 0; l < kLanes; ++l) a[l] = take(f, a[l], in(v[static_cast<int>(Q) * kLanes + l])...);
    }
  }
  TG_INLINE static void accumulate_row(const F& f, Acc* a, const stored_t<In>* v, int64_t n) {
    int64_t i = 0;
    const bool far = n >= kFarElements;
    auto fetch = [&](int64_t count) __attribute__((always_inline)) {  // a call that only prefetches is dropped by g++
      if (far)
        for (int64_t l = 0; l < count; l += 64 / sizeof(In)) __builtin_prefetch(v + i + l);
    };
    if constexpr (kEight)
      for (; i + 8 * kLanes <= n; i += 8 * kLanes) {
        fetch(8 * kLanes);
        take_eight<kLanes>(f, a, [&](int q, T* to) { half_blocks::load_deinterleaved(v + i + q * kLanes, to); });
      }
    constexpr int kTaken = sizeof(In) <= 4 ? 4 : 16 / sizeof(In);
    for (; i + kTaken * kLanes <= n; i += kTaken * kLanes) {
      fetch(kTaken * kLanes);
      take_lanes(f, a, v + i, std::make_index_sequence<kTaken>{});
    }
    if (i + 2 * kLanes <= n) {
      take_lanes(f, a, v + i, std::make_index_sequence<2>{});
      i += 2 * kLanes;
    }
    if (i + kLanes <= n) {
      take_lanes(f, a, v + i, std::make_index_sequence<1>{});
      i += kLanes;
    }
    if (i == n) return;
    if (n < kLanes) {
      for (int l = 0; i + l < n; ++l) a[l] = f.step(a[l], in(v[i + l]));
      return;
    }
    // The rest is read as a whole line; lanes whose elements were already accumulated keep their old value.
    const int64_t from = kLanes - (n - i);
    Acc t[kLanes];
    std::copy_n(a, kLanes, t);
    take_lanes(f, t, v + n - kLanes, std::make_index_sequence<1>{});
#pragma GCC ivdep
    for (int l = 0; l < kLanes; ++l) a[l] = place(l) >= from ? t[l] : a[l];
  }
  [[gnu::flatten]] static void rows(const void* functor, int, char* acc, const char* x, int64_t n) {
    const F f = *static_cast<const F*>(functor);
    Acc a[kLanes];
    std::copy_n(reinterpret_cast<Acc*>(acc), kLanes, a);
    accumulate_row(f, a, reinterpret_cast<const stored_t<In>*>(x), n);
    std::copy_n(a, kLanes, reinterpret_cast<Acc*>(acc));
  }
  template <int N>
  static Acc folded(const F& f, const Acc* a) {
    if constexpr (N == 1) {
      return a[0];
    } else {
      Acc half[N / 2];
#pragma GCC ivdep
#pragma GCC unroll 1  // unrolled first, short loops are not vectorised
      for (int l = 0; l < N / 2; ++l) half[l] = f.merge(a[l], a[l + N / 2]);
      return folded<N / 2>(f, half);
    }
  }
  [[gnu::flatten]] static void fold(const void* functor, int, char* acc) {
    Acc* a = reinterpret_cast<Acc*>(acc);
    a[0] = folded<kLanes>(*static_cast<const F*>(functor), a);
  }
  [[gnu::flatten]] static void lines(const void* functor, char* acc, const char* x, int64_t n, int64_t stride,
                                     int64_t rows) {
    const F f = *static_cast<const F*>(functor);
    for (int64_t i = 0; i < rows; ++i, x += stride) {
      Acc a[kLanes];
      std::fill_n(a, kLanes, f.identity());
      accumulate_row(f, a, reinterpret_cast<const stored_t<In>*>(x), n);
      reinterpret_cast<Acc*>(acc)[i] = folded<kLanes>(f, a);
    }
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
};

template <class F>
struct StepsOf {
  using type = F;
};
template <class F>
  requires requires { typename F::Steps; }
struct StepsOf<F> {
  using type = typename F::Steps;
};

template <class T, class F, class In>
constexpr Loops one_pass_loops() {
  using Steps = typename StepsOf<F>::type;
  static_assert(std::is_same_v<F, Steps> || std::is_empty_v<F>);  // one stands for the other
  using P = OnePass<T, Steps, In>;
  using Result = decltype(std::declval<F>().finish(std::declval<typename F::Acc>(), int64_t{}));
  return {1,
          sizeof(typename F::Acc),
          1,
          dtype_of_v<In>,
          dtype_of_v<Result>,
          &P::start,
          &P::columns,
          &P::rows,
          &P::merge,
          &P::fold,
          &OnePass<T, F, In>::finish,
          &P::lines};
}

// A functor that only tests whether elements are zero reads them as bits, so that it has loops per size and not per
// dtype. `mask` leaves out the signs of floating ones.
template <class F>
struct OfBits : F {
  uint64_t mask;
  template <class X>
  TG_INLINE X bits(X x) const {
    if constexpr (std::is_integral_v<X> && sizeof(X) > 1)  // no type of one byte has a sign to leave out
      return static_cast<X>(x & mask);
    else
      return x;
  }
  template <class X>
  TG_INLINE auto step(typename F::Acc a, X x) const {
    return F::step(a, bits(x));
  }
  template <class X>
  TG_INLINE auto step4(typename F::Acc a, X x, X y, X z, X w) const
    requires requires(F f) { f.step4(a, x, y, z, w); }
  {
    return F::step4(a, bits(x), bits(y), bits(z), bits(w));
  }
};
template <class F>
void run_on_bits(const reduce::Iterator& it, DType dtype) {
  const bool floats = is_floating_point(dtype) || is_complex(dtype);
  dispatch_bytes(dtype, [&]<class Bits>() {
    constexpr uint64_t kAll = sizeof(Bits) < 8 ? (uint64_t{1} << 8 * (sizeof(Bits) % 8)) - 1 : ~uint64_t{0};
    // A complex64 is two floats, and a complex128 comes as such.
    const uint64_t signs = dtype == DType::complex64 ? uint64_t{0x80000000'80000000} : floats ? kAll - kAll / 2 : 0;
    const OfBits<F> functor{{}, kAll & ~signs};
    Loops loops = one_pass_loops<Bits, OfBits<F>, Bits>();
    loops.input = dtype;
    run_loops(it, loops, &functor);
  });
}

// Loops of a functor that needs the mean first (variance): pass 0 sums; pass 1 sums d and d^2 of the distances d
// from that mean, whose rounding the sum of d takes out again (Chan, Golub and LeVeque, The American Statistician
// 37 (1983), the corrected two-pass algorithm). Planes: the mean, sum of d, sum of d^2.
template <class T, class In>
struct Distances {
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
  [[gnu::flatten]] static void columns(const void*, int pass, char* acc, const char* x, int64_t n, int64_t stride,
                                       int64_t rows) {
    double* __restrict__ a = reinterpret_cast<double*>(acc);
    auto add = [&](int64_t j, T value) { a[j] += static_cast<double>(value); };
    auto add_distance = [&](int64_t j, T value) {
      const double d = static_cast<double>(value) - a[j];
      a[j + kBlock] += d;
      a[j + 2 * kBlock] += d * d;
    };
    for (int64_t i = 0; i < rows; ++i, x += stride) {
      const In* v = reinterpret_cast<const In*>(x);
      if (pass == 0)
        each(v, n, add);
      else
        each(v, n, add_distance);
    }
  }
  // f(j, value of v[j]) for all of n elements, vector by vector.
  template <class Take>
  TG_INLINE static void each(const In* __restrict__ v, int64_t n, Take&& f) {
    int64_t j = 0;
    if constexpr (is_half_type<In>) {
      for (; j + half_blocks::kBlock <= n; j += half_blocks::kBlock) {
        alignas(64) T value[half_blocks::kBlock];
        half_blocks::load(v + j, value);
#pragma GCC unroll 1
        for (int l = 0; l < half_blocks::kBlock; ++l) f(j + l, value[l]);
      }
    }
#pragma GCC ivdep
    for (; j < n; ++j) f(j, static_cast<T>(v[j]));
  }
  // Of kLanes values, in the order in which they are read fastest.
  template <class Take>
  TG_INLINE static void each_lane(const In* __restrict__ v, Take&& f) {
    if constexpr (is_half_type<In>) {
      alignas(64) T value[kLanes];
      half_blocks::load_deinterleaved(v, value);
#pragma GCC ivdep
      for (int l = 0; l < kLanes; ++l) f(l, value[l]);
    } else {
      each(v, kLanes, f);
    }
  }
  [[gnu::flatten]] static void rows(const void*, int pass, char* acc, const char* x, int64_t n) {
    double* a = reinterpret_cast<double*>(acc);
    const In* v = reinterpret_cast<const In*>(x);
    double s[kLanes], q[kLanes];
    const double mean = a[0];
    const int plane = pass == 0 ? 0 : 1;
    std::copy_n(a + plane * kBlock, kLanes, s);
    std::copy_n(a + 2 * kBlock, kLanes, q);
    auto add = [&](int64_t l, T value) { s[l] += static_cast<double>(value); };
    auto add_distance = [&](int64_t l, T value) {
      const double d = static_cast<double>(value) - mean;
      s[l] += d;
      q[l] += d * d;
    };
    for (int64_t i = 0; i < n; i += kLanes) {
      const int64_t lanes = std::min<int64_t>(kLanes, n - i);
      if (pass == 0)
        lanes == kLanes ? each_lane(v + i, add) : each(v + i, lanes, add);
      else
        lanes == kLanes ? each_lane(v + i, add_distance) : each(v + i, lanes, add_distance);
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
  static void fold(const void*, int pass, char* acc) {
    double* a = reinterpret_cast<double*>(acc);
    for (int plane = pass == 0 ? 0 : 1; plane < 3; ++plane)
      for (int n = kLanes / 2; n > 0; n /= 2)
        for (int l = 0; l < n; ++l) a[plane * kBlock + l] += a[plane * kBlock + l + n];
  }
};

template <class T, class F, class In>
struct Centered : Distances<T, In> {
  using D = Distances<T, In>;
  static void finish(const void* functor, const char* acc, char* out, int64_t n, int64_t count) {
    const F f = *static_cast<const F*>(functor);
    const double* a = reinterpret_cast<const double*>(acc);
    T* o = reinterpret_cast<T*>(out);
    for (int64_t j = 0; j < n; ++j) o[j] = f.finish(a[j + kBlock], a[j + 2 * kBlock], count);
  }
  static constexpr Loops loops{2,           sizeof(double), 3,         dtype_of_v<In>, dtype_of_v<T>, &D::start,
                               &D::columns, &D::rows,       &D::merge, &D::fold,       &finish,       nullptr};
};

template <class T, class F, class In>
void run_on(const reduce::Iterator& it, const F& functor) {
  if constexpr (requires { F::kCentered; })
    run_loops(it, Centered<T, F, In>::loops, &functor);
  else
    run_loops(it, one_pass_loops<T, F, In>(), &functor);
}

template <class F>
struct ElementOf;
template <template <class> class F, class T>
struct ElementOf<F<T>> {
  using type = T;
};
template <class F>
inline constexpr bool has_wide = false;
template <class F>
  requires requires { typename F::Wide; }
inline constexpr bool has_wide<F> = !std::is_same_v<typename F::Wide, F>;

// The 16-bit formats have loops of their own: staging them would take as long as a reduction of float elements.
template <class T, class F>
void run(const reduce::Iterator& it, const F& functor) {
  if constexpr (requires { typename F::Nonzero; }) {
    return run_on_bits<typename F::Nonzero>(it, is_half(it.input_dtype) ? it.input_dtype : dtype_of_v<T>);
  } else if constexpr (has_wide<F>) {
    using Wide = typename F::Wide;
    if constexpr (std::is_empty_v<F>)
      return run<typename ElementOf<Wide>::type>(it, Wide{});
    else
      return run<typename ElementOf<Wide>::type>(it, Wide(functor));
  } else {
    if constexpr (std::is_same_v<T, float> && !requires { F::kRare; }) {
      if (it.input_dtype == DType::bfloat16) return run_on<T, F, BFloat16>(it, functor);
      if (it.input_dtype == DType::float16) return run_on<T, F, Half>(it, functor);
    }
    run_on<T, F, T>(it, functor);
  }
}

}  // namespace tapegrad::cpu::TG_ISA::reduce_rows
