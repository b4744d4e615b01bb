#include "tapegrad/autograd/formulas/elementwise/reduce.h"

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_scan.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/formulas/rearrange/sort.h"

#include <cmath>

namespace tapegrad::autograd {
namespace {

OptionalInts optional_dim(const std::optional<int64_t>& dim) {
  return dim ? OptionalInts(IntSpan(&*dim, 1)) : OptionalInts();
}

// grad / result, and 0 where the result is 0; its own derivatives are 0 there, too, as nothing is divided by 0.
Tensor quotient(const Tensor& grad, const Tensor& result) {
  const Tensor none = result == 0;
  return where(none, 0, grad / masked_fill(result, none, 1));
}

}  // namespace

double reduced_count(IntSpan sizes, OptionalInts dim) {
  const auto ndim = static_cast<int64_t>(sizes.size());
  const uint64_t mask = dim_mask(dim, ndim, "mean");
  double n = 1;
  for (int64_t d = 0; d < ndim; ++d)
    if (mask >> d & 1) n *= static_cast<double>(sizes[static_cast<size_t>(d)]);
  return n;
}

Tensor expand_reduced(const Tensor& grad, IntSpan sizes, OptionalInts dim, bool keepdim) {
  Tensor g = grad;
  const auto ndim = static_cast<int64_t>(sizes.size());
  if (!keepdim && ndim > 0) {
    const uint64_t mask = dim_mask(dim, ndim, "sum");
    for (int64_t d = 0; d < ndim; ++d)
      if (mask >> d & 1) g = g.unsqueeze(d);
  }
  return g.expand(sizes);
}

Tensor prod_backward(const Tensor& grad, const Tensor& input, const Tensor& result, std::optional<int64_t> dim,
                     bool keepdim) {
  const Tensor g = expand_reduced(grad, input.sizes(), optional_dim(dim), keepdim);
  if (input.ndim() == 0) return g;
  if (!input.is_meta() && !input.is_batched() && !raw::any(raw::eq(input, 0)).item<bool>())
    return g * (expand_reduced(result, input.sizes(), optional_dim(dim), keepdim) / input).conj();
  // With zeros: the product of all others, from the left and from the right.
  const Tensor x = dim ? input : input.reshape({-1});
  const int64_t d = dim.value_or(0);
  const int64_t n = x.size(d);
  if (n == 0) return zeros_like(input);
  const Tensor one = ones_like(x.narrow(d, 0, 1));
  const std::array<Tensor, 2> before{one, x.narrow(d, 0, n - 1)};
  const std::array<Tensor, 2> behind{one, flip(x.narrow(d, 1, n - 1), {d})};
  const Tensor left = cumprod(cat(before, d), d);
  const Tensor right = flip(cumprod(cat(behind, d), d), {d});
  return g * (left * right).reshape(input.sizes()).conj();
}

Tensor extreme_backward(const Tensor& grad, const Tensor& input, const Tensor& result, OptionalInts dim, bool keepdim) {
  const Tensor best = expand_reduced(result, input.sizes(), dim, keepdim);
  // NaN is its own equal here.
  Tensor chosen = input == best;
  if (input.is_floating_point()) chosen = logical_or(chosen, logical_and(isnan(input), isnan(best)));
  const Tensor share = grad / sum(chosen, dim, keepdim);
  return where(chosen, expand_reduced(share, input.sizes(), dim, keepdim), 0);
}

Tensor place_backward(const Tensor& grad, IntSpan sizes, int64_t dim, const Tensor& indices, bool keepdim) {
  return chosen_grad(grad, sizes, dim, indices, !keepdim);
}

Tensor var_backward(const Tensor& grad, const Tensor& input, OptionalInts dim, bool keepdim, double correction) {
  const double freedom = reduced_count(input.sizes(), dim) - correction;
  const Tensor scaled = grad * (2.0 / std::max(freedom, 0.0));
  return expand_reduced(scaled, input.sizes(), dim, keepdim) * (input - mean(input, dim, true));
}

Tensor std_backward(const Tensor& grad, const Tensor& input, const Tensor& result, OptionalInts dim, bool keepdim,
                    double correction) {
  const Tensor of_variance = quotient(grad, result) * 0.5;
  return var_backward(of_variance, input, dim, keepdim, correction);
}

Tensor norm_backward(const Tensor& grad, const Tensor& input, const Tensor& result, double p, OptionalInts dim,
                     bool keepdim) {
  auto expanded = [&](const Tensor& t) { return expand_reduced(t, input.sizes(), dim, keepdim); };
  if (p == 0) return zeros_like(input);
  if (p == 1) return expanded(grad) * sgn(input);
  if (p == 2) return input * expanded(quotient(grad, result));
  const Tensor magnitude = abs(input);
  if (std::isinf(p)) {
    const Tensor chosen = magnitude == expanded(result);
    return expanded(grad / sum(chosen, dim, keepdim)) * where(chosen, sgn(input), 0);
  }
  // x |x|^(p - 2) / norm^(p - 1), 0 where the norm is 0; for p < 2 also where x is: there the power is taken of 1, so
  // that its infinite slope is in no second derivative, either.
  const Tensor none = result == 0;
  const Tensor scale = where(none, 0, grad / tapegrad::pow(masked_fill(result, none, 1), p - 1));
  if (p >= 2) return expanded(scale) * sgn(input) * tapegrad::pow(magnitude, p - 1);
  const Tensor zero = magnitude == 0;
  return expanded(scale) * sgn(input) * where(zero, 0, tapegrad::pow(where(zero, 1, magnitude), p - 1));
}

}  // namespace tapegrad::autograd
