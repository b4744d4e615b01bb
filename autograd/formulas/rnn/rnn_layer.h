// The gradient of a whole recurrent layer.
#pragma once

#include <array>
#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Gradients of _rnn_layer, in the order of its tensors, for those that `mask` names. Where gradients are being recorded
// they are made of operators step by step, so that they can be differentiated again; otherwise by the kernel.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> rnn_layer_grad(
    const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input, const Tensor& hx,
    const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh,
    const Tensor& w_hr, const Tensor& output, const Tensor& gates, const Tensor& cells, IntSpan batch_sizes,
    int64_t cell, bool reverse, std::array<bool, 8> mask);

}  // namespace tapegrad
