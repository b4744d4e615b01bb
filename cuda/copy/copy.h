// copy_ for any two tensors, one or both of them on a device.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::cuda {

// The route of the bytes depends on the two devices. Waits for the device only if the target is host memory and the
// copy cannot be asynchronous (the memory is not pinned, or non_blocking is false).
TG_API void copy_any(const Tensor& self, const Tensor& src, bool non_blocking);
// Every element of a tensor on a device; the value's bytes are of the tensor's dtype.
TG_API void fill_value(const Tensor& self, const Scalar& value);
void fill_cuda(const Tensor& self,
               const Operand& value);  // likewise, of a tensor without dimensions: the kernel of fill_
// All bytes of a dense tensor.
TG_API void zero_dense(const Tensor& self);

}  // namespace tapegrad::cuda
