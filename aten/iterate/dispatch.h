// From a compute dtype to its C++ type, for the types that an operator's row allows. Only those are
// instantiated. The 16-bit formats never come here: they are computed in float.
#pragma once

#include "tapegrad/c10/tensor/dtype.h"

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
