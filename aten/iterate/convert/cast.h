// Conversion of one element between any two element types, as in `to(dtype)`. Shared by host and device.
#pragma once

#include <type_traits>

#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad {

// C++ types of dtypes that are only stored.
template <class T>
inline constexpr bool is_stored_only_type =
    std::is_same_v<T, uint16_t> || std::is_same_v<T, uint32_t> || std::is_same_v<T, uint64_t>;

// A conversion from or to such a type is that from or to the signed type of its width wherever the bits are the same,
// so that both share one function.
template <class To, class From>
using converted_from =
    typename std::conditional_t<is_stored_only_type<From> && std::is_integral_v<To> && (sizeof(To) <= sizeof(From)),
                                std::make_signed<From>, std::type_identity<From>>::type;
template <class To, class From>
using converted_to =
    typename std::conditional_t<is_stored_only_type<To> && (std::is_integral_v<From> || sizeof(To) == 2),
                                std::make_signed<To>, std::type_identity<To>>::type;

// float8 and complex32 have functions from and to their compute type (float, complex64) alone: others go by way of it.
template <class To, class From>
using conversion_way = compute_t<std::conditional_t<is_narrow_type<From>, From, To>>;
template <class To, class From>
inline constexpr bool goes_by_way =
    (is_narrow_type<To> || is_narrow_type<From>) && !std::is_same_v<To, From> &&
    !std::is_same_v<To, conversion_way<To, From>> && !std::is_same_v<From, conversion_way<To, From>>;

// Floating to uint32_t or uint64_t: numbers below zero wrap as integers do, with every instruction set.
template <class To, class From>
TG_HD inline To wrapped_unsigned(From v) {
  if constexpr (sizeof(To) == 8)
    if (v >= From(0x1p63))
      return static_cast<To>(static_cast<uint64_t>(static_cast<int64_t>(v - From(0x1p63))) ^ (uint64_t{1} << 63));
  return static_cast<To>(static_cast<int64_t>(v));
}

// Anything to bool means "not zero" (NaN is true); complex to real drops the imaginary part; floating to a narrow
// integer goes through a wider one, so that values out of its range wrap as integers do.
// `Wide`: that wider one; by default as many bits as From has.
template <class To, class Wide = void, class From>
TG_HD inline To cast_element(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (is_half_type<From> || is_narrow_type<From>) {
    return cast_element<To, Wide>(static_cast<compute_t<From>>(v));
  } else if constexpr (is_narrow_type<To>) {
    return To(cast_element<compute_t<To>>(v));
  } else if constexpr (is_complex_type<From>) {
    using R = typename From::value_type;
    if constexpr (is_complex_type<To>)
      return To(static_cast<typename To::value_type>(v.real()), static_cast<typename To::value_type>(v.imag()));
    else if constexpr (std::is_same_v<To, bool>)
      return v.real() != R(0) || v.imag() != R(0);
    else
      return cast_element<To, Wide>(v.real());
  } else if constexpr (is_complex_type<To>) {
    return To(static_cast<typename To::value_type>(v), 0);
  } else if constexpr (is_half_type<To>) {
    return To(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 4) {
    using Own = std::conditional_t<sizeof(From) == 4, int32_t, int64_t>;
    return static_cast<To>(static_cast<std::conditional_t<std::is_void_v<Wide>, Own, Wide>>(v));
  } else if constexpr (std::is_floating_point_v<From> && is_stored_only_type<To>) {
    return wrapped_unsigned<To>(v);
  } else {
    return static_cast<To>(v);
  }
}

}  // namespace tapegrad
