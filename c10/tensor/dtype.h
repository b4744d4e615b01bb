// Element types. A dtype is spelled once, in TG_FORALL_DTYPES or, if tensors hold it and kernels do not compute with
// it, in TG_FORALL_STORED_DTYPES; every other list is derived from them.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/tensor/narrow.h"

namespace tapegrad {

using complex64_t = std::complex<float>;
using complex128_t = std::complex<double>;

// _(enumerator and Python name, C++ type). The order is the order of promotion inside a category.
#define TG_FORALL_DTYPES(_)             \
  _(bool_, bool)                        \
  _(uint8, uint8_t)                     \
  _(int8, int8_t)                       \
  _(int16, int16_t)                     \
  _(int32, int32_t)                     \
  _(int64, int64_t)                     \
  _(float16, ::tapegrad::Half)          \
  _(bfloat16, ::tapegrad::BFloat16)     \
  _(float32, float)                     \
  _(float64, double)                    \
  _(complex64, ::tapegrad::complex64_t) \
  _(complex128, ::tapegrad::complex128_t)

// In addition, dtypes whose tensors can only be stored, moved, compared for equality and converted, as in PyTorch;
// kernels for them would make the library larger by a quarter. Element by element float8 and complex32 are computed
// with as float32 and complex64. They come after the others, because promotion and ranges depend on the order of those.
#define TG_FORALL_STORED_DTYPES(_)               \
  TG_FORALL_DTYPES(_)                            \
  _(uint16, uint16_t)                            \
  _(uint32, uint32_t)                            \
  _(uint64, uint64_t)                            \
  _(float8_e4m3fn, ::tapegrad::Float8E4M3FN)     \
  _(float8_e5m2, ::tapegrad::Float8E5M2)         \
  _(float8_e4m3fnuz, ::tapegrad::Float8E4M3FNUZ) \
  _(float8_e5m2fnuz, ::tapegrad::Float8E5M2FNUZ) \
  _(float8_e8m0fnu, ::tapegrad::Float8E8M0FNU)   \
  _(complex32, ::tapegrad::ComplexHalf)

enum class DType : uint8_t {
#define TG_ENUM(name, type) name,
  TG_FORALL_STORED_DTYPES(TG_ENUM)
#undef TG_ENUM
};

inline constexpr int kNumDTypes = 21;
inline constexpr DType kAllDTypes[kNumDTypes] = {
#define TG_LIST(name, type) DType::name,
    TG_FORALL_STORED_DTYPES(TG_LIST)
#undef TG_LIST
};

template <class T>
struct dtype_of;
#define TG_DTYPE_OF(name, type)                 \
  template <>                                   \
  struct dtype_of<type> {                       \
    static constexpr DType value = DType::name; \
  };
TG_FORALL_STORED_DTYPES(TG_DTYPE_OF)
#undef TG_DTYPE_OF
template <class T>
inline constexpr DType dtype_of_v = dtype_of<T>::value;

template <class T>
inline constexpr bool is_complex_type = std::is_same_v<T, complex64_t> || std::is_same_v<T, complex128_t>;
template <class T>
inline constexpr bool is_half_type = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
inline constexpr bool is_floating_type = std::is_floating_point_v<T> || is_half_type<T>;

// The type in which arithmetic on T is done: float for the formats of 8 and 16 bits, complex64_t for complex32, T
// itself otherwise.
template <class T>
using compute_t = std::conditional_t<is_half_type<T> || is_float8_type<T>, float,
                                     std::conditional_t<is_narrow_type<T>, complex64_t, T>>;

constexpr size_t element_size(DType t) {
  constexpr uint8_t sizes[] = {
#define TG_SIZE(name, type) sizeof(type),
      TG_FORALL_STORED_DTYPES(TG_SIZE)
#undef TG_SIZE
  };
  return sizes[static_cast<int>(t)];
}

constexpr bool is_complex(DType t) { return t == DType::complex64 || t == DType::complex128 || t == DType::complex32; }
constexpr bool is_stored_only(DType t) { return t >= DType::uint16; }
constexpr bool is_wide_unsigned(DType t) { return t >= DType::uint16 && t <= DType::uint64; }
constexpr bool is_float8(DType t) { return t >= DType::float8_e4m3fn && t <= DType::float8_e8m0fnu; }
// Those with kernels: without float8.
constexpr bool is_floating_point(DType t) { return t >= DType::float16 && t <= DType::float64; }
constexpr bool is_integral(DType t) {  // without bool
  return (t >= DType::uint8 && t <= DType::int64) || is_wide_unsigned(t);
}
constexpr bool is_differentiable(DType t) {
  return (t >= DType::float16 && t <= DType::complex128) || t > DType::uint64;
}
constexpr bool is_signed(DType t) {
  return t != DType::bool_ && t != DType::uint8 && !is_wide_unsigned(t) && t != DType::float8_e8m0fnu;
}
constexpr bool is_half(DType t) { return t == DType::float16 || t == DType::bfloat16; }

// The dtype whose elements are the real and imaginary parts of t, and the reverse.
constexpr DType to_real(DType t) {
  return t == DType::complex64    ? DType::float32
         : t == DType::complex128 ? DType::float64
         : t == DType::complex32  ? DType::float16
                                  : t;
}
constexpr DType to_complex(DType t) {
  return is_complex(t) ? t : t == DType::float64 ? DType::complex128 : DType::complex64;
}
constexpr DType compute_dtype(DType t) {
  return is_half(t) || is_float8(t) ? DType::float32 : t == DType::complex32 ? DType::complex64 : t;
}
// For the unsigned ones that are only stored: the dtype with kernels that has the same width, for operations that only
// move elements or look at single bits.
constexpr DType bits_dtype(DType t) {
  return t == DType::uint16 ? DType::int16 : t == DType::uint32 ? DType::int32 : t == DType::uint64 ? DType::int64 : t;
}

TG_API std::string_view dtype_name(DType t);  // "float32", "bool", ...

// The dtype that holds values of both, as PyTorch's promote_types.
TG_API DType promote_types(DType a, DType b);
// Whether a result of type `from` may be written to a tensor of type `to` (complex -> real and
// float -> integer are refused, everything -> bool only from bool).
TG_API bool can_cast(DType from, DType to);

// Raised by a kernel for a dtype that it was not compiled for. The calling operator adds its name (name_operator).
struct TG_API NoKernelFor final : Error {
  explicit NoKernelFor(DType t);
};
[[noreturn]] TG_API TG_COLD void throw_no_kernel_for(DType t);
[[noreturn]] TG_API TG_COLD void name_operator(const NoKernelFor& error, const char* op);

#define TG_DISPATCH_CASE(name, type) \
  case DType::name:                  \
    return f.template operator()<type>();
// Calls f.template operator()<T>() with the C++ type of t. Raises NoKernelFor for storage-only dtypes.
template <class F>
decltype(auto) dispatch_dtype(DType t, F&& f) {
  switch (t) {
    TG_FORALL_DTYPES(TG_DISPATCH_CASE)
    default:
      break;
  }
  throw_no_kernel_for(t);
}

// The same for every dtype: for code that reads one element or is small.
template <class F>
decltype(auto) dispatch_stored(DType t, F&& f) {
  switch (t) { TG_FORALL_STORED_DTYPES(TG_DISPATCH_CASE) }
  __builtin_unreachable();
}
#undef TG_DISPATCH_CASE

}  // namespace tapegrad

template <>
struct fmt::formatter<tapegrad::DType> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(tapegrad::DType t, Context& context) const {
    return tapegrad::append_text(context.out(), tapegrad::dtype_name(t));
  }
};
