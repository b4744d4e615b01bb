#include "tapegrad/autograd/formulas/layers/loss.h"

#include "tapegrad/aten/functions_loss.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_softmax.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::autograd {

Tensor binary_cross_entropy_double_backward(const Tensor& grad, const Tensor& input, const Tensor& target) {
  // (p - t)^2 + t (1 - t) is p^2 - 2 p t + t without cancellation.
  const Tensor numerator = square(input - target) + target * (1 - target);
  return grad * numerator / square(clamp_min(input * (1 - input), 1e-12));
}

Tensor nll_loss_double_backward(const Tensor& grad, const Tensor& target, const Tensor& weight,
                                const Tensor& total_weight, int64_t reduction, int64_t ignore_index) {
  // The backward is linear in its gradient: its transpose is the loss of `grad`, with the same scale.
  auto [loss, total] = _nll_loss(grad, target, weight, reduction == 0 ? 0 : 2, ignore_index);
  return reduction == 1 ? loss / total_weight : loss;
}

Tensor cross_entropy_backward(const Tensor& grad, const Tensor& input, const Tensor& target, const Tensor& weight,
                              const Tensor& log_normaliser, const Tensor& total_weight, int64_t reduction,
                              int64_t ignore_index) {
  if (!grad_enabled())
    return _cross_entropy_backward(grad, input, target, weight, log_normaliser, total_weight, reduction, ignore_index);
  const Tensor log_probabilities = log_softmax(input, 1);
  const Tensor inner =
      _nll_loss_backward(grad, target, weight, total_weight, log_probabilities.sizes(), reduction, ignore_index);
  const int64_t dims[] = {1};
  return inner - exp(log_probabilities) * sum(inner, OptionalInts(IntSpan(dims, 1)), true);
}

}  // namespace tapegrad::autograd
