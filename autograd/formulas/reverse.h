// Second derivatives of fused kernels. The gradient of such a kernel has a second implementation in plain operators;
// when the gradient itself has to be differentiated, that expression is recorded and differentiated.
#pragma once

#include <functional>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Gradients of sum_i <outputs_i, grad_outputs_i> for outputs = f(inputs), with respect to the inputs that `wanted`
// names (same length; other entries of the result are undefined). Entries of grad_outputs may be undefined. Where
// gradients are being recorded, the result can be differentiated again.
using TensorFunction = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;
std::vector<Tensor> reverse(const TensorFunction& f, const std::vector<Tensor>& inputs, const std::vector<bool>& wanted,
                            const std::vector<Tensor>& grad_outputs);

}  // namespace tapegrad
