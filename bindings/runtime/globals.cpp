// Settings and questions about dtypes: the defaults, threads, promotion.
#include "tapegrad/aten/iterate/pointwise.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/bindings/arguments/keyword_method.h"
#include "tapegrad/bindings/arguments/override.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/dispatch/kernel_table.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::python {

namespace {

void set_floating_default(PyObject* o) {
  const DType dtype = to_dtype(o, {"set_default_dtype", "d", 1});
  TG_CHECK(is_floating_point(dtype), Type, "set_default_dtype: expected a floating dtype: got {}", dtype);
  set_default_dtype(dtype);
}

void set_threads(PyObject* o) {
  const int64_t n = to_int(o, {"set_num_threads", "num", 1});
  TG_CHECK(n >= 1 && n <= 1024, Runtime, "set_num_threads: expected 1 to 1024 threads: got {}", n);
  set_num_threads(static_cast<int>(n));
}

// A question about one tensor, which other types may answer in its place.
template <class Query>
PyObject* ask(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (TG_UNLIKELY(overridden(nullptr, args, nargs, kwnames)))
    return call_overridden(as_c_function(guarded<ask<Query>>), nullptr, args, nargs, kwnames);
  static Signature signature = rows::Written<"(Tensor input)", false>::named(Query::name);
  Arguments<1> a(signature);
  return a.unpack(nullptr, args, nargs, kwnames) ? wrap(Query::answer(a.tensor(0))) : nullptr;
}

struct IsFloatingPoint {
  static constexpr const char* name = "is_floating_point";
  static bool answer(const Tensor& t) { return t.is_floating_point(); }
};
struct IsComplex {
  static constexpr const char* name = "is_complex";
  static bool answer(const Tensor& t) { return t.is_complex(); }
};
struct Numel {
  static constexpr const char* name = "numel";
  static int64_t answer(const Tensor& t) {
    record::note_size(t, name, record::kAskedNumel);
    return t.numel();
  }
};
struct IsNonzero {
  static constexpr const char* name = "is_nonzero";
  static bool answer(const Tensor& t) {
    TG_CHECK(t.numel() == 1, Runtime, "is_nonzero: Boolean value of Tensor with {} is ambiguous: got shape {}",
             t.numel() == 0 ? "no values" : "more than one value", format_ints(t.sizes()));
    return record::active() ? record::decide("is_nonzero", t) : t.item().to<bool>();
  }
};

DType promoted(PyObject* a, PyObject* b) {
  return promote_types(to_dtype(a, {"promote_types", "type1", 1}), to_dtype(b, {"promote_types", "type2", 2}));
}

DType result_dtype(PyObject* a, PyObject* b) {
  const Operand x = to_operand(a, {"result_type", "tensor1", 1});
  const Operand y = to_operand(b, {"result_type", "tensor2", 2});
  const Tensor* both[] = {&x.tensor(), &y.tensor()};
  return pointwise::promoted_dtype(pointwise::Promotion::Promote, both);
}

PyObject* may_cast(const ArgumentsBase& a) { return wrap(can_cast(a.dtype(0), a.dtype(1))); }

}  // namespace

// clang-format off
PyMethodDef global_functions[] = {
    method<"get_default_dtype", [] { return default_dtype(); }>("get_default_dtype()\n--\n\nThe dtype of floating numbers without one of their own."),
    method<"set_default_dtype", set_floating_default>("set_default_dtype(d)\n--\n\nThe dtype of floating numbers from here on."),
    method<"get_default_device", [] { return default_device(); }>("get_default_device()\n--\n\nWhere tensors are made when nothing is said."),
    method<"set_default_device", [](PyObject* o) {
      set_default_device(o == Py_None ? Device() : to_device(o, {"set_default_device", "device", 1}));
    }>("set_default_device(device)\n--\n\nWhere tensors are made from here on."),
    method<"get_num_threads", [] { return get_num_threads(); }>("get_num_threads()\n--\n\nHow many threads an operator may use."),
    method<"set_num_threads", set_threads>("set_num_threads(num)\n--\n\nHow many threads an operator may use from here on."),
    method<"is_tensor", [](PyObject* o) { return is_tensor(o); }>("is_tensor(obj)\n--\n\nWhether an object is a tensor."),
    {"is_floating_point", as_c_function(guarded<ask<IsFloatingPoint>>), METH_FASTCALL | METH_KEYWORDS,
     "is_floating_point(input)\n--\n\nWhether the dtype is one of real floating numbers."},
    {"is_complex", as_c_function(guarded<ask<IsComplex>>), METH_FASTCALL | METH_KEYWORDS,
     "is_complex(input)\n--\n\nWhether the dtype is one of complex numbers."},
    {"numel", as_c_function(guarded<ask<Numel>>), METH_FASTCALL | METH_KEYWORDS,
     "numel(input)\n--\n\nThe number of elements."},
    {"is_nonzero", as_c_function(guarded<ask<IsNonzero>>), METH_FASTCALL | METH_KEYWORDS,
     "is_nonzero(input)\n--\n\nWhether the one element is not zero."},
    method<"promote_types", promoted>("promote_types(type1, type2)\n--\n\nThe dtype that holds values of both."),
    method<"result_type", result_dtype>(
        "result_type(tensor1, tensor2)\n--\n\nThe dtype of an operation on two tensors or numbers."),
    keyword_method<"can_cast", "(DType from_, DType to)", may_cast>("can_cast(from_, to)\n--\n\nWhether values of one dtype may be converted to another."),
    method<"_cpu_capability", [] { return std::string(isa_name(cpu_isa())); }>(),
    method<"_has_onednn", [] { return onednn::available(); }>(),
    {},
};
// clang-format on

}  // namespace tapegrad::python
