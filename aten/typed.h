// Calls a generic lambda with the C++ type of a dtype, for subsets of the dtypes, so that a kernel is not
// compiled for types that its shape function refuses. A dtype outside of the subset is a bug of that shape
// function.
#pragma once

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

template <class F>
inline void dispatch_floating(DType t, F&& f) {
  switch (t) {
    case DType::float32:
      return f.template operator()<float>();
    case DType::float64:
      return f.template operator()<double>();
    case DType::bfloat16:
      return f.template operator()<BFloat16>();
    case DType::float16:
      return f.template operator()<Half>();
    default:
      TG_ASSERT(!"floating dtype");
  }
}

template <class F>
inline void dispatch_floating_complex(DType t, F&& f) {
  switch (t) {
    case DType::complex64:
      return f.template operator()<complex64_t>();
    case DType::complex128:
      return f.template operator()<complex128_t>();
    default:
      return dispatch_floating(t, std::forward<F>(f));
  }
}

template <class F>
inline void dispatch_integral(DType t, F&& f) {
  switch (t) {
    case DType::uint8:
      return f.template operator()<uint8_t>();
    case DType::int8:
      return f.template operator()<int8_t>();
    case DType::int16:
      return f.template operator()<int16_t>();
    case DType::int32:
      return f.template operator()<int32_t>();
    case DType::int64:
      return f.template operator()<int64_t>();
    default:
      TG_ASSERT(is_stored_only(t));
      throw_no_kernel_for(t);
  }
}

// Everything but bool.
template <class F>
inline void dispatch_numeric(DType t, F&& f) {
  if (is_integral(t)) return dispatch_integral(t, std::forward<F>(f));
  return dispatch_floating_complex(t, std::forward<F>(f));
}

template <class F>
inline void dispatch_real(DType t, F&& f) {
  if (is_integral(t)) return dispatch_integral(t, std::forward<F>(f));
  return dispatch_floating(t, std::forward<F>(f));
}

// By size only: for kernels that move elements and do no arithmetic.
template <class F>
inline void dispatch_bytes(DType t, F&& f) {
  switch (element_size(t)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return f.template operator()<complex128_t>();
  }
}

}  // namespace tapegrad
