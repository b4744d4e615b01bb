// A function of one of NVIDIA's libraries. Any of them may allocate, load code or make events when it is first called,
// which a capture forbids, so all are called with a RelaxedCapture: tables of functions (cudnn/api.h, nccl/api.h) and
// TG_LIBRARY_CALL (libraries/library.h) hold them as this type.
#pragma once

#include <concepts>

#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {

template <class F>
class LibraryFunction;

template <class R, class... A>
class LibraryFunction<R(A...)> {
 public:
  constexpr LibraryFunction() = default;
  template <std::convertible_to<R (*)(A...)> F>
  constexpr LibraryFunction(F function) : function_(function) {}  // NOLINT(google-explicit-constructor)
  R operator()(A... arguments) const {
    const RelaxedCapture relaxed;
    return function_(arguments...);
  }
  // As dlsym gives it.
  void assign(void* symbol) { function_ = reinterpret_cast<R (*)(A...)>(symbol); }

 private:
  R (*function_)(A...) = nullptr;
};

}  // namespace tapegrad::cuda
