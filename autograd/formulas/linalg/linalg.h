// Gradients of the matrix products that are longer than a line. Written in tapegrad's own operators.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The conjugate of a complex tensor; a real one is returned as it is.
Tensor conj_of(const Tensor& t);
// Transposed in the last two dimensions and conjugated.
Tensor adjoint_of(const Tensor& t);
// The conjugate of a number.
Scalar conj_of(const Scalar& s);
// Sums over the dimensions that broadcasting added.
Tensor sum_to(const Tensor& t, IntSpan sizes);

// Those of _cdist, for x1 and x2.
std::tuple<Tensor, Tensor> cdist_grad(const Tensor& grad, const Tensor& x1, const Tensor& x2, const Tensor& distances,
                                      double p);

Tensor linear_grad_input(const Tensor& grad, const Tensor& weight);
// bias_grad: where the bias's gradient goes as well if a device computes both at once, or null.
Tensor linear_grad_weight(const Tensor& grad, const Tensor& input, IntSpan weight_sizes, IntSpan bias_sizes,
                          Tensor* bias_grad);
Tensor linear_grad_bias(const Tensor& grad, IntSpan bias_sizes);

}  // namespace tapegrad
