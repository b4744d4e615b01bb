// Gradients of resampling that are longer than a line.
#pragma once

#include <string_view>
#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The sizes after batch and channels.
DimVector spatial_sizes(IntSpan sizes);
// Gradients of <input_weight, input_grad> + <grid_weight, grid_grad>, _grid_sample_grad's results, by its operands.
std::tuple<Tensor, Tensor, Tensor> grid_sample_double_grad(const Tensor& input_weight, const Tensor& grid_weight,
                                                           const Tensor& output, const Tensor& input,
                                                           const Tensor& grid, std::string_view mode,
                                                           std::string_view padding_mode, bool align_corners);

}  // namespace tapegrad
