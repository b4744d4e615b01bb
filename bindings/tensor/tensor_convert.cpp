// Conversions of tensors: to(), float() and its kin, cpu(), cuda(), tolist().
#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/keyword_method.h"
#include "tapegrad/bindings/record/reads.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::python {

namespace {

struct Target {
  std::optional<DType> dtype;
  std::optional<Device> device;
  bool non_blocking = false;
  bool copy = false;
  PyObject* memory_format = nullptr;  // borrowed; null: preserve
};

bool same_device(Device have, Device want) {
  return have.type == want.type && (want.type != DeviceType::CUDA || want.index < 0 || want.index == have.index);
}

// As PyTorch sees it, every layout is the contiguous format that does not look like channels_last.
bool has_format(const Tensor& t, PyObject* format) {
  return format == memory_format_object(MemoryFormat::Contiguous) && !(t.ndim() >= 4 && t.stride(1) == 1);
}

// The row `to` of the op table does the work; a tensor that is already there is returned as it is.
PyObject* convert(PyObject* self, const Target& target) {
  const Tensor& t = unwrap(self);
  if (target.memory_format) record::note_size(t, "to", record::kAskedGeometry);
  const bool there =
      (!target.dtype || *target.dtype == t.dtype()) &&
      (!target.device || same_device(batch::host_device(sparse::device(t)), batch::host_device(*target.device)));
  if (there && !target.copy && (!target.memory_format || has_format(t, target.memory_format))) return return_self(self);
  static const FastCall to = find_method("to");
  TG_CHECK(to, NotImplemented, "to: the operator is not built in");
  PyRef dtype = target.dtype ? own(wrap(*target.dtype)) : PyRef::borrow(Py_None);
  PyRef device = target.device ? own(wrap(*target.device)) : PyRef::borrow(Py_None);
  PyObject* args[] = {dtype.get(), device.get(), target.non_blocking ? Py_True : Py_False,
                      target.copy ? Py_True : Py_False, target.memory_format};
  if (!target.memory_format) return check(to(self, args, 4, nullptr));
  static PyObject* const names = Py_BuildValue("(s)", "memory_format");
  return check(to(self, args, 4, names));
}

bool is_preserve(PyObject* format) {
  return !format || format == Py_None || format == memory_format_object(MemoryFormat::Preserve);
}

// Slots behind the first ones are the same in all three forms.
Target target_tail(const ArgumentsBase& a, int first) {
  Target target;
  target.non_blocking = a.boolean(first, false);
  target.copy = a.boolean(first + 1, false);
  if (!is_preserve(a.object(first + 2))) {
    a.memory_format(first + 2, MemoryFormat::Preserve);  // checks the type
    target.memory_format = a.object(first + 2);
  }
  return target;
}

using ToDtype =
    rows::Written<"(DType dtype, bool non_blocking=False, bool copy=False, *, MemoryFormat? memory_format=None)", true>;
using ToDevice = rows::Written<
    "(Device? device=None, DType? dtype=None, bool non_blocking=False, bool copy=False, *, MemoryFormat? "
    "memory_format=None)",
    true>;
using ToOther =
    rows::Written<"(Tensor other, bool non_blocking=False, bool copy=False, *, MemoryFormat? memory_format=None)",
                  true>;
Signature to_dtype_form = ToDtype::named("to"), to_device_form = ToDevice::named("to"),
          to_other_form = ToOther::named("to");

PyObject* to(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs == 1 && !kwnames && is_dtype(args[0])) {
    Target target;
    target.dtype = unwrap_dtype(args[0]);
    return convert(self, target);
  }
  if (Arguments<5> a(to_dtype_form); a.try_unpack(self, args, nargs, kwnames)) {
    Target target = target_tail(a, 2);
    target.dtype = a.dtype(1);
    return convert(self, target);
  }
  if (Arguments<6> a(to_device_form); a.try_unpack(self, args, nargs, kwnames)) {
    Target target = target_tail(a, 3);
    target.device = a.optional_device(1);
    target.dtype = a.optional_dtype(2);
    return convert(self, target);
  }
  if (Arguments<5> a(to_other_form); a.try_unpack(self, args, nargs, kwnames)) {
    Target target = target_tail(a, 2);
    target.dtype = a.tensor(1).dtype();
    target.device = sparse::device(a.tensor(1));
    return convert(self, target);
  }
  return no_overload("to", {&to_dtype_form, &to_device_form, &to_other_form}, self, args, nargs, kwnames);
}

template <DType kTarget>
PyObject* to_fixed_dtype(PyObject* self, const ArgumentsBase& a) {
  Target target;
  target.dtype = kTarget;
  if (!is_preserve(a.object(1))) target.memory_format = a.object(1);
  return convert(self, target);
}

