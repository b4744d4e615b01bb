#include "tapegrad/aten/copy/convert.h"

namespace tapegrad::cpu::TG_ISA {

const ConvertColumn& convert_to_integers(DType to) {
  switch (to) {
    case DType::bool_:
      return convert_column<bool>();
    case DType::uint8:
      return convert_column<uint8_t>();
    case DType::int8:
      return convert_column<int8_t>();
    case DType::int16:
    case DType::uint16:
      return convert_column<int16_t>();
    case DType::int32:
      return convert_column<int32_t>();
    case DType::uint32:
      return convert_column<uint32_t>();
    case DType::uint64:
      return convert_column<uint64_t>();
    default:
      return convert_column<int64_t>();
  }
}

}  // namespace tapegrad::cpu::TG_ISA
