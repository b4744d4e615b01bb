// Variables of the environment that change what the library does; docs/environment.md has all of them. A value that is
// not allowed is named on the error stream, once, and the variable counts as not set. It is no warning of warning.h:
// values are read where they are first needed, under locks, too, while a handler in Python waits for Python's lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

// Null where it is not set or empty.
const char* environment_text(const char* name) noexcept;
TG_API uint64_t environment_number(const char* name, uint64_t otherwise, uint64_t least, uint64_t most) noexcept;
TG_API bool environment_flag(const char* name, bool otherwise) noexcept;  // 0 or 1
// "NAME: expected <what is allowed>: got '<its value>': it is ignored"
TG_API TG_COLD void refuse_environment(const char* name, std::string_view allowed) noexcept;

}  // namespace tapegrad
