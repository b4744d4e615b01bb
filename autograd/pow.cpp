// Powers with a number as exponent: frequent exponents have formulas of their own, a few times faster than the general
// power and more exact.
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/autograd/saved_tensor.h"

namespace tapegrad {
namespace autograd {
namespace {

// A root or the reciprocal, as a power: what is saved is the base, and the result may be written to, which it may not
// where sqrt, rsqrt and reciprocal themselves are called.
struct PowNode final : Node {
  PowNode(const Tensor& input, double p) : exponent(p) { add_edge(*this, input), base = SavedTensor(input); }
  const char* name() const override { return "PowBackward0"; }
  void release_saved() noexcept override { base.release(); }
  void visit_saved(const SavedVisitor& visit) const override { visit("self", base); }
  GradList apply(GradList grads) override {
    const Tensor x = base.unpack(*this);
    // Of a complex infinity the roots and the square are NaN, and the power is not.
    const Tensor slope = x.is_complex()   ? mul(tapegrad::pow(x, exponent - 1), exponent)
                         : exponent == -1 ? neg(square(reciprocal(x)))
                         : exponent < 0   ? mul(mul(rsqrt(x), reciprocal(x)), -0.5)
                                          : mul(rsqrt(x), 0.5);
    return {mul(grads[0], slope.conj())};
  }

  SavedTensor base;
  const double exponent;
};

Tensor recorded(const Tensor& result, const Tensor& input, double exponent) {
  if (grad_enabled() && needs_grad(input)) set_history(result, make_intrusive<PowNode>(input, exponent));
  return result;
}

}  // namespace
}  // namespace autograd

namespace composite {

Tensor pow(const Operand& base, const Operand& exponent) {
  const Tensor& input = base;
  const Tensor& power = exponent;
  if (power.is_wrapped_number() && !is_complex(power.dtype())) {
    const Scalar value = power.item();
    const double p = value.to<double>();
    const bool integers = !is_differentiable(input.dtype()) && value.is_integral();
    TG_CHECK(!(integers && p < 0), Runtime,
             "pow: integers to negative integer powers are not integers: got exponent {}", p);
    if (integers && input.dtype() != DType::bool_) check_number("pow", value, input.dtype());
    // A power of floating kind lifts integers to the default floating dtype; leave that to the general form.
    if (input.dtype() != DType::bool_ && (value.is_integral() || is_differentiable(input.dtype()))) {
      if (p == 2) return square(input);
      if (p == 3) return _cube(input);
      if (p == 0.5) return autograd::recorded(raw::sqrt(input), input, p);
      if (p == -0.5) return autograd::recorded(raw::rsqrt(input), input, p);
      if (p == -1) return autograd::recorded(raw::reciprocal(input), input, p);
    }
  }
  return _pow(base, exponent);
}

}  // namespace composite
}  // namespace tapegrad
