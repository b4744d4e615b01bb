// 16-bit floats in kernels, by the device's own instructions; the same bits as c10/tensor/half.h gives.
#pragma once

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "tapegrad/cuda/launch/device_code.h"

namespace tapegrad::cuda {

#if defined(__CUDA_ARCH__)
TG_DEVICE float to_float(Half x) { return __half2float(__ushort_as_half(x.bits)); }
TG_DEVICE Half to_half(float x) { return Half::from_bits(__half_as_ushort(__float2half_rn(x))); }
TG_DEVICE BFloat16 to_bfloat16(float x) {
  return BFloat16::from_bits(x == x ? __bfloat16_as_ushort(__float2bfloat16_rn(x)) : BFloat16(x).bits);
}
#else
TG_HD inline float to_float(Half x) { return static_cast<float>(x); }
TG_HD inline Half to_half(float x) { return Half(x); }
TG_HD inline BFloat16 to_bfloat16(float x) { return BFloat16(x); }
#endif
TG_HD inline float to_float(BFloat16 x) { return static_cast<float>(x); }
TG_HD inline float to_float(float x) { return x; }
TG_HD inline double to_float(double x) { return x; }

// Elements of floating storage S computed in C (float for the 16-bit formats).
template <class S>
TG_DEVICE auto load_value(const S* p) {
  return to_float(*p);
}
template <class S, class C>
TG_DEVICE void store_value(S* p, C value) {
  if constexpr (std::is_same_v<S, Half>)
    *p = to_half(static_cast<float>(value));
  else if constexpr (std::is_same_v<S, BFloat16>)
    *p = to_bfloat16(static_cast<float>(value));
  else
    *p = static_cast<S>(value);
}

}  // namespace tapegrad::cuda
