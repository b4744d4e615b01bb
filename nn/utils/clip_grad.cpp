#include "tapegrad/nn/utils/clip_grad.h"

#include <cmath>
#include <vector>

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::nn::utils {
namespace {

Tensor norm_of(const Tensor& values, double norm_type) {
  return std::isinf(norm_type) ? values.abs().max() : tapegrad::norm(values, norm_type);
}

std::vector<Tensor> gradients(TensorSpan parameters) {
  std::vector<Tensor> result;
  for (const Tensor& p : parameters)
    if (Tensor grad = p.grad(); grad.defined()) result.push_back(std::move(grad));
  return result;
}

}  // namespace

Tensor get_total_norm(TensorSpan tensors, double norm_type, bool error_if_nonfinite) {
  if (tensors.empty()) return tapegrad::zeros(IntSpan());
  const NoGradGuard no_grad;
  std::vector<Tensor> norms;
  for (const Tensor& t : tensors) norms.push_back(norm_of(t.detach(), norm_type).to({}, tensors[0].device()));
  const Tensor total = norms.size() == 1 ? norms[0] : norm_of(tapegrad::stack(norms), norm_type);
  TG_CHECK(!error_if_nonfinite || std::isfinite(total.item<double>()), Runtime,
           "get_total_norm: the norm of order {} is not finite, so gradients cannot be clipped by it: got {}",
           norm_type, total.item<double>());
  return total;
}

void clip_grads_with_norm_(TensorSpan parameters, double max_norm, const Tensor& total_norm) {
  const NoGradGuard no_grad;
  // Multiplying by 1 in the usual case is cheaper than asking a device for the norm.
  const Tensor factor =
      (tapegrad::full(IntSpan(), max_norm, total_norm.dtype(), total_norm.device()) / (total_norm + 1e-6))
          .clamp(Operand(Tensor()), 1.0);
  for (const Tensor& grad : gradients(parameters)) grad.mul_(factor.to({}, grad.device()));
}

Tensor clip_grad_norm_(TensorSpan parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  const Tensor total = get_total_norm(gradients(parameters), norm_type, error_if_nonfinite);
  clip_grads_with_norm_(parameters, max_norm, total);
  return total;
}

void clip_grad_value_(TensorSpan parameters, double clip_value) {
  const NoGradGuard no_grad;
  for (const Tensor& grad : gradients(parameters)) grad.clamp_(-clip_value, clip_value);
}

}  // namespace tapegrad::nn::utils
