// Converters of single objects (args.h).
#include <string>

#include "tapegrad/aten/record/numbers/given.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/nested_data.h"
#include "tapegrad/bindings/exchange/numpy_scalar.h"
#include "tapegrad/bindings/record/followed.h"
#include "tapegrad/bindings/values/value_objects.h"

namespace tapegrad::python {

namespace {

// A type's name; of a class named as one of ours is, with its module: torch.Tensor.
std::string name_of_type(PyTypeObject* type) {
  const std::string name = type->tp_name;
  if (name != "Tensor" && name != "Parameter") return name;
  const PyRef module(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__module__"));
  const char* text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : nullptr;
  if (!text) PyErr_Clear();
  return text ? fmt::format("{}.{}", text, name) : name;
}

[[noreturn]] TG_COLD void wrong_type(PyObject* o, const Ctx& ctx, const char* expected) {
  std::string position = ctx.position ? fmt::format(" (position {})", ctx.position) : std::string();
  TG_THROW(Type, "{}(): argument '{}'{} must be {}, not {}", ctx.op, ctx.arg, position, expected,
           o == Py_None ? "None" : name_of_type(Py_TYPE(o)));
}

int64_t long_value(PyObject* o, const Ctx& ctx) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
  TG_CHECK(overflow == 0, Overflow, "{}(): argument '{}' does not fit into 64 bits", ctx.op, ctx.arg);
  if (value == -1 && PyErr_Occurred()) throw_python_error();
  return value;
}

// Integers up to 2^64.
Scalar whole_number(PyObject* o, const Ctx& ctx) {
  int overflow = 0;
  PyLong_AsLongLongAndOverflow(o, &overflow);
  if (TG_LIKELY(overflow <= 0)) return Scalar(long_value(o, ctx));
  const unsigned long long value = PyLong_AsUnsignedLongLong(o);
  if (!PyErr_Occurred()) return Scalar(value);
  PyErr_Clear();
  return Scalar(long_value(o, ctx));  // raises
}

// A tensor written where a number is expected.
bool is_scalar_tensor(PyObject* o) noexcept { return is_tensor(o) && unwrap(o).ndim() == 0; }

bool is_real_number(PyObject* o) noexcept { return PyFloat_Check(o) || PyLong_Check(o) || is_numpy_scalar(o); }

// Anything with __index__ but bool, tensors and arrays.
bool is_index_object(PyObject* o) noexcept {
  return PyIndex_Check(o) && !PyBool_Check(o) && !is_tensor(o) && !is_numpy_array(o) && !PyFloat_Check(o);
}

// Visits the items of a list, tuple or other sequence. Items may be converted by Python code that changes the list, so
// its size is read again each time and each item is kept alive.
template <class F>
bool for_each_item(PyObject* o, F&& visit) {
  if (PyTuple_Check(o)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) visit(PyTuple_GET_ITEM(o, i));
    return true;
  }
  if (PyList_Check(o)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) {
      PyRef item = PyRef::borrow(PyList_GET_ITEM(o, i));
      visit(item.get());
    }
    return true;
  }
  if (!PySequence_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o) || is_tensor(o)) return false;
  PyRef items = items_of(o);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) visit(PyTuple_GET_ITEM(items.get(), i));
  return true;
}

}  // namespace

bool is_number(PyObject* o) noexcept {
  return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o) || is_numpy_scalar(o);
}

const Tensor& to_tensor(PyObject* o, const Ctx& ctx) {
  if (TG_LIKELY(is_tensor(o))) return unwrap(o);
  wrong_type(o, ctx, "Tensor");
}

Scalar to_scalar(PyObject* o, const Ctx& ctx) {
  if (PyFloat_CheckExact(o)) return Scalar(PyFloat_AS_DOUBLE(o));
  if (PyLong_CheckExact(o)) return whole_number(o, ctx);
  if (PyBool_Check(o)) return Scalar(o == Py_True);
  if (std::optional<Scalar> value = numpy_scalar(o)) return *value;  // np.float64 is a float, too
  if (PyFloat_Check(o)) return Scalar(PyFloat_AS_DOUBLE(o));
  if (PyLong_Check(o)) {
    note_followed(o, true);
    return whole_number(o, ctx);
  }
  if (PyComplex_Check(o)) return Scalar(complex128_t(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o)));
  if (is_scalar_tensor(o)) return record::number_given(unwrap(o), ctx.op);
  if (is_index_object(o)) return Scalar(to_int(o, ctx));
  wrong_type(o, ctx, "a number");
}

Operand to_operand(PyObject* o, const Ctx& ctx) {
  if (is_tensor(o)) return Operand(unwrap(o));
  if (is_number(o)) return Operand(to_scalar(o, ctx));
  wrong_type(o, ctx, "Tensor or a number");
}

