// Methods that query a tensor.
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/keyword_method.h"
#include "tapegrad/bindings/record/followed.h"
#include "tapegrad/bindings/record/reads.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/c10/device/device_interface.h"

namespace tapegrad::python {

namespace {

using Query = PyObject* (*)(const Tensor& t);

template <Query kQuery>
PyObject* query(PyObject* o, PyObject*) {
  TG_PY_TRY
  return kQuery(unwrap(o));
  TG_PY_CATCH
}
#define TG_QUERY(expression) query<[](const Tensor& t) -> PyObject* { return (expression); }>

PyObject* item(PyObject* self, PyObject*) {
  if (PyObject* read = read_by_program(self, "item")) return read;
  return wrap(unwrap(self).item());
}

PyObject* read_numel(const Tensor& t) {
  if (TG_UNLIKELY(record::active()))
    if (PyObject* followed = follow_sizes(t, "numel", record::kAskedNumel)) return followed;
  record::note_size(t, "numel", record::kAskedNumel);
  return PyLong_FromLongLong(t.numel());
}

// size() and stride(): all of them, or that of one dimension.
template <bool kStride>
PyObject* sizes(PyObject* self, const ArgumentsBase& a) {
  const Tensor& t = unwrap(self);
  if (TG_UNLIKELY(record::active())) {
    const bool one = a.has(1) && !kStride && t.ndim() > 0;
    const int64_t dim = one ? a.integer(1) : 0;
    const bool valid = one && dim >= -t.ndim() && dim < t.ndim();
    const int which = valid     ? static_cast<int>(dim < 0 ? dim + t.ndim() : dim)
                      : kStride ? record::kAskedGeometry
                                : record::kAskedSizes;
    if (valid || (!kStride && !a.has(1)))
      if (PyObject* followed = follow_sizes(t, "size", which)) return followed;
    record::note_size(t, kStride ? "stride" : "size", which);
    if (valid) record::note_size(t, "size", record::kAskedNdim);
  }
  if (a.has(1)) return PyLong_FromLongLong(kStride ? t.stride(a.integer(1)) : t.size(a.integer(1)));
  if (!kStride) return wrap(t.sizes());
  const auto stride = [&](size_t d) { return PyLong_FromLongLong(t.impl()->stride(static_cast<int>(d))); };
  return new_tuple(static_cast<size_t>(t.ndim()), stride).release();
}

PyObject* is_contiguous(PyObject* self, const ArgumentsBase& a) {
  const Tensor& t = unwrap(self);
  record::note_size(t, "is_contiguous", record::kAskedGeometry);
  if (!a.has(1)) return wrap(t.is_contiguous());
  return wrap(t.is_contiguous(a.memory_format(1, MemoryFormat::Contiguous)));
}

// Without the library of a device there is no pinned memory, and asking must not load it.
PyObject* is_pinned(const Tensor& t) {
  const bool possible = t.is_cpu() && !t.is_sparse() && device_interface_loaded(DeviceType::CUDA);
  return wrap(possible && device_interface(DeviceType::CUDA)->is_pinned(t.impl()->storage()->data()));
}
PyObject* device_index(const Tensor& t) {
  const Device device = sparse::device(t);
  return PyLong_FromLong(device.is_cuda() ? device.index : -1);
}

bool is_set_to(PyTensor& self, PyObject* other) {
  const Tensor& a = self.tensor;
  const Tensor& b = to_tensor(other, {"is_set_to", "tensor", 1});
  for (const Tensor& t : {a, b}) record::note_size(t, "is_set_to", record::kAskedGeometry);
  return a.impl()->storage() == b.impl()->storage() && a.storage_offset() == b.storage_offset() &&
         a.sizes() == b.sizes() && a.strides() == b.strides();
}

bool shares_storage(PyTensor& self, PyObject* other) {
  return self.tensor.impl()->storage() == to_tensor(other, {"_shares_storage", "other", 1}).impl()->storage();
}

// A number for the storage, equal for tensors that share it.
PyObject* storage_id(const Tensor& t) { return PyLong_FromVoidPtr(t.impl()->storage().get()); }
PyObject* storage_nbytes(const Tensor& t) {
  record::note_size(t, "the size of a storage", record::kAskedGeometry);
  return PyLong_FromSize_t(t.impl()->storage()->nbytes());
}
PyObject* storage_address(const Tensor& t) {
  record::note_host_read("data_ptr");
  return PyLong_FromVoidPtr(t.impl()->storage()->data());
}

PyObject* as_subclass(PyObject* o, PyObject* type) {
  TG_CHECK(PyType_Check(type) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), tensor_type), Type,
           "as_subclass: expected a subclass of Tensor");
  const Tensor& t = unwrap(o);
  return wrap_as(reinterpret_cast<PyTypeObject*>(type), view_as(t, t));  // over the same memory, known to the tape
}

// Tensor._make_subclass(cls, data, require_grad=False): the detached data as an instance of cls.
PyObject* make_subclass(PyObject*, PyObject* args, PyObject* kwargs) {
  // The last four choose what PyTorch's dispatcher does for wrappers.
  static const char* names[] = {"cls",
                                "data",
                                "require_grad",
                                "dispatch_sizes_strides_policy",
                                "dispatch_device",
                                "dispatch_layout",
                                "_extra_dispatch_keys",
                                nullptr};
  PyObject *type, *data, *ignored;
  int requires_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O|pOOOO:_make_subclass", const_cast<char**>(names), &PyType_Type,
                                   &type, &data, &requires_grad, &ignored, &ignored, &ignored, &ignored))
    return nullptr;
  TG_CHECK(PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), tensor_type), Type,
           "_make_subclass: expected a subclass of Tensor");
  Tensor t = to_tensor(data, {"_make_subclass", "data", 2}).detach();
  PyRef result = own(wrap_as(reinterpret_cast<PyTypeObject*>(type), t));
  if (requires_grad) t.set_requires_grad(true);
  return result.release();
}

