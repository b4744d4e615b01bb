// Types of hand-written Python objects: how one is made, what the slots of several share, objects that are one C++
// value, and new tuples and lists. Types are made while the module is initialised and are never freed. Needs the GIL.
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "tapegrad/bindings/interpreter/errors.h"

namespace tapegrad::python {

// A slot of a type: its number (Py_tp_new) and the function, table or text that goes into it.
struct Slot : PyType_Slot {
  template <class T>
  Slot(int id, T* value) noexcept : PyType_Slot{id, nullptr} {
    if constexpr (std::is_function_v<T>)
      pfunc = reinterpret_cast<void*>(value);
    else
      pfunc = const_cast<void*>(static_cast<const void*>(value));
  }
};

namespace guards {
template <class R>
constexpr R failure() noexcept {
  if constexpr (std::is_pointer_v<R>)
    return nullptr;
  else
    return -1;
}
template <auto kFunction, class R, class... A>
R call(A... args) {
  TG_PY_TRY
  return kFunction(args...);
  TG_PY_CATCH_RETURN(failure<R>())
}
template <auto kFunction, class R, class... A>
constexpr auto guard(R (*)(A...)) noexcept {
  return &call<kFunction, R, A...>;
}
}  // namespace guards

// The function as slots and method tables take it: what it throws becomes Python's exception, and the result null or
// -1.
template <auto kFunction>
inline constexpr auto guarded = guards::guard<kFunction>(kFunction);

// A function of a method table, whatever its calling convention.
template <class F>
PyCFunction as_c_function(F* f) noexcept {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

// Makes the type `name` ("tapegrad._C._Store"; its text must stay) for objects of `size` bytes and adds it to the
// module, unless that is null, under the last part of its name. `flags` are those besides Py_TPFLAGS_DEFAULT. Null with
// an exception set.
PyTypeObject* add_type(PyObject* module, const char* name, size_t size, unsigned long flags, std::vector<Slot> slots,
                       PyTypeObject* base = nullptr);

inline PyObject* as_object(PyTypeObject* type) noexcept { return reinterpret_cast<PyObject*>(type); }

// The end of each tp_dealloc: the memory, and the instance's reference to its type.
inline void free_object(PyObject* o) noexcept {
  PyTypeObject* type = Py_TYPE(o);
  type->tp_free(o);
  Py_DECREF(type);
}

// A Python object that is one C++ value.
template <class T>
struct Boxed {
  PyObject_HEAD T value;
};
template <class T>
T& unbox(PyObject* o) noexcept {
  return reinterpret_cast<Boxed<T>*>(o)->value;
}
template <class T>
PyObject* box(PyTypeObject* type, T value) {
  PyObject* o = check(type->tp_alloc(type, 0));
  new (&unbox<T>(o)) T(std::move(value));
  return o;
}
template <class T>
void dealloc_boxed(PyObject* o) {
  unbox<T>(o).~T();
  free_object(o);
}

// A new list or tuple of n items; item(i) gives a new reference, or null with an exception set.
template <class F>
PyRef new_list(size_t n, F&& item) {
  PyRef list = own(PyList_New(static_cast<Py_ssize_t>(n)));
  for (size_t i = 0; i < n; ++i) PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(item(i)));
  return list;
}
template <class F>
PyRef new_tuple(size_t n, F&& item) {
  PyRef tuple = own(PyTuple_New(static_cast<Py_ssize_t>(n)));
  for (size_t i = 0; i < n; ++i) PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), check(item(i)));
  return tuple;
}

}  // namespace tapegrad::python
