// The gradient of a convolution's weight as products of whole matrices, for the cases in which a convolution library's
// algorithms with a fixed order of summation are several times slower: float32 kernels of one element, and first
// layers, whose patches are written out.
#pragma once

#include "tapegrad/aten/conv/geometry.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::cuda {

// False, without any effect that lasts, where it is another case, or where memory does not suffice.
bool weight_grad_by_products(const conv::Geometry& g, const Tensor& output, const Tensor& input, const Tensor& out);

}  // namespace tapegrad::cuda
