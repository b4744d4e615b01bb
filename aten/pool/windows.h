// Pooling windows, a rule per spatial dimension: where each output element's window starts and ends, clipped to the
// input, and how many elements it counts for in a mean. One and two spatial dimensions are widened to three by leading
// ones. Plain and adaptive pooling differ only in their rules. Kernels of the CPU take windows from tables, those of
// devices compute them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/macros.h"
#include "tapegrad/c10/table.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::pool {

struct Window {
  int64_t first, last;  // input positions [first, last), `step` apart
  int64_t count;        // divisor
};

// The windows of one dimension.
struct Rule {
  int64_t in = 1, out = 1;
  bool adaptive = true;  // output element o covers [floor(o * in / out), ceil((o + 1) * in / out))
  int64_t kernel = 1, stride = 1, padding = 0, step = 1;
  bool count_padding = true;

  TG_HD Window window(int64_t o) const {
    if (adaptive) {
      const int64_t first = o * in / out, last = ((o + 1) * in + out - 1) / out;
      return {first, last, last - first};
    }
    int64_t start = o * stride - padding, stop = start + (kernel - 1) * step + 1;
    if (stop > in + padding) stop = in + padding;
    int64_t count = stop - start;
    if (start < 0) start += (-start + step - 1) / step * step;
    if (stop > in) stop = in;
    if (!count_padding) count = stop - start;
    return {start, start > stop ? start : stop, count};
  }
  // The output elements [first, last) outside of which no window holds input element i. As windows move on with their
  // element, those of step 1 that hold it are side by side.
  TG_HD void holding(int64_t i, int64_t& first, int64_t& last) const {
    if (adaptive) {
      first = i * out / in;
      last = ((i + 1) * out + in - 1) / in;
      return;
    }
    const int64_t extent = (kernel - 1) * step + 1;
    const int64_t end = i + padding;  // the first window that ends behind this place, and the last that starts before
    first = end < extent ? 0 : (end - extent) / stride + 1;
    last = end / stride + 1;
    if (last > out) last = out;
  }
};

// A sum as the mean of `count` elements. The smallest integer divided by -1 overflows, and traps on some processors.
template <class C>
TG_HD C mean_of(C sum, int64_t count) {
  const C d = static_cast<C>(count);
  if (d == C(0)) return C(0);
  if constexpr (std::is_integral_v<C> && std::is_signed_v<C>)
    if (d == C(-1)) return math::neg(sum);
  return static_cast<C>(sum / d);
}

struct Windows {
  int64_t planes = 1;  // batch times channels
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, step[3] = {1, 1, 1};
  Rule rule[3];
  Table<Window> table[3];

  int64_t in_plane() const { return in[0] * in[1] * in[2]; }
  int64_t out_plane() const { return out[0] * out[1] * out[2]; }
  // What kernels of the CPU need beside the rules.
  void fill_tables() {
    for (int d = 0; d < 3; ++d) table[d] = make_table(out[d], [&, d](int64_t o) { return rule[d].window(o); });
  }
};

// The output size of plain pooling in one dimension. With ceil_mode a window may hang over the end, but never starts
// in the padding behind it.
inline int64_t pooled_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                           bool ceil_mode) {
  int64_t span = in + 2 * padding - dilation * (kernel - 1) - 1;
  if (span < 0) {
    if (!ceil_mode || span + stride - 1 < 0) return 0;
  }
  int64_t n = (span + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (n - 1) * stride >= in + padding) --n;
  return n;
}

inline int64_t rows_of_plane(const Windows& w) { return std::max<int64_t>(1, w.out[0] * w.out[1]); }

// Calls f(plane, window in the first dimension, in the second, index of the first output element) for every row of the
// output, in parallel: a single plane may be large, and between rows an interrupt ends the operator. `work` is that of
// one row. If a Scratch type is given, f gets an instance that no other thread uses meanwhile.
struct NoScratch {};
template <class Scratch = NoScratch, class F>
void for_rows(const Windows& w, int64_t work, F&& f) {
  const int64_t rows = rows_of_plane(w);
  parallel_for(0, w.planes * rows, 32768 / std::max<int64_t>(work, 1) + 1, [&](int64_t first, int64_t last) {
    [[maybe_unused]] Scratch scratch;
    for (int64_t r = first; r < last; ++r) {
      const int64_t row = r % rows;
      const Window& wz = w.table[0][static_cast<size_t>(row / w.out[1])];
      const Window& wy = w.table[1][static_cast<size_t>(row % w.out[1])];
      if constexpr (std::is_same_v<Scratch, NoScratch>)
        f(r / rows, wz, wy, r * w.out[2]);
      else
        f(r / rows, wz, wy, r * w.out[2], scratch);
    }
  });
}

inline Windows sized_windows(IntSpan input, IntSpan output, size_t spatial) {
  Windows w;
  size_t leading = input.size() - spatial;
  for (size_t i = 0; i < leading; ++i) w.planes *= input[i];
  for (size_t i = 0; i < spatial; ++i) {
    w.in[3 - spatial + i] = w.rule[3 - spatial + i].in = input[leading + i];
    w.out[3 - spatial + i] = w.rule[3 - spatial + i].out = output[leading + i];
  }
  return w;
}

inline Windows plain_rules(IntSpan input, IntSpan output, IntSpan kernel, IntSpan stride, IntSpan padding,
                           IntSpan dilation, bool count_include_pad) {
  Windows w = sized_windows(input, output, kernel.size());
  for (size_t i = 0; i < kernel.size(); ++i) {
    size_t d = 3 - kernel.size() + i;
    w.step[d] = dilation.empty() ? 1 : dilation[i];
    w.rule[d] = {w.in[d], w.out[d], false, kernel[i], stride[i], padding[i], w.step[d], count_include_pad};
  }
  return w;
}
inline Windows plain_windows(IntSpan input, IntSpan output, IntSpan kernel, IntSpan stride, IntSpan padding,
                             IntSpan dilation, bool count_include_pad) {
  Windows w = plain_rules(input, output, kernel, stride, padding, dilation, count_include_pad);
  w.fill_tables();
  return w;
}

inline Windows adaptive_windows(IntSpan input, IntSpan output, size_t spatial) {
  Windows w = sized_windows(input, output, spatial);
  w.fill_tables();
  return w;
}

// Whether the gradient of maxima is gathered along channels: for the windows that the positions come from.
inline bool scatters_along_channels(const Tensor& output, const Tensor& indices, int64_t spatial, IntSpan kernel) {
  return !kernel.empty() && can_go_along_channels(output.dtype()) && goes_along_channels(indices, spatial);
}

}  // namespace tapegrad::pool
