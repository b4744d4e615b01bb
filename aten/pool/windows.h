// Pooling windows, one table per spatial dimension: where each output element's window starts and ends, clipped to
// the input, and how many elements it counts for in a mean. One and two spatial dimensions are widened to three by
// leading ones. Plain and adaptive pooling differ only in how the tables are made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/parallel.h"
#include "tapegrad/c10/table.h"

namespace tapegrad::pool {

struct Window {
  int64_t first, last;  // input positions [first, last), `step` apart
  int64_t count;        // divisor
};

struct Windows {
  int64_t planes = 1;  // batch times channels
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, step[3] = {1, 1, 1};
  Table<Window> table[3];

  int64_t in_plane() const { return in[0] * in[1] * in[2]; }
  int64_t out_plane() const { return out[0] * out[1] * out[2]; }
};

// The output size of plain pooling in one dimension. With ceil_mode a window may hang over the end, but never starts
// in the padding behind it.
inline int64_t pooled_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                           bool ceil_mode) {
  int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0) {
    if (!ceil_mode || room + stride - 1 < 0) return 0;
  }
  int64_t n = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (n - 1) * stride >= in + padding) --n;
  return n;
}

inline int64_t rows_of_plane(const Windows& w) { return std::max<int64_t>(1, w.out[0] * w.out[1]); }

// Calls f(plane, window in the first dimension, in the second, index of the first output element) for every row of the
// output, in parallel: a single plane may be large, and between rows an interrupt ends the operator. `work` is that of
// one row. Where a Scratch is named, f gets one that nobody else uses.
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

inline void set_sizes(Windows& w, IntSpan input, IntSpan output, size_t spatial) {
  size_t leading = input.size() - spatial;
  for (size_t i = 0; i < leading; ++i) w.planes *= input[i];
  for (size_t i = 0; i < spatial; ++i) {
    w.in[3 - spatial + i] = input[leading + i];
    w.out[3 - spatial + i] = output[leading + i];
  }
  for (size_t d = 0; d < 3 - spatial; ++d) w.table[d] = {{0, 1, 1}};
}

inline Windows plain_windows(IntSpan input, IntSpan output, IntSpan kernel, IntSpan stride, IntSpan padding,
                             IntSpan dilation, bool count_include_pad) {
  Windows w;
  size_t spatial = kernel.size();
  set_sizes(w, input, output, spatial);
  for (size_t i = 0; i < spatial; ++i) {
    size_t d = 3 - spatial + i;
    int64_t step = dilation.empty() ? 1 : dilation[i];
    w.step[d] = step;
    w.table[d] = make_table(w.out[d], [&](int64_t o) {
      int64_t start = o * stride[i] - padding[i];
      int64_t stop = std::min(start + (kernel[i] - 1) * step + 1, w.in[d] + padding[i]);
      int64_t count = stop - start;
      if (start < 0) start += (-start + step - 1) / step * step;
      stop = std::min(stop, w.in[d]);
      if (!count_include_pad) count = stop - start;
      return Window{start, std::max(start, stop), count};
    });
  }
  return w;
}

// Output element o covers [floor(o * in / out), ceil((o + 1) * in / out)).
inline Windows adaptive_windows(IntSpan input, IntSpan output, size_t spatial) {
  Windows w;
  set_sizes(w, input, output, spatial);
  for (size_t d = 3 - spatial; d < 3; ++d)
    w.table[d] = make_table(w.out[d], [&](int64_t o) {
      int64_t first = o * w.in[d] / w.out[d], last = ((o + 1) * w.in[d] + w.out[d] - 1) / w.out[d];
      return Window{first, last, last - first};
    });
  return w;
}

}  // namespace tapegrad::pool