bool same_size(PyTensor& self, PyObject* other) {
  const Tensor& t = to_tensor(other, {"is_same_size", "other", 1});
  for (const Tensor& each : {self.tensor, t}) record::note_size(each, "is_same_size", record::kAskedSizes);
  return self.tensor.sizes() == t.sizes();
}

}  // namespace

PyMethodDef tensor_basic_methods[] = {
    keyword_method<"size", "(int? dim=None)", sizes<false>>("size($self, dim=None)\n--\n\nAll sizes, or one."),
    keyword_method<"stride", "(int? dim=None)", sizes<true>>("stride($self, dim=None)\n--\n\nAll strides, or one."),
    {"dim", TG_QUERY((record::note_size(t, "dim", record::kAskedNdim), PyLong_FromLong(t.ndim()))), METH_NOARGS,
     "dim($self)\n--\n\nThe number of dimensions."},
    {"ndimension", TG_QUERY((record::note_size(t, "ndimension", record::kAskedNdim), PyLong_FromLong(t.ndim()))),
     METH_NOARGS, "ndimension($self)\n--\n\nThe number of dimensions."},
    {"numel", TG_QUERY(read_numel(t)), METH_NOARGS, "numel($self)\n--\n\nThe number of elements."},
    {"nelement", TG_QUERY(read_numel(t)), METH_NOARGS, "nelement($self)\n--\n\nThe number of elements."},
    {"storage_offset",
     TG_QUERY(
         (record::note_size(t, "storage_offset", record::kAskedGeometry), PyLong_FromLongLong(t.storage_offset()))),
     METH_NOARGS, "storage_offset($self)\n--\n\nThe position of the first element in the storage, in elements."},
    {"data_ptr", TG_QUERY((record::note_host_read("data_ptr"), PyLong_FromVoidPtr(t.numel() ? t.data_ptr() : nullptr))),
     METH_NOARGS, "data_ptr($self)\n--\n\nThe address of the first element."},
    {"element_size", TG_QUERY(PyLong_FromSize_t(t.itemsize())), METH_NOARGS,
     "element_size($self)\n--\n\nBytes per element."},
    {"item", guarded<item>, METH_NOARGS,
     "item($self)\n--\n\nThe one element of a tensor with one element, as a number."},
    keyword_method<"is_contiguous", "(MemoryFormat? memory_format=None)", is_contiguous>(
        "is_contiguous($self, memory_format=None)\n--\n\nWhether the elements lie in order without gaps."),
    {"is_floating_point", TG_QUERY(wrap(t.is_floating_point())), METH_NOARGS,
     "is_floating_point($self)\n--\n\nWhether the dtype is one of floating numbers; complex ones are not."},
    {"is_complex", TG_QUERY(wrap(t.is_complex())), METH_NOARGS,
     "is_complex($self)\n--\n\nWhether the dtype is complex."},
    {"is_signed", TG_QUERY(wrap(is_signed(t.dtype()))), METH_NOARGS,
     "is_signed($self)\n--\n\nWhether the dtype has negative numbers."},
    {"is_inference", TG_QUERY(wrap(t.impl()->is_inference())), METH_NOARGS,
     "is_inference($self)\n--\n\nWhether it was made under inference_mode."},
    {"is_conj", [](PyObject*, PyObject*) { return Py_NewRef(Py_False); }, METH_NOARGS,
     "is_conj($self)\n--\n\nFalse: conj() computes its result."},
    {"is_neg", [](PyObject*, PyObject*) { return Py_NewRef(Py_False); }, METH_NOARGS,
     "is_neg($self)\n--\n\nFalse: neg() computes its result."},
    {"resolve_conj", [](PyObject* o, PyObject*) { return return_self(o); }, METH_NOARGS,
     "resolve_conj($self)\n--\n\nThe tensor itself: nothing is left to be conjugated."},
    {"resolve_neg", [](PyObject* o, PyObject*) { return return_self(o); }, METH_NOARGS,
     "resolve_neg($self)\n--\n\nThe tensor itself: nothing is left to be negated."},
    method<"is_set_to", is_set_to>(
        "is_set_to($self, tensor)\n--\n\nWhether both are the same view of the same memory."),
    method<"is_same_size", same_size>("is_same_size($self, other)\n--\n\nWhether both have the same sizes."),
    {"get_device", TG_QUERY(device_index(t)), METH_NOARGS,
     "get_device($self)\n--\n\nThe index of a CUDA device; -1 on the CPU."},
    {"is_pinned",
     as_c_function(+[](PyObject* o, PyObject* const*, Py_ssize_t, PyObject*) { return is_pinned(unwrap(o)); }),
     METH_FASTCALL | METH_KEYWORDS,
     "is_pinned($self, device=None)\n--\n\nWhether it lies in host memory that a GPU reads on its own."},
    method<"_shares_storage", shares_storage>(),
    {"_storage_id", TG_QUERY(storage_id(t)), METH_NOARGS, nullptr},
    {"_storage_nbytes", TG_QUERY(storage_nbytes(t)), METH_NOARGS, nullptr},
    {"_storage_address", TG_QUERY(storage_address(t)), METH_NOARGS, nullptr},
    {"as_subclass", guarded<as_subclass>, METH_O,
     "as_subclass($self, cls)\n--\n\nThe same memory as an instance of a subclass of Tensor."},
    {"_make_subclass", as_c_function(guarded<make_subclass>), METH_VARARGS | METH_KEYWORDS | METH_STATIC, nullptr},
    {},
};

}  // namespace tapegrad::python
