// Softmax along any dimension of a contiguous tensor, seen as [outer, n, inner]. Work goes in tiles of kLanes lanes: a
// lane is a column, or, for inner = 1, a whole short row, or every kLanes-th element of one long row. In every layout
// the loops have a constant count, so they are vectorised and each element goes through the same code. The count is
// above 16, up to which g++ unrolls a loop before it would vectorise its exponentials.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/softmax/kernels.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

constexpr int64_t kLanes = blocks::kWidth;
constexpr int64_t kGrain = 16384;  // elements
enum class Layout : uint8_t { Row, Rows, Columns };

// Values of one tile in the compute type, padded to whole lanes, as [steps][kLanes].
template <class C>
struct Tile {
  std::vector<C> values;
  int64_t steps = 0;

  template <class T>
  void load_row(const T* p, int64_t n, C padding) {
    steps = (n + kLanes - 1) / kLanes;
    values.resize(static_cast<size_t>(steps * kLanes));
    blocks::copy(n, values.data(), p);
    std::fill(values.begin() + n, values.end(), padding);
  }
  template <class T>
  void store_row(T* p, int64_t n) const {
    blocks::copy(n, p, values.data());
  }
  template <class T>
  void load_columns(const T* p, int64_t n, int64_t stride, int64_t width, C padding) {
    steps = n;
    values.resize(static_cast<size_t>(steps * kLanes));
    for (int64_t i = 0; i < n; ++i) {
      C* v = values.data() + i * kLanes;
      blocks::copy(width, v, p + i * stride);
      for (int64_t j = width; j < kLanes; ++j) v[j] = padding;
    }
  }
  template <class T>
  void store_columns(T* p, int64_t n, int64_t stride, int64_t width) const {
    for (int64_t i = 0; i < n; ++i) blocks::copy(width, p + i * stride, values.data() + i * kLanes);
  }
  template <class T>
  void load_rows(const T* p, int64_t n, int64_t count, C padding) {
    steps = n;
    values.resize(static_cast<size_t>(steps * kLanes));
    C* v = values.data();
    for (int64_t j = 0; j < count; ++j)
      for (int64_t i = 0; i < n; ++i) v[i * kLanes + j] = static_cast<C>(p[j * n + i]);
    for (int64_t i = 0; count < kLanes && i < n; ++i) std::fill(v + i * kLanes + count, v + (i + 1) * kLanes, padding);
  }
  template <class T>
  void store_rows(T* p, int64_t n, int64_t count) const {
    const C* v = values.data();
    for (int64_t j = 0; j < count; ++j)
      for (int64_t i = 0; i < n; ++i) p[j * n + i] = T(v[i * kLanes + j]);
  }

  template <class T>
  void load(Layout layout, const T* p, const Extent& e, int64_t width, C padding) {
    if (layout == Layout::Row) return load_row(p, e.n, padding);
    if (layout == Layout::Rows) return load_rows(p, e.n, width, C(0));
    load_columns(p, e.n, e.inner, width, C(0));
  }
  template <class T>
  void store(Layout layout, T* p, const Extent& e, int64_t width) const {
    if (layout == Layout::Row) return store_row(p, e.n);
    if (layout == Layout::Rows) return store_rows(p, e.n, width);
    store_columns(p, e.n, e.inner, width);
  }
};

// Folds the lanes of a row, in a fixed order that stays in registers.
template <class C, class F>
inline C fold(const C* lanes, F&& f) {
  C a[kLanes / 2], b[kLanes / 4], c[kLanes / 8];
  for (int64_t j = 0; j < kLanes / 2; ++j) a[j] = f(lanes[j], lanes[j + kLanes / 2]);
  for (int64_t j = 0; j < kLanes / 4; ++j) b[j] = f(a[j], a[j + kLanes / 4]);
  for (int64_t j = 0; j < kLanes / 8; ++j) c[j] = f(b[j], b[j + kLanes / 8]);
  static_assert(kLanes == 32);
  return f(f(c[0], c[1]), f(c[2], c[3]));
}

template <class C, class F>
void each_step(Tile<C>& tile, F&& f) {
  serial_for(0, tile.steps, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(tile.values.data() + i * kLanes);
  });
}

// Each lane a row of its own: `top` and `total` are vectors.
template <bool kLog, class C>
void forward_lanes(Tile<C>& tile) {
  C top[kLanes], total[kLanes];
  std::fill(top, top + kLanes, -std::numeric_limits<C>::infinity());
  std::fill(total, total + kLanes, C(0));
  each_step(tile, [&](const C* v) {
    for (int64_t j = 0; j < kLanes; ++j) top[j] = v[j] > top[j] ? v[j] : top[j];
  });
  each_step(tile, [&](C* v) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const C shifted = v[j] - top[j];
      const C e = math::exp(shifted);
      total[j] += e;
      v[j] = kLog ? shifted : e;
    }
  });
  for (int64_t j = 0; j < kLanes; ++j) total[j] = kLog ? math::log(total[j]) : C(1) / total[j];
  each_step(tile, [&](C* v) {
    for (int64_t j = 0; j < kLanes; ++j) v[j] = kLog ? v[j] - total[j] : v[j] * total[j];
  });
}

