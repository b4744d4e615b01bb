#include "tapegrad/autograd/formulas/linalg.h"

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

Tensor linear_grad_weight(const Tensor& grad, const Tensor& input, IntSpan weight_sizes) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < input.ndim(); ++d) rows *= input.size(d);
  Tensor x = conj_of(reshape(input, {rows, weight_sizes.back()}));
  if (weight_sizes.size() == 1) return mv(transpose(x, 0, 1), reshape(grad, {grad.numel()}));
  int64_t n = weight_sizes[0];
  return mm(transpose(reshape(grad, {rows, n}), 0, 1), x);
}

Tensor linear_grad_bias(const Tensor& grad, IntSpan bias_sizes) {
  if (bias_sizes.empty()) return sum(grad);
  return sum_to(grad, bias_sizes);
}

}  // namespace tapegrad