PyObject* cpu(PyObject* self, const ArgumentsBase& a) {
  Target target;
  target.device = Device();
  if (!is_preserve(a.object(1))) target.memory_format = a.object(1);
  return convert(self, target);
}

PyObject* cuda(PyObject* self, const ArgumentsBase& a) {
  Target target;
  target.device = a.device(1, Device(DeviceType::CUDA, -1));
  TG_CHECK(target.device->is_cuda(), Runtime, "cuda: the device must be a CUDA device: got {}", *target.device);
  target.non_blocking = a.boolean(2, false);
  if (!is_preserve(a.object(3))) target.memory_format = a.object(3);
  return convert(self, target);
}

template <class T>
PyObject* element(const char* p) {
  const auto value = static_cast<compute_t<T>>(*reinterpret_cast<const T*>(p));
  if constexpr (std::is_same_v<T, bool>)
    return PyBool_FromLong(value);
  else if constexpr (is_complex_type<compute_t<T>>)
    return PyComplex_FromDoubles(value.real(), value.imag());
  else if constexpr (std::is_unsigned_v<T>)
    return PyLong_FromUnsignedLongLong(value);
  else if constexpr (std::is_integral_v<T>)
    return PyLong_FromLongLong(value);
  else
    return PyFloat_FromDouble(static_cast<double>(value));
}

using Element = PyObject* (*)(const char*);

PyObject* nested_list(const Tensor& t, int dim, const char* p, Element make, WorkCount& done) {
  if (dim == t.ndim()) return check(make(p));
  const int64_t n = t.impl()->size(dim);
  const int64_t stride = t.impl()->stride(dim) * static_cast<int64_t>(t.itemsize());
  PyRef list = own(PyList_New(n));
  int64_t i = 0;
  try {
    for (; i < n; ++i, done()) PyList_SET_ITEM(list.get(), i, nested_list(t, dim + 1, p + i * stride, make, done));
  } catch (...) {
    Py_SET_SIZE(list.get(), i);  // what is not there yet need not be looked through
    throw;
  }
  return list.release();
}

PyObject* tolist(PyObject* self, PyObject*) {
  PyRef local = PyRef::borrow(self);
  if (unwrap(self).is_cuda()) {
    Target target;
    target.device = Device();
    local = PyRef(convert(self, target));
  }
  const Tensor t = unwrap(local.get());
  if (t.is_batched()) batch::throw_needs_values("tolist");
  TG_CHECK(!t.is_meta(), NotImplemented, "tolist: a meta tensor has no data");
  TG_CHECK(!t.is_sparse(), NotImplemented, "tolist: not there for sparse tensors\nuse to_dense()");
  if (PyObject* read = read_by_program(local.get(), "tolist")) return read;
  record::note_read("tolist", t);
  Element make = dispatch_stored(t.dtype(), []<class T>() -> Element { return element<T>; });
  WorkCount done;
  return nested_list(t, 0, static_cast<const char*>(t.data_ptr()), make, done);
}

#define TG_TO(name, dtype)                                                                     \
  keyword_method<name, "(*, MemoryFormat? memory_format=None)", to_fixed_dtype<DType::dtype>>( \
      name "($self, *, memory_format=None)\n--\n\nThe tensor as " #dtype ".")

}  // namespace

PyMethodDef tensor_convert_methods[] = {
    {"to", as_c_function(guarded<to>), METH_FASTCALL | METH_KEYWORDS,
     "to($self, *args, **kwargs)\n--\n\nto(dtype) | to(device, dtype) | to(other)\n\nThe tensor in another dtype or on "
     "another device; itself when "
     "nothing changes."},
    // clang-format off
    TG_TO("float", float32), TG_TO("double", float64), TG_TO("half", float16), TG_TO("bfloat16", bfloat16),
    TG_TO("int", int32), TG_TO("long", int64), TG_TO("short", int16), TG_TO("char", int8), TG_TO("byte", uint8),
    TG_TO("bool", bool_), TG_TO("cfloat", complex64), TG_TO("cdouble", complex128),
    TG_TO("chalf", complex32),
    // clang-format on
    keyword_method<"cpu", "(*, MemoryFormat? memory_format=None)", cpu>(
        "cpu($self, *, memory_format=None)\n--\n\nThe tensor in the memory of the CPU."),
    keyword_method<"cuda", "(Device? device=None, bool non_blocking=False, *, MemoryFormat? memory_format=None)", cuda>(
        "cuda($self, device=None, non_blocking=False, *, memory_format=None)\n--\n\nThe tensor on a CUDA device."),
    {"tolist", guarded<tolist>, METH_NOARGS,
     "tolist($self)\n--\n\nThe elements as nested lists of numbers; a number for zero dimensions."},
    {},
};

}  // namespace tapegrad::python
