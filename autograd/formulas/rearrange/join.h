// Gradients of cat and stack. Written in tapegrad's own operators.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// One piece of the gradient per tensor, in its dtype.
std::vector<Tensor> cat_grad(const Tensor& grad, const std::vector<DimVector>& sizes, const std::vector<DType>& dtypes,
                             int64_t dim);
std::vector<Tensor> stack_grad(const Tensor& grad, const std::vector<DType>& dtypes, int64_t dim);

}  // namespace tapegrad
