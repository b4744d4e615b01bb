// Losses between values of one shape.
#include <cmath>
#include <limits>
#include <numbers>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_loss.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_loss.h"
#include "tapegrad/aten/loss/reduction.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::composite {

namespace {

using Flag = std::optional<bool>;

// With weights, the mean divides by their sum, as those of PyTorch's losses do (but huber_loss).
Tensor weighted(const Tensor& loss, const Tensor& weight, Reduction reduction) {
  if (!weight.defined()) return apply_reduction(loss, reduction);
  const Tensor scaled = loss * weight;
  if (reduction == Reduction::Mean) return sum(scaled) / sum(expand_as(weight, loss));
  return apply_reduction(scaled, reduction);
}

// Squared in place where no tape wants the difference.
Tensor squared_difference(const Tensor& a, const Tensor& b) {
  const Tensor d = a - b;
  return d.requires_grad() ? square(d) : square_(d);
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, Flag size_average, Flag reduce, std::string_view reduction,
                const Tensor& weight) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "mse_loss");
  warn_of_broadcast(input, target);
  return weighted(squared_difference(input, target), weight, r);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Flag size_average, Flag reduce, std::string_view reduction,
               const Tensor& weight) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "l1_loss");
  warn_of_broadcast(input, target);
  return weighted(abs(input - target), weight, r);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Flag size_average, Flag reduce,
                      std::string_view reduction, double beta) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "smooth_l1_loss");
  TG_CHECK(beta >= 0, Runtime, "smooth_l1_loss: beta must not be negative: got {}", beta);
  warn_of_broadcast(input, target);
  // A curve that is narrower than numbers can say: a line.
  const bool wide = promote_types(input.dtype(), target.dtype()) == DType::float64;
  const bool curved =
      beta != 0 && 1 / beta <= (wide ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max());
  return apply_reduction(curved ? _huber(input, target, beta, 1 / beta) : abs(input - target), r);
}

Tensor huber_loss(const Tensor& input, const Tensor& target, std::string_view reduction, double delta,
                  const Tensor& weight) {
  const Reduction r = parse_reduction(reduction, "huber_loss");
  TG_CHECK(delta > 0, Runtime, "huber_loss: delta must be positive: got {}", delta);
  warn_of_broadcast(input, target);
  const Tensor loss = _huber(input, target, delta, 1);
  return apply_reduction(weight.defined() ? loss * weight : loss, r);  // PyTorch divides by the number here
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full, Flag size_average,
                        double eps, Flag reduce, std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, size_average, reduce, "poisson_nll_loss");
  Tensor loss = log_input ? exp(input) - target * input : input - target * log(input + eps);
  if (full) {
    const Tensor stirling = target * log(target) - target + 0.5 * log(2 * std::numbers::pi * target);
    loss = loss + where(target > 1, stirling, zeros_like(target));
  }
  return apply_reduction(loss, r);
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Operand& var, bool full, double eps,
                         std::string_view reduction) {
  const Reduction r = parse_reduction(reduction, "gaussian_nll_loss");
  Tensor variance = var.tensor();
  if (variance.is_wrapped_number()) variance = full_like(input, variance.item());
  // A variance per sample: (N, D) input with (N) variances.
  if (variance.sizes() != input.sizes() && variance.ndim() + 1 == input.ndim() &&
      IntSpan(input.sizes().first(variance.ndim())) == variance.sizes())
    variance = unsqueeze(variance, -1);
  int other = 0;  // how many dimensions differ, and are 1 in var
  bool fits = variance.ndim() == input.ndim();
  for (int d = 0; fits && d < input.ndim(); ++d)
    if (variance.size(d) != input.size(d)) fits = variance.size(d) == 1 && ++other == 1;
  TG_CHECK(fits, Value, "gaussian_nll_loss: var of shape {} does not fit input of shape {}",
           format_ints(variance.sizes()), format_ints(input.sizes()));
  if (!variance.is_meta() && !variance.is_batched() && variance.numel() > 0)
    TG_CHECK(!any(variance < 0).item<bool>(), Value, "gaussian_nll_loss: var has a negative entry");
  Tensor lacking;
  {
    NoGradGuard guard;
    lacking = where(logical_not(variance >= eps), eps - variance, 0);  // an infinite variance lacks nothing
  }
  const Tensor v = variance + lacking;  // the value of the clamp, the gradient of the variance
  Tensor loss = 0.5 * (log(v) + square(input - target) / v);
  if (full) loss = loss + 0.5 * std::log(2 * std::numbers::pi);
  return apply_reduction(loss, r);
}

}  // namespace tapegrad::composite
