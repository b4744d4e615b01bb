// NVIDIA's libraries besides the runtime, opened on first use: the package works without those that are not used, and a
// missing one is an error of one sentence from the operator that needs it. They are searched in the run path of
// libtapegrad_cuda, then in the system's search path. A call of one of their functions:
//
//   TG_LIBRARY_CALL(cublas_lt(), cublasLtMatmul)(handle, ...)
//
// finds the function on first use, with the type that the library's header gives it. All functions from any thread.
#pragma once

#include <mutex>
#include <string>

#include "tapegrad/c10/macros.h"
#include "tapegrad/cuda/libraries/function.h"

namespace tapegrad::cuda {

class Library {
 public:
  // `files`: names to try, separated by spaces.
  Library(const char* name, const char* files) : name_(name), files_(files) {}
  const char* name() const noexcept { return name_; }
  bool available() noexcept;    // opens it
  std::string why_not();        // one sentence; "" where it is available
  void* symbol(const char* s);  // Runtime, with that sentence, or when the library has no such function
  template <class F>
  void find(LibraryFunction<F>& function, const char* s) {
    function.assign(symbol(s));
  }

 private:
  void open() noexcept;

  const char* name_;
  const char* files_;
  std::once_flag once_;
  void* handle_ = nullptr;
  std::string why_not_;
};

Library& cublas();
Library& cublas_lt();
Library& cudnn();
Library& nvrtc();  // kernels of chains; cuDNN compiles some with it, too
Library& cusolver();
Library& cufft();
Library& nccl();

std::string libraries_json();

#define TG_LIBRARY_CALL(library, function)                                            \
  ([] {                                                                               \
    static const ::tapegrad::cuda::LibraryFunction<decltype(::function)> tg_function( \
        reinterpret_cast<decltype(&::function)>((library).symbol(#function)));        \
    return tg_function;                                                               \
  }())

}  // namespace tapegrad::cuda
