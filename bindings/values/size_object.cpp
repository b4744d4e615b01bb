// tapegrad.Size: the shape of a tensor, a tuple of ints that knows its product and stays a Size when sliced.
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/arguments/nested_data.h"
#include "tapegrad/bindings/values/value_objects.h"

namespace tapegrad::python {

PyTypeObject* size_type = nullptr;

namespace {

PyObject* allocate(Py_ssize_t n) noexcept { return size_type->tp_alloc(size_type, n); }

// A tuple's items in a Size; takes the tuple over.
PyObject* from_tuple(PyObject* tuple) noexcept {
  if (!tuple || Py_TYPE(tuple) == size_type || !PyTuple_Check(tuple)) return tuple;
  PyRef owner(tuple);
  const Py_ssize_t n = PyTuple_GET_SIZE(tuple);
  PyObject* result = allocate(n);
  if (!result) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    Py_INCREF(item);
    PyTuple_SET_ITEM(result, i, item);
  }
  return result;
}

PyObject* size_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  PyObject* items = nullptr;
  if (kwargs && PyDict_GET_SIZE(kwargs)) {
    PyErr_SetString(PyExc_TypeError, "Size() takes no keyword arguments");
    return nullptr;
  }
  if (!PyArg_ParseTuple(args, "|O:Size", &items)) return nullptr;
  if (!items) return wrap(IntSpan());
  PyRef tuple = items_of(items);
  DimVector values;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple.get()); ++i)
    values.push_back(to_int(PyTuple_GET_ITEM(tuple.get(), i), {"Size", "items"}));
  return wrap(IntSpan(values));
}

PyObject* size_repr(PyObject* o) {
  PyRef list(PySequence_List(o));
  if (!list) return nullptr;
  return PyUnicode_FromFormat("%s.Size(%R)", root_name().c_str(), list.get());
}

int64_t size_numel(PyObject& o) {
  int64_t n = 1;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(&o); ++i) {
    const int64_t size = to_int(PyTuple_GET_ITEM(&o, i), {"numel", "self"});
    TG_CHECK(!__builtin_mul_overflow(n, size, &n), Overflow, "Size.numel: the product does not fit into 64 bits");
  }
  return n;
}

PyObject* size_reduce(PyObject* o, PyObject*) {
  PyRef plain(PySequence_List(o));
  if (!plain) return nullptr;
  return Py_BuildValue("(O(O))", size_type, plain.get());
}

PyObject* size_concat(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(b)) {
    PyErr_Format(PyExc_TypeError, "can only concatenate tuple (not %s) to %s.Size", Py_TYPE(b)->tp_name,
                 root_name().c_str());
    return nullptr;
  }
  return from_tuple(PyTuple_Type.tp_as_sequence->sq_concat(a, b));
}
// `tuple + Size`, which a tuple's own concatenation would make a tuple.
PyObject* size_add(PyObject* a, PyObject* b) {
  if (!PyTuple_Check(a) || !PyTuple_Check(b)) Py_RETURN_NOTIMPLEMENTED;
  return size_concat(a, b);
}
PyObject* size_repeat(PyObject* o, Py_ssize_t n) { return from_tuple(PyTuple_Type.tp_as_sequence->sq_repeat(o, n)); }
PyObject* size_subscript(PyObject* o, PyObject* key) {
  PyObject* result = PyTuple_Type.tp_as_mapping->mp_subscript(o, key);
  return PySlice_Check(key) ? from_tuple(result) : result;
}

PyMethodDef methods[] = {
    method<"numel", size_numel>("The number of elements of a tensor of this size."),
    {"__reduce__", size_reduce, METH_NOARGS, nullptr},
    {},
};

}  // namespace

PyObject* wrap(IntSpan values) noexcept {
  PyObject* result = allocate(static_cast<Py_ssize_t>(values.size()));
  if (!result) return nullptr;
  for (size_t i = 0; i < values.size(); ++i) {
    PyObject* item = PyLong_FromLongLong(values[i]);
    if (!item) {
      Py_DECREF(result);
      return nullptr;
    }
    PyTuple_SET_ITEM(result, static_cast<Py_ssize_t>(i), item);
  }
  return result;
}

bool init_size(PyObject* module) {
  // clang-format off
  size_type = add_type(module, "tapegrad.Size", 0, 0, {
      {Py_tp_doc, "Size(iterable=())\n--\n\nThe sizes of a tensor: a tuple of integers."}, {Py_tp_new, guarded<size_new>}, {Py_tp_repr, size_repr}, {Py_tp_methods, methods},
      {Py_nb_add, size_add}, {Py_sq_concat, size_concat}, {Py_sq_repeat, size_repeat}, {Py_mp_subscript, size_subscript}}, &PyTuple_Type);
  // clang-format on
  return size_type != nullptr;
}

}  // namespace tapegrad::python
