// `__torch_function__`: types that take the place of operators for their own objects, as in PyTorch. An operator whose
// arguments hold such an object, of a subclass of Tensor or of any other type, asks the type instead of running; and
// while a TorchFunctionMode is on, every operator asks the mode first.
//
// What it costs a call without such an object: a comparison of types per argument, and a look at one number.
// https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api
// Everything needs the GIL.
#pragma once

#include "tapegrad/bindings/tensor_object.h"

namespace tapegrad::python {

extern int override_modes;  // modes that are on, of all threads

// Whether the object's type is to be asked. For those whose type is none of the usual ones.
TG_COLD bool overrides_slowly(PyObject* o) noexcept;
TG_COLD bool mode_is_on() noexcept;

inline bool overrides(PyObject* o) noexcept {
  PyTypeObject* type = Py_TYPE(o);
  if (TG_LIKELY(type == tensor_type || type == &PyLong_Type || type == parameter_type || type == &PyFloat_Type ||
                o == Py_None || type == &PyBool_Type))
    return false;
  return overrides_slowly(o);
}

// Whether the call goes to somebody else. `self` may be null.
inline bool overridden(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) noexcept {
  if (TG_UNLIKELY(override_modes != 0) && mode_is_on()) return true;
  if (self && overrides(self)) return true;
  const Py_ssize_t n = kwnames ? nargs + PyTuple_GET_SIZE(kwnames) : nargs;
  for (Py_ssize_t i = 0; i < n; ++i)
    if (TG_UNLIKELY(overrides(args[i]))) return true;
  return false;
}

// What the other one answers to the call of a function or method that `entry` implements, for which `overridden` said
// yes. Null with an exception set.
TG_COLD PyObject* call_overridden(PyCFunction entry, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                                  PyObject* kwnames) noexcept;
// The same for a slot, by the name of its method: "__getitem__".
TG_COLD PyObject* call_overridden_slot(const char* name, PyObject* self, PyObject* const* args,
                                       Py_ssize_t nargs) noexcept;

// Hand-written methods and properties of Tensor, wrapped so that they ask, too. Both keep what they return.
PyMethodDef overridable_method(const PyMethodDef& method);
PyGetSetDef* overridable_properties(PyGetSetDef* properties);

extern PyMethodDef tensor_override_methods[];  // Tensor.__torch_function__
extern PyMethodDef override_functions[];       // of tapegrad._C itself: what tapegrad.overrides is made of
bool init_overrides(PyObject* module);         // after the types, before functions are called

}  // namespace tapegrad::python
