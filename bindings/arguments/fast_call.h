// Generated methods by name, for hand-written code that calls them: number slots, properties, conversions. Looked up
// once, when the type is made, in the tables of the registry; a call costs what the generated parser costs.
#pragma once

#include "tapegrad/bindings/interpreter/type_object.h"

namespace tapegrad::python {

using FastCall = PyObject* (*)(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// Null when there is no such method.
FastCall find_method(const char* name) noexcept;

inline void expect_args(Py_ssize_t nargs, Py_ssize_t wanted, const char* op) {
  TG_CHECK(nargs == wanted, Type, "{}: expected {} arguments: got {}", op, wanted, nargs);
}

// `self.name(args...)` through Python's lookup, for what is not hot. Raises PythonError.
template <class... Args>
PyRef call_method(PyObject* self, const char* name, Args*... args) {
  PyRef method_name = own(PyUnicode_InternFromString(name));
  PyObject* all[] = {self, args...};
  return own(PyObject_VectorcallMethod(method_name.get(), all, 1 + sizeof...(args), nullptr));
}

}  // namespace tapegrad::python
