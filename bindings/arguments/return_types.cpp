// Named tuples of operators with several results.
#include <string>

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/values/value_objects.h"

namespace tapegrad::python {

namespace {

// As PyTorch prints them: the fields on lines of their own.
PyObject* repr(PyObject* o) {
  TG_PY_TRY
  PyTypeObject* type = Py_TYPE(o);
  std::string text = root_name() + std::string(type->tp_name).substr(std::string_view("tapegrad").size()) + "(";
  PyRef names = own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__match_args__"));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) {
    PyRef value = own(PyObject_Repr(PyTuple_GET_ITEM(o, i)));
    const char* name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names.get(), i));
    const char* shown = PyUnicode_AsUTF8(value.get());
    if (!name || !shown) throw_python_error();
    text += std::string(i ? ",\n" : "\n") + name + "=" + shown;
  }
  text += ")";
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  TG_PY_CATCH
}

}  // namespace

PyTypeObject* make_return_type(const char* name, std::initializer_list<const char*> fields) {
  // The descriptions live as long as the type, which is for good.
  auto* full_name = new std::string(std::string("tapegrad.return_types.") + name);
  auto* descriptions = new PyStructSequence_Field[fields.size() + 1]();
  size_t n = 0;
  for (const char* field : fields) descriptions[n++] = {field, nullptr};
  PyStructSequence_Desc description{full_name->c_str(), nullptr, descriptions, static_cast<int>(n)};
  PyTypeObject* type = PyStructSequence_NewType(&description);
  if (!type) return nullptr;
  type->tp_repr = repr;
  PyType_Modified(type);
  return type;
}

PyObject* wrap_named(PyTypeObject* type, std::initializer_list<const Tensor*> tensors) noexcept {
  PyObject* result = PyStructSequence_New(type);
  if (!result) return nullptr;
  Py_ssize_t i = 0;
  for (const Tensor* t : tensors) {
    PyObject* item = wrap(*t);
    if (!item) {
      Py_DECREF(result);
      return nullptr;
    }
    PyStructSequence_SetItem(result, i++, item);
  }
  return result;
}

}  // namespace tapegrad::python
