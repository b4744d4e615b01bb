// Elements as they are stored in memory. For bool, any byte but 0 is true, including bytes that are uninitialised, come
// from a file or were written as another dtype (x.view(bool)). C++ compilers may assume that a bool is 0 or 1, so
// kernels read it as a byte. Shared by host and device.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

template <class T>
using stored_t = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;

template <class T>
TG_HD inline const stored_t<T>* stored(const T* p) {
  return reinterpret_cast<const stored_t<T>*>(p);
}

// The element of type T that is stored so.
template <class T>
TG_HD inline auto value_of(const stored_t<T>& x) {
  if constexpr (std::is_same_v<T, bool>)
    return x != 0;
  else
    return x;
}

// An element that lies in memory as a T.
template <class T>
TG_HD inline T seen(const T& x) {
  return value_of<T>(*stored(&x));
}

}  // namespace tapegrad
