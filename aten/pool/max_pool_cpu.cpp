// Maximum pooling with the position of each maximum, and the moves of values by those positions.
#include <atomic>
#include <limits>
#include <type_traits>
#include <vector>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/pool/channels.h"
#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using pool::Window;
using pool::Windows;

int64_t plane_grain(int64_t work) { return 32768 / std::max<int64_t>(work, 1) + 1; }

// Plain pooling of one line of the output: for each element of the window the whole line is compared at once. Equal
// values keep the first position; a NaN wins and stays. `y` and `indices` are those of the line, x of the plane.
template <class T, class Index>
void max_row(const Windows& w, const Window& wz, const Window& wy, int64_t stride_x, int64_t pad_x, int64_t kernel_x,
             const T* x, T* y, int64_t* indices, compute_t<T>* b, Index* at, std::vector<compute_t<T>>& scratch) {
  using C = compute_t<T>;
  constexpr C kLowest =
      std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::lowest();
  const int64_t n = w.out[2];
  // Columns of the window that meet the line at all: a window may be far wider than the input.
  const int64_t behind = pad_x - (n - 1) * stride_x;  // where column 0 of the last window is, from the line's start on
  const int64_t first_k = behind > 0 ? (behind + w.step[2] - 1) / w.step[2] : 0;
  const int64_t last_k = std::min(kernel_x, (w.in[2] - 1 + pad_x) / w.step[2] + 1);
  for (int64_t o = 0; o < n; ++o) {
    b[o] = kLowest;
    at[o] = static_cast<Index>((wz.first * w.in[1] + wy.first) * w.in[2] + w.table[2][static_cast<size_t>(o)].first);
  }
  for (int64_t z = wz.first; z < wz.last; z += w.step[0])
    for (int64_t yy = wy.first; yy < wy.last; yy += w.step[1]) {
      const int64_t line = (z * w.in[1] + yy) * w.in[2];
      const C* values = converted<C>(x + line, w.in[2], scratch);
      for (int64_t k = first_k; k < last_k; ++k) {
        int64_t shift = k * w.step[2] - pad_x, first = 0, last = n;
        while (first < n && first * stride_x + shift < 0) ++first;
        while (last > first && (last - 1) * stride_x + shift >= w.in[2]) --last;
        const C* p = values + shift;
        Index from = static_cast<Index>(line + shift), step = static_cast<Index>(stride_x);
        auto compare = [&](int64_t o, C v) {
          bool take = v > b[o] || v != v;
          b[o] = take ? v : b[o];
          at[o] = take ? static_cast<Index>(from + static_cast<Index>(o) * step) : at[o];
        };
        if (stride_x == 1) {
          for (int64_t o = first; o < last; ++o) compare(o, p[o]);
        } else if (stride_x == 2) {
          for (int64_t o = first; o < last; ++o) compare(o, p[2 * o]);
        } else {
          for (int64_t o = first; o < last; ++o) compare(o, p[o * stride_x]);
        }
      }
    }
  convert_line(y, b, n);
  for (int64_t o = 0; o < n; ++o) indices[o] = at[o];
}

template <class C>
struct LinesScratch {
  WorkCount done;
  std::vector<C> lines;
};

// A row of windows of different sizes. Of 16-bit numbers the lines that they share are converted first.
template <class T>
void max_window_row(const Windows& w, const Window& wz, const Window& wy, const T* x, T* y, int64_t* indices,
                    LinesScratch<compute_t<T>>& scratch) {
  using C = compute_t<T>;
  const int64_t height = wy.last - wy.first, line = w.in[2], all = height * line;
  constexpr bool kConverted = !std::is_same_v<T, C>;
  if constexpr (kConverted) scratch.lines.resize(static_cast<size_t>((wz.last - wz.first) * all));
  for (int64_t z = wz.first; kConverted && z < wz.last; ++z)
    converted<C>(x + (z * w.in[1] + wy.first) * line, all, scratch.lines.data() + (z - wz.first) * all);
  auto lines_of = [&](int64_t z) {  // from the first one of the windows on
    if constexpr (kConverted)
      return static_cast<const C*>(scratch.lines.data()) + (z - wz.first) * all;
    else
      return x + (z * w.in[1] + wy.first) * line;
  };
  for (const Window& wx : w.table[2]) {
    scratch.done(4 + (wz.last - wz.first) * height * (wx.last - wx.first));
    int64_t at = (wz.first * w.in[1] + wy.first) * line + wx.first;
    C best = lines_of(wz.first)[wx.first];
    for (int64_t z = wz.first; z < wz.last; ++z)
      for (int64_t yy = 0; yy < height; ++yy) {
        const C* values = lines_of(z) + yy * line;
        const int64_t from = (z * w.in[1] + wy.first + yy) * line;
        for (int64_t xx = wx.first; xx < wx.last; ++xx) {
          const C v = values[xx];
          if (v > best || v != v) {
            best = v;
            at = from + xx;
          }
        }
      }
    *y++ = T(best);
    *indices++ = at;
  }
}

