// Gradients of operators along one dimension.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

// Sum over one dimension, kept with size 1.
Tensor sum_along(const Tensor& t, int64_t dim);
// d/dx_k sum_i g_i prod_{j<=i} x_j. Without zeros: reverse running sum of g y, over x. With zeros in the input, or when
// a further derivative is wanted at one, by the definition, in quadratic time.
Tensor cumprod_backward(const Tensor& grad, const Tensor& input, int64_t dim, const Tensor& output);
// exp(x_k) * reverse running sum of g_i exp(-y_i), in log space for either sign of g.
Tensor logcumsumexp_backward(const Tensor& grad, const Tensor& input, const Tensor& output, int64_t dim);

}  // namespace tapegrad::autograd
