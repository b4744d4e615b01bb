#include "tapegrad/aten/kernels_softmax.h"

namespace tapegrad {

TensorSpec softmax_shape(const Tensor& input, int64_t dim) {
  TG_CHECK(input.is_floating_point(), NotImplemented,
           "softmax: expected a floating tensor: got {}\nhint: give dtype= to convert", input.dtype());
  wrap_dim(dim, input.ndim(), "softmax");
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec softmax_backward_shape(const Tensor& grad_output, const Tensor& output, int64_t dim) {
  TG_CHECK(grad_output.sizes() == output.sizes() && grad_output.dtype() == output.dtype(), Runtime,
           "softmax_backward: gradient {} {} does not fit output {} {}", grad_output.dtype(),
           format_ints(grad_output.sizes()), output.dtype(), format_ints(output.sizes()));
  return softmax_shape(output, dim);
}

}  // namespace tapegrad
