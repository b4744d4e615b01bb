// Gradients of the kernels of sparse tensors.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

Tensor coo_mm_values_grad(const Tensor& grad, const Tensor& indices, const Tensor& values, const Tensor& dense);
Tensor coo_mm_dense_grad(const Tensor& grad, const Tensor& indices, const Tensor& values, const Tensor& dense);

}  // namespace tapegrad
