// Kernels that are compiled while the program runs: by NVRTC (cuda/libraries/nvrtc.cpp), on a simulated device by the
// host's compiler (cuda/simulated/simulated_compiler.cpp), from the same text. All functions from any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

class SourceKernel {
 public:
  virtual ~SourceKernel() = default;
  // Queues it. Its one parameter is a structure of so many bytes, which is copied.
  virtual void launch(const Stream& stream, uint32_t blocks, uint32_t threads, const void* argument,
                      size_t nbytes) const = 0;
};

struct SourceFile {
  std::string_view name, text;
};

// Whether compile_kernel is to be asked at all: on a simulated device, whether a compiler was named.
TG_API bool compiles_kernels();
// The kernel `name` of a text, which may include the headers. Raises Runtime, in one sentence, where there is no
// compiler or it refuses.
TG_API std::shared_ptr<const SourceKernel> compile_kernel(int device, const char* name, const std::string& text,
                                                          std::span<const SourceFile> headers);

}  // namespace tapegrad::cuda
