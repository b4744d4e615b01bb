#include "tapegrad/aten/kernels_pointwise.h"

namespace tapegrad {

std::array<TensorSpec, 2> frexp_shape(const Tensor& input) {
  TG_CHECK(input.is_floating_point(), Runtime, "frexp: expected a floating tensor: got {}", input.dtype());
  const DimVector sizes(input.sizes());
  return {TensorSpec{sizes, input.dtype(), input.device(), {}}, TensorSpec{sizes, DType::int32, input.device(), {}}};
}

}  // namespace tapegrad
