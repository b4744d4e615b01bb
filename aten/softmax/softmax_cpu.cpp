// Softmax along any dimension of a contiguous tensor, seen as [outer, n, inner]. Work goes in tiles of kLanes
// independent columns: for inner = 1 a lane takes every kLanes-th element of one row, else a lane is a column. Either
// way every loop has a constant count, so it is vectorised and each element goes through the same code. The count is
// above 16, up to which g++ unrolls a loop before it would vectorise its exponentials.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/aten/kernels_softmax.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

constexpr int64_t kLanes = 32;
constexpr int64_t kGrain = 16384;  // elements

// Values of one tile in the compute type, padded to whole lanes, as [steps][kLanes].
template <class C>
struct Tile {
  std::vector<C> values;
  int64_t steps = 0;

  template <class T>
  void load_row(const T* p, int64_t n, C padding) {
    steps = (n + kLanes - 1) / kLanes;
    values.resize(static_cast<size_t>(steps * kLanes));
    for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<C>(p[i]);
    std::fill(values.begin() + n, values.end(), padding);
  }
  template <class T>
  void store_row(T* p, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) p[i] = T(values[static_cast<size_t>(i)]);
  }
  template <class T>
  void load_columns(const T* p, int64_t n, int64_t stride, int64_t width, C padding) {
    steps = n;
    values.resize(static_cast<size_t>(steps * kLanes));
    for (int64_t i = 0; i < n; ++i) {
      C* v = values.data() + i * kLanes;
      for (int64_t j = 0; j < width; ++j) v[j] = static_cast<C>(p[i * stride + j]);
      for (int64_t j = width; j < kLanes; ++j) v[j] = padding;
    }
  }
  template <class T>
  void store_columns(T* p, int64_t n, int64_t stride, int64_t width) const {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < width; ++j) p[i * stride + j] = T(values[static_cast<size_t>(i * kLanes + j)]);
  }
};

// Folds lanes of a row together, in a fixed order, and spreads the result.
template <class C, class F>
void fold(C* lanes, F&& f) {
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t j = 0; j < width; ++j) lanes[j] = f(lanes[j], lanes[j + width]);
  for (int64_t j = 1; j < kLanes; ++j) lanes[j] = lanes[0];
}

template <class C, class F>
void each_step(Tile<C>& tile, F&& f) {
  for (int64_t i = 0; i < tile.steps; ++i) f(tile.values.data() + i * kLanes);
}

template <bool kLog, class C>
void forward_tile(Tile<C>& tile, bool row) {
  C top[kLanes], total[kLanes];
  std::fill(top, top + kLanes, -std::numeric_limits<C>::infinity());
  std::fill(total, total + kLanes, C(0));
  each_step(tile, [&](const C* v) {
    for (int64_t j = 0; j < kLanes; ++j) top[j] = v[j] > top[j] ? v[j] : top[j];
  });
  if (row) fold(top, [](C a, C b) { return a > b ? a : b; });
  each_step(tile, [&](C* v) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const C shifted = v[j] - top[j];
      const C e = math::exp(shifted);
      total[j] += e;
      v[j] = kLog ? shifted : e;
    }
  });
  if (row) fold(total, [](C a, C b) { return a + b; });
  for (int64_t j = 0; j < kLanes; ++j) total[j] = kLog ? math::log(total[j]) : C(1) / total[j];
  each_step(tile, [&](C* v) {
    for (int64_t j = 0; j < kLanes; ++j) v[j] = kLog ? v[j] - total[j] : v[j] * total[j];
  });
}

template <bool kLog, class C>
void backward_tile(Tile<C>& grad, Tile<C>& output, bool row) {
  C total[kLanes];
  std::fill(total, total + kLanes, C(0));
  for (int64_t i = 0; i < grad.steps; ++i) {
    const C* g = grad.values.data() + i * kLanes;
    const C* y = output.values.data() + i * kLanes;
    for (int64_t j = 0; j < kLanes; ++j) total[j] += kLog ? g[j] : g[j] * y[j];
  }
  if (row) fold(total, [](C a, C b) { return a + b; });
  for (int64_t i = 0; i < grad.steps; ++i) {
    C* g = grad.values.data() + i * kLanes;
    const C* y = output.values.data() + i * kLanes;
    for (int64_t j = 0; j < kLanes; ++j) g[j] = kLog ? g[j] - math::exp(y[j]) * total[j] : y[j] * (g[j] - total[j]);
  }
}

