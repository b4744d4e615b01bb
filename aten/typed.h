// Calls a generic lambda with the C++ type of a dtype, for subsets of the dtypes, so that a kernel is not
// compiled for types that its shape function refuses. A dtype outside of the subset is a bug of that shape
// function.
#pragma once

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

#define TG_TYPE(name, type) \
  case DType::name:         \
    return f.template operator()<type>();

// Floating types of at least 32 bits.
template <class F>
inline void dispatch_precision(DType t, F&& f) {
  switch (t) {
    TG_TYPE(float32, float)
    TG_TYPE(float64, double)
    default:
      TG_ASSERT(is_stored_only(t));
      throw_no_kernel_for(t);
  }
}

template <class F>
inline void dispatch_floating(DType t, F&& f) {
  switch (t) {
    TG_TYPE(bfloat16, BFloat16)
    TG_TYPE(float16, Half)
    default:
      return dispatch_precision(t, std::forward<F>(f));
  }
}

template <class F>
inline void dispatch_complex(DType t, F&& f) {
  switch (t) {
    TG_TYPE(complex64, complex64_t)
    TG_TYPE(complex128, complex128_t)
    default:
      TG_ASSERT(is_stored_only(t));
      throw_no_kernel_for(t);
  }
}

template <class F>
inline void dispatch_floating_complex(DType t, F&& f) {
  return is_complex(t) ? dispatch_complex(t, std::forward<F>(f)) : dispatch_floating(t, std::forward<F>(f));
}

// What LAPACK has routines for.
template <class F>
inline void dispatch_lapack(DType t, F&& f) {
  return is_complex(t) ? dispatch_complex(t, std::forward<F>(f)) : dispatch_precision(t, std::forward<F>(f));
}

template <class F>
inline void dispatch_integral(DType t, F&& f) {
  switch (t) {
    TG_TYPE(uint8, uint8_t)
    TG_TYPE(int8, int8_t)
    TG_TYPE(int16, int16_t)
    TG_TYPE(int32, int32_t)
    TG_TYPE(int64, int64_t)
    default:
      TG_ASSERT(is_stored_only(t));
      throw_no_kernel_for(t);
  }
}
#undef TG_TYPE

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

// The elements of a tensor of dtype T (of another type of the same bytes, where a kernel only moves them); null where
// the tensor is undefined.
template <class T>
inline const T* data_of(const Tensor& t) {
  return t.defined() ? static_cast<const T*>(t.data_ptr()) : nullptr;
}
template <class T>
inline T* target_of(const Tensor& t) {
  return t.defined() ? static_cast<T*>(t.data_ptr()) : nullptr;
}

}  // namespace tapegrad
