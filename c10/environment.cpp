#include "tapegrad/c10/environment.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <string>

namespace tapegrad {

const char* environment_text(const char* name) noexcept {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? nullptr : text;
}

void refuse_environment(const char* name, std::string_view allowed) noexcept try {
  static auto& mutex = *new std::mutex;
  static auto& said = *new std::set<std::string>;
  {
    const std::lock_guard lock(mutex);
    if (!said.insert(name).second) return;
  }
  const char* text = std::getenv(name);
  const std::string line =
      fmt::format("tapegrad: {}: expected {}: got '{}': it is ignored\n", name, allowed, text == nullptr ? "" : text);
  std::fputs(line.c_str(), stderr);
} catch (const std::exception&) {  // no memory to say so
}

uint64_t environment_number(const char* name, uint64_t otherwise, uint64_t least, uint64_t most) noexcept {
  const char* text = environment_text(name);
  if (text == nullptr) return otherwise;
  char* end = nullptr;
  const uint64_t value = std::strtoull(text, &end, 10);  // "-1" is more than any limit
  if (*end == '\0' && value >= least && value <= most) return value;
  refuse_environment(name, fmt::format("a number from {} to {}", least, most));
  return otherwise;
}

bool environment_flag(const char* name, bool otherwise) noexcept {
  const char* text = environment_text(name);
  if (text == nullptr) return otherwise;
  const std::string_view value = text;
  if (value == "0" || value == "1") return value == "1";
  refuse_environment(name, "0 or 1");
  return otherwise;
}

}  // namespace tapegrad
