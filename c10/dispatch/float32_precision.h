// Whether products of float32 matrices may round their operands to fewer bits where a device is faster for it (TF32: 10
// bits of mantissa). Off by default; never used on the CPU.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad {

TG_API bool allow_tf32() noexcept;
TG_API void set_allow_tf32(bool allow) noexcept;

}  // namespace tapegrad
