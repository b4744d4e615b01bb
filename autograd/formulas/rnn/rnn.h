// Second derivatives of the recurrent cells' pointwise parts.
#pragma once

#include <array>
#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The gradients of _lstm_gates_grad(grad_hy, grad_cy, gates, cx) for those of its results.
std::tuple<Tensor, Tensor, Tensor, Tensor> lstm_gates_double_grad(const Tensor& grad_gates, const Tensor& grad_cx,
                                                                  const Tensor& grad_hy, const Tensor& grad_cy,
                                                                  const Tensor& gates, const Tensor& cx,
                                                                  std::array<bool, 4> mask);
// Those of _gru_gates_grad(output, input_gates, hidden_gates, hx).
std::tuple<Tensor, Tensor, Tensor, Tensor> gru_gates_double_grad(const Tensor& grad_input_gates,
                                                                 const Tensor& grad_hidden_gates, const Tensor& grad_hx,
                                                                 const Tensor& output, const Tensor& input_gates,
                                                                 const Tensor& hidden_gates, const Tensor& hx,
                                                                 std::array<bool, 4> mask);

}  // namespace tapegrad
