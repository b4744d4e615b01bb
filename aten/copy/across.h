// Copies from memory that the CPU's kernels cannot read. The library of a device type registers its copy function when
// it is loaded; the CPU's copy_ calls it for sources on other devices.
#pragma once

#include <atomic>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

using CopyAcross = void (*)(const Tensor& self, const Tensor& src, bool non_blocking);
TG_API extern std::atomic<CopyAcross> copy_across;

// Calls the registered function; raises if the source has no memory that can be copied.
TG_API void copy_from_other_device(const Tensor& self, const Tensor& src, bool non_blocking);

}  // namespace tapegrad
