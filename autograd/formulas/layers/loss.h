// Gradients of losses: probabilities and class labels.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

// The second derivative of binary_cross_entropy for its input, times grad.
Tensor binary_cross_entropy_double_backward(const Tensor& grad, const Tensor& input, const Tensor& target);

// The gradient of nll_loss's backward for its incoming gradient.
Tensor nll_loss_double_backward(const Tensor& grad, const Tensor& target, const Tensor& weight,
                                const Tensor& total_weight, int64_t reduction, int64_t ignore_index);

// One fused kernel or, under create_graph, an expression of differentiable operators.
Tensor cross_entropy_backward(const Tensor& grad, const Tensor& input, const Tensor& target, const Tensor& weight,
                              const Tensor& log_normaliser, const Tensor& total_weight, int64_t reduction,
                              int64_t ignore_index);

}  // namespace tapegrad::autograd
