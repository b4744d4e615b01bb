#include "tapegrad/aten/copy/convert.h"

namespace tapegrad::cpu::TG_ISA {

const ConvertColumn& convert_to_reals(DType to) {
  switch (to) {
    case DType::float16:
      return convert_column<Half>();
    case DType::bfloat16:
      return convert_column<BFloat16>();
    case DType::float32:
      return convert_column<float>();
    case DType::float8_e4m3fn:
      return convert_column<Float8E4M3FN>();
    case DType::float8_e5m2:
      return convert_column<Float8E5M2>();
    case DType::float8_e4m3fnuz:
      return convert_column<Float8E4M3FNUZ>();
    case DType::float8_e5m2fnuz:
      return convert_column<Float8E5M2FNUZ>();
    case DType::float8_e8m0fnu:
      return convert_column<Float8E8M0FNU>();
    default:
      return convert_column<double>();
  }
}

}  // namespace tapegrad::cpu::TG_ISA
