// Argument: one argument of a call, without its type: the address of the caller's variable and what it is. It owns
// nothing and is valid while the call runs. Two words; making one costs two stores.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/random/philox.h"
#include "tapegrad/c10/tensor/memory_format.h"

namespace tapegrad::dispatch {

// The types of arguments, as rows of the op table have them (aten/gen/cpp_types.py): X(name, C++ type). A Tensor is
// undefined where it is absent; an Operand is a tensor or a number; Philox, the numbers of one random call, is an
// argument of kernels alone.
#define TG_ARGUMENT_TYPES(X)                            \
  X(Tensor, tapegrad::Tensor)                           \
  X(Operand, tapegrad::Operand)                         \
  X(Tensors, TensorSpan)                                \
  X(Scalar, tapegrad::Scalar)                           \
  X(OptionalScalar, std::optional<tapegrad::Scalar>)    \
  X(Int, int64_t)                                       \
  X(OptionalInt, std::optional<int64_t>)                \
  X(Float, double)                                      \
  X(OptionalFloat, std::optional<double>)               \
  X(Bool, bool)                                         \
  X(OptionalBool, std::optional<bool>)                  \
  X(Ints, IntSpan)                                      \
  X(OptionalInts, tapegrad::OptionalInts)               \
  X(Floats, std::span<const double>)                    \
  X(OptionalFloats, std::optional<std::vector<double>>) \
  X(String, std::string_view)                           \
  X(OptionalString, std::optional<std::string_view>)    \
  X(DType, tapegrad::DType)                             \
  X(OptionalDType, std::optional<tapegrad::DType>)      \
  X(OptionalDevice, std::optional<Device>)              \
  X(OptionalMemoryFormat, std::optional<MemoryFormat>)  \
  X(Generator, GeneratorPtr)                            \
  X(Philox, PhiloxState)

#define TG_ARGUMENT_NAME(name, ...) name,
enum class ArgumentType : uint8_t { TG_ARGUMENT_TYPES(TG_ARGUMENT_NAME) };
#undef TG_ARGUMENT_NAME

namespace detail {
template <class T>
struct TypeOf;
#define TG_ARGUMENT_TYPE(name, ...)                           \
  template <>                                                 \
  struct TypeOf<__VA_ARGS__> {                                \
    static constexpr ArgumentType value = ArgumentType::name; \
  };
TG_ARGUMENT_TYPES(TG_ARGUMENT_TYPE)
#undef TG_ARGUMENT_TYPE
}  // namespace detail

class Argument {
 public:
  Argument() = default;
  template <class T>
  explicit Argument(const T& value) noexcept : at_(&value), type_(detail::TypeOf<T>::value) {}

  ArgumentType type() const noexcept { return type_; }
  // The value; T is the C++ type that belongs to type().
  template <class T>
  const T& as() const noexcept {
    return *static_cast<const T*>(at_);
  }
  // Whether it is one tensor, or a number in the place of one.
  bool is_tensor() const noexcept { return type_ <= ArgumentType::Operand; }
  const Tensor& tensor() const noexcept {
    return type_ == ArgumentType::Tensor ? as<Tensor>() : as<Operand>().tensor();
  }
  bool is_list() const noexcept { return type_ == ArgumentType::Tensors; }
  TensorSpan list() const noexcept { return as<TensorSpan>(); }

 private:
  const void* at_ = nullptr;
  ArgumentType type_ = ArgumentType::Tensor;
};

using Arguments = std::span<const Argument>;

// The kinds of tensors (c10/tensor/kinds.h) among some values, joined.
inline uint32_t kinds_of(const Tensor& t) noexcept { return t.defined() ? t.impl()->kinds() : 0; }
inline uint32_t kinds_of(const Operand& t) noexcept { return kinds_of(t.tensor()); }
inline uint32_t kinds_of(TensorSpan list) noexcept {
  uint32_t kinds = 0;
  for (const Tensor& t : list) kinds |= kinds_of(t);
  return kinds;
}
inline uint32_t kinds_of(Arguments arguments) noexcept {
  uint32_t kinds = 0;
  for (const Argument& a : arguments)
    kinds |= a.is_tensor() ? kinds_of(a.tensor()) : a.is_list() ? kinds_of(a.list()) : 0;
  return kinds;
}
// What a function tests: the modes of the thread and the kinds of its tensors in one word.
template <class... T>
TG_INLINE uint32_t call_word(const T&... tensors) noexcept {
  return (modes() | ... | kinds_of(tensors));
}

}  // namespace tapegrad::dispatch
