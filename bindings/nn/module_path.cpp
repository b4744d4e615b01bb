#include "tapegrad/bindings/nn/module_path.h"

#include <string>

#include "tapegrad/c10/memory/available_memory.h"

namespace tapegrad::python {

namespace {

// The current thread's record of an error that passes through calls of modules.
struct Failure {
  std::string message;            // as C++ raised it
  std::string path;               // from the child of `outermost` to the innermost module, with leading dots
  std::string description;        // of the innermost module
  PyObject* outermost = nullptr;  // only compared, never used: the module may be gone
};
thread_local Failure failure;

std::string text_of(PyObject* object) {
  PyRef text(object ? PyObject_Str(object) : nullptr);
  const char* chars = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return chars ? chars : "";
}

std::string class_name(PyObject* module) {
  const std::string_view name = Py_TYPE(module)->tp_name;
  return std::string(name.substr(name.rfind('.') + 1));
}

// The class and its extra_repr(), cut when long.
std::string describe(PyObject* module) {
  PyRef extra(PyObject_CallMethod(module, "extra_repr", nullptr));
  std::string inside = text_of(extra.get());
  if (inside.size() > 120) inside = inside.substr(0, 117) + "...";
  return class_name(module) + "(" + inside + ")";
}

// `.name` of the child, or ` > Class` when the parent does not know it by a name.
std::string step_to(PyObject* parent, PyObject* children_key, PyObject* child) {
  PyRef dict(PyObject_GenericGetDict(parent, nullptr));
  PyObject* children = dict ? PyDict_GetItemWithError(dict.get(), children_key) : nullptr;
  if (children && PyDict_Check(children)) {
    PyObject *name, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(children, &position, &name, &value))
      if (value == child) return "." + text_of(name);
  }
  return " > ";
}

// The one argument of an exception of a class whose text is its argument; null for all others.
PyObject* sole_text(PyObject* error) {
  if (!PyExceptionInstance_Check(error) || PyErr_GivenExceptionMatches(error, PyExc_KeyError)) return nullptr;
  PyObject* args = reinterpret_cast<PyBaseExceptionObject*>(error)->args;
  if (!args || PyTuple_GET_SIZE(args) != 1 || !PyUnicode_Check(PyTuple_GET_ITEM(args, 0))) return nullptr;
  return PyTuple_GET_ITEM(args, 0);
}

void extend(PyObject* error, PyObject* module, PyObject* children_key) {
  PyObject* text = sole_text(error);
  if (!text) return;
  const std::string now = text_of(text);
  Failure& f = failure;
  if (f.message.empty() || now.compare(0, f.message.size(), f.message) != 0) return;
  if (now.size() == f.message.size()) {
    f.path.clear();
    f.description = describe(module);
  } else if (now.compare(f.message.size(), 4, "\nin ") == 0) {
    const std::string step = step_to(module, children_key, f.outermost);
    f.path =
        step == " > " ? step + now.substr(f.message.size() + 4, now.rfind(": ") - f.message.size() - 4) : step + f.path;
  } else {
    return;
  }
  f.outermost = module;
  const std::string longer = f.message + "\nin " + class_name(module) + f.path + ": " + f.description;
  PyRef args(Py_BuildValue("(s)", longer.c_str()));
  if (args) PyObject_SetAttrString(error, "args", args.get());
}

}  // namespace

void remember_error(std::string_view message) noexcept {
  try {
    require_thread_memory<Failure>();
  } catch (...) {
    return;  // the thread has not remembered anything before
  }
  try {
    failure.message = message;
  } catch (...) {
    failure.message.clear();
  }
}

void name_failed_module(PyObject* module, PyObject* children_key) noexcept {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  try {
    require_thread_memory<Failure>();
    if (value) extend(value, module, children_key);
  } catch (...) {  // out of memory: the error goes out as it is
  }
  PyErr_Clear();
  PyErr_Restore(type, value, traceback);
}

}  // namespace tapegrad::python
