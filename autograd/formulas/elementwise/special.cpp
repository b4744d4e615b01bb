#include "tapegrad/autograd/formulas/elementwise/special.h"

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_special.h"

namespace tapegrad::autograd {

Tensor no_gradient(std::string_view op, std::string_view argument) {
  TG_THROW(NotImplemented, "{}: the derivative with respect to {} is not implemented", op, argument);
}

namespace {
// result / x, and 1/2 near 0: the limit for functions that begin with x / 2, which has no digits left where x has few.
Tensor quotient(const Tensor& result, const Tensor& input) {
  const Tensor at_zero = abs(input) < 1e-20;
  return where(at_zero, 0.5, result / masked_fill(input, at_zero, 1));
}
}  // namespace

Tensor i0e_backward(const Tensor& grad, const Tensor& input, const Tensor& result) {
  return grad * (i1e(input) - sgn(input) * result);
}
Tensor i1_backward(const Tensor& grad, const Tensor& input, const Tensor& result) {
  return grad * (i0(input) - quotient(result, input));
}
Tensor i1e_backward(const Tensor& grad, const Tensor& input, const Tensor& result) {
  return grad * (i0e(input) - quotient(result, input) - sgn(input) * result);
}
Tensor bessel_j1_backward(const Tensor& grad, const Tensor& input, const Tensor& result) {
  return grad * (bessel_j0(input) - quotient(result, input));
}
Tensor spherical_bessel_j0_backward(const Tensor& grad, const Tensor& input, const Tensor& result) {
  const Tensor at_zero = input == 0;
  return grad * masked_fill((cos(input) - result) / masked_fill(input, at_zero, 1), at_zero, 0);
}

}  // namespace tapegrad::autograd
