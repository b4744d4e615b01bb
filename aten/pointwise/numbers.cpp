// Pointwise operators composed of others: powers in double, neighbours, complex numbers from their parts.
#include <cmath>

#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_maths.h"
#include "tapegrad/aten/kernels_pointwise.h"
#include "tapegrad/aten/kernels_special.h"

namespace tapegrad::composite {

Tensor float_power(const Operand& base, const Operand& exponent) {
  const Tensor &b = base, &e = exponent;
  const DType dtype = b.is_complex() || e.is_complex() ? DType::complex128 : DType::float64;
  // Numbers stay numbers: their dtype counts by its category only.
  const Operand lifted = b.is_wrapped_number() ? base : Operand(to(b, dtype));
  if (e.is_wrapped_number()) return tapegrad::pow(lifted, exponent);
  return tapegrad::pow(lifted, to(e, dtype));
}

Tensor ldexp(const Tensor& input, const Tensor& other) {
  if (!input.is_floating_point() || is_differentiable(other.dtype())) return mul(input, tapegrad::pow(2.0, other));
  TG_CHECK(other.dtype() != DType::bool_, NotImplemented, "ldexp: not implemented for powers of dtype bool");
  return _ldexp(input, other);
}

// float32 and float64 have a kernel; a 16-bit number's neighbours differ by one in its bits. What the tape sees of
// those is float32's.
Tensor nextafter(const Tensor& input, const Tensor& other) {
  const DType dtype = promote_types(input.dtype(), other.dtype());
  if (!is_half(dtype)) return _nextafter(input, other);
  const Tensor result = to(_nextafter(to(input, DType::float32), to(other, DType::float32)), dtype);
  NoGradGuard guard;
  const Tensor a = contiguous(expand(to(input, dtype), result.sizes())), b = to(other, dtype);
  const Tensor bits = _view_dtype(a, DType::int16);
  const Tensor away = eq(lt(a, b), gt(a, 0));  // away from zero: the bits grow
  const Tensor stepped = _view_dtype(where(away, bits + 1, bits - 1), dtype);
  const Tensor smallest = _view_dtype(full(IntSpan(), 1, DType::int16, a.device()), dtype);
  const Tensor from_zero = where(eq(a, 0), copysign(smallest, b), stepped);
  copy_(result, where(logical_or(isnan(a), isnan(b)), a + b, where(eq(a, b), b, from_zero)));
  return result;
}

Tensor complex_of(const Tensor& real, const Tensor& imag) {
  TG_CHECK(real.dtype() == imag.dtype(), Runtime, "complex: expected both parts in one dtype: got {} and {}",
           real.dtype(), imag.dtype());
  TG_CHECK(real.dtype() == DType::float32 || real.dtype() == DType::float64, Runtime,
           "complex: expected parts of dtype float32 or float64: got {}", real.dtype());
  const std::vector<Tensor> parts = broadcast_tensors(std::vector<Tensor>{real, imag});
  return view_as_complex(stack(parts, -1));
}

Tensor polar(const Tensor& abs, const Tensor& angle) {
  TG_CHECK(abs.dtype() == angle.dtype(), Runtime, "polar: expected magnitudes and angles in one dtype: got {} and {}",
           abs.dtype(), angle.dtype());
  TG_CHECK(abs.dtype() == DType::float32 || abs.dtype() == DType::float64, Runtime,
           "polar: expected magnitudes of dtype float32 or float64: got {}", abs.dtype());
  return complex_of(abs * cos(angle), abs * sin(angle));
}

Tensor isreal(const Tensor& input) {
  if (input.is_complex()) return eq(tapegrad::imag(input), 0);
  return ones_like(input, DType::bool_);
}

Tensor mvlgamma(const Tensor& input, int64_t p) {
  const Tensor x = is_differentiable(input.dtype()) ? input : to(input, default_dtype());
  const double dimension = static_cast<double>(p);
  const Tensor shifts = arange(0, -p, -1, x.dtype(), x.device()) * 0.5;
  const int64_t last[] = {-1};
  return sum(lgamma(unsqueeze(x, -1) + shifts), OptionalInts(IntSpan(last, 1))) +
         dimension * (dimension - 1) / 4 * std::log(3.14159265358979323846);
}

}  // namespace tapegrad::composite
