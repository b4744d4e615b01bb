// Settings and questions about dtypes: the defaults, threads, promotion.
#include "tapegrad/aten/iterate/pointwise.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/override.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/kernel_table.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::python {

namespace {

PyObject* get_default_dtype(PyObject*, PyObject*) { return wrap(default_dtype()); }

PyObject* set_default_dtype_(PyObject*, PyObject* o) {
  TG_PY_TRY
  const DType dtype = to_dtype(o, {"set_default_dtype", "d", 1});
  TG_CHECK(is_floating_point(dtype), Type, "set_default_dtype: expected a floating dtype: got {}", dtype);
  set_default_dtype(dtype);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* get_default_device(PyObject*, PyObject*) { return wrap(default_device()); }

PyObject* set_default_device_(PyObject*, PyObject* o) {
  TG_PY_TRY
  set_default_device(o == Py_None ? Device() : to_device(o, {"set_default_device", "device", 1}));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* get_num_threads_(PyObject*, PyObject*) {
  TG_PY_TRY
  return PyLong_FromLong(get_num_threads());
  TG_PY_CATCH
}

PyObject* set_num_threads_(PyObject*, PyObject* o) {
  TG_PY_TRY
  const int64_t n = to_int(o, {"set_num_threads", "num", 1});
  TG_CHECK(n >= 1 && n <= 1024, Runtime, "set_num_threads: expected 1 to 1024 threads: got {}", n);
  set_num_threads(static_cast<int>(n));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* is_tensor_(PyObject*, PyObject* o) { return PyBool_FromLong(is_tensor(o)); }

// A question about one tensor, which other types may answer in its place.
template <class Query>
PyObject* ask(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (TG_UNLIKELY(overridden(nullptr, args, nargs, kwnames)))
    return call_overridden(as_c_function(ask<Query>), nullptr, args, nargs, kwnames);
  TG_PY_TRY
  static constexpr Arg rows[] = {{"input", ArgKind::Tensor, kRequired}};
  static Signature signature{Query::name, rows, 1, 1, -1, "(Tensor input)"};
  Arguments<1> a(signature);
  if (!a.unpack(nullptr, args, nargs, kwnames)) return nullptr;
  return wrap(Query::answer(a.tensor(0)));
  TG_PY_CATCH
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
  static int64_t answer(const Tensor& t) { return t.numel(); }
};
struct IsNonzero {
  static constexpr const char* name = "is_nonzero";
  static bool answer(const Tensor& t) {
    TG_CHECK(t.numel() == 1, Runtime, "is_nonzero: expected a tensor with one element: got shape {}",
             format_ints(t.sizes()));
    return t.item().to<bool>();
  }
};

PyObject* promote(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject* a;
  PyObject* b;
  if (!PyArg_ParseTuple(args, "OO:promote_types", &a, &b)) return nullptr;
  return wrap(promote_types(to_dtype(a, {"promote_types", "type1", 1}), to_dtype(b, {"promote_types", "type2", 2})));
  TG_PY_CATCH
}

PyObject* result_type(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject* a;
  PyObject* b;
  if (!PyArg_ParseTuple(args, "OO:result_type", &a, &b)) return nullptr;
  const Operand x = to_operand(a, {"result_type", "tensor1", 1});
  const Operand y = to_operand(b, {"result_type", "tensor2", 2});
  const Tensor* both[] = {&x.tensor(), &y.tensor()};
  return wrap(pointwise::promoted_dtype(pointwise::Promotion::Promote, both));
  TG_PY_CATCH
}

PyObject* may_cast(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  TG_PY_TRY
  static constexpr Arg rows[] = {{"from_", ArgKind::DType, kRequired}, {"to", ArgKind::DType, kRequired}};
  static Signature signature{"can_cast", rows, 2, 2, -1, "(DType from_, DType to)"};
  Arguments<2> a(signature);
  if (!a.unpack(nullptr, args, nargs, kwnames)) return nullptr;
  return wrap(can_cast(a.dtype(0), a.dtype(1)));
  TG_PY_CATCH
}

PyObject* cpu_capability(PyObject*, PyObject*) {
  TG_PY_TRY
  return PyUnicode_FromString(isa_name(cpu_isa()));
  TG_PY_CATCH
}

}  // namespace

PyMethodDef global_functions[] = {
    {"get_default_dtype", get_default_dtype, METH_NOARGS, "The dtype of floating numbers without one of their own."},
    {"set_default_dtype", set_default_dtype_, METH_O, "set_default_dtype(d)"},
    {"get_default_device", get_default_device, METH_NOARGS, "Where tensors are made when nothing is said."},
    {"set_default_device", set_default_device_, METH_O, "set_default_device(device)"},
    {"get_num_threads", get_num_threads_, METH_NOARGS, "How many threads an operator may use."},
    {"set_num_threads", set_num_threads_, METH_O, "set_num_threads(num)"},
    {"is_tensor", is_tensor_, METH_O, "Whether an object is a tensor."},
    {"is_floating_point", as_c_function(ask<IsFloatingPoint>), METH_FASTCALL | METH_KEYWORDS,
     "is_floating_point(Tensor input)\n\nWhether the dtype is one of real floating numbers."},
    {"is_complex", as_c_function(ask<IsComplex>), METH_FASTCALL | METH_KEYWORDS,
     "is_complex(Tensor input)\n\nWhether the dtype is one of complex numbers."},
    {"numel", as_c_function(ask<Numel>), METH_FASTCALL | METH_KEYWORDS,
     "numel(Tensor input)\n\nThe number of elements."},
    {"is_nonzero", as_c_function(ask<IsNonzero>), METH_FASTCALL | METH_KEYWORDS,
     "is_nonzero(Tensor input)\n\nWhether the one element is not zero."},
    {"promote_types", promote, METH_VARARGS, "promote_types(type1, type2)\n\nThe dtype that holds values of both."},
    {"result_type", result_type, METH_VARARGS,
     "result_type(tensor1, tensor2)\n\nThe dtype of an operation on two tensors or numbers."},
    {"can_cast", as_c_function(may_cast), METH_FASTCALL | METH_KEYWORDS, "can_cast(from_, to)"},
    {"_cpu_capability", cpu_capability, METH_NOARGS, nullptr},
    {},
};

}  // namespace tapegrad::python
