// The typed side of reductions, included by the generated *.cu files; see plan.h for the host's part.
#pragma once

#include <type_traits>

#include "tapegrad/aten/iterate/dispatch.h"
#include "tapegrad/cuda/pointwise/rows.h"
#include "tapegrad/cuda/reduce/plan.h"

namespace tapegrad::reduce {
using pointwise::dispatch;
}

namespace tapegrad::cuda::reduce_rows {

// The kernels' view of a functor with one accumulator.
template <class T, class F>
struct Plain {
  using Acc = typename F::Acc;
  F f;
  static constexpr bool kPivot = false;
  TG_HD Acc identity() const { return f.identity(); }
  TG_HD Acc step(const Acc& a, T x, double) const { return f.step(a, x); }
  // Joins four neighbours in their own type if the functor supports it: the conversion is the bottleneck of a float
  // sum.
  template <int V>
  TG_HD Acc steps(Acc a, const T (&x)[V], double) const {
    if constexpr (V % 4 == 0 && requires(T t) { f.join(t, t); }) {
      for (int j = 0; j < V; j += 4) a = f.step(a, f.join(f.join(x[j], x[j + 1]), f.join(x[j + 2], x[j + 3])));
    } else {
      for (int j = 0; j < V; ++j) a = f.step(a, x[j]);
    }
    return a;
  }
  TG_HD Acc merge(const Acc& a, const Acc& b) const { return f.merge(a, b); }
  TG_HD auto finish(const Acc& a, int64_t n) const { return f.finish(a, n); }
};

// Variance: sums of the distances from the output's first element, which is near enough to the mean that nothing is
// lost in double when the square of the sum is taken off.
template <class T, class F>
struct Centered {
  struct Acc {
    double sum, squares;
  };
  F f;
  static constexpr bool kPivot = true;
  TG_HD Acc identity() const { return {0, 0}; }
  TG_HD Acc step(const Acc& a, T x, double pivot) const {
    const double d = static_cast<double>(x) - pivot;
    return {a.sum + d, a.squares + d * d};
  }
  template <int V>
  TG_HD Acc steps(Acc a, const T (&x)[V], double pivot) const {
    for (int j = 0; j < V; ++j) a = step(a, x[j], pivot);
    return a;
  }
  TG_HD Acc merge(const Acc& a, const Acc& b) const { return {a.sum + b.sum, a.squares + b.squares}; }
  TG_HD auto finish(const Acc& a, int64_t n) const { return f.finish(a.sum, a.squares, n); }
};

template <class T, class E>
TG_DEVICE double pivot_of(const E&, const Args& args, const char* row) {
  if constexpr (E::kPivot)
    return args.count > 0 ? static_cast<double>(rows::load_one<T>(row, args.stored)) : 0.0;
  else
    return 0;
}

template <class E>
TG_DEVICE void give(const E& e, const Args& args, int64_t output, int64_t part, const typename E::Acc& a) {
  using R = decltype(e.finish(a, 0));
  if (args.parts > 1)
    reinterpret_cast<typename E::Acc*>(args.partial)[part * args.outputs + output] = a;
  else
    rows::store_one<R>(args.out + output * (args.out_stored == Stored::Native ? sizeof(R) : 2), args.out_stored,
                       e.finish(a, args.count));
}

TG_DEVICE int64_t reduced_offset(const Args& args, int64_t i) {
  return args.step != 0 ? i * args.step : args.reduced.at(i);
}

inline constexpr int kTogether = 8;  // loads of a thread that are in flight at once

// A thread per output and part.
template <class T, class E>
TG_KERNEL void column_kernel(E e, Args args) {
  const int64_t part = block_row(), begin = part * args.part;
  const int64_t end = begin + args.part < args.count ? begin + args.part : args.count;
  for (int64_t o = global_index(); o < args.outputs; o += global_step()) {
    const char* row = args.in + args.outer.at(o);
    const double pivot = pivot_of<T>(e, args, row);
    auto a = e.identity();
    int64_t i = begin;
    for (; i + kTogether <= end; i += kTogether) {
      T x[kTogether];
      rows::load_each<T, kTogether>(x, args.stored, [&](int j) { return row + reduced_offset(args, i + j); });
      TG_UNROLL
      for (int j = 0; j < kTogether; ++j) a = e.step(a, x[j], pivot);
    }
    for (; i < end; ++i) a = e.step(a, rows::load_one<T>(row + reduced_offset(args, i), args.stored), pivot);
    give(e, args, o, part, a);
  }
}

// A warp or a block (of `lanes` threads) per output and part.
template <class T, class E, bool kWholeBlock>
TG_KERNEL void row_kernel(E e, Args args) {
  using Acc = typename E::Acc;
  constexpr int V = rows::kPack<T>;
  TG_SHARED(Acc, scratch, kWarp);
  const int64_t lanes = kWholeBlock ? block_size() : kWarp;
  const int64_t groups = block_size() / lanes, lane = thread_index() % lanes;
  const int64_t part = block_row(), begin = part * args.part;
  const int64_t end = begin + args.part < args.count ? begin + args.part : args.count;
  for (int64_t o = block_index() * groups + thread_index() / lanes; o < args.outputs; o += grid_size() * groups) {
    const char* row = args.in + args.outer.at(o);
    const double pivot = pivot_of<T>(e, args, row);
    Acc a = e.identity();
    int64_t i = begin;
    if (args.packed) {
      for (i = begin + lane * V; i + V <= end; i += lanes * V) {
        T x[V];
        if (args.step != 0)
          rows::load_array<T, V>(x, row, args.stored, i);
        else
          rows::load_array<T, V>(x, row + args.reduced.at(i), args.stored, 0);
        a = e.steps(a, x, pivot);
      }
      i = begin + (end - begin) / V * V;
    }
    for (i += lane; i < end; i += lanes)
      a = e.step(a, rows::load_one<T>(row + reduced_offset(args, i), args.stored), pivot);
    auto merge = [&](const Acc& x, const Acc& y) { return e.merge(x, y); };
    if constexpr (kWholeBlock) {
      a = block_reduce(a, merge, scratch);
      block_sync();
    } else {
      a = warp_reduce(a, merge);
    }
    if (lane == 0) give(e, args, o, part, a);
  }
}

// A warp per output merges its parts.
template <class T, class E>
TG_KERNEL void merge_kernel(E e, Args args) {
  using Acc = typename E::Acc;
  using R = decltype(e.finish(e.identity(), 0));
  const Acc* partial = reinterpret_cast<const Acc*>(args.partial);
  const int64_t warps = block_size() / kWarp;
  for (int64_t o = block_index() * warps + warp_index(); o < args.outputs; o += grid_size() * warps) {
    Acc a = e.identity();
    for (int64_t p = warp_lane(); p < args.parts; p += kWarp) a = e.merge(a, partial[p * args.outputs + o]);
    a = warp_reduce(a, [&](const Acc& x, const Acc& y) { return e.merge(x, y); });
    if (warp_lane() == 0)
      rows::store_one<R>(args.out + o * (args.out_stored == Stored::Native ? sizeof(R) : 2), args.out_stored,
                         e.finish(a, args.count));
  }
}

template <class T, class E>
void launch_strategy(const void* functor, Strategy strategy, const Args& args, const Stream& stream) {
  const E& e = *static_cast<const E*>(functor);
  const int64_t parts = args.parts;
  const auto grid = [&](int64_t per_block) { return Grid(grid_for(args.outputs, per_block, 1 << 20).blocks, parts); };
  if (strategy == Strategy::Column)
    launch(stream, &column_kernel<T, E>, grid(kBlock), kBlock, e, args);
  else if (strategy == Strategy::Warp)
    launch_block(stream, &row_kernel<T, E, false>, grid(kBlock / kWarp), kBlock, 0, e, args);
  else
    launch_block(stream, &row_kernel<T, E, true>, grid(1), kBlock, 0, e, args);
  if (parts > 1) launch_block(stream, &merge_kernel<T, E>, grid_for(args.outputs, kBlock / kWarp), kBlock, 0, e, args);
}

template <class T, class F>
void run(const reduce::Iterator& it, const F& functor) {
  using E = std::conditional_t<requires { F::kCentered; }, Centered<T, F>, Plain<T, F>>;
  using Acc = typename E::Acc;
  const E e{functor};
  using R = std::decay_t<decltype(e.finish(e.identity(), 0))>;
  static constexpr Kernels kernels{&launch_strategy<T, E>, sizeof(Acc), rows::kPack<T>, dtype_of_v<R>};
  run_kernels(it, kernels, &e);
}

}  // namespace tapegrad::cuda::reduce_rows
