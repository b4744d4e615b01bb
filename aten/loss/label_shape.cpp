// Checks and results of the kernels over class labels. Class indices are checked by the kernels themselves, before
// they write, since that needs the data.
#include "tapegrad/aten/kernels_loss.h"

namespace tapegrad {

namespace {

void check_labels(const char* op, const Tensor& input, const Tensor& target, const Tensor& weight) {
  TG_CHECK(input.is_floating_point(), Runtime, "{}: expected floating input: got {}", op, input.dtype());
  TG_CHECK(is_integral(target.dtype()), Runtime, "{}: expected class indices of an integer dtype: got {}", op,
           target.dtype());
  TG_CHECK(input.ndim() >= 2, Runtime, "{}: expected input (N, C, ...): got sizes {}", op, format_ints(input.sizes()));
  DimVector expected(input.sizes());
  expected.erase(1);
  TG_CHECK(target.sizes() == IntSpan(expected), Value,
           "{}: for input of sizes {} the target must have sizes {}: got {}", op, format_ints(input.sizes()),
           format_ints(expected), format_ints(target.sizes()));
  if (weight.defined()) {
    TG_CHECK(weight.ndim() == 1 && weight.size(0) == input.size(1), Runtime,
             "{}: weight tensor should be defined either for all {} classes or no classes: got sizes {}", op,
             input.size(1), format_ints(weight.sizes()));
    TG_CHECK(weight.dtype() == input.dtype(), Runtime, "{}: weight must have the dtype of input, {}: got {}", op,
             input.dtype(), weight.dtype());
  }
}

TensorSpec loss_spec(const Tensor& input, const Tensor& target, int64_t reduction) {
  return {reduction == 0 ? DimVector(target.sizes()) : DimVector(), input.dtype(), input.device(), {}};
}

}  // namespace

std::array<TensorSpec, 2> nll_loss_shape(const Tensor& input, const Tensor& target, const Tensor& weight,
                                         int64_t reduction, int64_t) {
  check_labels("nll_loss", input, target, weight);
  return {loss_spec(input, target, reduction), TensorSpec{{}, input.dtype(), input.device(), {}}};
}

TensorSpec nll_loss_backward_shape(const Tensor& grad_output, const Tensor& target, const Tensor&, const Tensor&,
                                   IntSpan sizes, int64_t reduction, int64_t) {
  DimVector expected(sizes);
  TG_CHECK(sizes.size() >= 2, Runtime, "nll_loss_backward: expected sizes (N, C, ...): got {}", format_ints(sizes));
  expected.erase(1);
  TG_CHECK(target.sizes() == IntSpan(expected) && is_integral(target.dtype()) &&
               (reduction == 0 ? grad_output.sizes() == target.sizes() : grad_output.numel() == 1),
           Runtime, "nll_loss_backward: target {} and gradient {} do not fit the sizes {}", format_ints(target.sizes()),
           format_ints(grad_output.sizes()), format_ints(sizes));
  return {DimVector(sizes), grad_output.dtype(), grad_output.device(), {}};
}

std::array<TensorSpec, 3> cross_entropy_shape(const Tensor& input, const Tensor& target, const Tensor& weight,
                                              int64_t reduction, int64_t) {
  check_labels("cross_entropy", input, target, weight);
  TG_CHECK(input.ndim() == 2, Runtime, "cross_entropy: expected input (N, C): got sizes {}",
           format_ints(input.sizes()));
  // Large logits would leave float32 no digits for what the normaliser adds to the largest of them.
  return {loss_spec(input, target, reduction),
          TensorSpec{DimVector(target.sizes()), DType::float64, input.device(), {}},
          TensorSpec{{}, input.dtype(), input.device(), {}}};
}

TensorSpec cross_entropy_backward_shape(const Tensor& grad_output, const Tensor& input, const Tensor& target,
                                        const Tensor& weight, const Tensor& log_normaliser, const Tensor&,
                                        int64_t reduction, int64_t) {
  check_labels("cross_entropy_backward", input, target, weight);
  TG_CHECK(input.ndim() == 2 && log_normaliser.sizes() == target.sizes() && log_normaliser.dtype() == DType::float64 &&
               grad_output.dtype() == input.dtype() &&
               (reduction == 0 ? grad_output.sizes() == target.sizes() : grad_output.numel() == 1),
           Runtime, "cross_entropy_backward: gradient {} and normaliser {} do not fit input {}",
           format_ints(grad_output.sizes()), format_ints(log_normaliser.sizes()), format_ints(input.sizes()));
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

}  // namespace tapegrad
