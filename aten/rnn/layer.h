// Recurrent layers by their kernels, for any floating dtype. Of 16-bit types the products' sums, the gates and the
// cells' states are float32, and the states that go on to the next step are rounded.
#pragma once

#include <span>

#include "tapegrad/aten/rnn/cell.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::rnn {

struct LayerWeights {
  Tensor w_ih, w_hh, b_ih, b_hh, w_hr;  // the last three may be undefined
};
struct LayerResult {
  Tensor output, hy, cy;
};

// Whether _rnn_layer takes 16-bit types on such a device; where it does not, layer() converts them.
inline bool takes_half(Device device) { return !device.is_cuda(); }

// One layer in one direction.
LayerResult layer(const Tensor& input, const Tensor& hx, const Tensor& cx, const LayerWeights& weights,
                  IntSpan batch_sizes, Cell cell, bool reverse);
// Stacked layers: `weights` by layer and direction, states (layers * directions, N, H).
LayerResult layers(const Tensor& input, const Tensor& hx, const Tensor& cx, std::span<const LayerWeights> weights,
                   IntSpan batch_sizes, Cell cell, bool bidirectional);

}  // namespace tapegrad::rnn
