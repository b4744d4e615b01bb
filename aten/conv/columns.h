// Moving between an image (channels x spatial) and the matrix of its patches: row (channel, kernel element), column
// output element. Padding reads as zero.
#pragma once

#include <algorithm>

#include "tapegrad/aten/conv/geometry.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {

// The output positions [first, last) of one dimension whose input position out * stride + offset lies inside.
inline void valid_range(int64_t offset, int64_t stride, int64_t in, int64_t out, int64_t& first, int64_t& last) {
  first = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  last = in - offset <= 0 ? 0 : (in - offset - 1) / stride + 1;
  last = std::min(last, out);
  first = std::min(first, last);
}

// Calls f(row, z, y, in_z, in_y, x_first, x_last, x_offset) for each row of the matrix and line of the
// output; x_first == x_last where the whole line lies in the padding.
template <class F>
inline void for_patch_lines(const conv::Geometry& g, int64_t channels, F&& f) {
  int64_t row = 0;
  WorkCount done;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t kz = 0; kz < g.kernel[0]; ++kz)
      for (int64_t ky = 0; ky < g.kernel[1]; ++ky)
        for (int64_t kx = 0; kx < g.kernel[2]; ++kx, ++row) {
          int64_t x_offset = kx * g.dilation[2] - g.pad[2], first, last;
          valid_range(x_offset, g.stride[2], g.in[2], g.out[2], first, last);
          for (int64_t z = 0; z < g.out[0]; ++z)
            for (int64_t y = 0; y < g.out[1]; ++y) {
              done(g.out[2]);
              int64_t iz = z * g.stride[0] + kz * g.dilation[0] - g.pad[0];
              int64_t iy = y * g.stride[1] + ky * g.dilation[1] - g.pad[1];
              bool inside = iz >= 0 && iz < g.in[0] && iy >= 0 && iy < g.in[1];
              int64_t line = (row * g.out[0] + z) * g.out[1] + y;
              int64_t from = ((c * g.in[0] + iz) * g.in[1] + iy) * g.in[2];
              f(line * g.out[2], inside ? from + x_offset : 0, first, inside ? last : first);
            }
        }
}

template <class T, class C = T>
void image_to_columns(const conv::Geometry& g, int64_t channels, const T* image, C* columns) {
  int64_t n = g.out[2], s = g.stride[2];
  for_patch_lines(g, channels, [&](int64_t to, int64_t from, int64_t first, int64_t last) {
    C* q = columns + to;
    for (int64_t x = 0; x < first; ++x) q[x] = C(0);
    if (s == 1) {
      for (int64_t x = first; x < last; ++x) q[x] = static_cast<C>(image[from + x]);
    } else {
      for (int64_t x = first; x < last; ++x) q[x] = static_cast<C>(image[from + x * s]);
    }
    for (int64_t x = last; x < n; ++x) q[x] = C(0);
  });
}

// Adds every patch back to its place in the image, which must hold zeros or a partial sum.
template <class T, class C = T>
void add_columns_to_image(const conv::Geometry& g, int64_t channels, const C* columns, T* image) {
  int64_t s = g.stride[2];
  for_patch_lines(g, channels, [&](int64_t from, int64_t to, int64_t first, int64_t last) {
    const C* p = columns + from;
    if (s == 1) {
      for (int64_t x = first; x < last; ++x) image[to + x] = static_cast<T>(image[to + x] + p[x]);
    } else {
      for (int64_t x = first; x < last; ++x) image[to + x * s] = static_cast<T>(image[to + x * s] + p[x]);
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
