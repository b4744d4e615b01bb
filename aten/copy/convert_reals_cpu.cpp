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
    default:
      return convert_column<double>();
  }
}

}  // namespace tapegrad::cpu::TG_ISA
