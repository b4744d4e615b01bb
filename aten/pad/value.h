// The constant of a padding as what is moved: an element by its size alone.
#pragma once

#include <cstring>

#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/tensor/scalar.h"

namespace tapegrad::padding {

// f.operator()<T>(bits), T as dispatch_bytes gives it, of `value` in the dtype.
template <class F>
void with_bits(const Scalar& value, DType dtype, F&& f) {
  alignas(16) char bytes[16];
  dispatch_stored(dtype, [&]<class T>() {
    const T v = value.to<T>();
    std::memcpy(bytes, &v, sizeof v);
  });
  dispatch_bytes(dtype, [&]<class T>() {
    T bits;
    std::memcpy(static_cast<void*>(&bits), bytes, sizeof bits);
    f.template operator()<T>(bits);
  });
}

}  // namespace tapegrad::padding
