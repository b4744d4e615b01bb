// Batching rules of operators that are one product over all samples (raw: nothing is recorded on the tape of their
// level).
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::batch {

// mm and bmm.
TG_API Tensor matmul(const Tensor& a, const Tensor& b);
TG_API Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias);
// Convolution and its two gradients (autograd/formulas/layers/conv.h). If the weights are batched, too, samples become
// groups.
TG_API Tensor conv(const Tensor& input, const Tensor& weight, const Tensor& bias, IntSpan stride, IntSpan padding,
                   IntSpan dilation, int64_t groups);
TG_API Tensor conv_grad_input(const Tensor& output, const Tensor& weight, IntSpan input_size, IntSpan stride,
                              IntSpan padding, IntSpan dilation, int64_t groups);
TG_API Tensor conv_grad_weight(const Tensor& output, const Tensor& input, IntSpan weight_size, IntSpan stride,
                               IntSpan padding, IntSpan dilation, int64_t groups);
// The gradients of views.
TG_API Tensor embed_view(const Tensor& grad, IntSpan sizes, IntSpan view_size, IntSpan view_stride, int64_t offset);
TG_API Tensor read_view(const Tensor& input, IntSpan view_size, IntSpan view_stride, int64_t offset);

}  // namespace tapegrad::batch
