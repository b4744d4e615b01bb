// Whether a function of a library's header has the signature that a table of functions gives it: handles and arrays
// are pointers there, enumerations ints.
#pragma once

#include <type_traits>

#include "tapegrad/cuda/libraries/function.h"

namespace tapegrad::cuda {

template <class T>
using Plain = std::conditional_t<std::is_enum_v<T>, int, std::conditional_t<std::is_pointer_v<T>, void*, T>>;
template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using Type = Plain<R>(Plain<A>...);
};
template <class F>
struct Signature<LibraryFunction<F>> : Signature<F*> {};
template <class F>
using SignatureOf = typename Signature<std::remove_cvref_t<F>>::Type;

}  // namespace tapegrad::cuda
