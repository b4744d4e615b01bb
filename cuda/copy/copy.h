// copy_ for any two tensors, one or both of them on a device.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::cuda {

// Which way the bytes go is decided by the devices. Waits for the device only where the target is memory of the host
// that the copy cannot reach later (not pinned, or not asked for by non_blocking).
TG_API void copy_any(const Tensor& self, const Tensor& src, bool non_blocking);
// Every element of a tensor on a device; the value's bytes are of the tensor's dtype.
TG_API void fill_value(const Tensor& self, const Scalar& value);
// All bytes of a dense tensor.
TG_API void zero_dense(const Tensor& self);

}  // namespace tapegrad::cuda
