// Warnings of operators for whoever uses the library: Python's `warnings` where the bindings are loaded, else the error
// stream. A handler may throw (warnings as errors), so that warn() stands before the first write. Any thread may call
// it; set_warning_handler is for the start of a program.
#pragma once

#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

using WarningHandler = void (*)(const std::string& message);

TG_API void set_warning_handler(WarningHandler handler) noexcept;
TG_API TG_COLD void warn(const std::string& message);

}  // namespace tapegrad
