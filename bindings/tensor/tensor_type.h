// The parts of the Python type `tapegrad.Tensor`, put together in tensor_type.cpp. Each function here has the
// signature of the type slot that it fills.
#pragma once

#include <vector>

#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/bindings/interpreter/type_object.h"
#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

// Creation and destruction (tensor_object.cpp).
void tensor_dealloc(PyObject* self) noexcept;
void tensor_finalize(PyObject* self) noexcept;
int tensor_traverse(PyObject* self, visitproc visit, void* arg);
int tensor_clear(PyObject* self);
void install_release_hook() noexcept;

// Lets the garbage collector traverse the part of the tape that only this tensor keeps alive. Installed by the bindings
// of autograd.
extern int (*traverse_tape)(const Tensor& tensor, visitproc visit, void* arg);
extern void (*clear_tape)(const Tensor& tensor) noexcept;

// The Python object of a tape node; installed by the bindings of autograd.
extern PyObject* (*wrap_node)(intrusive_ptr<autograd::Node> node);

// Tables of hand-written methods and properties, each ending with an empty entry.
extern PyGetSetDef tensor_properties[];        // tensor_properties.cpp
extern PyMethodDef tensor_basic_methods[];     // tensor_methods.cpp
extern PyMethodDef tensor_convert_methods[];   // tensor_convert.cpp: to, float, cpu, numpy, tolist ...
extern PyMethodDef tensor_new_methods[];       // new_tensor.cpp: new_tensor
extern PyMethodDef tensor_exchange_methods[];  // exchange.cpp: numpy, __array__, __dlpack__ ...
extern PyMethodDef tensor_tape_methods[];      // tensor_tape.cpp: backward, register_hook ...
// Slots of the number, sequence and mapping protocols (tensor_numbers.cpp, tensor_index.cpp).
void add_number_slots(std::vector<Slot>& slots);
void add_index_slots(std::vector<Slot>& slots);
void add_buffer_slots(std::vector<Slot>& slots);
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs);  // Tensor(...), new_tensor.cpp

// Makes tapegrad.Tensor and tapegrad.nn.Parameter and adds them to the module.
bool init_tensor_type(PyObject* module);

}  // namespace tapegrad::python
