// Running results along one dimension. Each line is scanned in order, many lines side by side, so any number of threads
// gives the same bits. Sums and products of float32 are kept in double, as PyTorch keeps them, those of 16-bit types in
// float.
#include <complex>
#include <limits>
#include <memory>
#include <utility>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functors/log_add.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/iterate/only_element.h"
#include "tapegrad/aten/scan/lanes.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

struct Add {
  template <class V>
  static void apply(V& s, const V& x) {
    s = static_cast<V>(s + x);
  }
};
struct Multiply {
  template <class V>
  static void apply(V& s, const V& x) {
    if constexpr (std::is_integral_v<V>)
      s = static_cast<V>(1U * s * x);  // small types would be widened to int, which may not wrap around
    else if constexpr (is_complex_type<V>)
      s = complex_product(s, x);
    else
      s = static_cast<V>(s * x);
  }
};

template <class C>
inline constexpr bool kHasPacks = std::is_arithmetic_v<C> && !std::is_same_v<C, bool>;

// Each of `kLanes` columns of a tile becomes its running result; `state` goes from tile to tile.
template <class Op, class B, class C>
void scan_lanes(B* tile, int64_t stride, int64_t steps, C* state) {
  if constexpr (kHasPacks<B> && kHasPacks<C>) {
    using P = Pack<C>;
    typedef B Slice __attribute__((vector_size(P::kPerPart * sizeof(B))));
    P s;
    std::memcpy(&s, state, sizeof s);
    for (int64_t i = 0; i < steps; ++i, tile += stride)
      for (int k = 0; k < P::kParts; ++k) {
        Slice x;
        std::memcpy(&x, tile + k * P::kPerPart, sizeof x);
        const typename P::Part wide = __builtin_convertvector(x, typename P::Part);
        Op::apply(s.part[k], wide);
        x = __builtin_convertvector(s.part[k], Slice);
        std::memcpy(tile + k * P::kPerPart, &x, sizeof x);
      }
    std::memcpy(state, &s, sizeof s);
  } else {
    for (int64_t i = 0; i < steps; ++i, tile += stride)
      for (int64_t j = 0; j < kLanes; ++j) {
        Op::apply(state[j], static_cast<C>(tile[j]));
        tile[j] = static_cast<B>(state[j]);
      }
  }
}

template <class C, class B>
inline void add_row(Pack<C>& sums, const B* row) {
  typedef B Slice __attribute__((vector_size(Pack<C>::kPerPart * sizeof(B))));
  for (int k = 0; k < Pack<C>::kParts; ++k) {
    Slice x;
    std::memcpy(&x, row + k * Pack<C>::kPerPart, sizeof x);
    sums.part[k] += __builtin_convertvector(x, typename Pack<C>::Part);
  }
}

// One long line as kLanes lanes at a time: their sums first, then the lanes from where the sums put them. Not for
// products, whose parts may overflow where the whole does not; sums of float in double cannot. Chunks are summed up in
// the same way by one thread as by many.
template <class C, class T>
void sum_line(const T* x, T* out, int64_t n) {
  using B = compute_t<T>;
  const int64_t chunks = n / kChunk;
  // Returns the sum of a chunk; with `to`, its running sums from `before` on are written.
  auto run = [&](int64_t chunk, C before, T* to) {
    alignas(64) B tile[kChunk];
    const LaneGroup g = chunk_group(chunk * kChunk);
    load_tile(tile, x, g, 0, kSteps);
    Pack<C> sums{};
    for (int64_t i = 0; i < kSteps; ++i) add_row(sums, tile + i * kLanes);
    C state[kLanes], total(0);
    std::memcpy(state, &sums, sizeof state);
    for (C& s : state) total += std::exchange(s, before + total);
    if (!to) return total;
    scan_lanes<Add>(tile, kLanes, kSteps, state);
    store_tile(tile, to, g, 0, kSteps);
    return total;
  };
  C sum(0);
  if (n < 65536 || get_num_threads() == 1) {
    WorkCount done;
    for (int64_t c = 0; c < chunks; ++c, done(kChunk)) sum += run(c, sum, out);
  } else {
    const std::unique_ptr<C[]> before(new C[static_cast<size_t>(chunks)]);
    parallel_for(0, chunks, 32, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) before[c] = run(c, C(0), nullptr);
    });
    for (int64_t c = 0; c < chunks; ++c) sum += std::exchange(before[c], sum);
    parallel_for(0, chunks, 16, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) run(c, before[c], out);
    });
  }
  for (int64_t i = chunks * kChunk; i < n; ++i) {
    sum += static_cast<C>(static_cast<B>(x[i]));
    out[i] = T(static_cast<B>(sum));
  }
}

