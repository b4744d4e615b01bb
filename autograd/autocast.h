// Autocast: within its scope, rows with the key `autocast` compute in another floating dtype than that of their
// arguments. State is per thread; kModeAutocast in the mode word tells operators whether autocast is enabled; the
// handler of their calls (aten/dispatch/call.h) casts the tensors and lets the operator and its parts run without the
// mode. The rules are PyTorch's for the CPU: doubles, integers and complex numbers are left alone; a leaf that needs a
// gradient is cast once and kept until the outermost scope ends, so that a weight used twice is cast once and its
// gradient passes through one cast.
#pragma once

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::autocast {

TG_API bool enabled(DeviceType device) noexcept;  // CPU, CUDA
TG_API void set_enabled(DeviceType device, bool value) noexcept;
TG_API DType dtype(DeviceType device) noexcept;
TG_API void set_dtype(DeviceType device, DType t);
TG_API bool cache_enabled() noexcept;
TG_API void set_cache_enabled(bool value) noexcept;
TG_API void clear_cache() noexcept;
// Counts nested scopes; gives the new count.
TG_API int change_nesting(int by) noexcept;

}  // namespace tapegrad::autocast
