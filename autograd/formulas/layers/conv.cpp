#include "tapegrad/autograd/formulas/layers/conv.h"

#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/functions_conv.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad {

Tensor conv_grad_bias(const Tensor& grad) {
  DimVector dims{0};
  for (int64_t d = 2; d < grad.ndim(); ++d) dims.push_back(d);
  return sum(grad, OptionalInts(dims));
}

Tensor conv_grad_laid_out(const Tensor& grad, IntSpan input_sizes, IntSpan input_strides, IntSpan weight_sizes,
                          IntSpan weight_strides) {
  if (grad.ndim() < 4 || grad.is_cuda()) return grad;
  const bool innermost =
      has_channels_last(input_sizes, input_strides) || has_channels_last(weight_sizes, weight_strides);
  if (innermost == has_channels_last(grad)) return grad;
  return contiguous(grad, innermost ? MemoryFormat::ChannelsLast : MemoryFormat::Contiguous);
}

Tensor conv_like(const Tensor& input, const Tensor& weight, IntSpan output_sizes, IntSpan stride, IntSpan padding,
                 IntSpan dilation, int64_t groups) {
  for (int64_t size : output_sizes)  // there may be no place for the kernel
    if (size == 0) return zeros(output_sizes, input.dtype(), input.device());
  Tensor y = _conv(input, weight, {}, stride, padding, dilation, groups);
  for (int64_t d = 2; d < y.ndim(); ++d)
    if (y.size(d) != output_sizes[static_cast<size_t>(d)]) y = narrow(y, d, 0, output_sizes[static_cast<size_t>(d)]);
  return y;
}

}  // namespace tapegrad
