// Operators of Python on tensors: arithmetic with its reflected and in-place forms, comparison, conversion to numbers.
// Each slot calls the generated method. NumPy's arrays become tensors on either side. For unsupported operands an
// operator returns NotImplemented, so that Python tries the other operand.
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/nested_data.h"
#include "tapegrad/bindings/arguments/override.h"
#include "tapegrad/bindings/exchange/numpy.h"
#include "tapegrad/bindings/record/reads.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/c10/threads/stack.h"

namespace tapegrad::python {

namespace {

enum Operator {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kRemainder,
  kPow,
  kMatmul,
  kAnd,
  kOr,
  kXor,
  kLeft,
  kRight,
  kNumBinary
};
constexpr const char* kBinaryNames[kNumBinary] = {
    "add",    "sub",         "mul",        "div",         "floor_divide",       "remainder",          "pow",
    "matmul", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"};
constexpr const char* kPythonNames[kNumBinary] = {"add",    "sub", "mul", "truediv", "floordiv", "mod",   "pow",
                                                  "matmul", "and", "or",  "xor",     "lshift",   "rshift"};
constexpr bool commutes(int op) { return op == kAdd || op == kMul || op == kAnd || op == kOr || op == kXor; }

constexpr const char* kCompareNames[6] = {"lt", "le", "eq", "ne", "gt", "ge"};  // in the order of Py_LT ...

FastCall binary_calls[kNumBinary];
FastCall inplace_calls[kNumBinary];
FastCall compare_calls[6];
FastCall neg_call, abs_call, invert_call, unbind_call;

PyObject* not_implemented() noexcept { Py_RETURN_NOTIMPLEMENTED; }
bool is_operand(PyObject* o) noexcept { return is_exact_tensor(o) || is_number(o) || is_tensor(o); }

// An array as a tensor; null without an exception when `o` is no array or tensors have no such dtype.
PyRef tensor_of_array(PyObject* o) {
  if (!is_numpy_array(o) || !array_dtype(o)) return {};
  return own(wrap(tensor_from_data(o, std::nullopt, std::nullopt, false)));
}

// f(a, b) for a tensor `a` where b is neither a tensor nor a number.
TG_COLD PyObject* call_with_array(FastCall f, PyObject* a, PyObject* b) {
  TG_PY_TRY
  if (overrides(b)) return f(a, &b, 1, nullptr);  // which calls its override
  const PyRef other = tensor_of_array(b);
  if (!other) return not_implemented();
  PyObject* arg = other.get();
  return f(a, &arg, 1, nullptr);
  TG_PY_CATCH
}

// Whether both are plain tensors and no mode sees the call, so that nothing is to be parsed.
bool are_plain(PyObject* a, PyObject* b) noexcept {
  return is_exact_tensor(a) && is_exact_tensor(b) && override_modes == 0;
}

template <int kOp>
Tensor call_plain(const Tensor& a, const Tensor& b) {
  check_stack(kBinaryNames[kOp]);
  if constexpr (kOp == kAdd) return tapegrad::add(a, b);
  if constexpr (kOp == kSub) return tapegrad::sub(a, b);
  if constexpr (kOp == kMul) return tapegrad::mul(a, b);
  if constexpr (kOp == kDiv) return tapegrad::div(a, b);
  if constexpr (kOp == kMatmul) return tapegrad::matmul(a, b);
}

template <int kOp>
PyObject* binary(PyObject* a, PyObject* b) {
  if constexpr (kOp <= kDiv) {
    if (TG_LIKELY(are_plain(a, b))) {
      TG_PY_TRY
      return wrap(call_plain<kOp>(unwrap(a), unwrap(b)));
      TG_PY_CATCH
    }
  }
  FastCall f = binary_calls[kOp];
  if (TG_UNLIKELY(!f)) return not_implemented();
  if (TG_LIKELY(is_exact_tensor(a) || is_tensor(a))) {
    if (TG_UNLIKELY(!is_operand(b))) return call_with_array(f, a, b);
    return f(a, &b, 1, nullptr);
  }
  TG_PY_TRY
  // `a` is no tensor, and its own operator has given up; or it is a number.
  if (overrides(a) || (!commutes(kOp) && TG_UNLIKELY(overridden(b, nullptr, 0, nullptr)))) {
    static const std::string reflected = std::string("__r") + kPythonNames[kOp] + "__";
    return call_overridden_slot(reflected.c_str(), b, &a, 1);
  }
  if (!is_number(a)) {
    const PyRef left = tensor_of_array(a);
    return left ? f(left.get(), &b, 1, nullptr) : not_implemented();
  }
  if (commutes(kOp)) return f(b, &a, 1, nullptr);
  PyRef number = own(wrap(wrapped_number(to_scalar(a, {kBinaryNames[kOp], "input"}))));
  return f(number.get(), &b, 1, nullptr);
  TG_PY_CATCH
}

PyObject* matmul(PyObject* a, PyObject* b) {
  if (TG_LIKELY(are_plain(a, b))) {
    TG_PY_TRY
    return wrap(call_plain<kMatmul>(unwrap(a), unwrap(b)));
    TG_PY_CATCH
  }
  FastCall f = binary_calls[kMatmul];
  if (!f) return not_implemented();
  if (TG_LIKELY(is_tensor(a) && is_tensor(b))) return f(a, &b, 1, nullptr);
  if (is_tensor(a)) return call_with_array(f, a, b);
  TG_PY_TRY
  if (overrides(a)) return call_overridden_slot("__rmatmul__", b, &a, 1);
  const PyRef left = tensor_of_array(a);
  return left ? f(left.get(), &b, 1, nullptr) : not_implemented();
  TG_PY_CATCH
}

PyObject* power(PyObject* a, PyObject* b, PyObject* modulus) {
  if (modulus != Py_None) return not_implemented();
  return binary<kPow>(a, b);
}

template <int kOp>
PyObject* inplace(PyObject* a, PyObject* b) {
  FastCall f = inplace_calls[kOp];
  if (TG_UNLIKELY(!f)) return not_implemented();
  if (TG_UNLIKELY(!is_operand(b))) return call_with_array(f, a, b);
  return f(a, &b, 1, nullptr);
}
PyObject* inplace_power(PyObject* a, PyObject* b, PyObject*) { return inplace<kPow>(a, b); }

PyObject* compare(PyObject* a, PyObject* b, int op) {
  FastCall f = compare_calls[op];
  if (TG_UNLIKELY(!f)) return not_implemented();
  if (TG_UNLIKELY(!is_operand(b))) return call_with_array(f, a, b);
  return f(a, &b, 1, nullptr);
}

template <FastCall* kCall>
PyObject* unary(PyObject* o) {
  if (!*kCall) return not_implemented();
  return (*kCall)(o, nullptr, 0, nullptr);
}
PyObject* positive(PyObject* o) { return return_self(o); }

Scalar item_of(PyObject* o, const char* target) {
  const Tensor& t = unwrap(o);
  TG_CHECK(t.numel() == 1, Value, "{}: only a tensor with one element can be converted: got shape {}", target,
           format_ints(t.sizes()));
  return t.item();
}

int to_truth(PyObject* o) {
  if (TG_UNLIKELY(overridden(o, nullptr, 0, nullptr))) {
    const PyRef answer = own(call_overridden_slot("__bool__", o, nullptr, 0));
    return PyObject_IsTrue(answer.get());
  }
  const Tensor& t = unwrap(o);
  TG_CHECK(t.numel() == 1, Runtime,
           "bool: the truth of a tensor with {} elements is ambiguous: got shape {}\nuse .any() or .all()", t.numel(),
           format_ints(t.sizes()));
  if (TG_UNLIKELY(record::active())) return record::decide("bool", t);
  return t.item().to<bool>();
}

void check_real(const Scalar& value, const char* op) {
  TG_CHECK(!value.is_complex() || value.to<complex128_t>().imag() == 0, Runtime,
           "{}: value cannot be converted without overflow: the element is complex: take .real first", op);
}

PyObject* to_python_int(PyObject* o) {
  if (TG_UNLIKELY(overridden(o, nullptr, 0, nullptr))) return call_overridden_slot("__int__", o, nullptr, 0);
  const Scalar value = item_of(o, "int");
  check_real(value, "int");
  if (value.is_floating_point() || value.is_complex()) return PyLong_FromDouble(value.to<complex128_t>().real());
  return value.is_bool() ? PyLong_FromLong(value.to<bool>()) : wrap(value);
}

TG_COLD void warn_of_float() {
  warn_user(
      PyExc_UserWarning,
      "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior. Its gradient ends "
      "there: consider using tensor.detach() first, or .item().");
}

PyObject* to_python_float(PyObject* o) {
  if (TG_UNLIKELY(overridden(o, nullptr, 0, nullptr))) return call_overridden_slot("__float__", o, nullptr, 0);
  if (TG_UNLIKELY(unwrap(o).requires_grad())) warn_of_float();
  if (unwrap(o).is_floating_point())
    if (PyObject* read = read_by_program(o, "float")) return read;
  const Scalar value = item_of(o, "float");
  check_real(value, "float");
  return PyFloat_FromDouble(value.to<complex128_t>().real());
}

PyObject* to_python_index(PyObject* o) {
  if (TG_UNLIKELY(overridden(o, nullptr, 0, nullptr))) return call_overridden_slot("__index__", o, nullptr, 0);
  const Tensor& t = unwrap(o);
  TG_CHECK(t.numel() == 1 && !t.is_floating_point() && !t.is_complex(), Type,
           "index: only integer tensors with one element can be an index: got shape {} and dtype {}",
           format_ints(t.sizes()), t.dtype());
  const Scalar value = t.item();
  return value.is_bool() ? PyLong_FromLong(value.to<bool>()) : wrap(value);
}

PyObject* iterate(PyObject* o) {
  TG_CHECK(unwrap(o).ndim() > 0, Type, "iteration over a 0-d tensor");
  if (!unbind_call) return not_implemented();
  PyRef rows = own(unbind_call(o, nullptr, 0, nullptr));
  return PyObject_GetIter(rows.get());
}

}  // namespace

void add_number_slots(std::vector<Slot>& slots) {
  for (int i = 0; i < kNumBinary; ++i) {
    binary_calls[i] = find_method(kBinaryNames[i]);
    inplace_calls[i] = find_method((std::string(kBinaryNames[i]) + "_").c_str());
  }
  for (int i = 0; i < 6; ++i) compare_calls[i] = find_method(kCompareNames[i]);
  neg_call = find_method("neg");
  abs_call = find_method("abs");
  invert_call = find_method("bitwise_not");
  unbind_call = find_method("unbind");
  // clang-format off
  slots.insert(slots.end(), {
      {Py_nb_add, binary<kAdd>}, {Py_nb_subtract, binary<kSub>}, {Py_nb_multiply, binary<kMul>}, {Py_nb_true_divide, binary<kDiv>},
      {Py_nb_floor_divide, binary<kFloorDiv>}, {Py_nb_remainder, binary<kRemainder>}, {Py_nb_power, power}, {Py_nb_matrix_multiply, matmul},
      {Py_nb_and, binary<kAnd>}, {Py_nb_or, binary<kOr>}, {Py_nb_xor, binary<kXor>},
      {Py_nb_lshift, binary<kLeft>}, {Py_nb_rshift, binary<kRight>},
      {Py_nb_inplace_add, inplace<kAdd>}, {Py_nb_inplace_subtract, inplace<kSub>}, {Py_nb_inplace_multiply, inplace<kMul>},
      {Py_nb_inplace_true_divide, inplace<kDiv>}, {Py_nb_inplace_floor_divide, inplace<kFloorDiv>},
      {Py_nb_inplace_remainder, inplace<kRemainder>}, {Py_nb_inplace_power, inplace_power},
      {Py_nb_inplace_and, inplace<kAnd>}, {Py_nb_inplace_or, inplace<kOr>}, {Py_nb_inplace_xor, inplace<kXor>},
      {Py_nb_inplace_lshift, inplace<kLeft>}, {Py_nb_inplace_rshift, inplace<kRight>},
      {Py_nb_negative, unary<&neg_call>}, {Py_nb_positive, positive}, {Py_nb_absolute, unary<&abs_call>}, {Py_nb_invert, unary<&invert_call>},
      {Py_nb_bool, guarded<to_truth>}, {Py_nb_int, guarded<to_python_int>}, {Py_nb_float, guarded<to_python_float>}, {Py_nb_index, guarded<to_python_index>},
      {Py_tp_richcompare, compare}, {Py_tp_iter, guarded<iterate>}});
  // clang-format on
}

}  // namespace tapegrad::python
