// tensor(), as_tensor(), asarray(), Tensor(...), x.new_tensor(), x.new().
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/keyword_method.h"
#include "tapegrad/bindings/arguments/nested_data.h"
#include "tapegrad/bindings/exchange/numpy.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/c10/device/pinned_scope.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::python {

namespace {

// `t` with the wanted dtype and device; `copy`: never the same memory.
Tensor converted(const Tensor& t, std::optional<DType> dtype, std::optional<Device> device, bool copy) {
  const bool there = (!dtype || *dtype == t.dtype()) && (!device || *device == t.device());
  if (there && !copy) return t;
  if (device && device->is_meta()) return empty_tensor(t.sizes(), dtype.value_or(t.dtype()), *device);
  PyRef source = own(wrap(t));
  if (Py_TYPE(source.get()) != tensor_type)  // the `to` of a subclass is not asked
    source = own(wrap_as(tensor_type, view_as(t, t)));
  static PyObject* const names = Py_BuildValue("(sss)", "dtype", "device", "copy");
  PyRef wanted_dtype = own(wrap(dtype.value_or(t.dtype())));
  PyRef wanted_device = own(wrap(device.value_or(t.device())));
  static PyObject* const to = PyUnicode_InternFromString("to");
  PyObject* args[] = {source.get(), wanted_dtype.get(), wanted_device.get(), copy ? Py_True : Py_False};
  PyRef result = own(PyObject_VectorcallMethod(to, args, 1, names));
  return unwrap(result.get());
}

std::optional<Device> or_default(std::optional<Device> device) {
  if (device) return device;
  const Device d = default_device();
  return d.is_cpu() ? std::nullopt : std::optional<Device>(d);
}

}  // namespace

namespace {
// Whether an object exports memory of a CUDA device. Python's own sequences and numbers do not, nor do tensors here.
bool has_cuda_array_interface(PyObject* o) {
  return !PyList_Check(o) && !PyTuple_Check(o) && !PyLong_Check(o) && !PyFloat_Check(o) && !is_numpy_scalar(o) &&
         PyObject_HasAttrString(o, "__cuda_array_interface__");
}
}  // namespace

Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype, std::optional<Device> device, bool copy) {
  if (is_tensor(data)) return converted(unwrap(data), dtype, device, copy);
  if (!is_numpy_array(data) && has_cuda_array_interface(data)) {
    PyRef module = own(PyImport_ImportModule("tapegrad.cuda._array_interface"));
    const PyRef name = own(PyUnicode_FromString("from_interface"));
    PyRef there = own(PyObject_CallMethodOneArg(module.get(), name.get(), data));
    return converted(unwrap(there.get()), dtype, or_default(device), copy);
  }
  if (is_numpy_array(data)) {
    if (!array_dtype(data)) {
      PyRef element = own(PyObject_GetAttrString(data, "dtype"));
      PyErr_Format(PyExc_TypeError,
                   "tensor: tensors have no dtype for the elements of a NumPy array of %R\n"
                   "convert it first, with array.astype(...)",
                   element.get());
      throw_python_error();
    }
    // Strides that tensors do not have, foreign byte order: NumPy makes a plain copy.
    PyRef source = PyRef::borrow(data);
    Tensor t;
    try {
      t = tensor_from_array(source.get(), !copy);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Value) throw;
      PyRef dtype_object = own(PyObject_GetAttrString(data, "dtype"));
      PyRef native = call_method(dtype_object.get(), "newbyteorder", own(PyUnicode_FromString("=")).get());
      source = call_method(data, "astype", native.get());
      source = call_method(source.get(), "copy");
      return converted(tensor_from_array(source.get(), false), dtype, or_default(device), false);
    }
    return converted(t, dtype, or_default(device), copy);
  }
  static PyObject* const as_elements = PyUnicode_InternFromString("_as_elements");
  if (!PyList_CheckExact(data) && !PyTuple_CheckExact(data) && !PyFloat_CheckExact(data) && !PyLong_CheckExact(data) &&
      PyObject_HasAttr(data, as_elements)) {  // a storage
    PyRef wanted = own(dtype ? wrap(*dtype) : Py_NewRef(Py_None));
    PyObject* call[] = {data, wanted.get(), Py_True};
    PyRef elements = own(PyObject_VectorcallMethod(as_elements, call, 3, nullptr));
    return converted(unwrap(elements.get()), dtype, or_default(device), copy);
  }
  return converted(tensor_from_nested(data, dtype), dtype, or_default(device), false);
}

