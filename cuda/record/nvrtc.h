// NVRTC: machine code from CUDA C++ text. Needs neither a header of it nor a device, so that a test can ask the real
// one.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tapegrad/cuda/runtime/kernel_compiler.h"

namespace tapegrad::cuda {

// `find`: a function of the library by its name. Raises Runtime for another version than CUDA 13's, and with the first
// line of what the compiler says.
TG_API std::string compile_cubin(const std::function<void*(const char*)>& find, int architecture,
                                 const std::string& text, std::span<const SourceFile> headers);

}  // namespace tapegrad::cuda
