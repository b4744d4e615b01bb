// DLPack: tensors over the memory of other libraries, both ways, through capsules.
#pragma once

#include "tapegrad/aten/tensor.h"
#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

// A capsule "dltensor_versioned", or the older "dltensor" when `versioned` is false.
PyRef to_dlpack(const Tensor& tensor, bool versioned, bool copied);
// Consumes the capsule. Raises Buffer-like Runtime errors for what tensors cannot hold. The storage keeps `guard`.
Tensor from_dlpack_capsule(PyObject* capsule, PyRef guard);
// (device type, device id) as DLPack counts them.
std::pair<int, int> dlpack_device(const Tensor& tensor);

}  // namespace tapegrad::python
