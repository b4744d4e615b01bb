// NumPy arrays and tensors over the same memory, both ways.
#pragma once

#include <optional>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/bindings/exchange/numpy_scalar.h"

namespace tapegrad::python {

// A tensor over the array's memory; the storage keeps the array alive. Raises Type for an element type without a
// counterpart and Value for negative or odd strides. `warn`: say so when the array is not writable (once).
Tensor tensor_from_array(PyObject* array, bool warn);
extern bool warns_always;  // that every time; guarded by the GIL
// An array over the tensor's memory; keeps the tensor alive. The tensor is on the CPU and needs no gradient.
PyRef array_from_tensor(PyObject* tensor);
// The dtype of an array or NumPy scalar, or nothing when tensors have no such dtype.
std::optional<DType> array_dtype(PyObject* o) noexcept;
// `struct`'s letter for a dtype; null where there is none.
const char* buffer_format(DType t) noexcept;
// A guard that makes NumPy refuse to reallocate an array's memory while a storage refers to it: NumPy counts neither
// buffers nor capsules, but an array with a weak reference cannot be resized, not even with refcheck=False. Null for
// objects that have no array memory.
PyRef resize_guard(PyObject* o);

}  // namespace tapegrad::python
