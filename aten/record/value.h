// An argument of a recorded call by value, and the Argument that refers to it.
#pragma once

#include "tapegrad/aten/dispatch/argument.h"
#include "tapegrad/aten/dispatch/owned.h"

namespace tapegrad::record {

// Spans point into the same object: refer_to() sets them.
using ListValue = dispatch::OwnedTensors;
using IntsValue = dispatch::OwnedInts;
struct FloatsValue {
  std::vector<double> values;
  std::span<const double> span;
};
struct TextValue {
  std::string values;
  std::string_view span;
  std::optional<std::string_view> optional;
};
// Absent lists and texts are std::monostate.
using Value = std::variant<std::monostate, Tensor, Operand, ListValue, IntsValue, FloatsValue, TextValue, Scalar,
                           std::optional<Scalar>, int64_t, std::optional<int64_t>, double, std::optional<double>, bool,
                           std::optional<bool>, std::optional<std::vector<double>>, DType, std::optional<DType>,
                           std::optional<Device>, std::optional<MemoryFormat>, GeneratorPtr, PhiloxState>;

// The same numbers in memory of its own; of a tensor on the CPU. No mode sees it.
Tensor copy_of(const Tensor& t);

// The value of an argument; keep(tensor) gives the tensor that is kept in the place of one.
template <class Keep>
Value value_of(const dispatch::Argument& from, Keep&& keep);
// An argument that refers to a value, which must not be moved while it is used.
TG_API dispatch::Argument refer_to(Value& value, dispatch::ArgumentType type);

// By bits: 0 and -0 are two numbers, NaN is one.
TG_API bool same_number(const Scalar& a, const Scalar& b);

// f(std::type_identity<T>()), with T the type that an Argument of this type has.
template <class F>
decltype(auto) with_argument_type(dispatch::ArgumentType type, F&& f) {
  switch (type) {
#define TG_CASE(name, ...)           \
  case dispatch::ArgumentType::name: \
    return f(std::type_identity<__VA_ARGS__>());
    TG_ARGUMENT_TYPES(TG_CASE)
#undef TG_CASE
  }
  __builtin_unreachable();
}

inline const Operand* number_operand(const Value& v) {
  const auto* operand = std::get_if<Operand>(&v);
  return operand != nullptr && operand->tensor().defined() ? operand : nullptr;
}

// The integers of an argument that may depend on sizes: f(item, value), with item -1 where there is one alone.
template <class F>
void for_integers(const Value& v, F&& f) {
  if (const auto* list = std::get_if<IntsValue>(&v)) {
    for (size_t i = 0; i < list->values.size(); ++i) f(static_cast<int>(i), list->values[i]);
  } else if (const auto* one = std::get_if<int64_t>(&v)) {
    f(-1, *one);
  } else if (const auto* maybe = std::get_if<std::optional<int64_t>>(&v); maybe != nullptr && *maybe) {
    f(-1, **maybe);
  } else if (const auto* scalar = std::get_if<Scalar>(&v); scalar != nullptr && scalar->kind() == Scalar::Kind::Int) {
    f(-1, scalar->to<int64_t>());
  } else if (const Operand* number = number_operand(v)) {
    const Scalar s = number->tensor().item();
    if (s.kind() == Scalar::Kind::Int) f(-1, s.to<int64_t>());
  }
}

// Tensor number `item` of an argument that is a list, or the argument, with item -1.
inline void set_tensor(Value& v, int item, const Tensor& t) {
  if (item >= 0)
    std::get<ListValue>(v).tensors[static_cast<size_t>(item)] = t;
  else if (std::holds_alternative<Operand>(v))
    v = Operand(t);
  else
    v = t;
}

inline void set_integer(Value& v, int item, int64_t to) {
  if (auto* list = std::get_if<IntsValue>(&v))
    list->values[static_cast<size_t>(item)] = to;
  else if (std::holds_alternative<int64_t>(v))
    v = to;
  else if (std::holds_alternative<std::optional<int64_t>>(v))
    v = std::optional<int64_t>(to);
  else if (std::holds_alternative<Scalar>(v))
    v = Scalar(to);
  else
    v = Operand(Scalar(to));
}

template <class Keep>
Value value_of(const dispatch::Argument& from, Keep&& keep) {
  return with_argument_type(from.type(), [&]<class T>(std::type_identity<T>) -> Value {
    const T& v = from.as<T>();
    if constexpr (std::is_same_v<T, Tensor>) {
      return keep(v);
    } else if constexpr (std::is_same_v<T, Operand>) {
      return Operand(keep(v.tensor()));
    } else if constexpr (std::is_same_v<T, TensorSpan>) {
      ListValue list;
      for (const Tensor& t : v) list.tensors.push_back(keep(t));
      return list;
    } else if constexpr (std::is_same_v<T, IntSpan>) {
      return IntsValue{DimVector(v), {}, {}};
    } else if constexpr (std::is_same_v<T, OptionalInts>) {
      return v ? Value(IntsValue{DimVector(*v), {}, {}}) : Value();
    } else if constexpr (std::is_same_v<T, std::span<const double>>) {
      return FloatsValue{{v.begin(), v.end()}, {}};
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      return TextValue{std::string(v), {}, {}};
    } else if constexpr (std::is_same_v<T, std::optional<std::string_view>>) {
      return v ? Value(TextValue{std::string(*v), {}, {}}) : Value();
    } else {
      return v;
    }
  });
}

}  // namespace tapegrad::record
