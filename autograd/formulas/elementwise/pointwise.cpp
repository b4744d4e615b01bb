#include "tapegrad/autograd/formulas/elementwise/pointwise.h"

#include "tapegrad/aten/functions_activation.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_special.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/c10/dispatch/modes.h"

#include <cmath>
#include <limits>

namespace tapegrad::autograd {
namespace {
constexpr double kPi = 3.14159265358979323846;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kGeluCubic = 0.044715;
}  // namespace

Tensor scaled(const Tensor& grad, const Scalar& factor) {
  if (factor == Scalar(1)) return grad;
  if (factor == Scalar(-1)) return neg(grad);
  return mul(grad, factor.is_complex() ? Scalar(std::conj(factor.to<complex128_t>())) : factor);
}

Tensor pow_backward(const Tensor& grad, const Tensor& input, const Tensor& exponent) {
  if (exponent.is_wrapped_number()) {
    // As numbers: arithmetic between wrapped ones would round them to the default dtype.
    const Scalar p = exponent.item();
    if (p == Scalar(0)) return zeros_like(grad);
    const bool least = p.is_integral() && p.to<int64_t>() == std::numeric_limits<int64_t>::min();
    const Scalar less = p.is_complex()              ? Scalar(p.to<complex128_t>() - 1.0)
                        : p.is_integral() && !least ? Scalar(p.to<int64_t>() - 1)
                                                    : Scalar(p.to<double>() - 1);
    return grad * (tapegrad::pow(input, less) * p).conj();
  }
  return where(exponent == 0, 0, grad * (exponent * tapegrad::pow(input, exponent - 1)).conj());
}

Tensor pow_backward_exponent(const Tensor& grad, const Tensor& input, const Tensor& exponent, const Tensor& result) {
  // 0^x is constant for x > 0, and log(0) must not reach the product.
  Tensor flat = input == 0;
  if (!exponent.is_complex()) flat = logical_and(flat, exponent >= 0);
  if (input.is_wrapped_number() && !result.is_complex()) {
    // In full precision: as a tensor the number, and its logarithm, would have the default dtype.
    const double base = input.item().to<double>();
    return grad * (base == 0 ? where(exponent >= 0, 0, neg(result)) : result * std::log(base));
  }
  // Of a negative real base the logarithm is complex, where the result is.
  const bool fits = is_differentiable(input.dtype()) && input.is_complex() == result.is_complex();
  const Tensor base = fits ? input : input.to(result.dtype());
  return grad * where(flat, 0, result * log(masked_fill(base, flat, 1))).conj();
}

Tensor sgn_backward(const Tensor& grad, const Tensor& input, const Tensor& sgn) {
  if (!input.is_complex()) return zeros_like(grad);
  // Only the part of grad across the direction of input turns it.
  const Tensor across = grad - real(grad * sgn.conj()) * sgn;
  return where(input == 0, 0, across / input.abs());
}

Tensor nan_to_num_backward(const Tensor& grad, const Tensor& input) {
  if (input.is_complex()) return view_as_complex(nan_to_num_backward(view_as_real(grad), view_as_real(input)));
  return where(isfinite(input), grad, 0);
}

Tensor angle_backward(const Tensor& grad, const Tensor& input) {
  if (!input.is_complex()) return zeros_like(grad);
  const Tensor turned = input * Scalar(complex128_t(0, 1)) / square(input.abs());
  return where(input == 0, 0, grad * turned);
}

Tensor atan2_denominator(const Tensor& input, const Tensor& other) {
  const Tensor sum = square(input) + square(other);
  return masked_fill(sum, sum == 0, std::numeric_limits<double>::infinity());
}

// sqrt(pi) x erfcx(x) - 1 for x >= 8 as a function of 1 / (2 x^2) (DLMF 7.12.1).
static Tensor mills_rest(const Tensor& s) {
  const int last = s.dtype() == DType::float64 ? 25 : 13;
  Tensor sum = s * -last + 1;
  for (int odd = last - 2; odd >= 3; odd -= 2) sum = s * -odd * sum + 1;
  return neg(s) * sum;
}

Tensor erfcx_backward(const Tensor& grad, const Tensor& input, const Tensor& result) {
  // 2 x erfcx(x) - 2 / sqrt(pi), whose terms cancel for large x; in double there are enough digits up to 1000.
  if (!grad_enabled() && input.dtype() != DType::float64) {
    const Tensor x = to(input, DType::float64), s = square(reciprocal(x)) * 0.5;
    const Tensor slope = where(x > 1000, s * (s * 3 - 1) * kTwoOverSqrtPi, x * erfcx(x) * 2 - kTwoOverSqrtPi);
    return to(to(grad, DType::float64) * slope, input.dtype());
  }
  const Tensor large = reciprocal(clamp_min(input, 8));
  const Tensor tail = mills_rest(square(large) * 0.5) * kTwoOverSqrtPi;
  return grad * where(input > 8, tail, result * masked_fill(input, input > 8, 0) * 2 - kTwoOverSqrtPi);
}

Tensor log_ndtr_backward(const Tensor& grad, const Tensor& input) {
  // sqrt(2 / pi) / erfcx(-x / sqrt 2), in double since its square has to be exact.
  if (!grad_enabled() && input.dtype() != DType::float64)
    return to(to(grad, DType::float64) * kSqrt2OverPi / erfcx(to(input, DType::float64) * -kSqrtHalf), input.dtype());
  // The density over the distribution function: left of 0 both go to 0, and their scaled quotient does not.
  const Tensor left = clamp(input, -12, 0), right = masked_fill(input, input < 0, 0), far = clamp_max(input, -12);
  const Tensor density = exp(square(right) * -0.5) * kInvSqrt2Pi;
  const Tensor near = where(input < 0, kSqrt2OverPi / erfcx(left * -kSqrtHalf), density / ndtr(right));
  return grad * where(input < -12, neg(far) / (mills_rest(square(reciprocal(far))) + 1), near);
}

Tensor sinc_backward(const Tensor& grad, const Tensor& input) {
  const Tensor p = input * kPi;
  const Tensor divisor = p * input, vanishes = divisor == 0;  // at 0, and where the product is too small for the dtype
  // There a series keeps the second derivative, -pi^2 / 3, right.
  const Tensor near_zero = input * (-kPi * kPi / 3);
  return grad * where(vanishes, near_zero, (p * cos(p) - sin(p)) / masked_fill(divisor, vanishes, 1)).conj();
}

Tensor softsign_backward(const Tensor& grad, const Tensor& input) {
  // x / (1 + |x|): |x| moves with the part of the step along x alone.
  const Tensor size = input.abs() + 1;
  return grad / size - sgn(input) * (real(grad * input.conj()) / square(size));
}

Tensor silu_backward_complex(const Tensor& grad, const Tensor& input) {
  const Tensor s = sigmoid(input);
  return grad * (s * (input * (1 - s) + 1)).conj();
}

Tensor logit_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input, double eps) {
  const Tensor slope = (2 * input - 1) / square(input * (1 - input));
  const Tensor inner = grad * grad_output * slope;
  if (eps < 0) return inner;
  return where(logical_or(input < eps, input > 1 - eps), 0, inner);
}