// What depends on the operator in a scan of T.
template <class T, class B, class C>
struct Scan {
  C start;
  void (*lanes)(B* tile, int64_t stride, int64_t steps, C* state);
  void (*one_by_one)(const T* x, T* out, const LaneGroup& g, int64_t n, C start);
};

template <class Op, class T, class B, class C>
void scan_one_by_one(const T* x, T* out, const LaneGroup& g, int64_t n, C start) {
  const int64_t step = g.step;
  auto run = [=](int64_t at, int64_t many, C s) {
    for (int64_t i = 0; i < many; ++i, at += step) {
      Op::apply(s, static_cast<C>(static_cast<B>(x[at])));
      out[at] = T(static_cast<B>(s));
    }
    return s;
  };
  for (int64_t j = 0; j < g.width; ++j) {
    const int64_t at = g.start[j];
    C s = start;
    if (n < kLanes)
      run(at, n, s);
    else
      serial_for(0, n, [&](int64_t begin, int64_t end) { s = run(at + begin * step, end - begin, s); });
  }
}

// Whether rows are scanned one after the other: short ones, as turning a tile of them takes longer, and on AVX2 those
// of 64-bit integers, of which a step is as short as an addition and a vector holds four.
template <class T>
inline constexpr bool kOneByOne = std::is_integral_v<T> && sizeof(T) == 8 && sizeof(Vector) < 64;
template <class T>
bool one_by_one(const LaneGroup& g, int64_t n) {
  return !is_half_type<T> && g.step == 1 && g.lane_stride != 1 && (n < kLanes || kOneByOne<T>);
}

template <class T, class B, class C>
void scan_groups(const Scan<T, B, C>& scan, const T* x, T* out, const Extent& e, bool sums) {
  constexpr bool kCuts = kHasPacks<B> && !std::is_same_v<T, double>;
  // Whole numbers have the same sums either way.
  const bool alone = kOneByOne<T> && get_num_threads() == 1;
  const bool cut = kCuts && sums && few_and_long(e) && !alone;
  each_group(e, cut, [&](const LaneGroup& g) {
    if constexpr (kCuts)
      if (cut) return sum_line<C>(x + g.start[0], out + g.start[0], e.n);
    if (g.width == 1 || one_by_one<T>(g, e.n)) return scan.one_by_one(x, out, g, e.n, scan.start);
    C state[kMaxLanes];
    std::fill(state, state + kMaxLanes, scan.start);
    WorkCount done;
    alignas(64) B tile[kMaxLanes * kSteps];
    const int64_t lanes = g.lanes();
    std::fill(tile, tile + lanes * std::min(kSteps, e.n), B(0));
    for (int64_t i = 0; i < e.n; i += kSteps) {
      const int64_t steps = std::min(kSteps, e.n - i);
      load_tile(tile, x, g, i, steps);
      for (int64_t j = 0; j < lanes; j += kLanes) scan.lanes(tile + j, lanes, steps, state + j);
      store_tile(tile, out, g, i, steps);
      done(steps * lanes);
    }
  });
}

template <class Op>
void scan(const Tensor& input, int64_t dim, const Tensor& out, int start) {
  const Tensor dense = contiguous_as(input, out.dtype());
  dispatch_dtype(out.dtype(), [&]<class T>() {
    using U = unsigned_t<T>;
    using B = compute_t<U>;
    using C = std::conditional_t<std::is_same_v<T, float>, double, B>;
    const Scan<U, B, C> scan{C(start), &scan_lanes<Op, B, C>, &scan_one_by_one<Op, U, B, C>};
    scan_groups(scan, data_of<U>(dense), target_of<U>(out), Extent(input, dim), std::is_same_v<Op, Add>);
  });
}

// Whether v takes the place of the best so far: NaN wins, the last of equals stays.
template <bool kLargest, class B>
inline bool takes(B v, B best) {
  return (kLargest ? v >= best : v <= best) || v != v;
}

