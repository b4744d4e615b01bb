#include "tapegrad/c10/error.h"

#include <fmt/format.h>

namespace tapegrad::detail {

void throw_error(ErrorKind kind, std::string message) { throw Error(kind, std::move(message)); }

void throw_vformat(ErrorKind kind, fmt::string_view format, fmt::format_args args) {
  throw Error(kind, fmt::vformat(format, args));
}

void throw_assert(const char* condition, const char* file, int line) {
  throw Error(ErrorKind::Internal,
              fmt::format("internal assertion failed: {} at {}:{}\nthis is a bug in tapegrad, please report it",
                          condition, file, line));
}

}  // namespace tapegrad::detail
