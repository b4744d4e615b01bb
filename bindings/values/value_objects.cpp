#include "tapegrad/bindings/values/value_objects.h"

#include <cstring>
#include <string>

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/interpreter/type_object.h"

namespace tapegrad::python {

PyTypeObject* dtype_type = nullptr;
PyTypeObject* layout_type = nullptr;
PyTypeObject* memory_format_type = nullptr;

namespace {

PyObject* dtypes[kNumDTypes];
PyObject* layouts[6];
PyObject* memory_formats[3];

PyObject* string(std::string_view text) noexcept {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}
std::string_view python_name(DType t) { return t == DType::bool_ ? "bool" : dtype_name(t); }

// Objects that are one per value: freed never.
void immortal_dealloc(PyObject* o) noexcept { Py_SET_REFCNT(o, 1); }

// What printed names start with: "tapegrad", or "torch" while tapegrad.compat is installed, since scripts take the
// texts of dtypes apart.
std::string root = "tapegrad";

PyObject* dtype_repr(PyObject* o) { return string(root + '.' + std::string(python_name(unwrap_dtype(o)))); }
// Pickled as the name of a global of tapegrad.
PyObject* dtype_reduce(PyObject* o, PyObject*) { return string(python_name(unwrap_dtype(o))); }
PyObject* dtype_to_real(PyObject* o, PyObject*) { return wrap(to_real(unwrap_dtype(o))); }
PyObject* dtype_to_complex(PyObject* o, PyObject*) { return wrap(to_complex(unwrap_dtype(o))); }

PyMethodDef dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, nullptr},
    {"to_real", dtype_to_real, METH_NOARGS, "The dtype of the real part."},
    {"to_complex", dtype_to_complex, METH_NOARGS, "The complex dtype with parts of this one."},
    {},
};
PyGetSetDef dtype_properties[] = {
    {"is_floating_point",
     [](PyObject* o, void*) { return wrap(is_floating_point(unwrap_dtype(o)) || is_float8(unwrap_dtype(o))); }, nullptr,
     nullptr, nullptr},
    {"is_complex", [](PyObject* o, void*) { return wrap(is_complex(unwrap_dtype(o))); }, nullptr, nullptr, nullptr},
    {"is_signed", [](PyObject* o, void*) { return wrap(is_signed(unwrap_dtype(o))); }, nullptr, nullptr, nullptr},
    {"itemsize", [](PyObject* o, void*) { return wrap(static_cast<int64_t>(element_size(unwrap_dtype(o)))); }, nullptr,
     nullptr, nullptr},
    {},
};

const char* enum_name(PyObject* o) { return reinterpret_cast<PyEnum*>(o)->name + sizeof("tapegrad.") - 1; }
PyObject* enum_repr(PyObject* o) { return string(root + '.' + enum_name(o)); }
PyObject* enum_reduce(PyObject* o, PyObject*) { return PyUnicode_FromString(enum_name(o)); }
PyMethodDef enum_methods[] = {{"__reduce__", enum_reduce, METH_NOARGS, nullptr}, {}};

PyTypeObject* add_plain_type(PyObject* module, const char* name, size_t size, const char* doc, reprfunc repr,
                             PyMethodDef* methods, PyGetSetDef* properties = nullptr) {
  static PyGetSetDef none[] = {{}};
  return add_type(module, name, size, Py_TPFLAGS_DISALLOW_INSTANTIATION,
                  {{Py_tp_doc, doc},
                   {Py_tp_dealloc, immortal_dealloc},
                   {Py_tp_repr, repr},
                   {Py_tp_methods, methods},
                   {Py_tp_getset, properties ? properties : none}});
}

// One object of an enum type, added to the module under the last part of its name.
bool add_enum(PyObject* module, PyTypeObject* type, PyObject** table, int value, const char* name) {
  auto* o = PyObject_New(PyEnum, type);
  if (!o) return false;
  o->value = value;
  o->name = name;
  table[value] = reinterpret_cast<PyObject*>(o);
  return PyModule_AddObjectRef(module, std::strrchr(name, '.') + 1, table[value]) == 0;
}

