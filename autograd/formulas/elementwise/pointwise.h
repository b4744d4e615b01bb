// Gradients of pointwise operators that do not fit on a line of the op table.
#pragma once

#include "tapegrad/aten/iterate/limits.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

// grad * factor, without work for the factors 1 and -1.
TG_API Tensor scaled(const Tensor& grad, const Scalar& factor);
TG_API Tensor pow_backward(const Tensor& grad, const Tensor& input, const Tensor& exponent);
TG_API Tensor pow_backward_exponent(const Tensor& grad, const Tensor& input, const Tensor& exponent,
                                    const Tensor& result);
TG_API Tensor sgn_backward(const Tensor& grad, const Tensor& input, const Tensor& sgn);
TG_API Tensor nan_to_num_backward(const Tensor& grad, const Tensor& input);
TG_API Tensor angle_backward(const Tensor& grad, const Tensor& input);
// input^2 + other^2, by which atan2's gradients are divided; infinity at the origin, where they are 0.
TG_API Tensor atan2_denominator(const Tensor& input, const Tensor& other);
TG_API Tensor erfcx_backward(const Tensor& grad, const Tensor& input, const Tensor& result);
TG_API Tensor log_ndtr_backward(const Tensor& grad, const Tensor& input);
TG_API Tensor sinc_backward(const Tensor& grad, const Tensor& input);
Tensor softsign_backward(const Tensor& grad, const Tensor& input);
Tensor silu_backward_complex(const Tensor& grad, const Tensor& input);
TG_API Tensor logit_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input, double eps);
TG_API Tensor gelu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input);
TG_API Tensor gelu_tanh_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input);
TG_API Tensor silu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input);
TG_API Tensor mish_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input);

}  // namespace tapegrad::autograd
