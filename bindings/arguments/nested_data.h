// Python's sequences, and nested lists of numbers as a tensor.
#pragma once

#include <optional>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

// The items of a list, tuple or other sequence, or all items of an iterable, as a tuple. A user-defined sequence is
// read by its length, since iterating over it might never end.
PyRef items_of(PyObject* o);

// A new CPU tensor with the numbers of `data`: a number, a 0-dimensional tensor, or lists, tuples and arrays of such,
// nested to one depth everywhere. Without a dtype the one that holds them all: bool, int64, the default floating
// dtype, complex; NumPy scalars and tensors bring their own. Raises Value with the path of a ragged element.
Tensor tensor_from_nested(PyObject* data, std::optional<DType> dtype);

// The data of anything that tensor() takes: tensors, arrays, nested lists, with the wanted dtype and device. `copy`:
// never over the same memory; otherwise shared where that is possible (new_tensor.cpp).
Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype, std::optional<Device> device, bool copy);

}  // namespace tapegrad::python
