// Means over windows, plain and adaptive, and their gradients.
#include <type_traits>
#include <vector>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/pool/channels.h"
#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using pool::Window;
using pool::Windows;

// The sum of `n` lanes, which are overwritten.
template <int64_t n, class C>
C fold(C* lane) {
  if constexpr (n == 1) {
    return lane[0];
  } else {
    for (int64_t l = 0; l < n / 2; ++l) lane[l] = math::add(lane[l], lane[l + n / 2]);
    return fold<n / 2>(lane);
  }
}

// Sum of a line, in lanes when it is long.
template <class C>
C line_sum(const C* p, int64_t n) {
  constexpr int64_t kLanes = blocks::kWidth;
  C lane[kLanes] = {};
  if (n < kLanes) {
    C s = 0;
    for (int64_t i = 0; i < n; ++i) s = math::add(s, p[i]);
    return s;
  }
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = math::add(lane[l], p[i + l]);
  // The rest, as the last lanes of a whole vector.
  const C* last = p + n - kLanes;
  const int from = static_cast<int>(kLanes - (n - i));  // as wide as floats
  for (int l = 0; l < static_cast<int>(kLanes); ++l) lane[l] = math::add(lane[l], l >= from ? last[l] : C(0));
  return fold<kLanes>(lane);
}

// What the sum of a window is divided by.
int64_t divisor(const Window& z, const Window& y, const Window& x, int64_t override_) {
  return override_ ? override_ : z.count * y.count * x.count;
}

// Neighbouring windows of one dimension that are alike: windows [first, last) are `width` elements, begin `step` apart
// and count the same. Only those at the borders of a padded input differ.
struct Alike {
  size_t first, last;
  int64_t start, width, step, count;
  explicit Alike(const Table<Window>& windows) : first(windows.size() / 2), last(first + 1) {
    width = windows[first].last - windows[first].first, count = windows[first].count;
    step = last < windows.size() ? windows[last].first - windows[first].first : 1;
    auto fit = [&](size_t o) {  // a window and the next one
      auto is_alike = [&](const Window& x) { return x.last - x.first == width && x.count == count; };
      return is_alike(windows[o]) && is_alike(windows[o + 1]) && windows[o + 1].first - windows[o].first == step;
    };
    while (last < windows.size() && fit(last - 1)) ++last;
    while (first > 0 && fit(first - 1)) --first;
    start = windows[first].first;
  }
};

template <class C>
struct MeanScratch {
  WorkCount done;
  std::vector<C> line, columns, sums;
};

// columns[x] = the sum of column x over the lines of a window in the first two dimensions.
template <class T, class C>
void add_lines(const Windows& w, const Window& wz, const Window& wy, const T* plane, MeanScratch<C>& scratch) {
  const int64_t n = w.in[2];
  C* to = scratch.columns.data();
  bool begun = false;
  for (int64_t z = wz.first; z < wz.last; ++z)
    for (int64_t y = wy.first; y < wy.last; ++y) {
      const C* line = converted<C>(plane + (z * w.in[1] + y) * n, n, scratch.line);
      if (begun) {
        for (int64_t x = 0; x < n; ++x) to[x] = math::add(to[x], line[x]);
      } else {
        std::copy_n(line, n, to);
      }
      begun = true;
    }
  if (!begun) std::fill_n(to, n, C(0));
}

// sums[i] = the sum of `width` columns from i * step on.
template <class C>
void add_columns(const C* columns, int64_t n, int64_t width, int64_t step, C* sums) {
  auto add = [&](auto s) {
    for (int64_t i = 0; i < n; ++i) sums[i] = columns[i * s];
    for (int64_t k = 1; k < width; ++k)
      for (int64_t i = 0; i < n; ++i) sums[i] = math::add(sums[i], columns[i * s + k]);
  };
  if (step == 1)
    add(std::integral_constant<int64_t, 1>());
  else if (step == 2)
    add(std::integral_constant<int64_t, 2>());
  else
    add(step);
}

