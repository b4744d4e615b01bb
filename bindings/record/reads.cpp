// tapegrad._C._set_reader, _note_read, _read_copy and _peek: see reads.h.
#include "tapegrad/bindings/record/reads.h"

#include <utility>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/chain/loop.h"
#include "tapegrad/aten/record/device/compile_queue.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/record/passes/passes.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/gil.h"
#include "tapegrad/bindings/record/followed.h"
#include "tapegrad/bindings/record/places.h"
#include "tapegrad/bindings/tensor/tensor_object.h"
#include "tapegrad/bindings/values/value_objects.h"

namespace tapegrad::python {

PyTypeObject* followed_type = nullptr;

namespace {

constinit thread_local PyObject* reader = nullptr;  // owned; what a thread leaves behind at its end is lost
// The reader's, or null.
PyRef places_of_reader() {
  if (reader == nullptr) return {};
  PyRef places = own(PyObject_GetAttrString(reader, "sizes"));
  TG_CHECK(PyObject_TypeCheck(places.get(), sizes_type), Type, "a reader has no sizes");
  return places;
}

// Numbers and lists are told apart by identity, which small integers do not have: this one does.
PyObject* integer_of_its_own(PyObject* value) {
  int overflow = 0;
  const long small = PyLong_AsLongAndOverflow(value, &overflow);
  if (overflow != 0 || small < -5 || small > 256) return value;
  const PyRef shared(value);
  PyLongObject* made = _PyLong_New(small == 0 ? 0 : 1);
  if (made == nullptr) throw_python_error();
  const auto digit = static_cast<::digit>(small < 0 ? -small : small);
#if PY_VERSION_HEX >= 0x030C0000
  made->long_value.ob_digit[0] = digit;
  if (small < 0) made->long_value.lv_tag = (1 << _PyLong_NON_SIZE_BITS) | 2;
#else
  if (small != 0) made->ob_digit[0] = digit;
  if (small < 0) Py_SET_SIZE(made, -1);
#endif
  return reinterpret_cast<PyObject*>(made);
}

PyObject* set_reader(PyObject*, PyObject* next) {
  PyRef before = exchange_reader(next == Py_None ? PyRef() : PyRef::borrow(next));
  return before ? before.release() : Py_NewRef(Py_None);
}

// peek(tensor, what): the number, or the list, without a note of it; an object of its own.
PyObject* peek(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  TG_CHECK(nargs == 2 && is_tensor(args[0]) && PyUnicode_Check(args[1]), Type, "_peek: expected a tensor and a method");
  const ModeGuard off(0, kModeRecord);
  PyObject* made = check(PyObject_CallMethodNoArgs(args[0], args[1]));
  return PyLong_CheckExact(made) ? integer_of_its_own(made) : made;
  TG_PY_CATCH
}

// As its __new__ in Python makes it.
PyObject* new_followed(int64_t value, int64_t symbol) {
  static PyObject* const name = PyUnicode_InternFromString("symbol");
  const PyRef args = own(Py_BuildValue("(L)", static_cast<long long>(value)));
  PyRef made = own(PyLong_Type.tp_new(followed_type, args.get(), nullptr));
  check_status(PyObject_SetAttr(made.get(), name, own(PyLong_FromLongLong(symbol)).get()));
  return made.release();
}

// clang-format off
PyMethodDef reads_functions[] = {
    // The type of integers that are followed: called with a value and a symbol, which is their attribute `symbol`.
    method<"_set_followed_type", [](PyObject* type) {
      TG_CHECK(PyType_Check(type), Type, "_set_followed_type: expected a type");
      followed_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
    }>(),
    method<"_set_loops", [](bool enabled) { return record::set_loops(enabled); }>("Whether later plans have loops made at run time; returns what was."),
    method<"_set_passes", [](int64_t passes) { return static_cast<int64_t>(record::set_passes(static_cast<uint32_t>(passes))); }>("Which passes (aten/record/passes/passes.h) later plans have, for tests; returns what was."),
    method<"_wait_for_chains", [] {
      const GilRelease released;
      record::wait_for_compiling();
    }>("Until the kernels that plans wait for have been compiled."),
    method<"_num_loops", [] { return record::num_loops(); }>("Loops made at run time that live."),
    method<"_tells_apart", [] {
      if (record::NativeTrace* trace = record::NativeTrace::now()) trace->tells_apart();
    }>("The step that is recorded may tell tensors apart by identity."),
    // ([symbol]): sizes that must be what they are.
    method<"_pin_sizes", [](PyObject* symbols) {
      if (record::NativeTrace* trace = record::NativeTrace::now())
        for (int64_t symbol : to_ints(symbols, {"_pin_sizes", "symbols", 1})) trace->pin(trace->inside(symbol));
    }>(),
    // (rule, value, symbol, value, symbol): see NativeTrace::number; -1 where nothing is written down.
    method<"_followed_number", [](std::string_view rule, int64_t a, int64_t x, int64_t b, int64_t y) {
      record::NativeTrace* trace = record::NativeTrace::now();
      if (trace == nullptr || rule.size() != 1) return int64_t{-1};
      const int first = trace->inside(x), second = trace->inside(y);
      return first < 0 && second < 0 ? int64_t{-1} : trace->outside(trace->number(rule[0], {first, a}, {second, b}));
    }>(),
    {"_set_reader", set_reader, METH_O, "What is asked where this thread's recorded step reads numbers, or None; returns the former one."},
    {"_peek", as_c_function(peek), METH_FASTCALL, "_peek(tensor, 'item'): what the method gives, an object of its own, unrecorded."},
    // (tensor, what, test, other): the step goes on by how the element compares, Condition::Kind as a number.
    method<"_note_read", [](PyObject* tensor, std::string_view what, int64_t test, double other) {
      record::note_read(what, to_tensor(tensor, {"_note_read", "tensor"}), static_cast<record::Condition::Kind>(test), other);
    }>(),
    // A copy made by the step that is recorded, beside the tape.
    method<"_read_copy", [](PyObject* tensor) {
      return record::native_call("item", {to_tensor(tensor, {"_read_copy", "tensor"})}, [](std::span<Tensor> given, std::span<const int64_t>) {
        const NoGradGuard no_grad;
        return std::vector<Tensor>{raw::clone(given[0])};
      })[0];
    }>(),
    {}};
// clang-format on

}  // namespace

PyRef exchange_reader(PyRef next) noexcept { return PyRef(std::exchange(reader, next.release())); }

PyObject* read_by_reader(PyObject* tensor, const char* what) {
  const Tensor& t = unwrap(tensor);
  const bool one = std::string_view(what) != "tolist";
  if (reader == nullptr || !t.is_cpu() || t.is_sparse() || t.is_batched() || t.is_complex() ||
      t.dtype() == DType::bool_ || (one ? t.numel() != 1 : t.ndim() == 0) || t.is_wrapped_number())
    return nullptr;
  const PyRef asked = PyRef::borrow(reader);
  const Unobserved unobserved;
  PyRef made = own(PyObject_CallFunction(asked.get(), "Os", tensor, what));
  return made.get() == Py_NotImplemented ? nullptr : made.release();
}

void note_followed(PyObject* o, bool as_integer) {
  if (Py_TYPE(o) != followed_type || followed_type == nullptr) return;
  record::NativeTrace* trace = record::NativeTrace::now();
  if (trace == nullptr) return;
  const PyRef number = own(PyObject_GetAttrString(o, "symbol"));
  const int64_t outside = PyLong_AsLongLong(number.get());
  if (outside == -1 && PyErr_Occurred()) throw_python_error();
  const int symbol = trace->inside(outside);
  if (symbol < 0) return;
  if (!as_integer) return trace->pin(symbol);
  if (const PyRef places = places_of_reader()) unbox<Places>(places.get()).called(PyEval_GetFrame(), true);
  trace->given({symbol, PyLong_AsLongLong(o)});
}

PyObject* follow_sizes(const Tensor& t, const char* what, int which) {
  record::NativeTrace* trace = record::NativeTrace::now();
  if (trace == nullptr || reader == nullptr || followed_type == nullptr || !trace->reason().empty() ||
      !record::is_of_step(t))
    return nullptr;
  const int count = which == record::kAskedSizes ? t.ndim() : 1;
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return nullptr;
  PyRef given;  // in Python: what of the function is given them, if that is understood
  {
    const PyRef asked = PyRef::borrow(reader);
    const Unobserved unobserved;
    given = own(PyObject_CallMethod(asked.get(), "follows", "Oi", frame, which == record::kAskedSizes ? 1 : 0));
  }
  if (!PyTuple_CheckExact(given.get())) return nullptr;
  if (const PyRef places = places_of_reader();
      PyTuple_GET_SIZE(given.get()) != 0 &&
      !unbox<Places>(places.get()).add(places.get(), frame, given.get(), trace->outside(trace->next_symbol()), count))
    return nullptr;
  if (which >= 0) trace->asked(t, what, record::kAskedNdim);
  const int64_t symbol = trace->outside(trace->follow(t, what, which));
  if (symbol < 0) return nullptr;
  if (which == record::kAskedNumel) return new_followed(t.numel(), symbol);
  if (which >= 0) return new_followed(t.impl()->size(which), symbol);
  PyRef sizes = own(wrap(t.sizes()));
  for (int d = 0; d < t.ndim(); ++d) {
    PyObject* number = new_followed(t.impl()->size(d), symbol + d);
    Py_DECREF(PyTuple_GET_ITEM(sizes.get(), d));
    PyTuple_SET_ITEM(sizes.get(), d, number);
  }
  return sizes.release();
}

bool init_reads(PyObject* module) { return PyModule_AddFunctions(module, reads_functions) == 0; }

}  // namespace tapegrad::python
