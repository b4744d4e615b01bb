// Conversion of one element between any two element types, as `to(dtype)` does it. Shared by host and device.
#pragma once

#include <type_traits>

#include "tapegrad/c10/dtype.h"

namespace tapegrad {

// Anything to bool asks "is it not zero" (NaN is true); complex to real drops the imaginary part; floating to a
// narrow integer goes through a wider one, so that values out of its range wrap as integers do.
template <class To, class From>
TG_HD inline To cast_element(From v) {
  if constexpr (std::is_same_v<To, From>) {
    return v;
  } else if constexpr (is_half_type<From>) {
    return cast_element<To>(static_cast<float>(v));
  } else if constexpr (is_complex_type<From>) {
    using R = typename From::value_type;
    if constexpr (is_complex_type<To>)
      return To(static_cast<typename To::value_type>(v.real()), static_cast<typename To::value_type>(v.imag()));
    else if constexpr (std::is_same_v<To, bool>)
      return v.real() != R(0) || v.imag() != R(0);
    else
      return cast_element<To>(v.real());
  } else if constexpr (is_complex_type<To>) {
    return To(static_cast<typename To::value_type>(v), 0);
  } else if constexpr (is_half_type<To>) {
    return To(static_cast<float>(v));
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && sizeof(To) < 4) {
    using Wide = std::conditional_t<sizeof(From) == 4, int32_t, int64_t>;
    return static_cast<To>(static_cast<Wide>(v));
  } else {
    return static_cast<To>(v);
  }
}

}  // namespace tapegrad
