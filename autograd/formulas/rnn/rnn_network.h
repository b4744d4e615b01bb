// The gradient of a recurrent network that a device's library computed in one call.
#pragma once

#include <array>
#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Gradients of _rnn_network, in the order of its tensors, for those that `mask` names. The library computes them; when
// gradients are being recorded, or when the library refuses, the layers' own kernels compute the network again.
std::tuple<Tensor, Tensor, Tensor, Tensor> rnn_network_grad(
    const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input, const Tensor& hx,
    const Tensor& cx, const Tensor& weights, const Tensor& output, const Tensor& kept, IntSpan batch_sizes,
    int64_t cell, bool biases, int64_t num_layers, bool bidirectional, int64_t method, std::array<bool, 4> mask);

}  // namespace tapegrad