// The best so far of `kLanes` columns, and the step of this tile it was found at; -1 where it was found before.
template <bool kLargest, class B>
void extreme_lanes(B* tile, int32_t* found, int64_t stride, int64_t steps, B* best) {
  if constexpr (kHasPacks<B>) {
    using P = Pack<B>;
    typedef int32_t At __attribute__((vector_size(P::kPerPart * sizeof(int32_t))));
    for (int k = 0; k < P::kParts; ++k) {
      typename P::Part b;
      std::memcpy(&b, best + k * P::kPerPart, sizeof b);
      At at = At{} - 1;
      for (int64_t i = 0; i < steps; ++i) {
        const int64_t place = i * stride + k * P::kPerPart;
        typename P::Part v;
        std::memcpy(&v, tile + place, sizeof v);
        const auto take = (kLargest ? v >= b : v <= b) | (v != v);
        b = take ? v : b;
        const At take_at = __builtin_convertvector(take, At);
        at = (take_at & static_cast<int32_t>(i)) | (~take_at & at);
        std::memcpy(tile + place, &b, sizeof b);
        std::memcpy(found + place, &at, sizeof at);
      }
      std::memcpy(best + k * P::kPerPart, &b, sizeof b);
    }
  } else {
    for (int64_t j = 0; j < kLanes; ++j) {
      int32_t at = -1;
      for (int64_t i = 0; i < steps; ++i) {
        if (takes<kLargest>(tile[i * stride + j], best[j])) {
          best[j] = tile[i * stride + j];
          at = static_cast<int32_t>(i);
        }
        tile[i * stride + j] = best[j];
        found[i * stride + j] = at;
      }
    }
  }
}

template <bool kLargest, class B>
void best_of_lanes(const B* tile, B* best) {
  if constexpr (kHasPacks<B>) {
    Pack<B> b, v;
    std::memcpy(&b, tile, sizeof b);
    for (int64_t i = 1; i < kSteps; ++i) {
      std::memcpy(&v, tile + i * kLanes, sizeof v);
      for (int k = 0; k < Pack<B>::kParts; ++k) {
        const auto take = (kLargest ? v.part[k] >= b.part[k] : v.part[k] <= b.part[k]) | (v.part[k] != v.part[k]);
        b.part[k] = take ? v.part[k] : b.part[k];
      }
    }
    std::memcpy(best, &b, sizeof b);
  } else {
    std::copy(tile, tile + kLanes, best);
    for (int64_t i = 1; i < kSteps; ++i)
      for (int64_t j = 0; j < kLanes; ++j)
        if (takes<kLargest>(tile[i * kLanes + j], best[j])) best[j] = tile[i * kLanes + j];
  }
}

// Steps of a tile as indices; returns the last.
int64_t put_places(int64_t* to, int64_t stride, const int32_t* found, int64_t steps, int64_t first, int64_t old) {
  if (stride == 1)
    for (int64_t k = 0; k < steps; ++k) to[k] = found[k] < 0 ? old : first + found[k];
  else
    for (int64_t k = 0; k < steps; ++k) to[k * stride] = found[k] < 0 ? old : first + found[k];
  return found[steps - 1] < 0 ? old : first + found[steps - 1];
}

// As put_places for the lines of a group, from their steps `first` on. `found` is a tile.
[[gnu::noinline]] void put_group(int64_t* indices, const LaneGroup& g, const int32_t* found, int64_t steps,
                                 int64_t first, int64_t* at) {
  const int64_t lanes = g.lanes();
  if (g.lane_stride == 1) {
    for (int64_t k = 0; k < steps; ++k) {
      int64_t* to = indices + g.start[0] + (first + k) * g.step;
      const int32_t* f = found + k * lanes;
      for (int64_t j = 0; j < g.width; ++j) at[j] = to[j] = f[j] < 0 ? at[j] : first + f[j];
    }
  } else {
    alignas(64) int32_t rows[kLanes * kSteps];
    turn_tile(rows, kSteps, found, lanes, kLanes, (steps + kLanes - 1) / kLanes * kLanes);
    for (int64_t j = 0; j < g.width; ++j)
      at[j] = put_places(indices + g.start[j] + first * g.step, g.step, rows + j * kSteps, steps, first, at[j]);
  }
}
// As put_places for a chunk of one line, whose first element is `first`.
[[gnu::noinline]] int64_t put_chunk(int64_t* indices, const LaneGroup& g, const int32_t* found, int64_t first,
                                    int64_t at) {
  alignas(64) int32_t rows[kChunk];
  turn_tile(rows, kSteps, found, kLanes, kLanes, kSteps);
  for (int64_t j = 0; j < kLanes; ++j)
    at = put_places(indices + g.start[j], 1, rows + j * kSteps, kSteps, first + j * kSteps, at);
  return at;
}

template <class T>
struct Extremes {
  using B = compute_t<T>;
  const T* x;
  T* values;
  int64_t* indices;
  bool largest;

  B start() const {
    if constexpr (std::is_floating_point_v<B>)
      return largest ? -std::numeric_limits<B>::infinity() : std::numeric_limits<B>::infinity();
    else
      return largest ? std::numeric_limits<B>::lowest() : std::numeric_limits<B>::max();
  }