// Raises for indices that a user gave to max_unpool, or that are not those of the pooling.
void check_indices(const char* op, const int64_t* p, int64_t n, int64_t plane) {
  int64_t least = 0, most = -1;
  serial_for(0, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      least = std::min(least, p[i]);
      most = std::max(most, p[i]);
    }
  });
  TG_CHECK(least >= 0 && most < plane, Runtime, "{}: index {} is out of range for planes of {} elements", op,
           least < 0 ? least : most, plane);
}

int64_t last_sizes(IntSpan sizes, int64_t spatial) {
  int64_t n = 1;
  for (int64_t d = 0; d < spatial; ++d) n *= sizes[sizes.size() - 1 - static_cast<size_t>(d)];
  return n;
}

}  // namespace

void max_pool_cpu(const Tensor& any_input, IntSpan kernel_size, IntSpan stride, IntSpan padding, IntSpan dilation,
                  [[maybe_unused]] bool ceil_mode, const Tensor& any_values, const Tensor& any_indices) {
  if (any_values.numel() == 0) return;
  Windows w = pool::plain_windows(any_input.sizes(), any_values.sizes(), kernel_size, stride, padding, dilation, true);
  const size_t spatial = kernel_size.size();
  if (pool_channels::max_windows(w, any_input, spatial, any_values, any_indices)) return;
  const Tensor input = contiguous_or_copy(any_input), values = planes_for(any_values),
               indices = planes_for(any_indices);
  int64_t kernel_x = kernel_size.back(), stride_x = stride.back(), pad_x = padding.back();
  dispatch_real(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    auto run = [&]<class Index>() {
      int64_t work = w.out[2] * std::min(kernel_x, w.in[2]) * std::min(kernel_size[0], w.in[3 - spatial]);
      struct Scratch {
        std::vector<C> best, line;
        std::vector<Index> where;
        WorkCount done;
      };
      pool::for_rows<Scratch>(
          w, work, [&](int64_t p, const Window& wz, const Window& wy, int64_t to, Scratch& scratch) {
            scratch.best.resize(static_cast<size_t>(w.out[2]));
            scratch.where.resize(static_cast<size_t>(w.out[2]));
            scratch.done(work);
            max_row<T, Index>(w, wz, wy, stride_x, pad_x, kernel_x, target_of<T>(input) + p * w.in_plane(),
                              target_of<T>(values) + to, target_of<int64_t>(indices) + to, scratch.best.data(),
                              scratch.where.data(), scratch.line);
          });
    };
    // Positions as wide as the values, so that both fill the same vectors.
    if (sizeof(C) <= 4 && w.in_plane() < (int64_t{1} << 30))
      run.template operator()<int32_t>();
    else
      run.template operator()<int64_t>();
  });
  finish_planes(any_values, values);
  finish_planes(any_indices, indices);
}

void adaptive_max_pool_cpu(const Tensor& any_input, IntSpan output_size, const Tensor& any_values,
                           const Tensor& any_indices) {
  if (any_values.numel() == 0) return;
  Windows w = pool::adaptive_windows(any_input.sizes(), any_values.sizes(), output_size.size());
  if (pool_channels::max_windows(w, any_input, output_size.size(), any_values, any_indices)) return;
  const Tensor input = contiguous_or_copy(any_input), values = planes_for(any_values),
               indices = planes_for(any_indices);
  dispatch_real(input.dtype(), [&]<class T>() {
    using Scratch = LinesScratch<compute_t<T>>;
    pool::for_rows<Scratch>(w, (w.in_plane() + w.out_plane()) / pool::rows_of_plane(w),
                            [&](int64_t p, const Window& wz, const Window& wy, int64_t to, Scratch& scratch) {
                              max_window_row<T>(w, wz, wy, target_of<T>(input) + p * w.in_plane(),
                                                target_of<T>(values) + to, target_of<int64_t>(indices) + to, scratch);
                            });
  });
  finish_planes(any_values, values);
  finish_planes(any_indices, indices);
}

