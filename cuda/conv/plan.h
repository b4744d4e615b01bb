// The index arithmetic of convolutions in kernels: which input element contributes to an output element at an element
// of the kernel, and the reverse. Functions of host and device.
#pragma once

#include "tapegrad/aten/conv/geometry.h"
#include "tapegrad/cuda/launch/divide.h"

namespace tapegrad::cuda::conv_plan {

enum class Side : bool { Input, Output };

struct Plan {
  int64_t n, ic, oc, icg, ocg, groups;  // icg, ocg: channels of a group
  int64_t in_numel, out_numel, kernel_numel;
  Space in, out, kernel;
  int64_t stride[3], pad[3], dilation[3];
  Divider by_in, by_out, by_kernel, by_ic, by_oc, by_stride[3];

  explicit Plan(const conv::Geometry& g)
      : n(g.n),
        ic(g.ic),
        oc(g.oc),
        icg(g.ic / g.groups),
        ocg(g.oc / g.groups),
        groups(g.groups),
        in_numel(g.in_spatial()),
        out_numel(g.out_spatial()),
        kernel_numel(g.kernel_spatial()),
        in(g.in[0], g.in[1], g.in[2]),
        out(g.out[0], g.out[1], g.out[2]),
        kernel(g.kernel[0], g.kernel[1], g.kernel[2]),
        by_in(in_numel, n * ic * in_numel),
        by_out(out_numel, n * oc * out_numel),
        by_kernel(kernel_numel, (icg + ocg) * kernel_numel),
        by_ic(ic, n * ic),
        by_oc(oc, n * oc) {
    for (int d = 0; d < 3; ++d) {
      stride[d] = g.stride[d];
      pad[d] = g.pad[d];
      dilation[d] = g.dilation[d];
      by_stride[d] = Divider(stride[d], g.in[d] + pad[d] + 1);
    }
  }

  // The input element that output element o meets at kernel element k, counted within a plane; -1 in the padding.
  TG_HD int64_t input_place(const Point& o, const Point& k) const {
    int64_t at[3];
    bool inside = true;
    for (int d = 0; d < 3; ++d) {
      at[d] = o.at[d] * stride[d] + k.at[d] * dilation[d] - pad[d];
      inside &= at[d] >= 0 && at[d] < in.size[d];
    }
    return inside ? in.place(at[0], at[1], at[2]) : -1;
  }
  // The output element that meets input element i at kernel element k; -1 where there is none.
  TG_HD int64_t output_place(const Point& i, const Point& k) const {
    int64_t at[3];
    bool inside = true;
    for (int d = 0; d < 3; ++d) {
      const int64_t shifted = i.at[d] + pad[d] - k.at[d] * dilation[d];
      int64_t rest;
      by_stride[d].divide(shifted < 0 ? 0 : shifted, at[d], rest);
      inside &= shifted >= 0 && rest == 0 && at[d] < out.size[d];
    }
    return inside ? out.place(at[0], at[1], at[2]) : -1;
  }
  // The element of one side that element `there` of the other meets at kernel element k; -1 where there is none.
  template <Side kOf>
  TG_HD int64_t place(const Point& there, const Point& k) const {
    return kOf == Side::Input ? input_place(there, k) : output_place(there, k);
  }
  // Elements of a plane.
  template <Side kOf>
  TG_HD int64_t numel() const {
    return kOf == Side::Input ? in_numel : out_numel;
  }
};

}  // namespace tapegrad::cuda::conv_plan
