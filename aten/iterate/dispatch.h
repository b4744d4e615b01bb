// From a dtype to a C++ type: of the compute dtypes that an operator's row allows (only those are instantiated, and the
// 16-bit formats never come here: they are computed in float), or any type of the same size.
#pragma once

#include <utility>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

struct Bits16 {
  uint64_t low, high;
};

// By size only: for kernels that move elements and do no arithmetic. `Sixteen` is the type of 16 bytes.
template <class Sixteen = Bits16, class F>
inline decltype(auto) dispatch_bytes(size_t itemsize, F&& f) {
  switch (itemsize) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return f.template operator()<Sixteen>();
  }
}
template <class F>
inline decltype(auto) dispatch_bytes(DType t, F&& f) {
  return dispatch_bytes<complex128_t>(element_size(t), std::forward<F>(f));
}

}  // namespace tapegrad

namespace tapegrad::pointwise {

// Calls f.template operator()<T>() for the C++ type of `compute`. Bit i of Mask allows dtype i; the caller has
// checked that the bit is set (pointwise::run and reduce::run do).
template <uint16_t Mask, class F>
void dispatch(DType compute, F&& f) {
  switch (compute) {
#define TG_CASE(name, type)                                                                                            \
  case DType::name:                                                                                                    \
    if constexpr (!is_half_type<type> && ((Mask >> static_cast<int>(DType::name)) & 1)) f.template operator()<type>(); \
    return;
    TG_FORALL_DTYPES(TG_CASE)
#undef TG_CASE
    default:
      return;
  }
}

}  // namespace tapegrad::pointwise
