// Extreme values of dtypes.
#pragma once

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

// The largest finite number of a dtype (of the parts of a complex one).
inline double largest_number(DType t) {
  switch (t) {
    case DType::float16:
      return 65504.0;
    case DType::bfloat16:
      return static_cast<double>(static_cast<float>(BFloat16::from_bits(0x7f7f)));
    case DType::float32:
    case DType::complex64:
      return std::numeric_limits<float>::max();
    case DType::float64:
    case DType::complex128:
      return std::numeric_limits<double>::max();
    case DType::complex32:
      return 65504.0;
    case DType::float8_e4m3fn:
      return 448.0;
    case DType::float8_e4m3fnuz:
      return 240.0;
    case DType::float8_e5m2:
    case DType::float8_e5m2fnuz:
      return 57344.0;
    case DType::float8_e8m0fnu:
      return 0x1p127;
    default:
      return 0;  // integers have no infinities to replace
  }
}

}  // namespace tapegrad
