#include "tapegrad/bindings/arguments/args.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/threads/stack.h"

namespace tapegrad::python {

namespace {

const Tensor undefined_tensor;

// NumPy's names for arguments, which PyTorch takes, too.
struct Synonym {
  const char* keyword;
  const char* name;
};
constexpr Synonym kSynonyms[] = {{"axis", "dim"}, {"keepdims", "keepdim"}, {"x", "input"},
                                 {"a", "input"},  {"x1", "input"},         {"x2", "other"}};

bool intern_names(Signature& signature) noexcept {
  auto* names = static_cast<PyObject**>(PyMem_Calloc(signature.num_args, sizeof(PyObject*)));
  if (!names) return false;
  for (int i = 0; i < signature.num_args; ++i) names[i] = PyUnicode_InternFromString(signature.args[i].name);
  signature.interned = names;
  return true;
}

int find_name(const Signature& signature, PyObject* keyword) noexcept {
  for (int i = 0; i < signature.num_args; ++i)
    if (keyword == signature.interned[i]) return i;
  for (int i = 0; i < signature.num_args; ++i)
    if (PyUnicode_CompareWithASCIIString(keyword, signature.args[i].name) == 0) return i;
  for (const Synonym& s : kSynonyms)
    if (PyUnicode_CompareWithASCIIString(keyword, s.keyword) == 0)
      for (int i = 0; i < signature.num_args; ++i)
        if (std::strcmp(signature.args[i].name, s.name) == 0) return i;
  return -1;
}

// How many letters have to be changed, left out, put in or exchanged with their neighbour.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

// A second line for a misspelt keyword: the argument that it resembles, if any.
std::string keyword_hint(PyObject* keyword, std::initializer_list<const Signature*> candidates) {
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(keyword, &length);
  if (!text) {
    PyErr_Clear();
    return {};
  }
  if (length > 40) return {};
  const std::string_view name(text, static_cast<size_t>(length));
  const char* best = nullptr;
  size_t least = 1 + name.size() / 4;
  for (const Signature* s : candidates)
    for (int i = 0; i < s->num_args; ++i) {
      const std::string_view other = s->args[i].name;
      const size_t n = edits(name, other);
      // A longer or shorter form of the same word counts, too: `dims` and `dimension` for `dim`.
      const bool form = name.size() > 2 && other.size() > 2 && (other.starts_with(name) || name.starts_with(other));
      if (n == 0) return {};
      if (n <= least || (form && !best)) {
        best = s->args[i].name;
        least = std::min(least, n);
      }
    }
  return best ? fmt::format("\ndid you mean '{}'?", best) : std::string();
}

// An argument that starts a spelled-out list: `view(2, 3)`, `meshgrid(x, y)`. Among ints, tensors count only where they
// could be one.
bool starts_varargs(PyObject* o, ArgKind list) noexcept {
  if (list == ArgKind::Tensors) return is_tensor(o);
  return PyLong_Check(o) || matches(o, ArgKind::Int);
}

// The slot of a number that is given by its name alone, or -1.
TG_COLD int named_number(const Signature& s, std::string_view name) noexcept {
  for (int i = s.num_positional; i < s.num_args; ++i)
    if (s.args[i].kind == ArgKind::Scalar && s.args[i].name == name) return i;
  return -1;
}

// Numbers that PyTorch once had among the positional arguments: `add(input, alpha, other)`,
// `addcmul(input, value, tensor1, tensor2)`, `addmm(beta, input, mat1, mat2)` and `addmm(beta, input, alpha, mat1,
// mat2)`; of a method the same without its tensor.
struct OldOrder {
  int slots[2] = {-1, -1}, places[2] = {-1, -1};
  bool is_number(int place) const { return place == places[0] || place == places[1]; }
};

TG_COLD bool old_order(const Signature& s, bool method, Py_ssize_t more, OldOrder& order) noexcept {
  const int beta = named_number(s, "beta"), alpha = std::max(named_number(s, "alpha"), named_number(s, "value"));
  if (beta < 0)
    order = {{alpha, -1}, {method ? 0 : 1, -1}};
  else if (more == 1)
    order = {{beta, -1}, {0, -1}};
  else
    order = {{beta, alpha}, {0, method ? 1 : 2}};
  return order.slots[0] >= 0 && more == (order.slots[1] < 0 ? 1 : 2);
}

TG_COLD void warn_of_old_order(const char* op) {
  warn_user(
      PyExc_UserWarning,
      fmt::format("This overload of {} is deprecated: give the numbers that stand among the tensors by their names", op)
          .c_str());
}

// A call by positions that spells no list out, and gives all that is required; false for any other.
TG_INLINE bool bind_usual(const Signature& s, PyObject** slots, PyObject* self, PyObject* const* args,
                          Py_ssize_t nargs) noexcept {
  PyObject** slot = slots;
  if (self) *slot++ = self;
  if (TG_UNLIKELY(s.varargs >= 0 || nargs > s.num_positional - (slot - slots))) return false;
  for (Py_ssize_t i = 0; i < nargs; ++i) *slot++ = args[i];
  bool complete = true;
  for (const Arg* arg = s.args + (slot - slots); slot < slots + s.num_args; ++slot, ++arg) {
    *slot = nullptr;
    complete &= !(arg->flags & kRequired);
  }
  return complete;
}

bool is_plain_number(PyObject* o) noexcept { return PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o); }

}  // namespace