  // One element after the other.
  void line(const LaneGroup& g, int64_t first, int64_t n, B best, int64_t at) const {
    largest ? line_of<true>(g, first, n, best, at) : line_of<false>(g, first, n, best, at);
  }
  template <bool kLargest>
  void line_of(const LaneGroup& g, int64_t first, int64_t n, B best, int64_t at) const {
    serial_for(first, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin, p = g.start[0] + begin * g.step; i < end; ++i, p += g.step) {
        const B v = static_cast<B>(x[p]);
        const bool take = takes<kLargest>(v, best);
        best = take ? v : best;
        at = take ? i : at;
        values[p] = T(best);
        indices[p] = at;
      }
    });
  }

  // One long line as kLanes lanes at a time: the extremes of all lanes first, so that each knows where it starts.
  void long_line(const LaneGroup& whole, int64_t n) const {
    alignas(64) B tile[kChunk];
    alignas(64) int32_t found[kChunk];
    B best = start();
    int64_t at = 0, first = 0;
    const auto takes_it = largest ? &takes<true, B> : &takes<false, B>;
    const auto best_of = largest ? &best_of_lanes<true, B> : &best_of_lanes<false, B>;
    const auto lanes_of = largest ? &extreme_lanes<true, B> : &extreme_lanes<false, B>;
    WorkCount done;
    for (; first + kChunk <= n; first += kChunk, done(kChunk)) {
      const LaneGroup g = chunk_group(whole.start[0] + first);
      load_tile(tile, x, g, 0, kSteps);
      B lanes[kLanes];
      best_of(tile, lanes);
      for (B& lane : lanes) {
        const B end = takes_it(lane, best) ? lane : best;
        lane = std::exchange(best, end);
      }
      lanes_of(tile, found, kLanes, kSteps, lanes);
      store_tile(tile, values, g, 0, kSteps);
      at = put_chunk(indices, g, found, first, at);
    }
    line(whole, first, n, best, at);
  }

  void group(const LaneGroup& g, int64_t n) const {
    alignas(64) B tile[kMaxLanes * kSteps];
    alignas(64) int32_t found[kMaxLanes * kSteps];
    B best[kMaxLanes];
    int64_t at[kMaxLanes] = {};
    std::fill(best, best + kMaxLanes, start());
    const auto lanes_of = largest ? &extreme_lanes<true, B> : &extreme_lanes<false, B>;
    const int64_t lanes = g.lanes();
    std::fill(tile, tile + lanes * std::min(kSteps, n), B(0));
    WorkCount done;
    for (int64_t i = 0; i < n; i += kSteps) {
      const int64_t steps = std::min(kSteps, n - i);
      done(steps * lanes);
      load_tile(tile, x, g, i, steps);
      for (int64_t j = 0; j < lanes; j += kLanes) lanes_of(tile + j, found + j, lanes, steps, best + j);
      store_tile(tile, values, g, i, steps);
      put_group(indices, g, found, steps, i, at);
    }
  }
};

void extremes(const Tensor& input, int64_t dim, bool largest, const Tensor& out_values, const Tensor& out_indices) {
  if (wrote_only_element(input, out_values, out_indices)) return;
  const Tensor dense = contiguous_or_copy(clean_flags(input));
  const Extent e(input, dim);
  dispatch_dtype(input.dtype(), [&]<class T>() {
    using S = stored_t<T>;
    if constexpr (!is_complex_type<T>) {
      const bool cut = few_and_long(e);
      const Extremes<S> run{data_of<S>(dense), target_of<S>(out_values), target_of<int64_t>(out_indices), largest};
      each_group(e, cut, [&](const LaneGroup& g) {
        if (cut)
          run.long_line(g, e.n);
        else if (g.width == 1)
          run.line(g, 0, e.n, run.start(), 0);
        else
          run.group(g, e.n);
      });
    }
  });
}

// The running sum of exponentials as exp(top) * sum, top the largest element so far or larger.
template <class S>
struct LogSum {
  S top = -std::numeric_limits<S>::infinity();
  S sum = 0;

  S add(S x) {
    if (x <= top) {
      sum += x == top ? S(1) : math::exp(x - top);
    } else if (x > top) {
      sum = sum * math::exp(top - x) + 1;
      top = x;
    } else {
      sum = std::numeric_limits<S>::quiet_NaN();
    }
    return top + math::log(sum);
  }
};