// A row of n >= kLanes, straight from and to memory: its largest element, the sum of exponentials (kept for softmax in
// `kept`, which may be the row o), the result. x and o may be one row.
template <bool kLog, class C, class T>
[[gnu::flatten]] void forward_row(const T* x, C* kept, T* o, int64_t n) {
  const int64_t whole = n / kLanes * kLanes, rest = n - whole;
  C lanes[kLanes];
  std::fill(lanes, lanes + kLanes, -std::numeric_limits<C>::infinity());
  auto larger = [](C a, C b) { return a > b ? a : b; };
  auto raise = [&](const T* p, const T* q, const T* r, const T* s) {
    auto step = [&](int64_t j, C a, C b, C c, C d) { lanes[j] = larger(larger(larger(a, b), larger(c, d)), lanes[j]); };
    blocks::each(step, p, q, r, s);
  };
  int64_t at = 0;
  for (; at + 4 * kLanes <= n; at += 4 * kLanes)
    raise(x + at, x + at + kLanes, x + at + 2 * kLanes, x + at + 3 * kLanes);
  const T* end = x + n - kLanes;  // some elements are read twice
  for (; at < n; at += 2 * kLanes) raise(std::min(x + at, end), std::min(x + at + kLanes, end), end, end);
  const C top = fold(lanes, larger);

  std::fill(lanes, lanes + kLanes, C(0));
  auto add = [&](const auto* p, C* to) {
    auto step = [&](int64_t j, C value) {
      const C e = math::exp(value - top);
      lanes[j] += e;
      if constexpr (!kLog) to[j] = e;
    };
    blocks::each(step, p);
  };
  for (int64_t i = 0; i < whole; i += kLanes) add(x + i, kLog ? nullptr : kept + i);
  if (rest > 0) {
    C in[kLanes], out[kLanes];
    std::fill(in, in + kLanes, -std::numeric_limits<C>::infinity());
    for (int64_t j = 0; j < rest; ++j) in[j] = static_cast<C>(x[whole + j]);
    add(in, out);
    if constexpr (!kLog) std::copy_n(out, rest, kept + whole);
  }
  const C sum = fold(lanes, [](C a, C b) { return a + b; });
  const C total = kLog ? math::log(sum) : C(1) / sum;
  if constexpr (kLog)
    blocks::map(n, o, [=](C value) { return value - top - total; }, x);
  else
    blocks::map(n, o, [=](C e) { return e * total; }, kept);
}

// `steps` times kLanes elements, `stride` apart, and `rest` more of a row, straight from and to memory: lanes are
// columns, or those of one row.
template <bool kLog, class C, class T>
[[gnu::flatten]] void backward_strip(const T* g, const T* y, T* o, int64_t steps, int64_t stride, int64_t rest,
                                     bool row) {
  C total[kLanes], out[kLanes];
  std::fill(total, total + kLanes, C(0));
  auto add = [&](int64_t j, C a, C b) { total[j] += kLog ? a : a * b; };
  auto slope = [&](int64_t j, C a, C b) { out[j] = kLog ? a - math::exp(b) * total[j] : b * (a - total[j]); };
  const int64_t end = steps * stride;
  const blocks::Padded<T> last_g(g + end, rest), last_y(y + end, rest);
  serial_for(0, steps, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) blocks::each(add, g + i * stride, y + i * stride);
  });
  if (rest > 0) blocks::each(add, last_g.at, last_y.at);
  if (row) std::fill(total, total + kLanes, fold(total, [](C a, C b) { return a + b; }));
  serial_for(0, steps, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      blocks::each(slope, g + i * stride, y + i * stride);
      blocks::copy(kLanes, o + i * stride, static_cast<const C*>(out));
    }
  });
  if (rest == 0) return;
  blocks::each(slope, last_g.at, last_y.at);
  blocks::copy(rest, o + end, static_cast<const C*>(out));
}

// Each lane a row or a column of its own.
template <bool kLog, class C>
void backward_tile(Tile<C>& grad, Tile<C>& output) {
  C* g = grad.values.data();
  backward_strip<kLog, C>(g, output.values.data(), g, grad.steps, kLanes, 0, false);
}

