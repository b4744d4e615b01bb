// Arguments of a Python call, for generated functions (METH_FASTCALL | METH_KEYWORDS), and for hand-written ones by way
// of keyword_method.h.
//
//   static constexpr Arg add_args[] = {{"input", ArgKind::Tensor, kRequired}, {"other", ArgKind::Operand, kRequired},
//                                      {"alpha", ArgKind::Scalar}};
//   static Signature add_signature{"add", add_args, 3, 2, -1,
//                                  "(Tensor input, Tensor|Scalar other, *, Scalar alpha=1)"};
//
//   PyObject* add(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
//     TG_PY_TRY
//     Arguments<3> a(add_signature);
//     if (!a.unpack(nullptr, args, nargs, kwnames)) return nullptr;
//     return wrap(tapegrad::add(a.tensor(0), a.operand(1), a.scalar(2, 1)));
//     TG_PY_CATCH
//   }
//
// A method passes its self, which becomes argument 0. Nothing is allocated: slots are borrowed references into the
// call's own arguments. Converters raise Error(Type) that names operator and argument; those with a default return it
// for an absent argument (and for None, if the row's type has a `?`). Everything needs the GIL.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

// The types of the op table (aten/ops/README.md), for messages and for choosing among overloads.
enum class ArgKind : uint8_t {
  Tensor,
  Operand,  // Tensor|Scalar
  Tensors,
  Scalar,
  Int,
  Float,
  Bool,
  Ints,    // also int[N]
  Floats,  // float[]
  Str,
  DType,
  Device,
  Layout,
  MemoryFormat,
  Generator,
  Any,
};
inline constexpr uint8_t kRequired = 1;
inline constexpr uint8_t kNone = 2;  // the type has a `?`: None means absent

struct Arg {
  const char* name;
  ArgKind kind;
  uint8_t flags = 0;
};

struct Signature {
  const char* name;  // as messages show it: "add"
  const Arg* args;
  uint8_t num_args, num_positional;  // positional: before the `*`; self included
  int8_t varargs;                 // slot of the list that may be spelled out (`x.view(2, 3)`, `meshgrid(x, y)`), or -1
  const char* text;               // "(Tensor input, *, Scalar alpha=1)", for the list of overloads in a message
  PyObject** interned = nullptr;  // names as interned strings, made at the first call with a keyword
};

// The origin of a value, for messages: "add(): argument 'other' (position 2) must be ...".
struct Ctx {
  const char* op;
  const char* arg;
  int position = 0;  // from 1; 0: not shown
};

// The value of an argument `int[]?`; converts to OptionalInts, which refers to it.
struct OptionalDims {
  DimVector values;
  bool present = false;
  operator OptionalInts() const { return present ? OptionalInts(IntSpan(values)) : OptionalInts(); }
};

// Converters of one object; null is not allowed.
const Tensor& to_tensor(PyObject* o, const Ctx& ctx);
Operand to_operand(PyObject* o, const Ctx& ctx);
std::vector<Tensor> to_tensors(PyObject* o, const Ctx& ctx);
Scalar to_scalar(PyObject* o, const Ctx& ctx);
int64_t to_int(PyObject* o, const Ctx& ctx);  // __index__, integer tensors with one element
double to_double(PyObject* o, const Ctx& ctx);
bool to_bool(PyObject* o, const Ctx& ctx);
DimVector to_ints(PyObject* o, const Ctx& ctx);  // one int is a list of one
std::vector<double> to_doubles(PyObject* o, const Ctx& ctx);
std::string_view to_str(PyObject* o, const Ctx& ctx);  // lives as long as the object
DType to_dtype(PyObject* o, const Ctx& ctx);
Device to_device(PyObject* o, const Ctx& ctx);
MemoryFormat to_memory_format(PyObject* o, const Ctx& ctx);
void to_strided_layout(PyObject* o, const Ctx& ctx);  // raises for any layout but strided
const GeneratorPtr& to_generator(PyObject* o, const Ctx& ctx);
// A Python, NumPy or one-element-tensor number without an exception: nothing when it is not one.
bool is_number(PyObject* o) noexcept;
// Whether the object could be converted to this kind, without doing so.
bool matches(PyObject* o, ArgKind kind) noexcept;

