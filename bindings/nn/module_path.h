// The path of the module in which an operator raised an error, as a line at the end of the message such as `in
// Classifier.body.2: Linear(in_features=9, out_features=2, bias=True)`. Costs nothing until an error is raised.
#pragma once

#include <string_view>

#include "tapegrad/bindings/interpreter/object.h"
#include "tapegrad/c10/macros.h"

namespace tapegrad::python {

// Records the message of an error raised in C++; only such errors get a path.
void remember_error(std::string_view message) noexcept;

// To be called when `module`'s call returns with an exception set: adds the module to the path.
TG_COLD void name_failed_module(PyObject* module, PyObject* children_key) noexcept;

}  // namespace tapegrad::python
