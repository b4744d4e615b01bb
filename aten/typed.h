// Calls a generic lambda with the C++ type of a dtype, for subsets of the dtypes, so that a kernel is not
// compiled for types that its shape function refuses. A dtype outside of the subset is a bug of that shape
// function.
#pragma once

#include <cmath>
#include <complex>

#include "tapegrad/aten/iterate/dispatch.h"
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

// Integers wrap around, so sums and products of signed and unsigned ones have the same bits: kernels for these need no
// code of their own for signed ones.
template <class T>
struct UnsignedOf {
  using type = T;
};
template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>)
struct UnsignedOf<T> {
  using type = std::make_unsigned_t<T>;
};
template <class T>
using unsigned_t = typename UnsignedOf<T>::type;

// a * b, rounded in the same way in every loop that it becomes part of: which of the products a compiler fuses with the
// sum differs from loop to loop.
template <class R>
TG_INLINE std::complex<R> complex_product(std::complex<R> a, std::complex<R> b) {
  const R re = std::fma(a.real(), b.real(), -(a.imag() * b.imag()));
  const R im = std::fma(a.real(), b.imag(), a.imag() * b.real());
  if (TG_UNLIKELY((re != re) & (im != im))) return a * b;  // infinities, as the standard has it
  return {re, im};
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
