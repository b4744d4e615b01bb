// AccumulateGrad: the tape's node of a leaf, which adds the gradient to the leaf's `.grad`; and the rules by which
// gradients are summed without copies.
#pragma once

#include "tapegrad/autograd/meta.h"

namespace tapegrad::autograd {

// Owns the leaf, which refers to its accumulator only weakly: the tape keeps its leaves alive.
struct AccumulateGrad final : Node {
  AccumulateGrad(const Tensor& leaf, uint32_t site);
  // As if made anew, after its last owner has gone.
  void renew(const Tensor& leaf, uint32_t at);
  const char* name() const override { return "AccumulateGrad"; }
  GradList apply(GradList grads) override;
  void drop_contents() noexcept override { variable.reset(); }

  Tensor variable;
};

// Whether this handle is the only reference to the tensor and to its bytes, so that it may be written to.
TG_API bool owned_alone(const Tensor& t) noexcept;

// Makes a gradient fit the tensor it belongs to, input `index` of `node`: dimensions that broadcasting added are
// summed, the dtype is converted. A gradient that would have to be broadcast is refused: the node computed it wrongly.
TG_API TG_COLD Tensor conform(Tensor grad, const OutputMeta& expected, const Node& node, size_t index);

// sum += grad for gradients in flight; either side's memory is used where it is owned alone and `reuse` is
// set.
TG_API void add_gradient(Tensor& sum, Tensor&& grad, bool reuse);

}  // namespace tapegrad::autograd
