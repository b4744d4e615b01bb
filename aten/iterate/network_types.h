// The dtypes of kernels for networks: float32 and the two of 16 bits.
#pragma once

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

// Calls f.template operator()<T>() for the C++ type of `t`, which the caller has checked to be one of them.
template <class F>
void dispatch_network(DType t, F&& f) {
  if (t == DType::float32) return f.template operator()<float>();
  if (t == DType::bfloat16) return f.template operator()<BFloat16>();
  f.template operator()<Half>();
}

}  // namespace tapegrad
