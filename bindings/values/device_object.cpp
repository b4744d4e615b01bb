// tapegrad.device: a value with a type and, where one was given, an index. As a context it sets the default device.
#include <charconv>
#include <string>

#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/device/device_names.h"

namespace tapegrad::python {

PyTypeObject* device_type = nullptr;

namespace {

// Outer default devices of entered `with device(...)` blocks, innermost last. One list: the default is global.
std::vector<Device> saved_defaults;

const char* type_name(DeviceType type) { return device_type_name(type).data(); }  // of literals
bool has_one(DeviceType type) { return type == DeviceType::CPU || type == DeviceType::Meta; }
PyDevice* self_of(PyObject* o) { return reinterpret_cast<PyDevice*>(o); }

PyObject* make_device(Device value, bool has_index) noexcept {
  auto* o = PyObject_New(PyDevice, device_type);
  if (!o) return nullptr;
  o->value = value;
  o->has_index = has_index;
  return reinterpret_cast<PyObject*>(o);
}

PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"type", "index", nullptr};
  PyObject* type = nullptr;
  PyObject* index = nullptr;
  // `device(device="cuda:1")` is PyTorch's other spelling.
  PyObject* other = kwargs ? PyDict_GetItemString(kwargs, "device") : nullptr;
  if (other && PyTuple_GET_SIZE(args) == 0 && PyDict_GET_SIZE(kwargs) == 1)
    type = other;
  else if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:device", const_cast<char**>(names), &type, &index))
    return nullptr;
  if (Py_TYPE(type) == device_type && !index) {
    Py_INCREF(type);
    return type;
  }
  Device device = to_device(type, {"device", "type"});
  bool has_index = PyLong_Check(type);
  if (PyUnicode_Check(type)) {
    std::string_view text = to_str(type, {"device", "type"});
    const size_t colon = text.find(':');
    has_index = colon != text.npos;
    if (has_index) std::from_chars(text.data() + colon + 1, text.data() + text.size(), device.index);
  }
  if (index && index != Py_None) {
    TG_CHECK(!has_index, Runtime,
             "device: type (string) must not include an index because index was passed explicitly: {}",
             to_str(type, {"device", "type"}));
    const int64_t i = to_int(index, {"device", "index"});
    TG_CHECK(i >= 0 && i < 128, Runtime, "device: the index must be from 0 to 127: got {}", i);
    device.index = static_cast<int8_t>(i);
    has_index = true;
  }
  return make_device(device, has_index);
}

std::string text_of(PyObject* o) {
  std::string text = type_name(self_of(o)->value.type);
  if (self_of(o)->has_index) text += ":" + std::to_string(static_cast<int>(self_of(o)->value.index));
  return text;
}

PyObject* device_str(PyObject* o) { return PyUnicode_FromString(text_of(o).c_str()); }
PyObject* device_repr(PyObject* o) {
  const PyDevice* d = self_of(o);
  if (!d->has_index) return PyUnicode_FromFormat("device(type='%s')", type_name(d->value.type));
  return PyUnicode_FromFormat("device(type='%s', index=%d)", type_name(d->value.type), d->value.index);
}

PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if (Py_TYPE(b) != device_type || Py_TYPE(a) != device_type || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  const bool equal = self_of(a)->value.type == self_of(b)->value.type &&
                     (has_one(self_of(a)->value.type) ||
                      (self_of(a)->has_index == self_of(b)->has_index &&
                       (!self_of(a)->has_index || self_of(a)->value.index == self_of(b)->value.index)));
  return PyBool_FromLong(equal == (op == Py_EQ));
}

Py_hash_t device_hash(PyObject* o) {
  const PyDevice* d = self_of(o);
  const int index = !has_one(d->value.type) && d->has_index ? d->value.index : -1;
  return static_cast<int>(d->value.type) * 1000 + index + 2;
}

PyObject* device_reduce(PyObject* o, PyObject*) { return Py_BuildValue("(O(s))", device_type, text_of(o).c_str()); }

PyObject* device_enter(PyObject& o) {
  saved_defaults.push_back(default_device());
  set_default_device(to_device(&o, {"device", "self"}));
  return Py_NewRef(&o);
}

void device_exit(PyObject&, OrNull, OrNull, OrNull) {
  if (saved_defaults.empty()) return;
  set_default_device(saved_defaults.back());
  saved_defaults.pop_back();
}

PyMethodDef methods[] = {
    {"__reduce__", device_reduce, METH_NOARGS, nullptr},
    method<"__enter__", device_enter>(),
    method<"__exit__", device_exit>(),
    {},
};
PyGetSetDef properties[] = {
    {"type", [](PyObject* o, void*) { return PyUnicode_FromString(type_name(self_of(o)->value.type)); }, nullptr,
     "\"cpu\", \"cuda\", \"meta\", or one of PyTorch's other names, where nothing can be allocated", nullptr},
    {"index",
     [](PyObject* o, void*) -> PyObject* {
       if (!self_of(o)->has_index) Py_RETURN_NONE;
       return PyLong_FromLong(self_of(o)->value.index);
     },
     nullptr, "The index, or None when none was given", nullptr},
    {},
};

}  // namespace

PyObject* wrap(Device device) noexcept {
  static PyObject* cpu = make_device(Device(), false);
  static PyObject* meta = make_device(Device(DeviceType::Meta), false);
  PyObject* cached = device.is_cpu() ? cpu : device.is_meta() ? meta : nullptr;
  if (!cached) return make_device(device, device.index >= 0);
  Py_INCREF(cached);
  return cached;
}

bool init_device(PyObject* module) {
  // clang-format off
  device_type = add_type(module, "tapegrad.device", sizeof(PyDevice), 0, {
      {Py_tp_doc, "device(type, index=None)\n--\n\nWhere a tensor's memory is: device('cuda:0'), device('cuda', 0), device('cpu'). A context manager that new tensors follow."}, {Py_tp_new, guarded<device_new>}, {Py_tp_repr, device_repr}, {Py_tp_str, device_str}, {Py_tp_richcompare, device_compare},
      {Py_tp_hash, device_hash}, {Py_tp_methods, methods}, {Py_tp_getset, properties}});
  // clang-format on
  return device_type != nullptr;
}

}  // namespace tapegrad::python
