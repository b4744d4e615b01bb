// x[...], x[...] = y, len(x). A Python subscript becomes a list of Subscript (aten/index/subscript.h); nothing is
// allocated for the usual one, a number or a slice or a few of them.
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/index/subscript.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/nested_data.h"
#include "tapegrad/bindings/arguments/override.h"
#include "tapegrad/bindings/exchange/numpy.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/c10/threads/stack.h"

namespace tapegrad::python {

namespace {

constexpr Ctx kContext{"index", "subscript"};

std::optional<int64_t> slice_part(PyObject* o) {
  if (o == Py_None) return std::nullopt;
  TG_CHECK(PyIndex_Check(o), Type, "index: slice indices must be integers or None or have an __index__ method: got {}",
           Py_TYPE(o)->tp_name);
  if (!PyLong_CheckExact(o)) return to_int(o, kContext);
  // Numbers beyond 64 bits are clipped, as Python does with its own lists.
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(o, &overflow);
  return overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN + 1 : value;
}

bool is_list_of_indices(PyObject* o) {
  return PyList_Check(o) || PyTuple_Check(o) || is_numpy_array(o) ||
         (PySequence_Check(o) && !PyIndex_Check(o) && !PyUnicode_Check(o) && !PyBytes_Check(o));
}

Subscript to_subscript(PyObject* o) {
  if (PyLong_CheckExact(o)) return Subscript::integer(to_int(o, kContext));
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return Subscript::slice(slice_part(s->start), slice_part(s->stop), slice_part(s->step));
  }
  if (o == Py_None) return Subscript::none();
  if (o == Py_Ellipsis) return Subscript::ellipsis();
  if (PyBool_Check(o)) return Subscript::boolean(o == Py_True);
  if (is_tensor(o)) return Subscript::tensor_index(unwrap(o));
  if (std::optional<Scalar> value = numpy_scalar(o)) {
    if (value->is_bool()) return Subscript::boolean(value->to<bool>());
    TG_CHECK(value->is_integral(), Index, "index: expected integers: got {}", Py_TYPE(o)->tp_name);
    return Subscript::integer(value->to<int64_t>());
  }
  if (is_list_of_indices(o)) {
    Tensor indices = tensor_from_data(o, std::nullopt, std::nullopt, false);
    if (indices.numel() == 0 && indices.is_floating_point()) indices = empty_tensor(indices.sizes(), DType::int64);
    return Subscript::tensor_index(indices);
  }
  TG_CHECK(PyIndex_Check(o) && !PyFloat_Check(o), Index,
           "index: expected integers, slices (`:`), ellipsis (`...`), None, and integer or bool tensors: got {}",
           Py_TYPE(o)->tp_name);
  return Subscript::integer(to_int(o, kContext));
}

// Whether a list (or another sequence) stands for a tuple of subscripts: NumPy's old rule, which PyTorch keeps.
bool is_tuple_of_subscripts(PyObject* key) {
  if (PyLong_CheckExact(key) || PySlice_Check(key) || is_tensor(key) || is_numpy_array(key) || PyUnicode_Check(key) ||
      PyBytes_Check(key) || !PySequence_Check(key))
    return false;
  // An object whose length or items cannot be read is not treated as a tuple; Ctrl-C while reading it is passed on.
  auto failed = [] {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw_python_error();
    PyErr_Clear();
    return false;
  };
  constexpr Py_ssize_t kMost = 32;
  const Py_ssize_t n = PySequence_Size(key);
  if (n < 0) return failed();
  for (Py_ssize_t i = 0; n < kMost && i < n; ++i) {
    const PyRef item(PySequence_GetItem(key, i));
    if (!item) return failed();
    PyObject* o = item.get();
    if (is_tensor(o) || PySequence_Check(o) || PySlice_Check(o) || o == Py_Ellipsis || o == Py_None) {
      warn_user(PyExc_UserWarning,
                "index: a list of subscripts stands for a tuple: write x[tuple(list)] where that is meant, and "
                "x[tensor(list)] where the list is one index");
      return true;
    }
  }
  return false;
}

// A few subscripts without an allocation. Converts them in order; items may run Python code.
class Subscripts {
 public:
  explicit Subscripts(PyObject* key) {
    check_stack("index");
    if (!PyTuple_Check(key) && !is_tuple_of_subscripts(key)) {
      few_[0] = to_subscript(key);
      size_ = 1;
      return;
    }
    const PyRef items = items_of(key);
    const Py_ssize_t n = PyTuple_GET_SIZE(items.get());
    if (n > kFew) many_.resize(static_cast<size_t>(n));
    Subscript* out = n > kFew ? many_.data() : few_;
    for (Py_ssize_t i = 0; i < n; ++i) out[i] = to_subscript(PyTuple_GET_ITEM(items.get(), i));
    size_ = static_cast<size_t>(n);
  }
  operator std::span<const Subscript>() const { return {many_.empty() ? few_ : many_.data(), size_}; }

