// The generator's input to the module's initialisation: one table of methods and of functions per family, collected in
// gen/bindings/registry.cpp. Tables end with an empty entry; all of it is static.
#pragma once

#include <span>

#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

// Functions of a public module: "" (tapegrad), "nn.functional", "linalg", "special", "fft", "_C._ops".
struct ModuleFunctions {
  const char* module;
  PyMethodDef* defs;  // ends with an entry without a name
};

std::span<PyMethodDef* const> tensor_methods();
std::span<const ModuleFunctions> module_functions();
// Makes the named-tuple types of the families and adds them to `tapegrad.return_types`; false with an exception set.
bool init_return_types(PyObject* return_types);

}  // namespace tapegrad::python