ArgumentsBase::Problem ArgumentsBase::bind(PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                                           PyObject* kwnames) noexcept {
  const Signature& s = signature_;
  if (kwnames == nullptr && bind_usual(s, slots_, self, args, nargs)) return {};
  int at = 0;
  if (self) slots_[at++] = self;
  const int most = s.num_positional - at;
  int fixed = static_cast<int>(nargs < 64 ? nargs : 64);
  OldOrder old;
  bool moved = false;
  if (TG_UNLIKELY(s.varargs >= 0)) {
    const int before = s.varargs - at;
    if (nargs > before && (nargs > most || starts_varargs(args[before], s.args[s.varargs].kind))) {
      varargs_ = args + before;
      num_varargs_ = nargs - before;
      fixed = before + 1;
    }
  } else if (TG_UNLIKELY(nargs > most)) {
    if (!old_order(s, self != nullptr, nargs - most, old)) return {Mismatch::TooMany};
    for (const int place : old.places)
      if (place >= 0 && !is_plain_number(args[place])) return {Mismatch::TooMany};
    moved = true;
  }
  for (int i = 0; i < fixed; ++i)
    if (TG_LIKELY(!moved) || !old.is_number(i)) slots_[at++] = args[i];
  for (int i = at; i < s.num_args; ++i) slots_[i] = nullptr;
  for (int k = 0; TG_UNLIKELY(moved) && k < 2; ++k)
    if (old.slots[k] >= 0) slots_[old.slots[k]] = args[old.places[k]];
  if (kwnames) {
    Problem problem = bind_keywords(args + nargs, kwnames);
    if (problem.kind != Mismatch::None) return problem;
  }
  for (int i = at; i < s.num_args; ++i) {
    if (slots_[i] || !(s.args[i].flags & kRequired)) continue;
    if (i != s.varargs || s.args[i].kind != ArgKind::Tensors) return {Mismatch::Missing, i};
    static PyObject* nothing = PyTuple_New(0);  // `meshgrid()`: no tensor is spelled out
    slots_[i] = nothing;
  }
  return {};
}

ArgumentsBase::Problem ArgumentsBase::bind_keywords(PyObject* const* values, PyObject* kwnames) noexcept {
  Signature& s = signature_;
  if (!s.interned && !intern_names(s)) return {Mismatch::UnknownKeyword, 0, nullptr};
  const Py_ssize_t n = PyTuple_GET_SIZE(kwnames);
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, k);
    const int i = find_name(s, keyword);
    if (i < 0) return {Mismatch::UnknownKeyword, 0, keyword};
    if (slots_[i]) return {Mismatch::Twice, i, keyword};
    slots_[i] = values[k];
  }
  return {};
}

bool ArgumentsBase::unpack(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  check_stack(signature_.name);
  if (TG_LIKELY(kwnames == nullptr) && bind_usual(signature_, slots_, self, args, nargs)) return true;
  Problem problem = bind(self, args, nargs, kwnames);
  if (TG_LIKELY(problem.kind == Mismatch::None)) {
    if (TG_UNLIKELY(nargs > signature_.num_positional - (self != nullptr)) && signature_.varargs < 0)
      warn_of_old_order(signature_.name);
    return true;
  }
  report(problem, self, nargs);
  return false;
}

