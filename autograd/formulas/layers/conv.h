// Gradients of convolutions. `_conv` (input, weight), `_conv_grad_input` (output, weight) and `_conv_grad_weight`
// (output, input) are the three contractions of one trilinear form, so the gradients of each are the other two.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Sum over everything but the channels.
Tensor conv_grad_bias(const Tensor& grad);

// The gradient of a convolution on the CPU in the layout that its result had, which the two gradients then get, too.
Tensor conv_grad_laid_out(const Tensor& grad, IntSpan input_sizes, IntSpan input_strides, IntSpan weight_sizes,
                          IntSpan weight_strides);
// `_conv`, cropped to the sizes of the output whose gradient is computed: with an output padding larger than the
// stride, the formula for the sizes yields more elements.
Tensor conv_like(const Tensor& input, const Tensor& weight, IntSpan output_sizes, IntSpan stride, IntSpan padding,
                 IntSpan dilation, int64_t groups);

}  // namespace tapegrad
