#include "tapegrad/autograd/formulas/linalg/linalg.h"

#include <algorithm>
#include <cmath>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/formulas/elementwise/reduce.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {

Tensor conj_of(const Tensor& t) { return t.is_complex() ? conj(t) : t; }

Tensor adjoint_of(const Tensor& t) { return conj_of(transpose(t, -2, -1)); }

Scalar conj_of(const Scalar& s) { return s.is_complex() ? Scalar(std::conj(s.to<complex128_t>())) : s; }

Tensor sum_to(const Tensor& t, IntSpan sizes) {
  if (t.sizes() == sizes) return t;
  DimVector dims;
  int64_t extra = t.ndim() - static_cast<int64_t>(sizes.size());
  for (int64_t d = 0; d < t.ndim(); ++d)
    if (d < extra || (sizes[static_cast<size_t>(d - extra)] == 1 && t.size(d) != 1)) dims.push_back(d);
  return reshape(dims.empty() ? t : sum(t, OptionalInts(dims), true), sizes);
}

Tensor linear_grad_input(const Tensor& grad, const Tensor& weight) {
  if (weight.ndim() == 1) return mul(unsqueeze(grad, -1), conj_of(weight));
  return linear(grad, adjoint_of(weight));
}

Tensor linear_grad_weight(const Tensor& grad, const Tensor& input, IntSpan weight_sizes, IntSpan bias_sizes,
                          Tensor* bias_grad) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < input.ndim(); ++d) rows *= input.size(d);
  Tensor x = conj_of(reshape(input, {rows, weight_sizes.back()}));
  if (weight_sizes.size() == 1) return mv(transpose(x, 0, 1), reshape(grad, {grad.numel()}));
  int64_t n = weight_sizes[0];
  const Tensor by_rows = reshape(grad, {rows, n});
  if (bias_grad != nullptr && grad.is_cuda() && x.is_cuda() && bias_sizes.size() == 1 && bias_sizes[0] == n &&
      is_floating_point(grad.dtype())) {
    auto [both, sums] = _linear_parameter_grads(by_rows, x);
    *bias_grad = std::move(sums);
    return both;
  }
  return mm(transpose(by_rows, 0, 1), x);
}

Tensor linear_grad_bias(const Tensor& grad, IntSpan bias_sizes) {
  if (bias_sizes.empty()) return sum(grad);
  return sum_to(grad, bias_sizes);
}

namespace {

// By how much a distance in the p-norm grows with each difference of coordinates, times its gradient. In the maximum
// norm every coordinate that is as far apart as the points counts in full, as in PyTorch.
Tensor distance_slopes(const Tensor& grad, const Tensor& differences, const Tensor& distances, double p) {
  const int64_t last[] = {-1};
  if (!std::isinf(p))
    return autograd::norm_backward(grad, differences, distances, p, OptionalInts(IntSpan(last, 1)), false);
  const Tensor farthest = eq(abs(differences), unsqueeze(distances, -1));
  return where(farthest, mul(sgn(differences), unsqueeze(grad, -1)), 0);
}

}  // namespace

std::tuple<Tensor, Tensor> cdist_grad(const Tensor& grad, const Tensor& x1, const Tensor& x2, const Tensor& distances,
                                      double p) {
  const int64_t n = x1.size(1);
  if (n == 0 || x2.numel() == 0 || p == 0) return {zeros_like(x1), zeros_like(x2)};
  const bool has_slopes = p == 1 || p == 2 || std::isinf(p);
  if (!grad_enabled() && has_slopes && (x1.dtype() == DType::float32 || x1.dtype() == DType::float64)) {
    return {_cdist_grad(transpose(grad, 1, 2), x2, x1, transpose(distances, 1, 2), p),
            _cdist_grad(grad, x1, x2, distances, p)};
  }
  // Differences of some points of x1 from all of x2 at a time, so that they stay in the cache; all of them where they
  // are recorded themselves.
  constexpr int64_t kDifferences = 1 << 18;
  const int64_t each = std::max<int64_t>(1, x2.numel());
  const int64_t rows = grad_enabled() ? n : std::clamp<int64_t>(kDifferences / each, 1, std::max<int64_t>(n, 1));
  const Tensor others = unsqueeze(x2, 1);
  std::vector<Tensor> parts;
  Tensor for_x2;
  for (int64_t i = 0; i < n; i += rows) {
    const int64_t count = std::min(rows, n - i);
    auto part = [&](const Tensor& t) { return count == n ? t : narrow(t, 1, i, count); };
    const Tensor differences = sub(unsqueeze(part(x1), 2), others);
    const Tensor slopes = distance_slopes(part(grad), differences, part(distances), p);
    parts.push_back(sum(slopes, IntSpan{2}));
    const Tensor sums = sum(slopes, IntSpan{1});
    for_x2 = for_x2.defined() ? sub(for_x2, sums) : neg(sums);
  }
  return {parts.size() == 1 ? parts[0] : cat(parts, 1), for_x2};
}

}  // namespace tapegrad
