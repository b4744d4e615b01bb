#include "tapegrad/aten/iterate/only_element.h"
#include "tapegrad/aten/kernels_scan.h"

namespace tapegrad {

TensorSpec cumsum_shape(const Tensor& input, int64_t dim, std::optional<DType> dtype) {
  wrap_dim(dim, input.ndim(), "cumsum");
  const DType natural = is_differentiable(input.dtype()) ? input.dtype() : DType::int64;
  return {DimVector(input.sizes()), dtype.value_or(natural), input.device(), {}};
}

TensorSpec logcumsumexp_shape(const Tensor& input, int64_t dim) {
  TG_CHECK(is_differentiable(input.dtype()), NotImplemented,
           "logcumsumexp: expected a floating or complex tensor: got {}", input.dtype());
  wrap_dim(dim, input.ndim(), "logcumsumexp");
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

std::array<TensorSpec, 2> cummax_shape(const Tensor& input, int64_t dim) {
  check_ordered(input, "cummax", true);
  wrap_dim(dim, input.ndim(), "cummax");
  return {TensorSpec{DimVector(input.sizes()), input.dtype(), input.device(), {}},
          TensorSpec{DimVector(input.sizes()), DType::int64, input.device(), {}}};
}

}  // namespace tapegrad
