#include "tapegrad/aten/iterate/only_element.h"
#include "tapegrad/aten/kernels_sort.h"

namespace tapegrad {
namespace {

// sort, topk and median refuse complex numbers even where there is one or none.
void check_real(const Tensor& input, const char* op) {
  TG_CHECK(!input.is_complex(), NotImplemented, "{}: complex numbers have no order: got {}", op, input.dtype());
}

std::array<TensorSpec, 2> values_and_indices(const Tensor& input, const DimVector& sizes) {
  return {TensorSpec{sizes, input.dtype(), input.device(), {}}, TensorSpec{sizes, DType::int64, input.device(), {}}};
}

std::array<TensorSpec, 2> one_of_each(const Tensor& input, int64_t dim, bool keepdim, const char* op) {
  const int64_t d = wrap_dim(dim, input.ndim(), op);
  DimVector sizes(input.sizes());
  if (input.ndim() > 0) {
    TG_CHECK(input.size(d) > 0, Index, "{}: Expected reduction dim {} to have non-zero size: got shape {}", op, d,
             format_ints(input.sizes()));
    if (keepdim)
      sizes[static_cast<size_t>(d)] = 1;
    else
      sizes.erase(static_cast<size_t>(d));
  }
  return values_and_indices(input, sizes);
}

}  // namespace

std::array<TensorSpec, 2> sort_shape(const Tensor& input, int64_t dim, bool, bool) {
  check_real(input, "sort");
  wrap_dim(dim, input.ndim(), "sort");
  return values_and_indices(input, DimVector(input.sizes()));
}

TensorSpec argsort_shape(const Tensor& input, int64_t dim, bool, bool) {
  check_real(input, "argsort");
  wrap_dim(dim, input.ndim(), "argsort");
  return {DimVector(input.sizes()), DType::int64, input.device(), {}};
}

std::array<TensorSpec, 2> topk_shape(const Tensor& input, int64_t k, int64_t dim, bool, bool) {
  check_real(input, "topk");
  const int64_t d = wrap_dim(dim, input.ndim(), "topk");
  const int64_t n = input.ndim() == 0 ? 1 : input.size(d);
  TG_CHECK(k >= 0 && k <= n, Runtime, "topk: selected index k out of range: got {} of {} elements", k, n);
  DimVector sizes(input.sizes());
  if (input.ndim() > 0) sizes[static_cast<size_t>(d)] = k;  // else its one element, for k = 0, too, as in PyTorch
  return values_and_indices(input, sizes);
}

std::array<TensorSpec, 2> kthvalue_shape(const Tensor& input, int64_t k, int64_t dim, bool keepdim) {
  std::array<TensorSpec, 2> specs = one_of_each(input, dim, keepdim, "kthvalue");
  check_ordered(input, "kthvalue");
  const int64_t n = input.ndim() == 0 ? 1 : input.size(dim);
  TG_CHECK(k >= 1 && k <= n, Runtime, "kthvalue: selected number k out of range: got {} of {} elements", k, n);
  return specs;
}

TensorSpec median_shape(const Tensor& input) {
  check_real(input, "median");
  return {DimVector(), input.dtype(), input.device(), {}};
}
std::array<TensorSpec, 2> median_dim_shape(const Tensor& input, int64_t dim, bool keepdim) {
  check_real(input, "median");
  return one_of_each(input, dim, keepdim, "median");
}
std::array<TensorSpec, 2> mode_shape(const Tensor& input, int64_t dim, bool keepdim) {
  std::array<TensorSpec, 2> specs = one_of_each(input, dim, keepdim, "mode");
  check_ordered(input, "mode", true);
  return specs;
}

}  // namespace tapegrad