 private:
  static constexpr Py_ssize_t kFew = 4;
  Subscript few_[kFew];
  std::vector<Subscript> many_;
  size_t size_ = 0;
};

template <class F>
void for_numbers(Subscript& s, F f) {
  if (s.kind == Subscript::Kind::Int) f(s.index);
  for (std::optional<int64_t>* part : {&s.start, &s.stop, &s.step})
    if (*part) f(**part);
}

// In a step that is recorded: what the subscripts mean depends on the tensor's size. f(tensor, subscripts, further).
template <class F>
std::vector<Tensor> recorded(const char* name, const Tensor& t, std::span<const Subscript> subscripts, Tensor further,
                             F f) {
  std::vector<Tensor> operands{t, std::move(further)};
  std::vector<Subscript> kept(subscripts.begin(), subscripts.end());
  for (Subscript& s : kept)
    if (s.kind == Subscript::Kind::Tensor) operands.push_back(std::exchange(s.tensor, {}));
  DimVector numbers;
  for (Subscript& s : kept) for_numbers(s, [&](int64_t& n) { numbers.push_back(n); });
  const auto code = [kept = std::move(kept), f](std::span<Tensor> given, std::span<const int64_t> integers) {
    std::vector<Subscript> now = kept;
    size_t next = 2, number = 0;
    for (Subscript& s : now) {
      if (s.kind == Subscript::Kind::Tensor) s.tensor = given[next++];
      for_numbers(s, [&](int64_t& n) { n = integers[number++]; });
    }
    return f(given[0], now, given[1]);
  };
  return record::native_call(name, std::move(operands), code, std::move(numbers));
}

Tensor get_recorded(const Tensor& t, std::span<const Subscript> subscripts) {
  return recorded("index", t, subscripts, {}, [](const Tensor& from, std::span<const Subscript> now, const Tensor&) {
    return std::vector<Tensor>{get_subscript(from, now)};
  })[0];
}

void set_recorded(const Tensor& t, std::span<const Subscript> subscripts, const Operand& value) {
  const bool number = value.tensor().is_wrapped_number();
  recorded("index", t, subscripts, number ? Tensor() : value.tensor(),
           [number, value = number ? Operand(value.tensor().item()) : Operand(Scalar(0))](
               const Tensor& to, std::span<const Subscript> now, const Tensor& from) {
             set_subscript(to, now, number ? value : Operand(from));
             return std::vector<Tensor>();
           });
}

PyObject* get_item(PyObject* self, PyObject* key) {
  if (TG_UNLIKELY(overridden(self, &key, 1, nullptr))) return call_overridden_slot("__getitem__", self, &key, 1);
  if (PyLong_CheckExact(key) && TG_LIKELY(!record::active())) {
    const Subscript one = Subscript::integer(to_int(key, kContext));
    return wrap(get_subscript(unwrap(self), {&one, 1}));
  }
  const Subscripts subscripts(key);
  if (TG_UNLIKELY(record::active())) return wrap(get_recorded(unwrap(self), subscripts));
  return wrap(get_subscript(unwrap(self), subscripts));
}

// A value written into a tensor: a tensor, a number, or anything that makes a tensor.
Operand to_value(PyObject* o, const Tensor& self) {
  if (is_tensor(o) || is_number(o)) return to_operand(o, {"index", "value"});
  // Arrays and lists are no tensors: they come in the tensor's dtype, but for fractions that integers would lose.
  if (is_numpy_array(o) && array_dtype(o)) {
    const Tensor values = tensor_from_data(o, std::nullopt, std::nullopt, false);
    return Operand(can_cast(values.dtype(), self.dtype()) ? to(values, self.dtype()) : values);
  }
  TG_CHECK(PyList_Check(o) || PyTuple_Check(o), Type,
           "index: can only assign tensors, numbers and lists of numbers: got {}", Py_TYPE(o)->tp_name);
  if (!is_differentiable(self.dtype())) {
    const Tensor values = tensor_from_data(o, std::nullopt, std::nullopt, false);
    if (!can_cast(values.dtype(), self.dtype())) return Operand(values);
  }
  return Operand(tensor_from_nested(o, self.dtype()));
}

int set_item(PyObject* self, PyObject* key, PyObject* value) {
  TG_CHECK(value, Type, "index: elements of a tensor cannot be deleted");
  if (PyObject * given[] = {key, value}; TG_UNLIKELY(overridden(self, given, 2, nullptr))) {
    own(call_overridden_slot("__setitem__", self, given, 2));
    return 0;
  }
  const Tensor& t = unwrap(self);
  const Operand operand = to_value(value, t);
  const Subscripts subscripts(key);
  if (TG_UNLIKELY(record::active()))
    set_recorded(t, subscripts, operand);
  else
    set_subscript(t, subscripts, operand);
  return 0;
}

Py_ssize_t length(PyObject* o) {
  if (TG_UNLIKELY(overridden(o, nullptr, 0, nullptr))) {
    const PyRef answer = own(call_overridden_slot("__len__", o, nullptr, 0));
    return PyLong_AsSsize_t(answer.get());
  }
  record::note_size(unwrap(o), "len", record::kAskedNdim);
  record::note_size(unwrap(o), "len", 0);
  TG_CHECK(unwrap(o).ndim() > 0, Type, "len() of a 0-d tensor");
  return unwrap(o).impl()->size(0);
}

}  // namespace

void add_index_slots(std::vector<Slot>& slots) {
  slots.push_back({Py_mp_length, guarded<length>});
  slots.push_back({Py_mp_subscript, guarded<get_item>});
  slots.push_back({Py_mp_ass_subscript, guarded<set_item>});
}

}  // namespace tapegrad::python