template <class F>
void dispatch_floating(DType t, F&& f) {
  dispatch_dtype(t, [&]<class T>() {
    if constexpr (is_floating_type<T>) f.template operator()<T>();
  });
}

// Calls f(offset, width, workspace) for each row (inner = 1: width 0) or strip of columns.
template <class Workspace, class F>
void each_tile(const Extent& e, F&& f) {
  if (e.outer == 0 || e.n == 0 || e.inner == 0) return;
  const int64_t strips = e.inner == 1 ? 1 : (e.inner + kLanes - 1) / kLanes;
  const int64_t tile_elements = e.n * (e.inner == 1 ? 1 : kLanes);
  parallel_for(0, e.outer * strips, std::max<int64_t>(1, kGrain / tile_elements), [&](int64_t begin, int64_t end) {
    Workspace workspace;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = (t % strips) * kLanes;
      f((t / strips) * e.n * e.inner + first, e.inner == 1 ? 0 : std::min(kLanes, e.inner - first), workspace);
    }
  });
}

template <bool kLog>
void forward(const Tensor& input, int64_t dim, const Tensor& out) {
  const Extent e(input, dim);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T* x = static_cast<const T*>(input.data_ptr());
    T* o = static_cast<T*>(out.data_ptr());
    each_tile<Tile<C>>(e, [&](int64_t offset, int64_t width, Tile<C>& tile) {
      if (width == 0) {
        tile.load_row(x + offset, e.n, -std::numeric_limits<C>::infinity());
        forward_tile<kLog>(tile, true);
        tile.store_row(o + offset, e.n);
      } else {
        tile.load_columns(x + offset, e.n, e.inner, width, C(0));
        forward_tile<kLog>(tile, false);
        tile.store_columns(o + offset, e.n, e.inner, width);
      }
    });
  });
}

template <bool kLog>
void backward(const Tensor& grad_output, const Tensor& output, int64_t dim, const Tensor& out) {
  const Extent e(output, dim);
  dispatch_floating(output.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T* g = static_cast<const T*>(grad_output.data_ptr());
    const T* y = static_cast<const T*>(output.data_ptr());
    T* o = static_cast<T*>(out.data_ptr());
    each_tile<std::array<Tile<C>, 2>>(e, [&](int64_t offset, int64_t width, std::array<Tile<C>, 2>& tiles) {
      auto& [grad, result] = tiles;
      if (width == 0) {
        grad.load_row(g + offset, e.n, C(0));
        result.load_row(y + offset, e.n, C(0));
        backward_tile<kLog>(grad, result, true);
        grad.store_row(o + offset, e.n);
      } else {
        grad.load_columns(g + offset, e.n, e.inner, width, C(0));
        result.load_columns(y + offset, e.n, e.inner, width, C(0));
        backward_tile<kLog>(grad, result, false);
        grad.store_columns(o + offset, e.n, e.inner, width);
      }
    });
  });
}

}  // namespace

void softmax_cpu(const Tensor& input, int64_t dim, const Tensor& out) { forward<false>(input, dim, out); }
void log_softmax_cpu(const Tensor& input, int64_t dim, const Tensor& out) { forward<true>(input, dim, out); }
void softmax_backward_cpu(const Tensor& grad_output, const Tensor& output, int64_t dim, const Tensor& out) {
  backward<false>(grad_output, output, dim, out);
}
void log_softmax_backward_cpu(const Tensor& grad_output, const Tensor& output, int64_t dim, const Tensor& out) {
  backward<true>(grad_output, output, dim, out);
}

}  // namespace tapegrad::cpu::TG_ISA