// A row of the output: columns are added up first, over which windows may overlap, then windows side by side.
template <class T, class C>
void mean_row(const Windows& w, const Window& wz, const Window& wy, const Alike& alike, int64_t override_, const T* x,
              T* y, MeanScratch<C>& scratch) {
  const Table<Window>& windows = w.table[2];
  scratch.columns.resize(static_cast<size_t>(w.in[2]));
  scratch.sums.resize(windows.size());
  add_lines(w, wz, wy, x, scratch);
  const C* columns = scratch.columns.data();
  auto one = [&](size_t o) {
    const Window& wx = windows[o];
    y[o] = T(pool::mean_of(line_sum(columns + wx.first, wx.last - wx.first), divisor(wz, wy, wx, override_)));
  };
  for (size_t o = 0; o < alike.first; ++o) one(o);
  const auto n = static_cast<int64_t>(alike.last - alike.first);
  C* sums = scratch.sums.data();
  add_columns(columns + alike.start, n, alike.width, alike.step, sums);
  const int64_t d = divisor(wz, wy, windows[alike.first], override_);
  T* to = y + alike.first;
  for (int64_t i = 0; i < n; ++i) to[i] = T(pool::mean_of(sums[i], d));
  for (size_t o = alike.last; o < windows.size(); ++o) one(o);
}

// Whether each plane is one window.
bool is_global(const Windows& w) {
  auto whole = [&](int d) { return w.out[d] == 1 && w.table[d][0].last - w.table[d][0].first == w.in[d]; };
  return w.in_plane() > 0 && whole(0) && whole(1) && whole(2);
}

// Calls f(first plane, last plane) for planes in blocks of about `kBlock` elements, in parallel.
template <class F>
void for_planes(const Windows& w, F&& f) {
  constexpr int64_t kBlock = 4096;
  const int64_t step = std::max<int64_t>(1, kBlock / w.in_plane()), blocks = (w.planes + step - 1) / step;
  parallel_for(0, blocks, 8, [&](int64_t first, int64_t last) {
    WorkCount done;
    for (int64_t b = first; b < last; ++b, done(step * w.in_plane())) f(b * step, std::min(w.planes, (b + 1) * step));
  });
}

template <class T>
void mean_windows(const Windows& w, int64_t override_, const T* input, T* output) {
  using C = compute_t<T>;
  if (is_global(w)) {
    const int64_t n = w.in_plane(), d = divisor(w.table[0][0], w.table[1][0], w.table[2][0], override_);
    return for_planes(w, [&](int64_t first, int64_t last) {
      std::vector<C> scratch;
      const C* x = converted<C>(input + first * n, (last - first) * n, scratch);
      for (int64_t p = first; p < last; ++p, x += n) output[p] = T(pool::mean_of(line_sum(x, n), d));
    });
  }
  const Alike alike(w.table[2]);
  const bool side_by_side = alike.width > 0 && alike.width < std::min<int64_t>(blocks::kWidth, w.in[2]) &&
                            2 * alike.width * static_cast<int64_t>(w.table[2].size()) >= w.in[2];
  pool::for_rows<MeanScratch<C>>(
      w, (w.in_plane() + w.out_plane()) / pool::rows_of_plane(w),
      [&](int64_t p, const Window& wz, const Window& wy, int64_t to, MeanScratch<C>& scratch) {
        const T* x = input + p * w.in_plane();
        T* y = output + to;
        const int64_t lines = (wz.last - wz.first) * (wy.last - wy.first);
        if (side_by_side) {
          scratch.done(4 + lines * w.in[2] + w.out[2] * alike.width);
          return mean_row(w, wz, wy, alike, override_, x, y, scratch);
        }
        for (const Window& wx : w.table[2]) {
          int64_t n = wx.last - wx.first, rows = wy.last - wy.first;
          scratch.done(4 + lines * n);
          if (n == w.in[2]) n *= rows, rows = 1;  // whole lines lie side by side
          C sum = 0;
          for (int64_t z = wz.first; z < wz.last; ++z)
            for (int64_t yy = wy.first; yy < wy.first + rows; ++yy) {
              const T* line = x + (z * w.in[1] + yy) * w.in[2] + wx.first;
              sum = math::add(sum, line_sum(converted<C>(line, n, scratch.line), n));
            }
          *y++ = T(pool::mean_of(sum, divisor(wz, wy, wx, override_)));
        }
      });
}