// One tile. Where the elements of every lane lie close enough, the largest element of the tile serves for all of it,
// and exponentials and logarithms are taken of the whole tile at once; the first element of a lane bounds its sums from
// below, so none of them is lost in underflow. Else, and for infinities, one element after the other.
template <bool kOne, class S>
void log_sums(S* tile, int64_t width, int64_t steps, LogSum<S>* state) {
  constexpr S kRange = sizeof(S) == 4 ? 80 : 600;
  const int64_t lanes = kOne ? 1 : width, count = steps * lanes;
  S top[kMaxLanes], sum[kMaxLanes];
  for (int64_t j = 0; j < lanes; ++j) top[j] = state[j].top;
  for (int64_t i = 0; i < steps; ++i)
    for (int64_t j = 0; j < lanes; ++j) top[j] = tile[i * lanes + j] > top[j] ? tile[i * lanes + j] : top[j];
  bool near = true;
  for (int64_t j = 0; j < lanes; ++j) near &= top[j] - std::max(state[j].top, tile[j]) <= kRange;
  if (!near) {
    for (int64_t j = 0; j < lanes; ++j)
      for (int64_t i = 0; i < steps; ++i) tile[i * lanes + j] = state[j].add(tile[i * lanes + j]);
    return;
  }
  for (int64_t j = 0; j < lanes; ++j) sum[j] = state[j].sum * math::exp(state[j].top - top[j]);
  for (int64_t i = 0; i < steps; ++i)
    for (int64_t j = 0; j < lanes; ++j) tile[i * lanes + j] -= top[j];
  for (int64_t k = 0; k < count; ++k) tile[k] = math::exp(tile[k]);
  for (int64_t i = 0; i < steps; ++i)
    for (int64_t j = 0; j < lanes; ++j) tile[i * lanes + j] = sum[j] += tile[i * lanes + j];
  for (int64_t k = 0; k < count; ++k) tile[k] = math::log(tile[k]);
  for (int64_t i = 0; i < steps; ++i)
    for (int64_t j = 0; j < lanes; ++j) tile[i * lanes + j] += top[j];
  for (int64_t j = 0; j < lanes; ++j) state[j] = {top[j], sum[j]};
}

}  // namespace

void cumsum_cpu(const Tensor& input, int64_t dim, std::optional<DType>, const Tensor& out) {
  scan<Add>(input, dim, out, 0);
}

void cumprod_cpu(const Tensor& input, int64_t dim, std::optional<DType>, const Tensor& out) {
  scan<Multiply>(input, dim, out, 1);
}

void logcumsumexp_cpu(const Tensor& input, int64_t dim, const Tensor& out) {
  const Tensor dense = contiguous_as(input, out.dtype());
  const Extent e(input, dim);
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (is_floating_type<T>) {
      using S = std::conditional_t<std::is_same_v<T, float>, double, compute_t<T>>;
      each_group(e, few_and_long(e), [&](const LaneGroup& g) {
        LogSum<S> state[kMaxLanes];
        alignas(64) S tile[kMaxLanes * kSteps];
        const int64_t lanes = g.lanes();
        std::fill(tile, tile + lanes * std::min(kSteps, e.n), S(0));
        WorkCount done;
        for (int64_t i = 0; i < e.n; i += kSteps) {
          const int64_t steps = std::min(kSteps, e.n - i);
          done(4 * steps * lanes);
          load_tile(tile, static_cast<const T*>(dense.data_ptr()), g, i, steps);
          if (lanes == 1)
            log_sums<true>(tile, lanes, steps, state);
          else
            log_sums<false>(tile, lanes, steps, state);
          store_tile(tile, static_cast<T*>(out.data_ptr()), g, i, steps);
        }
      });
    } else if constexpr (is_complex_type<T>) {
      const T* x = static_cast<const T*>(dense.data_ptr());
      T* y = static_cast<T*>(out.data_ptr());
      each_group(e, few_and_long(e), [&](const LaneGroup& g) {
        for (int64_t j = 0; j < g.width; ++j) {
          std::complex<double> sum(-std::numeric_limits<double>::infinity());
          serial_for(0, e.n, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin, at = g.start[j] + begin * g.step; i < end; ++i, at += g.step)
              y[at] = T(sum = fn::log_add_exp(std::complex<double>(x[at]), sum));
          });
        }
      });
    }
  });
}

void cummax_cpu(const Tensor& input, int64_t dim, const Tensor& out_values, const Tensor& out_indices) {
  extremes(input, dim, true, out_values, out_indices);
}

void cummin_cpu(const Tensor& input, int64_t dim, const Tensor& out_values, const Tensor& out_indices) {
  extremes(input, dim, false, out_values, out_indices);
}

}  // namespace tapegrad::cpu::TG_ISA
