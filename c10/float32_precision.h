// Whether products of float32 matrices may round their operands to fewer bits where a device is faster for it (TF32: 10
// bits of mantissa). Off until a program asks for it; the CPU never does.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad {

TG_API bool allow_tf32() noexcept;
TG_API void set_allow_tf32(bool allow) noexcept;

}  // namespace tapegrad
