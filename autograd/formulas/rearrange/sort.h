// Gradients of operators whose results are chosen elements of the input.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Puts the gradients at the chosen places along dim. `reduced`: the results lack that dimension.
Tensor chosen_grad(const Tensor& grad, IntSpan sizes, int64_t dim, const Tensor& indices, bool reduced);

}  // namespace tapegrad