template <class T>
void spread_windows(const Windows& w, int64_t override_, const T* output, T* input) {
  using C = compute_t<T>;
  const int64_t work = w.in_plane() + w.out_plane(), n = w.in_plane();
  if (is_global(w)) {
    const int64_t d = divisor(w.table[0][0], w.table[1][0], w.table[2][0], override_);
    return for_planes(w, [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p) {
        using Bits __attribute__((may_alias)) = BitsOf<sizeof(T)>;  // a loop of 16-bit floats is no loop of vectors
        const auto share = std::bit_cast<Bits>(T(pool::mean_of(static_cast<C>(output[p]), d)));
        std::fill_n(reinterpret_cast<Bits*>(input + p * n), n, share);
      }
    });
  }
  parallel_for(0, w.planes, 32768 / std::max<int64_t>(work, 1) + 1, [&](int64_t first, int64_t last) {
    std::vector<C> sums(std::is_same_v<T, C> ? 0 : static_cast<size_t>(n)), line(static_cast<size_t>(w.in[2])), scratch;
    WorkCount done;
    for (int64_t p = first; p < last; ++p) {
      C* plane;
      if constexpr (std::is_same_v<T, C>)
        plane = input + p * n;
      else
        plane = sums.data();
      std::fill_n(plane, n, C(0));
      const T* y = output + p * w.out_plane();
      for (const Window& wz : w.table[0])
        for (const Window& wy : w.table[1]) {
          // What a row of windows gives to each line that it covers.
          const C* g = converted<C>(y, w.out[2], scratch);
          std::fill(line.begin(), line.end(), C(0));
          for (const Window& wx : w.table[2]) {
            done(4 + (wx.last - wx.first));
            const C share = pool::mean_of(*g++, divisor(wz, wy, wx, override_));
            for (int64_t xx = wx.first; xx < wx.last; ++xx)
              line[static_cast<size_t>(xx)] = math::add(line[static_cast<size_t>(xx)], share);
          }
          y += w.out[2];
          for (int64_t z = wz.first; z < wz.last; ++z)
            for (int64_t yy = wy.first; yy < wy.last; ++yy) {
              C* to = plane + (z * w.in[1] + yy) * w.in[2];
              done(w.in[2]);
              for (int64_t xx = 0; xx < w.in[2]; ++xx) to[xx] = math::add(to[xx], line[static_cast<size_t>(xx)]);
            }
        }
      if constexpr (!std::is_same_v<T, C>) convert_line(input + p * n, plane, n);
    }
  });
}

// Kernels of planes, f(from, to), on operands of any layout.
template <class F>
void on_planes(const Tensor& any_from, const Tensor& out, F&& f) {
  const Tensor from = contiguous_or_copy(any_from);
  in_planes(out, [&](const Tensor& planes) {
    dispatch_real(out.dtype(), [&]<class T>() { f(target_of<T>(from), target_of<T>(planes)); });
  });
}

void means(const Windows& w, size_t spatial, int64_t override_, const Tensor& input, const Tensor& out) {
  if (!pool_channels::mean_windows(w, input, spatial, override_, out))
    on_planes(input, out, [&](auto* from, auto* to) { mean_windows(w, override_, from, to); });
}

void mean_grads(const Windows& w, size_t spatial, int64_t override_, const Tensor& output, const Tensor& out) {
  if (!pool_channels::mean_grad(w, output, spatial, override_, out))
    on_planes(output, out, [&](auto* from, auto* to) { spread_windows(w, override_, from, to); });
}

}  // namespace

void avg_pool_cpu(const Tensor& input, IntSpan kernel_size, IntSpan stride, IntSpan padding,
                  [[maybe_unused]] bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override,
                  const Tensor& out) {
  if (out.numel() == 0) return;
  Windows w = pool::plain_windows(input.sizes(), out.sizes(), kernel_size, stride, padding, {}, count_include_pad);
  means(w, kernel_size.size(), divisor_override.value_or(0), input, out);
}

void avg_pool_grad_cpu(const Tensor& output, IntSpan input_size, IntSpan kernel_size, IntSpan stride, IntSpan padding,
                       [[maybe_unused]] bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override,
                       const Tensor& out) {
  if (out.numel() == 0) return;
  Windows w = pool::plain_windows(input_size, output.sizes(), kernel_size, stride, padding, {}, count_include_pad);
  mean_grads(w, kernel_size.size(), divisor_override.value_or(0), output, out);
}

void adaptive_avg_pool_cpu(const Tensor& input, IntSpan output_size, const Tensor& out) {
  if (out.numel() == 0) return;
  Windows w = pool::adaptive_windows(input.sizes(), out.sizes(), output_size.size());
  means(w, output_size.size(), 0, input, out);
}

void adaptive_avg_pool_grad_cpu(const Tensor& output, IntSpan input_size, int64_t spatial, const Tensor& out) {
  if (out.numel() == 0) return;
  Windows w = pool::adaptive_windows(input_size, output.sizes(), static_cast<size_t>(spatial));
  mean_grads(w, static_cast<size_t>(spatial), 0, output, out);
}

}  // namespace tapegrad::cpu::TG_ISA
