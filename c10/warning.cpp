#include "tapegrad/c10/warning.h"

#include <atomic>
#include <cstdio>

namespace tapegrad {

namespace {

void to_error_stream(const std::string& message) { std::fprintf(stderr, "warning: %s\n", message.c_str()); }

std::atomic<WarningHandler> handler_{to_error_stream};

}  // namespace

void set_warning_handler(WarningHandler handler) noexcept { handler_.store(handler); }

void warn(const std::string& message) { handler_.load()(message); }

}  // namespace tapegrad