void plane_gather_cpu(const Tensor& input, const Tensor& indices, int64_t spatial, const Tensor& out) {
  if (out.numel() == 0) return;
  int64_t in = last_sizes(input.sizes(), spatial), n = last_sizes(indices.sizes(), spatial);
  const int64_t* at = target_of<int64_t>(indices);
  check_indices("max_unpool", at, indices.numel(), in);
  dispatch_bytes(out.dtype(), [&]<class T>() {
    const T* x = target_of<T>(input);
    T* y = target_of<T>(out);
    parallel_for(0, out.numel() / n, plane_grain(n), [&](int64_t first, int64_t last) {
      for (int64_t p = first; p < last; ++p)
        serial_for(p * n, (p + 1) * n, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) y[i] = x[p * in + at[i]];
        });
    });
  });
}

void plane_scatter_cpu(const Tensor& any_output, const Tensor& any_indices, IntSpan input_size, int64_t spatial,
                       bool accumulate, IntSpan kernel_size, IntSpan stride, IntSpan padding, IntSpan dilation,
                       const Tensor& any_out) {
  const bool along = pool::scatters_along_channels(any_output, any_indices, spatial, kernel_size);
  const auto dense = [&](const Tensor& t) { return along ? channels_last_or_copy(t) : contiguous_or_copy(t); };
  const Tensor output = dense(any_output), indices = dense(any_indices);
  int64_t in = last_sizes(input_size, spatial), n = last_sizes(output.sizes(), spatial);
  const int64_t* at = target_of<int64_t>(indices);
  auto check = [&] { check_indices(accumulate ? "max_pool" : "max_unpool", at, indices.numel(), in); };
  if (any_out.numel() == 0) return output.numel() > 0 ? check() : void();
  if (along) {
    check();
    const Windows w = pool::plain_rules(input_size, output.sizes(), kernel_size, stride, padding, dilation, true);
    return pool_channels::max_grad(w, output, indices, any_out);
  }
  const Tensor out = planes_for(any_out);
  std::atomic<bool> outside = false;  // found when they are read anyway, reported when all of them are known
  dispatch_real(out.dtype(), [&]<class T>() {
    const T* y = target_of<T>(output);
    T* x = target_of<T>(out);
    using C = compute_t<T>;
    parallel_for(0, out.numel() / in, plane_grain(in + n), [&](int64_t first, int64_t last) {
      std::vector<C> sums, values;  // of 16-bit numbers, in the compute type
      for (int64_t p = first; p < last; ++p) {
        T* plane = x + p * in;
        auto move = [&](auto* to, const auto* from, auto&& put) {
          std::fill_n(to, in, std::remove_pointer_t<decltype(to)>(0));
          serial_for(0, n, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              const int64_t index = at[p * n + i];
              if (TG_UNLIKELY(static_cast<uint64_t>(index) >= static_cast<uint64_t>(in)))
                return outside.store(true, std::memory_order_relaxed);
              put(to[index], from[i]);
            }
          });
        };
        auto add = [](C& to, C v) { to = math::add(to, v); };
        if (!accumulate) {
          move(plane, y + p * n, [](T& to, T v) { to = v; });
        } else if constexpr (std::is_same_v<T, C>) {
          move(plane, y + p * n, add);
        } else {
          sums.resize(static_cast<size_t>(in));
          values.resize(static_cast<size_t>(n));
          convert_line(values.data(), y + p * n, n);
          move(sums.data(), values.data(), add);
          convert_line(plane, sums.data(), in);
        }
      }
    });
    if (outside) check();
  });
  finish_planes(any_out, out);
}

}  // namespace tapegrad::cpu::TG_ISA