namespace {

TG_COLD void warn_of_copy(const char* call) {
  const std::string text = fmt::format(
      "To copy construct from a tensor, it is recommended to use source.detach().clone() or "
      "source.detach().clone().requires_grad_(True), rather than {}.",
      call);
  warn_user(PyExc_UserWarning, text.c_str());
}

PyObject* tensor(const ArgumentsBase& a) {
  if (is_tensor(a.object(0))) warn_of_copy("tensor(source)");
  const NoGradGuard no_grad;
  const PinnedScope pinned(a.boolean(4, false));
  Tensor t = tensor_from_data(a.object(0), a.optional_dtype(1), a.optional_device(2), true);
  pinned.check(t);
  if (is_tensor(a.object(0)) && t.requires_grad()) t = t.detach();
  if (a.boolean(3, false)) t.set_requires_grad(true);
  return wrap(std::move(t));
}

PyObject* as_tensor(const ArgumentsBase& a) {
  return wrap(tensor_from_data(a.object(0), a.optional_dtype(1), a.optional_device(2), false));
}

// Whether an object exports its memory as NumPy arrays do. Python's own sequences do not.
bool has_array_interface(PyObject* o) {
  return !is_tensor(o) && !is_numpy_array(o) && !PyList_Check(o) && !PyTuple_Check(o) && !PyLong_Check(o) &&
         !PyFloat_Check(o) && !is_numpy_scalar(o) && PyObject_HasAttrString(o, "__array_interface__");
}

PyObject* asarray(const ArgumentsBase& a) {
  const std::optional<bool> copy = a.optional_boolean(3);
  PyRef source = PyRef::borrow(a.object(0));
  if (!is_tensor(source.get()) && !is_numpy_array(source.get())) {
    if (PyObject_HasAttrString(source.get(), "_as_elements")) {  // a storage: its bytes as elements of the dtype
      PyRef dtype = own(a.optional_dtype(1) ? wrap(*a.optional_dtype(1)) : Py_NewRef(Py_None));
      source = call_method(source.get(), "_as_elements", dtype.get());
    } else if (PyCapsule_CheckExact(source.get()) || PyObject_HasAttrString(source.get(), "__dlpack__")) {
      PyObject* taken[] = {source.get()};
      source = own(reinterpret_cast<FastCall>(reinterpret_cast<void (*)()>(exchange_functions[1].ml_meth))(
          nullptr, taken, 1, nullptr));  // from_dlpack
    } else if (has_array_interface(source.get())) {
      PyRef numpy = own(PyImport_ImportModule("numpy"));
      source = call_method(numpy.get(), "asarray", source.get());
    } else if (PyObject_CheckBuffer(source.get()) && !PyUnicode_Check(source.get())) {
      static PyObject* const names = Py_BuildValue("(s)", "dtype");
      PyRef dtype = own(wrap(a.optional_dtype(1).value_or(default_dtype())));
      PyObject* both[] = {source.get(), dtype.get()};
      source = own(reinterpret_cast<FastCall>(reinterpret_cast<void (*)()>(exchange_functions[2].ml_meth))(
          nullptr, both, 1, names));  // frombuffer
    }
  }
  const bool shareable = is_tensor(source.get()) || is_numpy_array(source.get());
  TG_CHECK(shareable || copy.value_or(true), Value, "asarray: {} cannot be taken without a copy: got copy=False",
           Py_TYPE(source.get())->tp_name);
  Tensor t = tensor_from_data(source.get(), a.optional_dtype(1), a.optional_device(2), copy.value_or(false));
  if (is_tensor(source.get()) && copy.has_value() && !*copy)
    TG_CHECK(t.impl()->storage() == unwrap(source.get()).impl()->storage(), Value,
             "asarray: can't alias tensor with dtype '{}' into dtype '{}', or on another device: got copy=False",
             unwrap(source.get()).dtype(), t.dtype());
  const bool requires_grad = a.boolean(4, false);
  if (t.requires_grad() && !requires_grad) t = t.detach();
  if (requires_grad && !t.requires_grad()) t.set_requires_grad(true);
  return wrap(std::move(t));
}

// The old constructor: Tensor(2, 3), Tensor([1, 2]), Tensor(other); elements of a size are not initialised.
Tensor legacy_new(PyObject* args, DType dtype, const char* name) {
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  PyObject* first = n ? PyTuple_GET_ITEM(args, 0) : nullptr;
  if (!first) return empty_tensor(DimVector{0}, dtype, default_device());
  if (n == 1 && is_tensor(first)) {
    TG_CHECK(unwrap(first).dtype() == dtype, Type, "{}(): expected a tensor of dtype {}: got {}", name, dtype,
             unwrap(first).dtype());
    return alias_tensor(unwrap(first), unwrap(first).sizes(), unwrap(first).strides(), unwrap(first).storage_offset());
  }
  const bool sizes = PyLong_Check(first) || Py_TYPE(first)->tp_as_sequence == nullptr || n > 1 ||
                     std::string_view(Py_TYPE(first)->tp_name) == "tapegrad.Size";
  if (!sizes) return tensor_from_data(first, dtype, std::nullopt, true);
  TG_CHECK(!PyFloat_Check(first), Type, "{}(): expected sizes or a sequence: got float\nuse tapegrad.tensor(data)",
           name);
  DimVector dims;
  if (n == 1 && PyTuple_Check(first))
    dims = to_ints(first, {name, "size"});
  else
    for (Py_ssize_t i = 0; i < n; ++i)
      dims.push_back(to_int(PyTuple_GET_ITEM(args, i), {name, "size", static_cast<int>(i) + 1}));
  checked_nbytes(dims, dtype, name);
  return empty_tensor(dims, dtype, default_device());
}

PyObject* new_tensor(PyObject* self, const ArgumentsBase& a) {
  if (is_tensor(a.object(1))) warn_of_copy("tensor.new_tensor(source)");
  const Tensor& like = unwrap(self);
  Tensor t = tensor_from_data(a.object(1), a.optional_dtype(2).value_or(like.dtype()),
                              a.optional_device(3).value_or(like.device()), true);
  if (t.requires_grad()) t = t.detach();
  if (a.boolean(4, false)) t.set_requires_grad(true);
  return wrap(std::move(t));
}

// _legacy_tensor(dtype, name, args): FloatTensor(...) and its kin.
PyObject* legacy_tensor(PyObject*, PyObject* args) {
  PyObject* dtype;
  const char* name;
  PyObject* values;
  if (!PyArg_ParseTuple(args, "OsO!:_legacy_tensor", &dtype, &name, &PyTuple_Type, &values)) return nullptr;
  return wrap(legacy_new(values, to_dtype(dtype, {"_legacy_tensor", "dtype"}), name));
}

}  // namespace

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  // A subclass may take keywords of its own in __init__; Tensor itself takes none but `device`, the CPU's.
  if (type == tensor_type && kwargs && PyDict_GET_SIZE(kwargs)) {
    PyObject* const device = PyDict_GetItemString(kwargs, "device");
    if (device == nullptr || PyDict_GET_SIZE(kwargs) > 1) {
      PyErr_SetString(PyExc_TypeError,
                      "Tensor(): takes no keyword arguments but device\nuse tapegrad.tensor(data, dtype=...)");
      return nullptr;
    }
    TG_CHECK(device == Py_None || to_device(device, {"Tensor", "device"}).type == DeviceType::CPU, Runtime,
             "Tensor(): legacy constructor expects device type: cpu: use tapegrad.tensor(data, device=...)");
  }
  Tensor t = legacy_new(args, default_dtype(), "Tensor");
  if (type != tensor_type && t.impl()->python_object()) t = t.data_alias();
  return wrap_as(type, std::move(t));
}

