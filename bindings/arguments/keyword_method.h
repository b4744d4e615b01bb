// Rows of method tables for hand-written functions whose arguments may be given by name. The signature is written once,
// as messages show it:
//
//   PyObject* numpy(PyObject* self, const ArgumentsBase& a) {
//     return array_from_tensor(exposable(self, "numpy", a.boolean(1, false)).get()).release();
//   }
//   PyMethodDef methods[] = {keyword_method<"numpy", "(*, bool force=False)", numpy>("The tensor as an array."), {}};
//
// An argument is `Type name`, `Type? name` where None means absent, or the name alone for any object; `=default` stands
// behind one that may be left out, and after `*` come those that are given by name alone. A method's function takes its
// self first, which is argument 0. Exceptions are translated.
#pragma once

#include <array>
#include <string_view>

#include "tapegrad/bindings/arguments/method.h"

namespace tapegrad::python {

namespace rows {

consteval ArgKind kind_of(std::string_view type) {
  constexpr std::pair<std::string_view, ArgKind> kKinds[] = {
      {"Tensor", ArgKind::Tensor}, {"int", ArgKind::Int},       {"bool", ArgKind::Bool},
      {"DType", ArgKind::DType},   {"Device", ArgKind::Device}, {"MemoryFormat", ArgKind::MemoryFormat}};
  for (const auto& [name, kind] : kKinds)
    if (type == name) return kind;
  return ArgKind::Any;
}

// What a signature says: the arguments, and their names, one after the other, each with a zero behind it.
template <size_t kLength>
struct Form {
  static constexpr int kMost = 8;
  char names[kLength] = {};
  size_t starts[kMost] = {};
  ArgKind kinds[kMost] = {};
  uint8_t flags[kMost] = {};
  uint8_t n = 0, positional = 0;

  consteval explicit Form(std::string_view text) {
    size_t end = 0;  // of the names so far
    bool by_name = false;
    text = text.substr(1, text.size() - 2);
    while (!text.empty()) {
      std::string_view one = text.substr(0, text.find(", "));
      text.remove_prefix(std::min(text.size(), one.size() + 2));
      if (one == "*") {
        by_name = true;
        continue;
      }
      flags[n] = one.find('=') == one.npos ? kRequired : 0;
      one = one.substr(0, one.find('='));
      const size_t space = one.rfind(' ');
      std::string_view type = space == one.npos ? "?" : one.substr(0, space);
      if (type.ends_with('?')) {
        flags[n] |= kNone;
        type.remove_suffix(1);
      }
      kinds[n] = kind_of(type);
      starts[n] = end;
      for (char c : one.substr(space + 1)) names[end++] = c;
      ++end;
      ++n;
      if (!by_name) positional = n;
    }
  }
};

// The same as the tables that args.h takes. kMethod: with self before.
template <Text kSignature, bool kMethod>
struct Written {
  static constexpr Form<sizeof(kSignature.text)> kForm{kSignature.text};
  static constexpr int kCount = kForm.n + kMethod;
  static constexpr auto kArgs = [] {
    std::array<Arg, kForm.kMost + 1> args{Arg{"input", ArgKind::Tensor, kRequired}};
    for (size_t i = 0; i < kForm.n; ++i)
      args[i + kMethod] = {kForm.names + kForm.starts[i], kForm.kinds[i], kForm.flags[i]};
    return args;
  }();
  static constexpr Signature named(const char* name) {
    return {name, kArgs.data(), kCount, kForm.positional + kMethod, -1, kSignature.text};
  }
};

template <Text kName, Text kSignature, auto kFunction>
struct KeywordCall {
  static constexpr bool kMethod = std::is_invocable_v<decltype(kFunction), PyObject*, const ArgumentsBase&>;

  static PyObject* call([[maybe_unused]] PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
    TG_PY_TRY
    using Table = Written<kSignature, kMethod>;
    static Signature signature = Table::named(kName.text);
    Arguments<Table::kCount> a(signature);
    if (!a.unpack(kMethod ? self : nullptr, args, nargs, kwnames)) return nullptr;
    if constexpr (kMethod)
      return kFunction(self, a);
    else
      return kFunction(a);
    TG_PY_CATCH
  }
};

}  // namespace rows

template <Text kName, Text kSignature, auto kFunction>
PyMethodDef keyword_method(const char* doc = nullptr) {
  constexpr auto call = rows::KeywordCall<kName, kSignature, kFunction>::call;
  return {kName.text, as_c_function(call), METH_FASTCALL | METH_KEYWORDS, doc};
}

}  // namespace tapegrad::python
