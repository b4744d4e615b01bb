// Recurrent layers by their kernels, for any floating dtype: 16-bit types are computed in float32.
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

// One layer in one direction.
LayerResult layer(const Tensor& input, const Tensor& hx, const Tensor& cx, const LayerWeights& weights,
                  IntSpan batch_sizes, Cell cell, bool reverse);
// Stacked layers: `weights` by layer and direction, states (layers * directions, N, H).
LayerResult layers(const Tensor& input, const Tensor& hx, const Tensor& cx, std::span<const LayerWeights> weights,
                   IntSpan batch_sizes, Cell cell, bool bidirectional);

}  // namespace tapegrad::rnn