// gelu'' = pdf(x) (2 - x^2)
Tensor gelu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input) {
  const Tensor s = square(input);
  return grad * grad_output * exp(s * -0.5) * ((2 - s) * kInvSqrt2Pi);
}

Tensor gelu_tanh_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input) {
  // With u = c (x + k x^3) and t = tanh u: f' = (1 + t) / 2 + x t' / 2, f'' = t' + x t'' / 2, where
  // t' = (1 - t^2) u' and t'' = (1 - t^2)(u'' - 2 t u'^2).
  const Tensor s = square(input);
  const Tensor t = tanh(input * (s * kGeluCubic + 1) * kSqrt2OverPi);
  const Tensor u1 = (s * (3 * kGeluCubic) + 1) * kSqrt2OverPi;
  const Tensor u2 = input * (6 * kGeluCubic * kSqrt2OverPi);
  const Tensor sech = 1 - square(t);
  const Tensor second = sech * (u1 + input * 0.5 * (u2 - t * square(u1) * 2));
  return grad * grad_output * second;
}

Tensor silu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input) {
  const Tensor s = sigmoid(input);
  return grad * grad_output * (s * (1 - s) * (2 + input * (1 - 2 * s)));
}

Tensor mish_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& input) {
  // f = x t with t = tanh(softplus x): f'' = 2 t' + x t'', where s is the sigmoid, t' = (1 - t^2) s and
  // t'' = (1 - t^2) (s (1 - s) - 2 t s^2).
  const Tensor s = sigmoid(input);
  const Tensor t = tanh(softplus(input));
  const Tensor sech = 1 - square(t);
  return grad * grad_output * sech * (2 * s + input * (s * (1 - s) - 2 * t * square(s)));
}

}  // namespace tapegrad::autograd
