// The two functions of aten/functors/math.h that libtapegrad defines for its own kernels only, for the simulated ones.
#if defined(TG_CUDA_SIMULATED)

#include <cmath>

extern "C" {
__attribute__((visibility("hidden"))) float tg_normal_cdff(float x) noexcept {
  return 0.5F * (1 + std::erf(x * 0.70710678F));
}
__attribute__((visibility("hidden"))) float tg_gelu_slopef(float x) noexcept {
  return tg_normal_cdff(x) + x * (std::exp(-0.5F * x * x) * 0.39894228F);
}
}

#endif
