// Gradients of copies, longer than a line. Written in tapegrad's own operators.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The gradient of a value that was broadcast, converted and moved by copy_ or fill_.
Tensor copy_grad(const Tensor& grad, IntSpan sizes, DType dtype, Device device);
Tensor masked_scatter_self_grad(const Tensor& grad, const Tensor& mask, IntSpan sizes);
Tensor masked_scatter_source_grad(const Tensor& grad, const Tensor& mask, IntSpan sizes);

}  // namespace tapegrad
