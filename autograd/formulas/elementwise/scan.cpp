#include "tapegrad/autograd/formulas/elementwise/scan.h"

#include <limits>

#include "tapegrad/aten/functions.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::autograd {

Tensor sum_along(const Tensor& t, int64_t dim) {
  const int64_t dims[] = {dim};
  return sum(t, OptionalInts(IntSpan(dims, 1)), true);
}

namespace {

Tensor reverse_cumsum(const Tensor& t, int64_t dim) { return flip(cumsum(flip(t, {dim}), dim), {dim}); }

bool has_zero(const Tensor& t) {
  NoGradGuard guard;
  return any(eq(t, 0)).item<bool>();
}

}  // namespace

Tensor cumprod_backward(const Tensor& grad, const Tensor& input, int64_t dim, const Tensor& output) {
  if (input.ndim() == 0 || input.numel() == 0) return grad;
  const Tensor x = input.dtype() == grad.dtype() ? input : to(input, grad.dtype());
  if (!has_zero(x)) return to(div(reverse_cumsum(grad * output.conj(), dim), x.conj()), input.dtype());
  // x_k: sum over i >= k of g_i times the product of x_j, j <= i, j != k.
  const int64_t n = x.size(dim);
  std::vector<Tensor> parts;
  for (int64_t k = 0; k < n; ++k) {
    const Tensor ones = ones_like(narrow(x, dim, k, 1));
    std::vector<Tensor> pieces = {narrow(x, dim, 0, k), ones, narrow(x, dim, k + 1, n - k - 1)};
    const Tensor products = cumprod(cat(pieces, dim), dim);
    parts.push_back(sum_along(narrow(grad, dim, k, n - k) * narrow(products, dim, k, n - k).conj(), dim));
  }
  return to(cat(parts, dim), input.dtype());
}

Tensor logcumsumexp_backward(const Tensor& grad, const Tensor& input, const Tensor& output, int64_t dim) {
  if (grad.ndim() == 0 || grad.numel() == 0) return grad;
  // The lowest number stands for log(0): infinities would cancel to NaN in derivatives of this formula.
  const bool wide = grad.dtype() == DType::float64 || grad.dtype() == DType::complex128;
  const double lowest = wide                             ? std::numeric_limits<double>::lowest()
                        : grad.dtype() == DType::float16 ? -65504.0
                                                         : -3.3e38;
  const Tensor nothing = full_like(grad, lowest);
  auto reverse = [&](const Tensor& log_grad) {
    return exp(flip(logcumsumexp(flip(log_grad - output.conj(), {dim}), dim), {dim}) + input.conj());
  };
  if (grad.is_complex()) {
    const Tensor some = ne(grad, 0);
    return reverse(where(some, log(where(some, grad, 1)), nothing));
  }
  const Tensor log_magnitude = log(abs(grad));
  const Tensor positive = reverse(where(grad > 0, log_magnitude, nothing));
  const Tensor negative = reverse(where(grad < 0, log_magnitude, nothing));
  return positive - negative;
}

}  // namespace tapegrad::autograd