bool ArgumentsBase::try_unpack(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  check_stack(signature_.name);
  varargs_ = nullptr;
  num_varargs_ = -1;
  if (bind(self, args, nargs, kwnames).kind != Mismatch::None) return false;
  for (int i = 0; i < signature_.num_args; ++i) {
    PyObject* o = slots_[i];
    if (!o) continue;
    const Arg& arg = signature_.args[i];
    if (num_varargs_ >= 0 && i == signature_.varargs) {
      for (Py_ssize_t k = 0; k < num_varargs_; ++k)
        if (!matches(varargs_[k], arg.kind == ArgKind::Tensors ? ArgKind::Tensor : ArgKind::Int)) return false;
      continue;
    }
    if (o == Py_None && (arg.flags & kNone)) continue;
    if (!matches(o, arg.kind)) return false;
  }
  return true;
}

void ArgumentsBase::report(const Problem& problem, PyObject* self, Py_ssize_t nargs) const {
  const char* op = signature_.name;
  const Arg& arg = signature_.args[problem.index];
  switch (problem.kind) {
    case Mismatch::TooMany: {
      const int most = signature_.num_positional - (self ? 1 : 0);
      PyErr_Format(PyExc_TypeError, "%s(): takes at most %d positional argument%s: got %zd\n%s%s", op, most,
                   most == 1 ? "" : "s", nargs, op, signature_.text);
      break;
    }
    case Mismatch::UnknownKeyword:
      if (problem.keyword)
        PyErr_Format(PyExc_TypeError, "%s(): got an unexpected keyword argument '%U'%s\n%s%s", op, problem.keyword,
                     keyword_hint(problem.keyword, {&signature_}).c_str(), op, signature_.text);
      else
        PyErr_NoMemory();
      break;
    case Mismatch::Twice:
      PyErr_Format(PyExc_TypeError, "%s(): got multiple values for argument '%s'", op, arg.name);
      break;
    case Mismatch::Missing:
      PyErr_Format(PyExc_TypeError, "%s(): missing required argument '%s' (position %d)\n%s%s", op, arg.name,
                   problem.index + 1, op, signature_.text);
      break;
    case Mismatch::None:
    case Mismatch::Type:
      break;
  }
}

// Absent or None gives nothing; else the converter's value.
#define TG_OPTIONAL(type, name, converter)               \
  std::optional<type> ArgumentsBase::name(int i) const { \
    if (!has(i)) return std::nullopt;                    \
    return converter(slots_[i], ctx(i));                 \
  }
TG_OPTIONAL(Operand, optional_operand, to_operand)
TG_OPTIONAL(Scalar, optional_scalar, to_scalar)
TG_OPTIONAL(int64_t, optional_integer, to_int)
TG_OPTIONAL(double, optional_real, to_double)
TG_OPTIONAL(bool, optional_boolean, to_bool)
TG_OPTIONAL(std::vector<double>, optional_reals, to_doubles)
TG_OPTIONAL(std::string_view, optional_str, to_str)
TG_OPTIONAL(DType, optional_dtype, to_dtype)
TG_OPTIONAL(Device, optional_device, to_device)
TG_OPTIONAL(MemoryFormat, optional_memory_format, to_memory_format)
#undef TG_OPTIONAL

const Tensor& ArgumentsBase::optional_tensor(int i) const {
  if (!has(i)) return undefined_tensor;
  return tensor(i);
}

std::vector<Tensor> ArgumentsBase::out_tensors(int i, size_t n) const {
  if (!has(i)) return {};
  std::vector<Tensor> out = to_tensors(slots_[i], ctx(i));
  TG_CHECK(out.size() == n, Type, "{}(): argument 'out' must be a tuple of {} tensors: got {}", signature_.name, n,
           out.size());
  return out;
}

template <class List, class F>
List ArgumentsBase::spelled_out(int i, F&& convert) const {
  List values;
  values.reserve(static_cast<size_t>(num_varargs_));
  for (Py_ssize_t k = 0; k < num_varargs_; ++k) {
    Ctx where = ctx(i);
    where.position += static_cast<int>(k);
    values.push_back(convert(varargs_[k], where));
  }
  return values;
}

