// One oneDNN convolution primitive of a fixed shape with the reorders around it, and the cache of such plans.
#pragma once

#include "tapegrad/aten/conv/pieces.h"
#include "tapegrad/aten/onednn/library.h"

namespace tapegrad::onednn {

// The key of a plan: a piece of a convolution, `n` images, `ic` input and `oc` output channels of all groups of the
// piece, a band of the image with paddings of its own on both sides; the strides are those of the whole tensors
// (`ic_all`, `oc_all` channels of sizes `in_all`, `out_all`).
struct PlanKey {
  int64_t n, ic, oc, groups, ic_all, oc_all;
  int64_t in[3], out[3], in_all[3], out_all[3], kernel[3], stride[3], pad_left[3], pad_right[3], dilation[3];
  int64_t spatial, bias;
  Pass pass;
  DType type;  // of the tensors; a gradient of the weight is added up in float32
  bool channels_innermost;
  uint8_t unused[5];
  bool operator==(const PlanKey&) const = default;
};

// An argument of the primitive, in the user's layout and in the primitive's.
struct PlanArg {
  dnnl::memory::desc user, inner;
  dnnl::reorder reorder;  // user -> inner for inputs, inner -> user for outputs
  bool needs_reorder = false;
  size_t inner_bytes = 0;  // 0 without a reorder
};

struct Plan {
  PlanKey key;
  dnnl::primitive primitive;
  PlanArg source, weight, destination;
  dnnl::memory::desc bias, scratchpad;
};

// The plan for a key, cached or newly built; null if oneDNN has no implementation. Plans are immutable.
std::shared_ptr<const Plan> plan_for(const PlanKey& key);

}  // namespace tapegrad::onednn
