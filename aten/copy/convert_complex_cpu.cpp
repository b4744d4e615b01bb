#include "tapegrad/aten/copy/convert.h"

namespace tapegrad::cpu::TG_ISA {

const ConvertColumn& convert_to_complex(DType to) {
  return to == DType::complex64 ? convert_column<complex64_t>() : convert_column<complex128_t>();
}

}  // namespace tapegrad::cpu::TG_ISA