std::vector<Tensor> ArgumentsBase::tensors(int i) const {
  if (TG_LIKELY(num_varargs_ < 0 || i != signature_.varargs)) return to_tensors(slots_[i], ctx(i));
  return spelled_out<std::vector<Tensor>>(i, to_tensor);
}

DimVector ArgumentsBase::ints(int i) const {
  if (TG_LIKELY(num_varargs_ < 0 || i != signature_.varargs)) return to_ints(slots_[i], ctx(i));
  return spelled_out<DimVector>(i, to_int);
}

OptionalDims ArgumentsBase::optional_ints(int i) const {
  if (!has(i)) return {};
  return {ints(i), true};
}

DimVector ArgumentsBase::ints_n(int i, size_t n) const {
  DimVector values = ints(i);
  if (values.size() == 1 && n > 1) values.resize(n, values[0]);
  TG_CHECK(values.size() == n, Type, "{}(): argument '{}' must be {} integers (or one for all): got {}",
           signature_.name, signature_.args[i].name, n, format_ints(values));
  return values;
}

OptionalDims ArgumentsBase::optional_ints_n(int i, size_t n) const {
  if (!has(i)) return {};
  PyObject* given = object(i);  // an empty list stands for nothing given: `stride=[]`
  if (PyList_CheckExact(given) ? PyList_GET_SIZE(given) == 0 : PyTuple_CheckExact(given) && !PyTuple_GET_SIZE(given))
    return {};
  return {ints_n(i, n), true};
}

DimVector ArgumentsBase::ints_or_none(int i, size_t n) const {
  PyObject* given = object(i);
  const bool listed = PyList_Check(given) || PyTuple_Check(given);
  DimVector values;
  bool negative = false;
  for (Py_ssize_t k = 0; k < (listed ? Py_SIZE(given) : 1); ++k) {
    PyObject* item = !listed ? given : PyList_Check(given) ? PyList_GET_ITEM(given, k) : PyTuple_GET_ITEM(given, k);
    values.push_back(item == Py_None ? -1 : to_int(item, ctx(i)));
    negative |= item != Py_None && values.back() < 0;
  }
  if (!listed) values.resize(n, values[0]);
  TG_CHECK(values.size() == n && !negative, Runtime, "{}: {} must be {} numbers that are not negative: got {}",
           signature_.name, signature_.args[i].name, n, format_ints(values));
  return values;
}

void ArgumentsBase::warn_of_flags(int size_average, int reduce) const {
  const bool mean = optional_boolean(size_average).value_or(true), reduced = optional_boolean(reduce).value_or(true);
  warn_user(PyExc_UserWarning, fmt::format("{}: size_average and reduce are old: use reduction='{}'", signature_.name,
                                           !reduced ? "none"
                                           : mean   ? "mean"
                                                    : "sum")
                                   .c_str());
}

void ArgumentsBase::warn_of_dim() const {
  warn_user(PyExc_UserWarning, fmt::format("{}: the implicit choice of dim is old: give dim", signature_.name).c_str());
}

PyObject* no_overload(const char* name, std::initializer_list<const Signature*> candidates, PyObject* self,
                      PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  try {
    std::string text = fmt::format("{}(): the arguments fit no form of it: got (", name);
    const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t i = 0; i < nargs + keywords; ++i) {
      if (i) text += ", ";
      if (i >= nargs) {
        const char* keyword = PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, i - nargs));
        if (!keyword) return nullptr;
        text += std::string(keyword) + "=";
      }
      text += Py_TYPE(args[i])->tp_name;
    }
    text += ")";
    for (Py_ssize_t k = 0; k < keywords; ++k) text += keyword_hint(PyTuple_GET_ITEM(kwnames, k), candidates);
    for (const Signature* s : candidates) text += fmt::format("\n * {}{}", self ? "Tensor." : "", name) + s->text;
    PyErr_SetString(PyExc_TypeError, text.c_str());
  } catch (...) {
    return translate_exception();
  }
  return nullptr;
}

}  // namespace tapegrad::python
