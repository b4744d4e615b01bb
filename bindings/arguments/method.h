// Rows of method tables for functions and methods that are not hot: the arguments of a call are parsed by the types of
// the C++ function's parameters, and what it returns is converted.
//
//   PyMethodDef store_methods[] = {
//       method<"get", [](PyStore& s, Key key, Limit ms) { return Bytes{s.value->get(key.text, to_limit(ms))}; }>(),
//       {},
//   };
//
// A first parameter that is a reference is the object itself: a struct that begins with PyObject_HEAD. The others are
// bool (the truth of any object), int, int64_t, uint64_t, double, std::string_view, PyObject* (borrowed), a class T
// with `static T from(PyObject*, const char* op)`, or Or<value> for a number that may be left out. Errors of the call
// are those of PyArg_ParseTuple, exceptions are translated. Results: void becomes None, a PyObject* or PyRef is the new
// reference, a vector a list, a variant what it holds, others what wrap() makes of them. A call allocates nothing but
// Python's tuple of arguments; one without arguments or with one object has none. The function is called with the GIL.
//
// pybind11 was measured and rejected: docs/architecture.md, decision 5.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/interpreter/type_object.h"

namespace tapegrad::python {

// Text as a template argument.
template <size_t N>
struct Text {
  char text[N];
  consteval Text(const char (&from)[N]) { std::copy_n(from, N, text); }
};

// A parameter with a default; of PyObject*, null where it is left out.
template <auto kDefault>
struct Or {
  using Type = decltype(kDefault);
  Type value;
  operator Type() const noexcept { return value; }
};
using OrNull = Or<static_cast<PyObject*>(nullptr)>;

// A parameter that must be of a type (borrowed).
template <PyTypeObject* kType>
struct Instance {
  PyObject* object;
  static Instance from(PyObject* o, const char* op) {
    TG_CHECK(PyObject_TypeCheck(o, kType), Type, "{}() argument must be {}, not {}", op, kType->tp_name,
             Py_TYPE(o)->tp_name);
    return {o};
  }
  Py_ssize_t size() const noexcept { return Py_SIZE(object); }
};
using ListObject = Instance<&PyList_Type>;
using TupleObject = Instance<&PyTuple_Type>;

// A copy of the bytes of any object with a buffer; as a result, bytes.
struct Bytes {
  std::string text;
  static Bytes from(PyObject* o, const char*) {
    Py_buffer view;
    check_status(PyObject_GetBuffer(o, &view, PyBUF_SIMPLE));
    Bytes bytes{{static_cast<const char*>(view.buf), static_cast<size_t>(view.len)}};
    PyBuffer_Release(&view);
    return bytes;
  }
};

namespace rows {

// What PyArg_ParseTuple writes for a parameter, and its letter: an object unless said otherwise.
template <class T>
struct Parsed {
  using Stored = PyObject*;
  static constexpr char kLetter = 'O';
  static constexpr bool kOptional = false;
  static constexpr Stored kInitial{};
  static T value(PyObject* o, const char* op) {
    if constexpr (std::is_same_v<T, PyObject*>)
      return o;
    else
      return T::from(o, op);
  }
};
#define TG_PARSED(type, letter, stored)                                       \
  template <>                                                                 \
  struct Parsed<type> {                                                       \
    using Stored = stored;                                                    \
    static constexpr char kLetter = letter;                                   \
    static constexpr bool kOptional = false;                                  \
    static constexpr Stored kInitial{};                                       \
    static type value(Stored v, const char*) { return static_cast<type>(v); } \
  }
TG_PARSED(int, 'i', int);
TG_PARSED(bool, 'p', int);
TG_PARSED(int64_t, 'L', long long);
TG_PARSED(uint64_t, 'K', unsigned long long);
TG_PARSED(double, 'd', double);
TG_PARSED(std::string_view, 's', const char*);
TG_PARSED(std::string, 's', const char*);
#undef TG_PARSED
template <auto kDefault>
struct Parsed<Or<kDefault>> : Parsed<decltype(kDefault)> {
  using Base = Parsed<decltype(kDefault)>;
  static constexpr bool kOptional = true;
  static constexpr typename Base::Stored kInitial = kDefault;
  static Or<kDefault> value(typename Base::Stored v, const char* op) { return {Base::value(v, op)}; }
};

// "OL|p:name"
template <Text kName, class... P>
consteval auto format() {
  std::array<char, sizeof...(P) + sizeof(kName.text) + 2> text{};
  size_t n = 0;
  bool optional = false;
  [[maybe_unused]] auto add = [&](char letter, bool may_be_absent) {
    if (may_be_absent && !std::exchange(optional, true)) text[n++] = '|';
    text[n++] = letter;
  };
  (add(P::kLetter, P::kOptional), ...);
  text[n++] = ':';
  for (char c : kName.text) text[n++] = c;
  return text;
}

template <class V>
PyObject* to_python(const V& v) {
  if constexpr (std::is_same_v<V, PyObject*>)
    return v;
  else if constexpr (std::is_same_v<V, std::monostate>)
    return Py_NewRef(Py_None);
  else if constexpr (std::is_same_v<V, PyRef>)
    return Py_XNewRef(v.get());
  else if constexpr (std::is_same_v<V, bool>)
    return PyBool_FromLong(v);
  else if constexpr (std::is_unsigned_v<V>)
    return PyLong_FromUnsignedLongLong(v);
  else if constexpr (std::is_integral_v<V>)
    return PyLong_FromLongLong(v);
  else if constexpr (std::is_floating_point_v<V>)
    return PyFloat_FromDouble(v);
  else if constexpr (std::is_same_v<V, std::string>)
    return PyUnicode_FromStringAndSize(v.data(), static_cast<Py_ssize_t>(v.size()));
  else if constexpr (std::is_same_v<V, Bytes>)
    return PyBytes_FromStringAndSize(v.text.data(), static_cast<Py_ssize_t>(v.text.size()));
  else
    return wrap(v);
}
template <class A, class B>
PyObject* to_python(const std::pair<A, B>& v) {
  return Py_BuildValue("(NN)", to_python(v.first), to_python(v.second));
}
template <class V>
PyObject* to_python(const std::optional<V>& v) {
  return v ? to_python(*v) : Py_NewRef(Py_None);
}
template <class... V>
PyObject* to_python(const std::variant<V...>& v) {
  return std::visit([](const auto& one) { return to_python(one); }, v);
}
template <class V>
PyObject* to_python(const std::vector<V>& v) {
  return new_list(v.size(), [&](size_t i) { return to_python(v[i]); }).release();
}

// The C function of a row. Self: void, or the struct of the object.
template <Text kName, auto kFunction, class Self, class R, class... A>
struct Call {
  static constexpr bool kOneObject = sizeof...(A) == 1 && ((Parsed<A>::kLetter == 'O' && !Parsed<A>::kOptional) && ...);
  static constexpr int kFlags = sizeof...(A) == 0 ? METH_NOARGS : kOneObject ? METH_O : METH_VARARGS;
  static constexpr auto kFormat = format<kName, Parsed<A>...>();

