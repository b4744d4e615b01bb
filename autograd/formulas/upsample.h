// Gradients of resampling that are longer than a line.
#pragma once

#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The sizes behind batch and channels.
DimVector spatial_sizes(IntSpan sizes);
// Raises NotImplemented.
std::tuple<Tensor, Tensor, Tensor> grid_sample_double_grad();

}  // namespace tapegrad
