// Shapes of max and min with their places.
#include "tapegrad/aten/kernels_reduce.h"

namespace tapegrad {
namespace {

DimVector without_dim(const Tensor& input, int64_t dim, bool keepdim) {
  DimVector sizes(input.sizes());
  if (input.ndim() == 0) return sizes;
  if (keepdim)
    sizes[static_cast<size_t>(dim)] = 1;
  else
    sizes.erase(static_cast<size_t>(dim));
  return sizes;
}

void check_has_elements(const Tensor& input, int64_t dim, const char* op) {
  TG_CHECK(input.ndim() == 0 || input.size(dim) != 0, Index,
           "{}: Expected reduction dim {} to have non-zero size: got shape {}", op, dim, format_ints(input.sizes()));
}

}  // namespace

TensorSpec arg_extreme_shape(const Tensor& input, std::optional<int64_t> dim, bool keepdim) {
  if (!dim) {
    TG_CHECK(input.numel() > 0, Index,
             "argmax: a tensor without elements has none: got shape {}\ngive dim= to look along others",
             format_ints(input.sizes()));
    return {keepdim ? DimVector(static_cast<size_t>(input.ndim()), 1) : DimVector(), DType::int64, input.device(), {}};
  }
  const int64_t d = wrap_dim(*dim, input.ndim(), "argmax");
  check_has_elements(input, d, "argmax");
  return {without_dim(input, d, keepdim), DType::int64, input.device(), {}};
}

std::array<TensorSpec, 2> extreme_shape(const Tensor& input, int64_t dim, bool keepdim) {
  const int64_t d = wrap_dim(dim, input.ndim(), "max");
  check_has_elements(input, d, "max");
  const DimVector sizes = without_dim(input, d, keepdim);
  return {TensorSpec{sizes, input.dtype(), input.device(), {}}, TensorSpec{sizes, DType::int64, input.device(), {}}};
}

}  // namespace tapegrad
