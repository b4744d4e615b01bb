// Convolutions with few channels per group, mainly depthwise ones, for which tiles would be mostly empty.
#pragma once

#include "tapegrad/cuda/conv/plan.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda::conv_plan {

// Contiguous operands of one dtype; `bias` may be null.
struct Operands {
  DType dtype;
  const void *x, *w, *bias, *y;  // the one that is the result is written
};
inline constexpr int64_t kFewChannels = 8, kFewWeights = 128;  // of a group

void direct_forward(const Stream& stream, const Plan& plan, const Operands& t);
void direct_grad_input(const Stream& stream, const Plan& plan, const Operands& t);
void direct_grad_weight(const Stream& stream, const Plan& plan, const Operands& t);

}  // namespace tapegrad::cuda::conv_plan