bool add_dtype(PyObject* module, DType t) {
  auto* o = PyObject_New(PyDType, dtype_type);
  if (!o) return false;
  o->value = t;
  PyObject* object = dtypes[static_cast<int>(t)] = reinterpret_cast<PyObject*>(o);
  return PyModule_AddObjectRef(module, std::string(python_name(t)).c_str(), object) == 0;
}

struct DTypeAlias {
  const char* name;
  DType dtype;
};
constexpr DTypeAlias kAliases[] = {
    {"half", DType::float16},     {"float", DType::float32},      {"double", DType::float64},
    {"short", DType::int16},      {"int", DType::int32},          {"long", DType::int64},
    {"cfloat", DType::complex64}, {"cdouble", DType::complex128}, {"chalf", DType::complex32},
};

}  // namespace

const std::string& root_name() noexcept { return root; }
PyObject* set_root_name(PyObject*, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  root = text;
  Py_RETURN_NONE;
}

PyObject* dtype_object(DType t) noexcept { return dtypes[static_cast<int>(t)]; }
PyObject* layout_object(Layout layout) noexcept { return layouts[static_cast<int>(layout)]; }
PyObject* memory_format_object(MemoryFormat format) noexcept { return memory_formats[static_cast<int>(format)]; }

PyObject* wrap(DType dtype) noexcept {
  PyObject* o = dtype_object(dtype);
  Py_INCREF(o);
  return o;
}

PyObject* wrap(const Scalar& value) noexcept {
  switch (value.kind()) {
    case Scalar::Kind::Bool:
      return PyBool_FromLong(value.to<bool>());
    case Scalar::Kind::Int:
      return PyLong_FromLongLong(value.to<int64_t>());
    case Scalar::Kind::UInt:
      return PyLong_FromUnsignedLongLong(value.to<uint64_t>());
    case Scalar::Kind::Float:
      return PyFloat_FromDouble(value.to<double>());
    case Scalar::Kind::Complex:
      break;
  }
  const auto z = value.to<complex128_t>();
  return PyComplex_FromDoubles(z.real(), z.imag());
}

bool init_value_objects(PyObject* module) {
  dtype_type = add_plain_type(module, "tapegrad.dtype", sizeof(PyDType),
                              "The kind of a tensor's numbers: tapegrad.float32, tapegrad.int64, ...", dtype_repr,
                              dtype_methods, dtype_properties);
  layout_type = add_plain_type(module, "tapegrad.layout", sizeof(PyEnum),
                               "How a tensor keeps its elements: tapegrad.strided, tapegrad.sparse_coo, ...", enum_repr,
                               enum_methods);
  memory_format_type = add_plain_type(
      module, "tapegrad.memory_format", sizeof(PyEnum),
      "The order of a tensor's dimensions in memory: tapegrad.contiguous_format, tapegrad.channels_last, ...",
      enum_repr, enum_methods);
  if (!dtype_type || !layout_type || !memory_format_type) return false;
  for (DType t : kAllDTypes)
    if (!add_dtype(module, t)) return false;
  for (const DTypeAlias& alias : kAliases)
    if (PyModule_AddObjectRef(module, alias.name, dtype_object(alias.dtype)) < 0) return false;
  auto format = [&](MemoryFormat f, const char* name) {
    return add_enum(module, memory_format_type, memory_formats, static_cast<int>(f), name);
  };
  return add_enum(module, layout_type, layouts, 0, "tapegrad.strided") &&
         add_enum(module, layout_type, layouts, 1, "tapegrad.sparse_coo") &&
         add_enum(module, layout_type, layouts, 2, "tapegrad.sparse_csr") &&
         add_enum(module, layout_type, layouts, 3, "tapegrad.sparse_csc") &&
         add_enum(module, layout_type, layouts, 4, "tapegrad.sparse_bsr") &&
         add_enum(module, layout_type, layouts, 5, "tapegrad.sparse_bsc") &&
         format(MemoryFormat::Contiguous, "tapegrad.contiguous_format") &&
         format(MemoryFormat::Preserve, "tapegrad.preserve_format") &&
         format(MemoryFormat::ChannelsLast, "tapegrad.channels_last");
}

}  // namespace tapegrad::python
