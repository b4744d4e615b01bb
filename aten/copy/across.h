// Copies out of memory that the CPU's kernels cannot read. The library of a device type hangs its own in when it is
// loaded; the CPU's copy_ calls it for sources of other devices.
#pragma once

#include <atomic>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

using CopyAcross = void (*)(const Tensor& self, const Tensor& src, bool non_blocking);
TG_API extern std::atomic<CopyAcross> copy_across;

// Calls it, or raises where the source has no memory that anybody could copy.
TG_API void copy_from_elsewhere(const Tensor& self, const Tensor& src, bool non_blocking);

}  // namespace tapegrad
