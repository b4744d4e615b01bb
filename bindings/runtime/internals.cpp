// Functions of tapegrad._C for the package's own Python code: storages, out=, memory statistics.
#include <string>
#include <unordered_set>
#include <utility>

#include "tapegrad/aten/copy/resize.h"
#include "tapegrad/aten/create/unset.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/autograd/generated_support.h"
#include "tapegrad/autograd/resize_inplace.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/exchange/numpy.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/tensor/tensor_object.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/dispatch/work_counters.h"
#include "tapegrad/c10/memory/allocator.h"

namespace tapegrad::python {

namespace {

// The whole storage of a tensor as bytes.
PyObject* storage_bytes(PyObject* o) {
  const Tensor& t = to_tensor(o, {"_storage_bytes", "tensor", 1});
  TG_CHECK(!t.is_sparse(), NotImplemented,
           "storage: a sparse tensor has no storage of its own\nuse that of its indices() or values()");
  const Storage& storage = t.impl()->storage();
  return wrap(Tensor(
      make_intrusive<TensorImpl>(storage, DType::uint8, IntSpan(DimVector{static_cast<int64_t>(storage->nbytes())}))));
}

void storage_resize(PyObject* o, int64_t nbytes) {
  TG_CHECK(nbytes >= 0, Runtime, "resize_: a storage cannot have {} bytes", nbytes);
  resize_storage(to_tensor(o, {"_storage_resize", "tensor", 1}).impl()->storage(), static_cast<size_t>(nbytes));
}

// _tensor_over(bytes, dtype, sizes, strides, offset): a tensor over the storage of another, checked.
PyObject* tensor_over(PyObject* bytes, PyObject* dtype_object, PyObject* size_object, PyObject* stride_object,
                      PyObject* offset_object) {
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
}

// _set_over(self, bytes, sizes, strides or None, offset): from then on self sees the storage of another tensor.
PyObject* set_over_storage(PyObject* self, PyObject* bytes, PyObject* size_object, PyObject* stride_object,
                           PyObject* offset_object) {
  const Tensor& t = to_tensor(self, {"set_", "self"});
  const DimVector sizes = to_ints(size_object, {"set_", "size", 3});
  checked_numel(sizes, "set_");
  const DimVector strides =
      stride_object == Py_None ? contiguous_strides(sizes) : to_ints(stride_object, {"set_", "stride", 4});
  const int64_t offset = to_int(offset_object, {"set_", "storage_offset", 2});
  autograd::set_over(t, to_tensor(bytes, {"set_", "source", 1}).impl()->storage(), sizes, strides, offset);
  return Py_NewRef(self);
}

// _write_out(name, out, result): what `out=` of a function means that is written in Python.
PyObject* write_result(std::string_view given, PyObject* out_object, PyObject* result_object) {
  static auto* names = new std::unordered_set<std::string>;  // a version's last writer keeps a pointer
  const char* name = names->emplace(given).first->c_str();
  const Tensor& out = to_tensor(out_object, {name, "out"});
  const Tensor& result = to_tensor(result_object, {name, "result"});
  if (grad_enabled() && (autograd::needs_grad(result) || autograd::needs_grad(out))) autograd::throw_recorded_out(name);
  write_out(name, out, result);
  autograd::bump_version(out, name);
  return Py_NewRef(out_object);
}

// _record_lines(flag): whether nodes and writes note the program's line; benchmarks measure what that costs.
void record_lines(PyObject* flag) {
  static const auto capture = autograd::capture_site;
  autograd::capture_site = to_bool(flag, {"_record_lines", "flag"}) ? capture : nullptr;
}

PyObject* memory_stats() {
  const MemoryStats s = cpu_allocator().stats();
  return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsKsK}", "allocated", s.allocated, "max_allocated", s.max_allocated,
                       "reserved", s.reserved, "max_reserved", s.max_reserved, "cached", s.cached, "largest_free_block",
                       s.largest_free_block, "num_allocs", s.num_allocs, "num_frees", s.num_frees, "num_system_allocs",
                       s.num_system_allocs, "num_system_frees", s.num_system_frees, "num_retries", s.num_retries);
}

// _stop_counting_work() -> {"library_calls": , "copies": }, since _start_counting_work()
PyObject* stop_counting() {
  const WorkCounts c = stop_counting_work();
  return Py_BuildValue("{sLsL}", "library_calls", static_cast<long long>(c.library_calls), "copies",
                       static_cast<long long>(c.copies));
}

// _swap_tensor_impl(a, b): each Python object gets the other's tensor. Nobody else may hold them, on the tape or in
// C++.
void swap_tensor_impl(PyObject* a, PyObject* b) {
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
}

}  // namespace

PyMethodDef internal_functions[] = {
    method<"_storage_bytes", storage_bytes>(),
    method<"_storage_resize", storage_resize>(),
    method<"_storage_resizable",
           [](PyObject* o) {
             return to_tensor(o, {"_storage_resizable", "tensor", 1}).impl()->storage()->resizable();
           }>(),
    method<"_tensor_over", tensor_over>(),
    method<"_set_over", set_over_storage>(),
    method<"_write_out", write_result>(),
    method<"_swap_tensor_impl", swap_tensor_impl>(),
    method<"_set_warn_always", [](PyObject* on) { warns_always = to_bool(on, {"set_warn_always", "b", 1}); }>(),
    method<"_set_fills_unset", [](PyObject* on) { set_fills_unset(to_bool(on, {"_set_fills_unset", "on", 1})); }>(),
    {"_set_root_name", set_root_name, METH_O, nullptr},
    method<"_record_lines", record_lines>(),
    method<"_start_counting_work", [] { start_counting_work(); }>(),
    method<"_stop_counting_work", stop_counting>(),
    method<"_cpu_memory_stats", memory_stats>(),
    method<"_cpu_memory_summary", [] { return cpu_allocator().summary(); }>(),
    method<"_cpu_reset_peak", [] { cpu_allocator().reset_peak(); }>(),
    method<"_cpu_empty_cache", [] { cpu_allocator().empty_cache(); }>(),
    {},
};

}  // namespace tapegrad::python
