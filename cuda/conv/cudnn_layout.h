// The parameters of cuDNN's convolutions: sizes, strides and paddings, whether cuDNN is used at all, and the key of the
// choice of an algorithm. Pure functions of numbers.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tapegrad/cuda/conv/convolution_library.h"
#include "tapegrad/cuda/cudnn/graph.h"

namespace tapegrad::cuda::cudnn_graph {

// Dimensions of the plane that cuDNN sees: at least two, so that one-dimensional convolutions have height 1.
inline int spatial_dims(const conv::Geometry& g) { return std::max(g.spatial, 2); }
// The geometry's number of cuDNN's spatial dimension d.
inline int geometry_dim(const conv::Geometry& g, int d) { return 3 - spatial_dims(g) + d; }

inline Layout layout_of(const conv::Geometry& g, Wanted part, bool channels_last) {
  Layout out;
  const int spatial = spatial_dims(g);
  out.dims = spatial + 2;
  out.sizes[0] = part == Wanted::Weight ? g.oc : g.n;
  out.sizes[1] = part == Wanted::Input ? g.ic : part == Wanted::Output ? g.oc : g.ic / g.groups;
  const int64_t* plane = part == Wanted::Input ? g.in : part == Wanted::Output ? g.out : g.kernel;
  for (int d = 0; d < spatial; ++d) out.sizes[2 + d] = plane[geometry_dim(g, d)];
  int64_t step = 1;
  const auto place = [&](int d) {
    out.strides[d] = step;
    step *= out.sizes[d];
  };
  if (channels_last) place(1);
  for (int d = out.dims - 1; d >= 2; --d) place(d);
  if (!channels_last) place(1);
  place(0);
  return out;
}

// Computes the padding after dimension d (of the geometry) that gives the output its size: equal to the padding before
// it, or less for a transposed convolution whose result is larger than the floor formula. False if there is none.
inline bool padding_behind(const conv::Geometry& g, int d, int64_t& out) {
  const int64_t reach = g.dilation[d] * (g.kernel[d] - 1) + 1;
  out = g.pad[d];
  if ((g.in[d] + 2 * g.pad[d] - reach) / g.stride[d] + 1 == g.out[d]) return true;
  out = (g.out[d] - 1) * g.stride[d] + reach - g.in[d] - g.pad[d];
  return out >= 0;
}

// One input channel per group: cuDNN's kernels for it are for 16 bits and channels last.
inline bool depthwise(const conv::Geometry& g) { return g.groups > 1 && g.ic == g.groups; }

// Whether cuDNN is used: it supports floating dtypes, and its kernels use 32-bit indices.
inline bool accepts(const Convolution& c) {
  const bool narrow = c.dtype == DType::float16 || c.dtype == DType::bfloat16;
  if (!narrow && c.dtype != DType::float32 && c.dtype != DType::float64) return false;
  if (depthwise(c.sizes) && !narrow && !c.channels_last) return false;
  for (const Wanted part : {Wanted::Input, Wanted::Weight, Wanted::Output}) {
    const int64_t numel = layout_of(c.sizes, part, false).numel();
    if (numel == 0 || numel > INT32_MAX) return false;
  }
  for (int d = 0; d < 3; ++d) {
    int64_t behind;
    if (!padding_behind(c.sizes, d, behind)) return false;
  }
  return true;
}

// The key of the choice of an algorithm.
inline Key key_of(const Convolution& c) {
  Key key{};
  size_t i = 0;
  const conv::Geometry& g = c.sizes;
  for (const int64_t number :
       {static_cast<int64_t>(c.wanted), static_cast<int64_t>(c.dtype), static_cast<int64_t>(c.channels_last), g.n,
        g.groups, g.ic, g.oc, static_cast<int64_t>(spatial_dims(g)), alignment(c.x), alignment(c.w), alignment(c.y)})
    key[i++] = number;
  for (const auto& of : {g.in, g.out, g.kernel, g.stride, g.pad, g.dilation})
    for (int d = 0; d < 3; ++d) key[i++] = of[d];
  return key;
}

}  // namespace tapegrad::cuda::cudnn_graph
