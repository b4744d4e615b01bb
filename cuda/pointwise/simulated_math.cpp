// The functions of aten/functors that libtapegrad defines for its own kernels only, for the simulated ones: as the
// functors have them on a device.
#if defined(TG_CUDA_SIMULATED)

#include <cmath>

extern "C" {
__attribute__((visibility("hidden"))) double tg_short_sin(double x) noexcept { return std::sin(x); }
__attribute__((visibility("hidden"))) double tg_short_cos(double x) noexcept { return std::cos(x); }
__attribute__((visibility("hidden"))) float tg_normal_cdff(float x) noexcept {
  return 0.5F * (1 + std::erf(x * 0.70710678F));
}
__attribute__((visibility("hidden"))) float tg_gelu_slopef(float x) noexcept {
  return tg_normal_cdff(x) + x * (std::exp(-0.5F * x * x) * 0.39894228F);
}
}

#endif