PyMethodDef tensor_new_methods[] = {
    keyword_method<"new_tensor", "(data, *, DType? dtype=None, Device? device=None, bool requires_grad=False)",
                   new_tensor>("new_tensor($self, data, *, dtype=None, device=None, requires_grad=False)\n--\n\nA "
                               "tensor of this one's dtype and "
                               "device."),
    {},
};

PyMethodDef new_functions[] = {
    keyword_method<"tensor",
                   "(data, *, DType? dtype=None, Device? device=None, bool requires_grad=False, bool pin_memory=False, "
                   "names=None)",
                   tensor>("tensor(data, *, dtype=None, device=None, requires_grad=False, pin_memory=False)\n--\n\nA "
                           "new tensor with a copy of the data: "
                           "numbers, "
                           "nested lists, arrays."),
    keyword_method<"as_tensor", "(data, DType? dtype=None, Device? device=None)", as_tensor>(
        "as_tensor(data, dtype=None, device=None)\n--\n\nThe data as a tensor, over the same memory where that is "
        "possible."),
    keyword_method<"asarray",
                   "(obj, *, DType? dtype=None, Device? device=None, bool? copy=None, bool requires_grad=False)",
                   asarray>(
        "asarray(obj, *, dtype=None, device=None, copy=None, requires_grad=False)\n--\n\nAny array-like object as a "
        "tensor."),
    {"_legacy_tensor", guarded<legacy_tensor>, METH_VARARGS, nullptr},
    {},
};

}  // namespace tapegrad::python
