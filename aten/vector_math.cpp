// Scalar versions of the parts of gelu and the short forms (aten/functors/math.h), called by loops that are not
// vectorised. The headers are not included: with them g++ would generate vector forms of these, too, under the names
// that vector_math_cpu.cpp defines.
#include <cmath>

extern "C" {
double tg_short_sin(double x) noexcept { return std::sin(x); }
double tg_short_cos(double x) noexcept { return std::cos(x); }
float tg_short_erff(float x) noexcept { return std::erf(x); }
float tg_short_expf(float x) noexcept { return std::exp(x); }
float tg_short_logf(float x) noexcept { return std::log(x); }
float tg_normal_cdff(float x) noexcept { return 0.5F * std::erfc(x * -0.70710678F); }
float tg_short_normal_cdff(float x) noexcept { return tg_normal_cdff(x); }
float tg_gelu_slopef(float x) noexcept {
  return 0.5F * std::erfc(x * -0.70710678F) + x * (std::exp(-0.5F * x * x) * 0.39894228F);
}
}
