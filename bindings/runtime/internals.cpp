// Functions of tapegrad._C for the package's own Python code: storages, out=, memory statistics.
#include <string>
#include <unordered_set>
#include <utility>

#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/autograd/generated_support.h"
#include "tapegrad/autograd/resize_inplace.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/tensor/tensor_object.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/allocator.h"

namespace tapegrad::python {

namespace {

// The whole storage of a tensor as bytes.
PyObject* storage_bytes(PyObject*, PyObject* o) {
  TG_PY_TRY
  const Tensor& t = to_tensor(o, {"_storage_bytes", "tensor", 1});
  TG_CHECK(!t.is_sparse(), NotImplemented,
           "storage: a sparse tensor has no storage of its own\nuse that of its indices() or values()");
  const Storage& storage = t.impl()->storage();
  return wrap(Tensor(
      make_intrusive<TensorImpl>(storage, DType::uint8, IntSpan(DimVector{static_cast<int64_t>(storage->nbytes())}))));
  TG_PY_CATCH
}

// _tensor_over(bytes, dtype, sizes, strides, offset): a tensor over the storage of another, checked.
PyObject* tensor_over(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject *bytes, *dtype_object, *size_object, *stride_object, *offset_object;
  if (!PyArg_ParseTuple(args, "OOOOO:_tensor_over", &bytes, &dtype_object, &size_object, &stride_object,
                        &offset_object))
    return nullptr;
  const char* op = "_tensor_over";
  const Storage& storage = to_tensor(bytes, {op, "bytes", 1}).impl()->storage();
  const DType dtype = to_dtype(dtype_object, {op, "dtype", 2});
  const DimVector sizes = to_ints(size_object, {op, "sizes", 3});
  const DimVector strides = to_ints(stride_object, {op, "strides", 4});
  const int64_t offset = to_int(offset_object, {op, "offset", 5});
  TG_CHECK(sizes.size() == strides.size(), Runtime, "{}: {} sizes and {} strides", op, sizes.size(), strides.size());
  checked_numel(sizes, op);
  check_in_bounds(sizes, strides, offset, dtype, storage->nbytes(), op);
  return wrap(Tensor(make_intrusive<TensorImpl>(storage, dtype, IntSpan(sizes), IntSpan(strides), offset)));
  TG_PY_CATCH
}

// _set_over(self, bytes, sizes, strides or None, offset): from then on self sees the storage of another tensor.
PyObject* set_over_storage(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject *self, *bytes, *size_object, *stride_object, *offset_object;
  if (!PyArg_ParseTuple(args, "OOOOO:_set_over", &self, &bytes, &size_object, &stride_object, &offset_object))
    return nullptr;
  const Tensor& t = to_tensor(self, {"set_", "self"});
  const DimVector sizes = to_ints(size_object, {"set_", "size", 3});
  checked_numel(sizes, "set_");
  const DimVector strides =
      stride_object == Py_None ? contiguous_strides(sizes) : to_ints(stride_object, {"set_", "stride", 4});
  const int64_t offset = to_int(offset_object, {"set_", "storage_offset", 2});
  autograd::set_over(t, to_tensor(bytes, {"set_", "source", 1}).impl()->storage(), sizes, strides, offset);
  return Py_NewRef(self);
  TG_PY_CATCH
}

// _write_out(name, out, result): what `out=` of a function means that is written in Python.
PyObject* write_result(PyObject*, PyObject* args) {
  TG_PY_TRY
  const char* given;
  PyObject *out_object, *result_object;
  if (!PyArg_ParseTuple(args, "sOO:_write_out", &given, &out_object, &result_object)) return nullptr;
  static auto* names = new std::unordered_set<std::string>;  // a version's last writer keeps a pointer
  const char* name = names->insert(given).first->c_str();
  const Tensor& out = to_tensor(out_object, {name, "out"});
  const Tensor& result = to_tensor(result_object, {name, "result"});
  if (grad_enabled() && (autograd::needs_grad(result) || autograd::needs_grad(out))) autograd::throw_recorded_out(name);
  write_out(name, out, result);
  autograd::bump_version(out, name);
  return Py_NewRef(out_object);
  TG_PY_CATCH
}

// _record_lines(flag): whether nodes and writes note the program's line; benchmarks measure what that costs.
PyObject* record_lines(PyObject*, PyObject* flag) {
  TG_PY_TRY
  static const auto capture = autograd::capture_site;
  autograd::capture_site = to_bool(flag, {"_record_lines", "flag"}) ? capture : nullptr;
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* memory_stats(PyObject*, PyObject*) {
  TG_PY_TRY
  const MemoryStats s = cpu_allocator().stats();
  return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsK}", "allocated", s.allocated, "max_allocated", s.max_allocated,
                       "reserved", s.reserved, "max_reserved", s.max_reserved, "cached", s.cached, "largest_free_block",
                       s.largest_free_block, "num_allocs", s.num_allocs, "num_frees", s.num_frees, "num_system_allocs",
                       s.num_system_allocs, "num_system_frees", s.num_system_frees, "num_retries", s.num_retries);
  TG_PY_CATCH
}

PyObject* memory_summary(PyObject*, PyObject*) {
  TG_PY_TRY
  return PyUnicode_FromString(cpu_allocator().summary().c_str());
  TG_PY_CATCH
}

PyObject* reset_peak(PyObject*, PyObject*) {
  TG_PY_TRY
  cpu_allocator().reset_peak();
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* empty_cache(PyObject*, PyObject*) {
  TG_PY_TRY
  cpu_allocator().empty_cache();
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// _swap_tensor_impl(a, b): each Python object gets the other's tensor. Nobody else may hold them, on the tape or in
// C++.
PyObject* swap_tensor_impl(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject *a, *b;
  if (!PyArg_ParseTuple(args, "OO:_swap_tensor_impl", &a, &b)) return nullptr;
  for (PyObject* o : {a, b}) {
    const Tensor& t = to_tensor(o, {"swap_tensors", o == a ? "t1" : "t2"});
    const auto uses = t.impl()->use_count();
    TG_CHECK(
        uses == 1 && !t.impl()->owns_python_object() && t.impl()->python_object() == o, Runtime,
        "Expected use_count of {} to be 1 but got {} make sure you are not holding references to the tensor in other "
        "places.",
        o == a ? "t1" : "t2", uses);
  }
  if (a != b) {
    std::swap(reinterpret_cast<PyTensor*>(a)->tensor, reinterpret_cast<PyTensor*>(b)->tensor);
    unwrap(a).impl()->set_python_object(a);
    unwrap(b).impl()->set_python_object(b);
  }
  Py_RETURN_NONE;
  TG_PY_CATCH
}

}  // namespace

PyMethodDef internal_functions[] = {
    {"_storage_bytes", storage_bytes, METH_O, nullptr},
    {"_tensor_over", tensor_over, METH_VARARGS, nullptr},
    {"_set_over", set_over_storage, METH_VARARGS, nullptr},
    {"_write_out", write_result, METH_VARARGS, nullptr},
    {"_swap_tensor_impl", swap_tensor_impl, METH_VARARGS, nullptr},
    {"_set_root_name", set_root_name, METH_O, nullptr},
    {"_record_lines", record_lines, METH_O, nullptr},
    {"_cpu_memory_stats", memory_stats, METH_NOARGS, nullptr},
    {"_cpu_memory_summary", memory_summary, METH_NOARGS, nullptr},
    {"_cpu_reset_peak", reset_peak, METH_NOARGS, nullptr},
    {"_cpu_empty_cache", empty_cache, METH_NOARGS, nullptr},
    {},
};

}  // namespace tapegrad::python
