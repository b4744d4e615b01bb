// `__torch_function__`: types that override operators for their own objects, as in PyTorch. An operator with such an
// object among its arguments, of a subclass of Tensor or of any other type, calls the type's `__torch_function__`
// instead of running; while a TorchFunctionMode is active, every operator calls the mode first.
//
// Cost of a call without such an object: one type comparison per argument, and one load.
// https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api Everything needs the GIL.
#pragma once

#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

extern int override_modes;  // modes that are on, of all threads

// Whether the object's type overrides operators. For objects of uncommon types.
TG_COLD bool overrides_slowly(PyObject* o) noexcept;
TG_COLD bool mode_is_on() noexcept;

inline bool overrides(PyObject* o) noexcept {
  PyTypeObject* type = Py_TYPE(o);
  if (TG_LIKELY(type == tensor_type || type == &PyLong_Type || type == parameter_type || type == &PyFloat_Type ||
                o == Py_None || type == &PyBool_Type))
    return false;
  return overrides_slowly(o);
}

// Whether an argument or a mode overrides the call. `self` may be null.
inline bool overridden(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) noexcept {
  if (TG_UNLIKELY(override_modes != 0) && mode_is_on()) return true;
  if (self && overrides(self)) return true;
  const Py_ssize_t n = kwnames ? nargs + PyTuple_GET_SIZE(kwnames) : nargs;
  for (Py_ssize_t i = 0; i < n; ++i)
    if (TG_UNLIKELY(overrides(args[i]))) return true;
  return false;
}

// The result of the override for a call of the function or method implemented by `entry`, after `overridden` returned
// true. Null with an exception set.
TG_COLD PyObject* call_overridden(PyCFunction entry, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                                  PyObject* kwnames) noexcept;
// The same for a slot, by the name of its method: "__getitem__".
TG_COLD PyObject* call_overridden_slot(const char* name, PyObject* self, PyObject* const* args,
                                       Py_ssize_t nargs) noexcept;

// Wraps hand-written methods and properties of Tensor so that they can be overridden, too. The results live forever.
PyMethodDef overridable_method(const PyMethodDef& method);
PyGetSetDef* overridable_properties(PyGetSetDef* properties);

extern PyMethodDef tensor_override_methods[];  // Tensor.__torch_function__
extern PyMethodDef override_functions[];       // of tapegrad._C itself: the basis of tapegrad.overrides
bool init_overrides(PyObject* module);         // after the types, before functions are called

}  // namespace tapegrad::python
