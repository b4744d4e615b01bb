#include "tapegrad/aten/copy/convert.h"

namespace tapegrad::cpu::TG_ISA {

const ConvertColumn& convert_to_complex(DType to) {
  if (to == DType::complex32) return convert_column<ComplexHalf>();
  return to == DType::complex64 ? convert_column<complex64_t>() : convert_column<complex128_t>();
}

}  // namespace tapegrad::cpu::TG_ISA