  static R run([[maybe_unused]] PyObject* self, typename Parsed<A>::Stored... given) {
    std::tuple<A...> all{Parsed<A>::value(given, kName.text)...};  // in order, because of the braces
    return std::apply(
        [self](A&... a) -> R {
          if constexpr (std::is_void_v<Self>)
            return (+kFunction)(std::move(a)...);
          else
            return (+kFunction)(*reinterpret_cast<Self*>(self), std::move(a)...);
        },
        all);
  }
  static PyObject* call(PyObject* self, [[maybe_unused]] PyObject* args) {
    TG_PY_TRY
    std::tuple<typename Parsed<A>::Stored...> given{Parsed<A>::kInitial...};
    if constexpr (kOneObject)
      std::get<0>(given) = args;
    else if (sizeof...(A) > 0 &&
             !std::apply([args](auto&... v) { return PyArg_ParseTuple(args, kFormat.data(), &v...); }, given))
      return nullptr;
    auto run_with = [self](auto... v) { return run(self, v...); };
    if constexpr (std::is_void_v<R>) {
      std::apply(run_with, given);
      Py_RETURN_NONE;
    } else {
      return to_python(std::apply(run_with, given));
    }
    TG_PY_CATCH
  }
};

template <Text kName, auto kFunction, class Pointer = decltype(+kFunction)>
struct Entry;
template <Text kName, auto kFunction, class R, class... A>
struct Entry<kName, kFunction, R (*)(A...)> : Call<kName, kFunction, void, R, A...> {};
template <Text kName, auto kFunction, class Self, class R, class... A>
struct Entry<kName, kFunction, R (*)(Self&, A...)> : Call<kName, kFunction, Self, R, A...> {};

}  // namespace rows

template <Text kName, auto kFunction>
constexpr PyMethodDef method(const char* doc = nullptr) {
  using Entry = rows::Entry<kName, kFunction>;
  return {kName.text, Entry::call, Entry::kFlags, doc};
}

}  // namespace tapegrad::python
