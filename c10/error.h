// Errors of tapegrad: one exception type with a kind, which the Python side maps to the matching class.
// Messages read `op: what is wrong: the values`, lower case, no full stop, a hint on a second line.
// TG_CHECK is for the caller's mistakes, TG_ASSERT for ours; both throw, nothing aborts. The text is the
// same in every build type. Formats are checked at compile time by fmt.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

enum class ErrorKind : uint8_t {
  Runtime,
  Value,
  Type,
  Index,
  NotImplemented,
  OutOfMemory,
  Key,
  Attribute,
  Overflow,
  Interrupt,
  LinAlg,
  Internal,
};

class TG_API Error : public std::exception {
 public:
  Error(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ErrorKind kind() const noexcept { return kind_; }
  const std::string& message() const noexcept { return message_; }
  // Prefixes the message with the context of an outer layer (an operator's name, a module's path).
  void prepend(const std::string& text) { message_ = text + message_; }

 private:
  ErrorKind kind_;
  std::string message_;
};

namespace detail {
[[noreturn]] TG_API TG_COLD void throw_error(ErrorKind kind, std::string message);
[[noreturn]] TG_API TG_COLD void throw_vformat(ErrorKind kind, fmt::string_view format, fmt::format_args args);
[[noreturn]] TG_API TG_COLD void throw_assert(const char* condition, const char* file, int line);

template <class... Args>
[[noreturn]] TG_COLD void throw_format(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw_vformat(kind, fmt::string_view(format), fmt::make_format_args(args...));
}
}  // namespace detail

// For formatters: writes the text to a context's output. fmt::format_to would do, but what it calls in libfmt has one
// mangled name with g++ and another with clang, so that a clang build does not link to a library that g++ made.
template <class Out>
Out append_text(Out out, std::string_view text) {
  for (char c : text) *out++ = c;
  return out;
}

}  // namespace tapegrad

#define TG_THROW(kind, ...) ::tapegrad::detail::throw_format(::tapegrad::ErrorKind::kind, __VA_ARGS__)

#define TG_CHECK(condition, kind, ...)                          \
  do {                                                          \
    if (TG_UNLIKELY(!(condition))) TG_THROW(kind, __VA_ARGS__); \
  } while (false)

#define TG_ASSERT(condition)                                                                         \
  do {                                                                                               \
    if (TG_UNLIKELY(!(condition))) ::tapegrad::detail::throw_assert(#condition, __FILE__, __LINE__); \
  } while (false)