// The C++ type of each kind, in Python: Scalars become bool, int, float, complex.
PyObject* wrap(const Scalar& value) noexcept;
PyObject* wrap(IntSpan values) noexcept;  // tapegrad.Size
PyObject* wrap(DType dtype) noexcept;
PyObject* wrap(Device device) noexcept;
inline PyObject* wrap(bool value) noexcept { return PyBool_FromLong(value); }
inline PyObject* wrap(int64_t value) noexcept { return PyLong_FromLongLong(value); }
inline PyObject* wrap(double value) noexcept { return PyFloat_FromDouble(value); }

// Named tuples: `tapegrad.return_types.max`. Made once per operator at import; printed like PyTorch's.
PyTypeObject* make_return_type(const char* name, std::initializer_list<const char*> fields);
PyObject* wrap_named(PyTypeObject* type, std::initializer_list<const Tensor*> tensors) noexcept;
template <class... T>
PyObject* wrap_named(PyTypeObject* type, const std::tuple<T...>& tensors) noexcept {
  return std::apply([&](const auto&... t) { return wrap_named(type, {&t...}); }, tensors);
}

class ArgumentsBase {
 public:
  // False with TypeError set when the call does not fit the signature.
  bool unpack(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);
  // For overloads: false, without an exception, if the call does not match; checks the types, too.
  bool try_unpack(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

  bool has(int i) const noexcept { return slots_[i] != nullptr && slots_[i] != Py_None; }
  PyObject* object(int i) const noexcept { return slots_[i]; }  // null: absent
  Ctx ctx(int i) const noexcept {
    return {signature_.name, signature_.args[i].name, i < signature_.num_positional ? i + 1 : 0};
  }

  const Tensor& tensor(int i) const {
    PyObject* o = slots_[i];
    return TG_LIKELY(is_exact_tensor(o)) ? unwrap(o) : to_tensor(o, ctx(i));
  }
  // Tensor?, undefined when absent.
  const Tensor& optional_tensor(int i) const;
  Operand operand(int i) const {
    PyObject* o = slots_[i];
    return TG_LIKELY(is_exact_tensor(o)) ? Operand(unwrap(o)) : to_operand(o, ctx(i));
  }
  std::optional<Operand> optional_operand(int i) const;
  std::vector<Tensor> tensors(int i) const;
  // `out=` of an operator with several results: exactly n tensors, or an empty vector when absent.
  std::vector<Tensor> out_tensors(int i, size_t n) const;

  Scalar scalar(int i) const { return to_scalar(slots_[i], ctx(i)); }
  Scalar scalar(int i, Scalar otherwise) const { return slots_[i] ? scalar(i) : otherwise; }
  std::optional<Scalar> optional_scalar(int i) const;
  int64_t integer(int i) const { return to_int(slots_[i], ctx(i)); }
  int64_t integer(int i, int64_t otherwise) const { return slots_[i] ? integer(i) : otherwise; }
  std::optional<int64_t> optional_integer(int i) const;
  double real(int i) const { return to_double(slots_[i], ctx(i)); }
  double real(int i, double otherwise) const { return slots_[i] ? real(i) : otherwise; }
  std::optional<double> optional_real(int i) const;
  bool boolean(int i) const { return to_bool(slots_[i], ctx(i)); }
  bool boolean(int i, bool otherwise) const { return slots_[i] ? boolean(i) : otherwise; }
  std::optional<bool> optional_boolean(int i) const;

  // int[]; `otherwise` for an absent one.
  DimVector ints(int i) const;
  DimVector ints(int i, IntSpan otherwise) const { return absent_ints(i) ? DimVector(otherwise) : ints(i); }
  OptionalDims optional_ints(int i) const;
  // int[n]: one int is repeated.
  DimVector ints_n(int i, size_t n) const;
  DimVector ints_n(int i, size_t n, IntSpan otherwise) const { return slots_[i] ? ints_n(i, n) : DimVector(otherwise); }
  OptionalDims optional_ints_n(int i, size_t n) const;
  // int?[n]: none of them negative; None becomes -1.
  DimVector ints_or_none(int i, size_t n) const;
  std::vector<double> reals(int i) const { return to_doubles(slots_[i], ctx(i)); }
  std::vector<double> reals(int i, std::initializer_list<double> otherwise) const {
    return slots_[i] ? reals(i) : std::vector<double>(otherwise);
  }
  std::optional<std::vector<double>> optional_reals(int i) const;

  std::string_view str(int i) const { return to_str(slots_[i], ctx(i)); }
  std::string_view str(int i, std::string_view otherwise) const { return slots_[i] ? str(i) : otherwise; }
  std::optional<std::string_view> optional_str(int i) const;
  DType dtype(int i) const { return to_dtype(slots_[i], ctx(i)); }
  DType dtype(int i, DType otherwise) const { return slots_[i] ? dtype(i) : otherwise; }
  std::optional<DType> optional_dtype(int i) const;
  Device device(int i) const { return to_device(slots_[i], ctx(i)); }
  Device device(int i, Device otherwise) const { return has(i) ? device(i) : otherwise; }
  std::optional<Device> optional_device(int i) const;
  MemoryFormat memory_format(int i, MemoryFormat otherwise) const {
    return has(i) ? to_memory_format(slots_[i], ctx(i)) : otherwise;
  }
  std::optional<MemoryFormat> optional_memory_format(int i) const;
  const GeneratorPtr& generator(int i) const;  // null pointer when absent: the default generator
  // Accepts what PyTorch's `layout=` does; only strided tensors exist.
  void strided_layout(int i) const {
    if (has(i)) to_strided_layout(slots_[i], ctx(i));
  }

  // Warnings of arguments that PyTorch has for old programs: a loss's flags instead of `reduction`; `dim` left out.
  void old_reduction(int size_average, int reduce) const {
    if (TG_UNLIKELY(has(size_average) || has(reduce))) warn_of_flags(size_average, reduce);
  }
  void implicit_dim(int dim) const {
    if (TG_UNLIKELY(!has(dim))) warn_of_dim();
  }

 protected:
  ArgumentsBase(Signature& signature, PyObject** slots) noexcept : signature_(signature), slots_(slots) {}

 private:
  enum class Mismatch : uint8_t { None, TooMany, UnknownKeyword, Twice, Missing, Type };
  struct Problem {
    Mismatch kind = Mismatch::None;
    int index = 0;
    PyObject* keyword = nullptr;
  };
  Problem bind(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) noexcept;
  Problem bind_keywords(PyObject* const* values, PyObject* kwnames) noexcept;
  template <class List, class F>  // the values of a list that the call spells out
  List spelled_out(int i, F&& convert) const;
  TG_COLD void report(const Problem& problem, PyObject* self, Py_ssize_t nargs) const;
  TG_COLD void warn_of_flags(int size_average, int reduce) const;
  TG_COLD void warn_of_dim() const;
  bool absent_ints(int i) const noexcept { return slots_[i] == nullptr; }

  Signature& signature_;
  PyObject** slots_;
  PyObject* const* varargs_ = nullptr;  // values spelled out for slot `signature_.varargs`
  Py_ssize_t num_varargs_ = -1;         // -1: not spelled out
};

template <int N>
class Arguments : public ArgumentsBase {
 public:
  explicit Arguments(Signature& signature) noexcept : ArgumentsBase(signature, storage_) {}

 private:
  PyObject* storage_[N > 0 ? N : 1];
};

// Sets the TypeError of a call that matches none of the overloads: lists them and the given arguments. Returns null.
TG_COLD PyObject* no_overload(const char* name, std::initializer_list<const Signature*> candidates, PyObject* self,
                              PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

}  // namespace tapegrad::python
