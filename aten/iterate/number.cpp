#include "tapegrad/aten/iterate/number.h"

#include <cmath>

#include "tapegrad/aten/iterate/limits.h"
#include "tapegrad/c10/error.h"

namespace tapegrad {
namespace {

bool real_fits(double x, DType dtype) {
  if (!is_integral(dtype)) return !(std::abs(x) > largest_number(dtype)) || std::isinf(x);
  const int bits = 8 * static_cast<int>(element_size(dtype)) - is_signed(dtype);
  // One above the largest is a power of two; the largest of int64 is no double.
  const double end = std::ldexp(1.0, bits);
  return x >= (is_signed(dtype) ? -end : 0.0) && (bits > 52 ? x < end : x <= end - 1);
}

bool integer_fits(int64_t x, DType dtype) {
  if (!is_integral(dtype)) return real_fits(static_cast<double>(x), dtype);
  const int bits = 8 * static_cast<int>(element_size(dtype)) - is_signed(dtype);
  if (bits >= 63) return true;
  const int64_t end = int64_t{1} << bits;
  return x < end && (is_signed(dtype) ? x >= -end : x > -end);
}

}  // namespace

bool number_fits(const Scalar& number, DType dtype) {
  if (dtype == DType::bool_ || number.is_bool()) return true;
  if (number.is_complex()) {
    const complex128_t z = number.to<complex128_t>();
    return real_fits(z.real(), dtype) && (is_complex(dtype) ? real_fits(z.imag(), dtype) : z.imag() == 0);
  }
  if (!number.is_integral() || !is_integral(dtype)) return real_fits(number.to<double>(), dtype);
  if (number.exact_dtype() != DType::int64) return dtype == number.exact_dtype();  // from 2^63 on
  return integer_fits(number.to<int64_t>(), dtype);
}

void check_number_fits(const char* op, const Scalar& number, DType dtype) {
  TG_CHECK(number_fits(number, dtype), Runtime, "{}: value cannot be converted to type {} without overflow: {}", op,
           dtype, to_string(number));
}

}  // namespace tapegrad
