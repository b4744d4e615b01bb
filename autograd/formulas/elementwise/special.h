// Gradients of special functions that do not fit on a line of the op table.
#pragma once

#include <string_view>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

// Raises NotImplementedError: for arguments whose derivative has no formula here.
[[noreturn]] TG_API Tensor no_gradient(std::string_view op, std::string_view argument);

// The recurrences divide by x; at 0 these functions return the limit of that quotient.
Tensor i0e_backward(const Tensor& grad, const Tensor& input, const Tensor& result);
Tensor i1_backward(const Tensor& grad, const Tensor& input, const Tensor& result);
Tensor i1e_backward(const Tensor& grad, const Tensor& input, const Tensor& result);
Tensor bessel_j1_backward(const Tensor& grad, const Tensor& input, const Tensor& result);
Tensor spherical_bessel_j0_backward(const Tensor& grad, const Tensor& input, const Tensor& result);

}  // namespace tapegrad::autograd
