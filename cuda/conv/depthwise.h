// Depthwise convolutions of planes: a channel of the input, times a kernel of at most three rows and columns or five,
// gives the channels of its group. 32-bit index arithmetic; each thread has one element of a plane, in the gradient of
// the weight a share of all of them and a sum for every weight. Others go to direct.h.
#pragma once

#include "tapegrad/cuda/conv/direct.h"

namespace tapegrad::cuda::conv_plan {

// Whether these kernels do it; `p` of one input channel per group.
bool is_small_depthwise(const Plan& p);
void depthwise_forward(const Stream& stream, const Plan& p, const Operands& t);
void depthwise_grad_input(const Stream& stream, const Plan& p, const Operands& t);
void depthwise_grad_weight(const Stream& stream, const Plan& p, const Operands& t);

}  // namespace tapegrad::cuda::conv_plan
