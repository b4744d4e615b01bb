// The sizes of one convolution, with one and two spatial dimensions widened to three by leading ones.
// A plain value; all kernels of this folder are written against it.
#pragma once

#include <cstdint>
#include <string>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::conv {

struct Geometry {
  int64_t n, groups;
  int64_t ic, oc;  // of all groups together
  int spatial;     // how many of the three dimensions are real
  int64_t in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
  bool channels_innermost;  // of the input and the output, where kernels of the CPU take that

  int64_t in_spatial() const { return in[0] * in[1] * in[2]; }
  int64_t out_spatial() const { return out[0] * out[1] * out[2]; }
  int64_t kernel_spatial() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t weight_numel() const { return oc * (ic / groups) * kernel_spatial(); }
  // Multiplications.
  double work() const {
    return static_cast<double>(n * out_spatial()) * static_cast<double>(oc) *
           static_cast<double>(ic / groups * kernel_spatial());
  }
  // Whether `out` equals the floor formula (it does not with an output_padding beyond the stride).
  bool regular() const {
    for (int d = 0; d < 3; ++d)
      if ((in[d] + 2 * pad[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1 != out[d]) return false;
    return true;
  }
  // Whether each output sees one place of the input, its own.
  bool is_pointwise() const {
    for (int d = 0; d < 3; ++d)
      if (kernel[d] != 1 || stride[d] != 1 || pad[d] != 0 || in[d] != out[d]) return false;
    return true;
  }
};

// From the sizes (N, C, spatial...) of a convolution's input and output and of its weight.
inline Geometry make_geometry(IntSpan input, IntSpan weight, IntSpan output, IntSpan stride, IntSpan padding,
                              IntSpan dilation, int64_t groups) {
  Geometry g;
  g.n = input[0];
  g.groups = groups;
  g.channels_innermost = false;
  g.ic = input[1];
  g.oc = weight[0];
  g.spatial = static_cast<int>(input.size()) - 2;
  for (int d = 0; d < 3; ++d) {
    int at = d - (3 - g.spatial);
    size_t i = static_cast<size_t>(at < 0 ? 0 : at);
    bool real = at >= 0;
    g.in[d] = real ? input[i + 2] : 1;
    g.out[d] = real ? output[i + 2] : 1;
    g.kernel[d] = real ? weight[i + 2] : 1;
    g.stride[d] = real ? stride[i] : 1;
    g.pad[d] = real ? padding[i] : 0;
    g.dilation[d] = real ? dilation[i] : 1;
  }
  return g;
}

// Whether a tensor is channels-last in memory and not also contiguous; devices then compute in that layout.
inline bool channels_last(const Tensor& t) {
  return t.ndim() >= 4 && !t.is_contiguous() && t.impl()->is_contiguous(MemoryFormat::ChannelsLast);
}

}  // namespace tapegrad::conv
