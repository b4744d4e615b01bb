// NumPy arrays and tensors over the same memory, both ways.
#pragma once

#include <optional>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/bindings/numpy_scalar.h"

namespace tapegrad::python {

// A tensor over the array's memory; the storage keeps the array alive. Raises Type for an element type without a
// counterpart and Value for negative or odd strides. `warn`: say so when the array is not writable (once).
Tensor tensor_from_array(PyObject* array, bool warn);
// An array over the tensor's memory; keeps the tensor alive. The tensor is on the CPU and needs no gradient.
PyRef array_from_tensor(PyObject* tensor);
// The dtype of an array or NumPy scalar, or nothing when tensors have no such dtype.
std::optional<DType> array_dtype(PyObject* o) noexcept;
// What makes NumPy refuse to move an array's memory while a storage lies over it: NumPy counts neither buffers nor
// capsules, but an array that somebody has a weak reference to cannot be resized, with refcheck=False either. Null for
// what has no array's memory.
PyRef resize_guard(PyObject* o);

}  // namespace tapegrad::python
