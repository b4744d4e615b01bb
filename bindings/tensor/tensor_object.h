// The Python object of a tensor. One Python object per TensorImpl at a time (`x.grad is x.grad`): the TensorImpl points
// to it through its slot. Usually the Python object owns the TensorImpl; when its last Python reference goes while C++
// still uses the tensor and it carries something to lose (attributes, weak references, a subclass), ownership is
// reversed and the TensorImpl keeps the Python object alive, see tensor_object.cpp. Everything here needs the GIL.
#pragma once

#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

struct PyTensor {
  PyObject_HEAD Tensor tensor;  // owned, but for the time when the TensorImpl owns the Python object
  PyObject* weakrefs;
  PyObject* dict;
};

extern PyTypeObject* tensor_type;     // tapegrad.Tensor
extern PyTypeObject* parameter_type;  // tapegrad.nn.Parameter

inline bool is_exact_tensor(PyObject* o) noexcept { return Py_TYPE(o) == tensor_type; }
inline bool is_tensor(PyObject* o) noexcept {
  return Py_TYPE(o) == tensor_type || Py_TYPE(o) == parameter_type || PyType_IsSubtype(Py_TYPE(o), tensor_type);
}
// No check: `o` is a tensor.
inline const Tensor& unwrap(PyObject* o) noexcept { return reinterpret_cast<PyTensor*>(o)->tensor; }

// A new reference to the Python object of a tensor, made when there is none. None for an undefined tensor.
PyObject* wrap(Tensor tensor) noexcept;
// The same as an instance of a subclass; the tensor must not have a Python object of another type yet.
PyObject* wrap_as(PyTypeObject* type, Tensor tensor) noexcept;
PyObject* wrap(std::vector<Tensor> tensors) noexcept;       // a tuple
PyObject* wrap_list(std::vector<Tensor> tensors) noexcept;  // a list

// For in-place methods: returns self, without reading the slot.
inline PyObject* return_self(PyObject* self) noexcept {
  Py_INCREF(self);
  return self;
}

}  // namespace tapegrad::python