// A matrix of few columns, as many as divide kLanes: lane j holds those of column j % inner, so that no lane is empty
// and nothing is laid out anew.
template <bool kLog, class C, class T>
[[gnu::flatten]] void backward_narrow(const T* g, const T* y, T* o, int64_t n, int64_t inner) {
  const int64_t all = n * inner, whole = all / kLanes * kLanes, rest = all - whole;
  C total[kLanes];
  std::fill(total, total + kLanes, C(0));
  auto add = [&](int64_t j, C a, C b) { total[j] += kLog ? a : a * b; };
  WorkCount done;
  for (int64_t i = 0; i < whole; i += kLanes) {
    done(kLanes);
    blocks::each(add, g + i, y + i);
  }
  for (int64_t j = 0; j < rest; ++j) add(j, static_cast<C>(g[whole + j]), static_cast<C>(y[whole + j]));
  for (int64_t half = kLanes / 2; half >= inner; half /= 2)
    for (int64_t j = 0; j < half; ++j) total[j] += total[j + half];
  for (int64_t j = inner; j < kLanes; ++j) total[j] = total[j - inner];
  C out[kLanes];
  auto slope = [&](int64_t j, C a, C b) { out[j] = kLog ? a - math::exp(b) * total[j] : b * (a - total[j]); };
  for (int64_t i = 0; i < whole; i += kLanes) {
    done(kLanes);
    blocks::each(slope, g + i, y + i);
    blocks::copy(kLanes, o + i, out);
  }
  if (rest == 0) return;
  C a[kLanes] = {}, b[kLanes] = {};
  blocks::copy(rest, a, g + whole);
  blocks::copy(rest, b, y + whole);
  blocks::each(slope, static_cast<const C*>(a), static_cast<const C*>(b));
  blocks::copy(rest, o + whole, out);
}

// Calls f(layout, offset, width, workspace) for each tile; width counts its columns or rows.
template <class Workspace, class F>
void each_tile(const Extent& e, F&& f) {
  if (e.outer == 0 || e.n == 0 || e.inner == 0) return;
  const Layout layout = e.inner > 1 ? Layout::Columns : e.n < kLanes ? Layout::Rows : Layout::Row;
  const int64_t strips = (e.inner + kLanes - 1) / kLanes;  // of one matrix of columns
  const int64_t tiles = layout == Layout::Rows ? (e.outer + kLanes - 1) / kLanes : e.outer * strips;
  const int64_t tile_elements = e.n * (layout == Layout::Row ? 1 : kLanes);
  parallel_for(0, tiles, std::max<int64_t>(1, kGrain / tile_elements), [&](int64_t begin, int64_t end) {
    Workspace workspace;
    for (int64_t t = begin; t < end; ++t) {
      if (layout == Layout::Rows) {
        f(layout, t * kLanes * e.n, std::min(kLanes, e.outer - t * kLanes), workspace);
      } else {
        const int64_t first = (t % strips) * kLanes;
        f(layout, (t / strips) * e.n * e.inner + first, std::min(kLanes, e.inner - first), workspace);
      }
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
    struct Workspace {
      Tile<C> tile;
      std::vector<C> exponentials;  // of a row of 16-bit elements
    };
    each_tile<Workspace>(e, [&](Layout layout, int64_t offset, int64_t width, Workspace& workspace) {
      auto& [tile, exponentials] = workspace;
      if (layout == Layout::Row) {
        C* kept = nullptr;
        if constexpr (std::is_same_v<T, C>) {
          kept = o + offset;
        } else if (!kLog) {
          exponentials.resize(static_cast<size_t>(e.n));
          kept = exponentials.data();
        }
        return forward_row<kLog>(x + offset, kept, o + offset, e.n);
      }
      tile.load(layout, x + offset, e, width, C(0));
      forward_lanes<kLog>(tile);
      tile.store(layout, o + offset, e, width);
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
    if (e.inner > 1 && e.inner < kLanes && kLanes % e.inner == 0 && e.n >= kLanes) {
      const int64_t each = e.n * e.inner;
      return parallel_for(0, e.outer, std::max<int64_t>(1, kGrain / each), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin * each; i < end * each; i += each)
          backward_narrow<kLog, C>(g + i, y + i, o + i, e.n, e.inner);
      });
    }
    using Tiles = std::array<Tile<C>, 2>;
    each_tile<Tiles>(e, [&](Layout layout, int64_t offset, int64_t width, Tiles& tiles) {
      const T *from = g + offset, *result = y + offset;
      T* to = o + offset;
      if (layout == Layout::Row)
        return backward_strip<kLog, C>(from, result, to, e.n / kLanes, kLanes, e.n % kLanes, true);
      // Rows of columns that are pages apart share few places of the cache, and would be read twice from beyond it.
      if (layout == Layout::Columns && width == kLanes && e.inner * static_cast<int64_t>(sizeof(T)) % 4096 != 0)
        return backward_strip<kLog, C>(from, result, to, e.n, e.inner, 0, false);
      tiles[0].load(layout, from, e, width, C(0));
      tiles[1].load(layout, result, e, width, C(0));
      backward_tile<kLog>(tiles[0], tiles[1]);
      tiles[0].store(layout, to, e, width);
    });
  });
}

}  // namespace

TG_SOFTMAX_KERNELS(cpu)

}  // namespace tapegrad::cpu::TG_ISA