int64_t to_int(PyObject* o, const Ctx& ctx) {
  if (TG_LIKELY(PyLong_CheckExact(o))) return long_value(o, ctx);
  if (is_tensor(o)) {
    const Tensor& t = unwrap(o);
    TG_CHECK(t.numel() == 1 && !t.is_floating_point() && !t.is_complex(), Type,
             "{}(): argument '{}' must be int: got a tensor of shape {} and dtype {}", ctx.op, ctx.arg,
             format_ints(t.sizes()), t.dtype());
    // PyTorch's class for it, too.
    TG_CHECK(t.dtype() != DType::bool_, Runtime, "{}(): argument '{}' must be int: got a tensor of dtype bool", ctx.op,
             ctx.arg);
    return t.item().to<int64_t>();
  }
  if (PyLong_Check(o) && !PyBool_Check(o)) {
    note_followed(o, true);
    return long_value(o, ctx);
  }
  if (is_index_object(o)) {
    PyRef index = own(PyNumber_Index(o));
    return long_value(index.get(), ctx);
  }
  if (is_numpy_array(o)) {  // of no dimensions and whole numbers
    if (const PyRef index{PyNumber_Index(o)}) return long_value(index.get(), ctx);
    PyErr_Clear();
  }
  wrong_type(o, ctx, "int");
}

double to_double(PyObject* o, const Ctx& ctx) {
  if (TG_LIKELY(PyFloat_Check(o))) return PyFloat_AS_DOUBLE(o);
  if (PyLong_Check(o)) {  // bool, too, as in PyTorch
    note_followed(o, false);
    const double value = PyLong_AsDouble(o);
    if (value == -1.0 && PyErr_Occurred()) throw_python_error();
    return value;
  }
  if (std::optional<Scalar> value = numpy_scalar(o); value && !value->is_complex()) return value->to<double>();
  // A tensor that requires grad is no number: its gradient would be lost. PyTorch refuses it, too.
  if (is_scalar_tensor(o) && !unwrap(o).is_complex() && !unwrap(o).requires_grad())
    return record::number_given(unwrap(o), ctx.op).to<double>();
  if (is_index_object(o)) return static_cast<double>(to_int(o, ctx));
  wrong_type(o, ctx, "float");
}

bool to_bool(PyObject* o, const Ctx& ctx) {
  if (TG_LIKELY(PyBool_Check(o))) return o == Py_True;
  if (std::optional<Scalar> value = numpy_scalar(o); value && value->is_bool()) return value->to<bool>();
  if (is_scalar_tensor(o) && unwrap(o).dtype() == DType::bool_) return unwrap(o).item().to<bool>();
  wrong_type(o, ctx, "bool");
}

DimVector to_ints(PyObject* o, const Ctx& ctx) {
  DimVector values;
  if (PyLong_CheckExact(o)) {
    values.push_back(long_value(o, ctx));
    return values;
  }
  const auto number = [&](PyObject* item) {  // NumPy's arrays of one whole number, too
    return is_numpy_array(item) ? long_value(own(PyNumber_Index(item)).get(), ctx) : to_int(item, ctx);
  };
  if (for_each_item(o, [&](PyObject* item) { values.push_back(number(item)); })) return values;
  if (!PyBool_Check(o) && (PyLong_Check(o) || is_index_object(o) || is_scalar_tensor(o))) {
    values.push_back(to_int(o, ctx));
    return values;
  }
  wrong_type(o, ctx, "a tuple of ints");
}

std::vector<double> to_doubles(PyObject* o, const Ctx& ctx) {
  std::vector<double> values;
  if (for_each_item(o, [&](PyObject* item) { values.push_back(to_double(item, ctx)); })) return values;
  values.push_back(to_double(o, ctx));
  return values;
}

std::vector<Tensor> to_tensors(PyObject* o, const Ctx& ctx) {
  if (!PyList_Check(o) && !PyTuple_Check(o)) wrong_type(o, ctx, "a tuple of Tensors");
  std::vector<Tensor> tensors;
  tensors.reserve(static_cast<size_t>(Py_SIZE(o)));
  for_each_item(o, [&](PyObject* item) {
    if (TG_UNLIKELY(!is_tensor(item)))
      TG_THROW(Type, "{}(): argument '{}' must be a tuple of Tensors: element {} is {}", ctx.op, ctx.arg,
               tensors.size(), Py_TYPE(item)->tp_name);
    tensors.push_back(unwrap(item));
  });
  return tensors;
}

std::string_view to_str(PyObject* o, const Ctx& ctx) {
  if (!PyUnicode_Check(o)) wrong_type(o, ctx, "str");
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(o, &length);
  if (!text) throw_python_error();
  return {text, static_cast<size_t>(length)};
}

