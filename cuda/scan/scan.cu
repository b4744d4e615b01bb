// Running results along one dimension of a tensor seen as [outer, n, inner]. An operator has a State, `of` (the state
// of one element), `merge` (of two neighbouring parts, the earlier one first), `identity` and `put`. Sums and products
// of float32 are kept in double, those of 16-bit types in float, as on the CPU.
#include <limits>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functors/log_add.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/aten/iterate/only_element.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/pointwise/complex.h"

namespace tapegrad::cuda {
namespace {

using steps::narrow;
using steps::widen;

constexpr int kItems = 4;         // neighbours that a thread takes at a time
constexpr int64_t kChunk = 8192;  // of a line that is cut
constexpr int64_t kMany = 1024;   // lines that fill a device without being cut

// The places of all elements.
struct Lines {
  int64_t lines, n, inner, chunks, chunk;
  TG_HD int64_t base(int64_t line) const { return line / inner * n * inner + line % inner; }
};

// The states before each thread of a block, and of all threads together. `scratch`: one state per warp.
template <class Op>
TG_DEVICE typename Op::State scan_block(const Op& op, typename Op::State value, typename Op::State* scratch,
                                        typename Op::State& all) {
  using S = typename Op::State;
  for (int d = 1; d < kWarp; d *= 2) {
    const S other = shuffle_up(value, d);
    if (warp_lane() >= d) value = op.merge(other, value);
  }
  S before = shuffle_up(value, 1);
  if (warp_lane() == 0) before = op.identity();
  block_sync();
  if (warp_lane() == kWarp - 1) scratch[warp_index()] = value;
  block_sync();
  all = op.identity();
  S warps_before = all;
  for (int w = 0; w < static_cast<int>(block_size()) / kWarp; ++w) {
    if (w == warp_index()) warps_before = all;
    all = op.merge(all, scratch[w]);
  }
  return op.merge(warps_before, before);
}

// A block per chunk. Without `write` only the chunk's total goes to `totals`; with it the chunk starts from there.
template <class Op>
TG_KERNEL void scan_chunks(Op op, Lines at, typename Op::State* totals, bool write) {
  using S = typename Op::State;
  TG_SHARED(S, scratch, kWarp);
  for (int64_t b = block_index(); b < at.lines * at.chunks; b += grid_size()) {
    const int64_t base = at.base(b / at.chunks), first = b % at.chunks * at.chunk;
    const int64_t last = first + at.chunk < at.n ? first + at.chunk : at.n;
    S carry = write && totals != nullptr ? totals[b] : op.identity();
    for (int64_t i = first; i < last; i += static_cast<int64_t>(block_size()) * kItems) {
      const int64_t mine = i + static_cast<int64_t>(thread_index()) * kItems;
      S item[kItems], sum = op.identity(), all;
      for (int k = 0; k < kItems; ++k) {
        if (mine + k < last) sum = op.merge(sum, op.of(base + (mine + k) * at.inner, mine + k));
        item[k] = sum;
      }
      const S before = op.merge(carry, scan_block(op, sum, scratch, all));
      if (write)
        for (int k = 0; k < kItems; ++k)
          if (mine + k < last) op.put(base + (mine + k) * at.inner, op.merge(before, item[k]));
      carry = op.merge(carry, all);
    }
    if (!write && thread_index() == 0) totals[b] = carry;
  }
}

// A block per line: the totals of its chunks become what stands before each of them.
template <class Op>
TG_KERNEL void scan_totals(Op op, Lines at, typename Op::State* totals) {
  using S = typename Op::State;
  TG_SHARED(S, scratch, kWarp);
  for (int64_t line = block_index(); line < at.lines; line += grid_size()) {
    S* row = totals + line * at.chunks;
    S carry = op.identity(), all;
    for (int64_t i = 0; i < at.chunks; i += block_size()) {
      const int64_t c = i + thread_index();
      const S before = op.merge(carry, scan_block(op, c < at.chunks ? row[c] : op.identity(), scratch, all));
      if (c < at.chunks) row[c] = before;
      carry = op.merge(carry, all);
    }
  }
}

template <class Op>
struct ScanLine {
  Op op;
  Lines at;
  TG_DEVICE void operator()(int64_t line) const {
    const int64_t base = at.base(line);
    typename Op::State state = op.identity();
    for (int64_t i = 0; i < at.n; ++i) {
      state = op.merge(state, op.of(base + i * at.inner, i));
      op.put(base + i * at.inner, state);
    }
  }
};

template <class Op>
void scan(const Work& work, const Op& op, const Extent& e) {
  using S = typename Op::State;
  Lines at{e.outer * e.inner, e.n, e.inner, 1, e.n};
  if (at.lines * at.n == 0) return;
  if ((e.inner > 1 && at.lines >= kMany) || e.n <= 16) return for_elements(work, at.lines, ScanLine<Op>{op, at});
  if (e.n > kChunk && at.lines < kMany) {
    at.chunk = kChunk;
    at.chunks = (e.n + kChunk - 1) / kChunk;
  }
  const Grid grid = grid_for(at.lines * at.chunks, 1, 1 << 22);
  if (at.chunks == 1) return launch_block(work, &scan_chunks<Op>, grid, kBlock, 0, op, at, nullptr, true);
  const Workspace totals(static_cast<size_t>(at.lines * at.chunks) * sizeof(S), work);
  auto* t = static_cast<S*>(totals.data());
  launch_block(work, &scan_chunks<Op>, grid, kBlock, 0, op, at, t, false);
  launch_block(work, &scan_totals<Op>, grid_for(at.lines, 1), kBlock, 0, op, at, t);
  launch_block(work, &scan_chunks<Op>, grid, kBlock, 0, op, at, t, true);
}

// What sums and products are kept in. Integers wrap around, so they are added as unsigned ones.
template <class T>
struct Kept {
  using type = std::conditional_t<std::is_same_v<T, float>, double, compute_t<T>>;
};
template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
struct Kept<T> {
  using type = std::make_unsigned_t<T>;
};

template <bool kProduct, class T>
struct Cumulate {
  using State = typename Kept<T>::type;
  const T* x;
  T* out;
  TG_DEVICE State identity() const { return State(kProduct ? 1 : 0); }
  TG_DEVICE State of(int64_t i, int64_t) const { return static_cast<State>(widen<T>(x[i])); }
  TG_DEVICE State merge(const State& a, const State& b) const {
    if constexpr (std::is_same_v<State, bool>)
      return kProduct ? a && b : a || b;
    else if constexpr (std::is_integral_v<State>)  // small types would be widened to int, which may not wrap around
      return static_cast<State>(kProduct ? uint64_t{1} * a * b : uint64_t{a} + b);
    else
      return kProduct ? math::mul(a, b) : math::add(a, b);
  }
  TG_DEVICE void put(int64_t i, const State& s) const { out[i] = narrow<T>(static_cast<compute_t<T>>(s)); }
};

// The logarithm of a sum of exponentials as their largest exponent and the sum relative to it.
template <class S>
struct LogSum {
  S top, sum;
};
template <class T>
struct CumulateLog {
  using S = std::conditional_t<std::is_same_v<T, float>, double, compute_t<T>>;
  using State = LogSum<S>;
  const T* x;
  T* out;
  TG_DEVICE State identity() const { return {-std::numeric_limits<S>::infinity(), 0}; }
  TG_DEVICE State of(int64_t i, int64_t) const {
    const S v = static_cast<S>(widen<T>(x[i]));
    if (v != v) return {-std::numeric_limits<S>::infinity(), v};
    return {v, 1};
  }
  TG_DEVICE State merge(const State& a, const State& b) const {
    if (a.top == b.top) return {a.top, a.sum + b.sum};
    if (a.top > b.top) return {a.top, a.sum + b.sum * math::exp(b.top - a.top)};
    return {b.top, a.sum * math::exp(a.top - b.top) + b.sum};
  }
  TG_DEVICE void put(int64_t i, const State& s) const {
    out[i] = narrow<T>(static_cast<compute_t<T>>(s.top + math::log(s.sum)));
  }
};

template <class T>
struct CumulateComplexLog {
  using State = std::complex<double>;
  const T* x;
  T* out;
  TG_DEVICE State identity() const { return {-std::numeric_limits<double>::infinity(), 0}; }
  TG_DEVICE State of(int64_t i, int64_t) const {
    return fn::log_add_exp(State(static_cast<double>(x[i].real()), static_cast<double>(x[i].imag())), identity());
  }
  TG_DEVICE State merge(const State& a, const State& b) const { return fn::log_add_exp(b, a); }
  TG_DEVICE void put(int64_t i, const State& s) const {
    using R = math::real_t<T>;
    out[i] = T(static_cast<R>(s.real()), static_cast<R>(s.imag()));
  }
};

template <class C>
struct BestSoFar {
  C value;
  int64_t place;  // -1: none yet
};
// NaN wins, the last of equals stays.
template <bool kLargest, class T>
struct CumulateBest {
  using State = BestSoFar<compute_t<T>>;
  const T* x;
  T* values;
  int64_t* places;
  TG_DEVICE State identity() const { return {compute_t<T>(0), -1}; }
  TG_DEVICE State of(int64_t i, int64_t place) const { return {widen<T>(x[i]), place}; }
  TG_DEVICE State merge(const State& a, const State& b) const {
    if (b.place < 0) return a;
    if (a.place < 0) return b;
    return (kLargest ? b.value >= a.value : b.value <= a.value) || b.value != b.value ? b : a;
  }
  TG_DEVICE void put(int64_t i, const State& s) const {
    values[i] = narrow<T>(s.value);
    places[i] = s.place;
  }
};

template <bool kProduct>
void cumulate(const Tensor& input, int64_t dim, const Tensor& out) {
  const Tensor dense = contiguous_as(input, out.dtype());
  const Work work(out.device(), {&dense, &out});
  dispatch_dtype(out.dtype(), [&]<class T>() {
    scan(work, Cumulate<kProduct, T>{data_of<T>(dense), target_of<T>(out)}, Extent(input, dim));
  });
}

template <bool kLargest>
void best_so_far(const Tensor& input, int64_t dim, const Tensor& values, const Tensor& indices) {
  if (wrote_only_element(input, values, indices)) return;
  const Tensor dense = contiguous_or_copy(clean_flags(input));
  const Work work(input.device(), {&dense, &values, &indices});
  dispatch_dtype(input.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T>)
      scan(work, CumulateBest<kLargest, T>{data_of<T>(dense), target_of<T>(values), target_of<int64_t>(indices)},
           Extent(input, dim));
  });
}

}  // namespace

void cumsum_cuda(const Tensor& input, int64_t dim, std::optional<DType>, const Tensor& out) {
  cumulate<false>(input, dim, out);
}
void cumprod_cuda(const Tensor& input, int64_t dim, std::optional<DType>, const Tensor& out) {
  cumulate<true>(input, dim, out);
}
void logcumsumexp_cuda(const Tensor& input, int64_t dim, const Tensor& out) {
  const Tensor dense = contiguous_as(input, out.dtype());
  const Work work(out.device(), {&dense, &out});
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (is_floating_type<T>)
      scan(work, CumulateLog<T>{data_of<T>(dense), target_of<T>(out)}, Extent(input, dim));
    else if constexpr (is_complex_type<T>)
      scan(work, CumulateComplexLog<T>{data_of<T>(dense), target_of<T>(out)}, Extent(input, dim));
  });
}
void cummax_cuda(const Tensor& input, int64_t dim, const Tensor& values, const Tensor& indices) {
  best_so_far<true>(input, dim, values, indices);
}
void cummin_cuda(const Tensor& input, int64_t dim, const Tensor& values, const Tensor& indices) {
  best_so_far<false>(input, dim, values, indices);
}

}  // namespace tapegrad::cuda
