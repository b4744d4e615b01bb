// Pointwise operators that choose among others; see aten/ops/pointwise.toml and compare.toml.
#include "tapegrad/aten/functors/arithmetic.h"
#include "tapegrad/aten/iterate/limits.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {

namespace fn {
void throw_zero_division() { TG_THROW(Runtime, "division: an integer was divided by zero"); }
}  // namespace fn

namespace composite {

Tensor div(const Tensor& input, const Operand& other, std::optional<std::string_view> rounding_mode) {
  if (!rounding_mode) return true_divide(input, other);
  return *rounding_mode == "floor" ? _floor_divide(input, other) : _trunc_divide(input, other);
}

// Frequent exponents have formulas of their own, a few times faster than the general power and more exact.
Tensor pow(const Operand& base, const Operand& exponent) {
  const Tensor& input = base;
  const Tensor& power = exponent;
  if (power.is_wrapped_number() && !is_complex(power.dtype())) {
    const Scalar value = power.item();
    const double p = value.to<double>();
    const bool integers = !is_differentiable(input.dtype()) && value.is_integral();
    TG_CHECK(!(integers && p < 0), Runtime,
             "pow: integers to negative integer powers are not integers: got exponent {}", p);
    // A power of floating kind lifts integers to the default floating dtype; leave that to the general form.
    if (input.dtype() != DType::bool_ && (value.is_integral() || is_differentiable(input.dtype()))) {
      if (p == 2) return square(input);
      if (p == 3) return _cube(input);
      if (p == 0.5) return sqrt(input);
      if (p == -0.5) return rsqrt(input);
      if (p == -1) return reciprocal(input);
    }
  }
  return _pow(base, exponent);
}

Tensor nan_to_num(const Tensor& input, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  const double largest = largest_number(input.dtype());
  return _nan_to_num(input, nan, posinf.value_or(largest), neginf.value_or(-largest));
}

bool equal(const Tensor& input, const Tensor& other) {
  TG_CHECK(input.device() == other.device(), Runtime, "equal: expected all tensors on one device: got {} and {}",
           input.device(), other.device());
  if (!(input.sizes() == other.sizes())) return false;
  if (input.numel() == 0) return true;
  return raw::eq(input, other).all().item<bool>();
}

}  // namespace composite
}  // namespace tapegrad
