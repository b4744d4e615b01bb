// Gradients of resampling that are longer than a line.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The sizes behind batch and channels.
DimVector spatial_sizes(IntSpan sizes);

}  // namespace tapegrad
