// What a loop over the parts of gelu (aten/functors/math.h) or the short erf (elementary.h) calls where it is not
// vectorised. The headers are not included: they would have g++ make vector forms of these, too, under the names that
// vector_math_cpu.cpp defines.
#include <cmath>

extern "C" {
float tg_short_erff(float x) noexcept { return std::erf(x); }
float tg_normal_cdff(float x) noexcept { return 0.5F * std::erfc(x * -0.70710678F); }
float tg_gelu_slopef(float x) noexcept {
  return 0.5F * std::erfc(x * -0.70710678F) + x * (std::exp(-0.5F * x * x) * 0.39894228F);
}
}
