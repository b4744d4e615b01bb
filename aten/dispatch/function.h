// Function: what is known of one public function of an operator (`add`, `add_`, `add_out`) when it is called without
// knowing its name: its row's properties, and the function itself at each step of a call. The generator defines one for
// each (aten/gen/emit_dispatch.py), as constant data. Any thread may read it.
#pragma once

#include <span>
#include <string_view>
#include <tuple>
#include <variant>

#include "tapegrad/aten/dispatch/argument.h"
#include "tapegrad/c10/dispatch/kernel_table.h"
#include "tapegrad/c10/inline_vector.h"

namespace tapegrad::dispatch {

enum class Form : uint8_t {
  Value,    // returns its result
  InPlace,  // writes to its first argument
  Out,      // writes to its last arguments
};

// What autocast does with the tensors of a call (key `autocast` of rows).
enum class Cast : uint8_t {
  None,
  Keep,     // nothing, nor with its parts
  Lower,    // to the lower dtype
  Float32,  // to float32
  Promote,  // to the widest dtype among them
};

// What a function returned. Of one that writes it means nothing: its results are among the arguments.
struct Results {
  InlineVector<Tensor, 3> tensors;
  std::variant<std::monostate, bool, int64_t, double, Scalar, DType> number;

  void set(Tensor t) { tensors.emplace_back(std::move(t)); }
  void set(std::vector<Tensor> list) {
    for (Tensor& t : list) tensors.emplace_back(std::move(t));
  }
  template <class... T>
  void set(std::tuple<T...> several) {
    std::apply([&](auto&... t) { (tensors.emplace_back(std::move(t)), ...); }, several);
  }
  template <class T>
    requires std::is_constructible_v<decltype(number), T>
  void set(T value) {
    number = value;
  }

  template <class R>
  R take() {
    if constexpr (std::is_same_v<R, Tensor>) {
      return std::move(tensors[0]);
    } else if constexpr (std::is_same_v<R, std::vector<Tensor>>) {
      return R(std::make_move_iterator(tensors.begin()), std::make_move_iterator(tensors.end()));
    } else if constexpr (!std::is_void_v<R> && !requires { std::tuple_size<R>::value; }) {
      return std::get<R>(number);
    } else if constexpr (!std::is_void_v<R>) {
      return [&]<size_t... I>(std::index_sequence<I...>) {
        return R(std::move(tensors[I])...);
      }(std::make_index_sequence<std::tuple_size_v<R>>());
    }
  }
};

using AnyFunction = void (*)();
using Invoke = void (*)(AnyFunction function, const Argument* arguments, Results& results);

struct Function {
  const OperatorEntry* entry;
  const char* name;  // as messages and profiles show it
  uint32_t bits;     // of modes and kinds: a call with one of these goes through the handlers
  Form form;
  Cast cast;
  uint32_t dims;                        // bit i: argument i is a dimension, or several
  uint32_t sizes;                       // bit i: argument i is a list of sizes
  uint32_t absent;                      // bit i: argument i may be absent; of a list of tensors, items of it
  std::span<const ArgumentType> types;  // of the arguments
  Invoke invoke;                        // calls a function of this signature
  AnyFunction whole;                    // the function as programs call it
  AnyFunction body;                     // the same behind the handlers that come before the tape
  AnyFunction plain;    // the same behind the tape and all handlers; is `body` where the tape has no part in it
  AnyFunction sparse;   // what does it where a tensor is sparse, or null
  AnyFunction batched;  // what does it where a tensor is batched, or null: by the rule of the entry
};

template <class R, class... P>
void invoke(AnyFunction function, const Argument* arguments, Results& results) {
  [&]<size_t... I>(std::index_sequence<I...>) {
    auto* f = reinterpret_cast<R (*)(P...)>(function);
    if constexpr (std::is_void_v<R> || std::is_reference_v<R>)
      f(arguments[I].template as<std::remove_cvref_t<P>>()...);
    else
      results.set(f(arguments[I].template as<std::remove_cvref_t<P>>()...));
  }(std::index_sequence_for<P...>());
}
template <class... P>
inline constexpr std::array<ArgumentType, sizeof...(P)> argument_types{
    detail::TypeOf<std::remove_cvref_t<P>>::value...};

// The steps of one function: all have its signature, so the compiler checks that what stands in for it can.
template <class R, class... P>
Function function(const OperatorEntry& entry, const char* name, uint32_t bits, Form form, Cast cast, uint32_t dims,
                  uint32_t sizes, uint32_t absent, R (*whole)(P...), R (*body)(P...), R (*plain)(P...),
                  std::type_identity_t<R (*)(P...)> sparse = nullptr,
                  std::type_identity_t<R (*)(P...)> batched = nullptr) {
  auto any = [](R (*f)(P...)) { return reinterpret_cast<AnyFunction>(f); };
  return {&entry,
          name,
          bits,
          form,
          cast,
          dims,
          sizes,
          absent,
          argument_types<P...>,
          &invoke<R, P...>,
          any(whole),
          any(body),
          any(plain),
          any(sparse),
          any(batched)};
}

// A function under its name in C++, which no other one has (`sum_dim`, `add_out`).
struct Listed {
  const char* id;
  const Function* function;
};
// All there are, in no order; and one by its name, or null. O(n) of about 2,500.
TG_API std::span<const Listed> all_functions() noexcept;
TG_API const Listed* find_function(std::string_view id) noexcept;
TG_API const char* id_of(const Function& function) noexcept;

}  // namespace tapegrad::dispatch

// Puts a function on the list, which is a section of the library: nothing runs when it is loaded.
#define TG_LIST_FUNCTION(f) \
  [[gnu::used, gnu::retain, gnu::section("tapegrad_functions")]] const dispatch::Listed listed_##f{#f, &f};
