// Gradients of the normalisations that are longer than a line.
#pragma once

#include <array>
#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The gradients of _batch_norm_train_grad(output, input, weight, ...) for those of its results.
std::tuple<Tensor, Tensor, Tensor> batch_norm_double_grad(const Tensor& grad_input, const Tensor& grad_weight,
                                                          const Tensor& grad_bias, const Tensor& output,
                                                          const Tensor& input, const Tensor& weight, double eps,
                                                          std::array<bool, 3> mask);
// Those of _group_norm_grad.
std::tuple<Tensor, Tensor, Tensor> group_norm_double_grad(const Tensor& grad_input, const Tensor& grad_weight,
                                                          const Tensor& grad_bias, const Tensor& output,
                                                          const Tensor& input, int64_t samples, int64_t channels,
                                                          int64_t groups, const Tensor& weight, double eps, bool center,
                                                          std::array<bool, 3> mask);

// Evaluation with fixed statistics is an affine map per channel.
std::tuple<Tensor, Tensor, Tensor> batch_norm_eval_grad(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                        const Tensor& mean, const Tensor& var, double eps,
                                                        std::array<bool, 3> mask);

}  // namespace tapegrad