DType to_dtype(PyObject* o, const Ctx& ctx) {
  if (TG_LIKELY(is_dtype(o))) return unwrap_dtype(o);
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::float64;
  if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::int64;
  if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::bool_;
  if (o == reinterpret_cast<PyObject*>(&PyComplex_Type)) return DType::complex128;
  wrong_type(o, ctx, "tapegrad.dtype");
}

Device to_device(PyObject* o, const Ctx& ctx) {
  if (Py_TYPE(o) == device_type) {
    const Device device = reinterpret_cast<PyDevice*>(o)->value;
    return device.is_cpu() || device.is_meta() ? Device(device.type) : device;  // "cpu:1" is a name: there is one CPU
  }
  if (PyUnicode_Check(o)) return parse_device(to_str(o, ctx));
  if (PyLong_Check(o) && !PyBool_Check(o)) {
    const int64_t index = long_value(o, ctx);
    TG_CHECK(index >= 0 && index < 128, Runtime, "{}: device index must be from 0 to 127: got {}", ctx.op, index);
    return Device(DeviceType::CUDA, static_cast<int8_t>(index));
  }
  wrong_type(o, ctx, "tapegrad.device, str or int");
}

MemoryFormat to_memory_format(PyObject* o, const Ctx& ctx) {
  if (Py_TYPE(o) == memory_format_type) return static_cast<MemoryFormat>(reinterpret_cast<PyEnum*>(o)->value);
  wrong_type(o, ctx, "tapegrad.memory_format");
}

void to_strided_layout(PyObject* o, const Ctx& ctx) {
  if (Py_TYPE(o) != layout_type) wrong_type(o, ctx, "tapegrad.layout");
  const auto* layout = reinterpret_cast<PyEnum*>(o);
  TG_CHECK(layout->value == static_cast<int>(Layout::Strided), NotImplemented,
           "{}: only tensors of layout tapegrad.strided exist: got {}", ctx.op, layout->name);
}

namespace {

bool all_match(PyObject* o, ArgKind kind) noexcept {
  if (!PyList_Check(o) && !PyTuple_Check(o)) return false;
  for (Py_ssize_t i = 0; i < Py_SIZE(o); ++i)  // `matches` runs no Python code
    if (!matches(PyList_Check(o) ? PyList_GET_ITEM(o, i) : PyTuple_GET_ITEM(o, i), kind)) return false;
  return true;
}

}  // namespace

bool matches(PyObject* o, ArgKind kind) noexcept {
  switch (kind) {
    case ArgKind::Tensor:
      return is_tensor(o);
    case ArgKind::Operand:
      return is_tensor(o) || is_number(o);
    case ArgKind::Tensors:
      return all_match(o, ArgKind::Tensor);
    case ArgKind::Scalar:
      return is_number(o) || is_scalar_tensor(o) || is_index_object(o);
    case ArgKind::Int:
      if (PyLong_CheckExact(o)) return true;
      if (is_tensor(o))
        return unwrap(o).ndim() == 0 && !unwrap(o).is_floating_point() && !unwrap(o).is_complex() &&
               unwrap(o).dtype() != DType::bool_;
      return is_index_object(o);
    case ArgKind::Float:
      return (is_real_number(o) && !PyBool_Check(o)) || is_scalar_tensor(o);
    case ArgKind::Bool:
      if (PyBool_Check(o)) return true;
      if (std::optional<Scalar> value = numpy_scalar(o)) return value->is_bool();
      return is_scalar_tensor(o) && unwrap(o).dtype() == DType::bool_;
    case ArgKind::Ints:
      return matches(o, ArgKind::Int) || all_match(o, ArgKind::Int);
    case ArgKind::Floats:
      return all_match(o, ArgKind::Float);
    case ArgKind::Str:
      return PyUnicode_Check(o);
    case ArgKind::DType:
      return is_dtype(o) || o == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
             o == reinterpret_cast<PyObject*>(&PyLong_Type) || o == reinterpret_cast<PyObject*>(&PyBool_Type) ||
             o == reinterpret_cast<PyObject*>(&PyComplex_Type);
    case ArgKind::Device:
      return Py_TYPE(o) == device_type || PyUnicode_Check(o) || (PyLong_Check(o) && !PyBool_Check(o));
    case ArgKind::Layout:
      return Py_TYPE(o) == layout_type;
    case ArgKind::MemoryFormat:
      return Py_TYPE(o) == memory_format_type;
    case ArgKind::Generator:
      return Py_TYPE(o) == generator_type;
    case ArgKind::Any:
      return true;
  }
  return false;
}

}  // namespace tapegrad::python
