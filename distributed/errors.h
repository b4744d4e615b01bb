// Errors of stores, networks and engines of collectives: RuntimeErrors with a class of their own, PyTorch's
// DistStoreError, DistNetworkError and DistBackendError in Python (bindings/interpreter/errors.cpp).
#pragma once

#include <string>
#include <utility>

#include "tapegrad/c10/error.h"

namespace tapegrad::distributed {

class DistError : public Error {
 public:
  enum class Part { General, Store, Network, Backend };
  DistError(Part part, std::string message) : Error(ErrorKind::Runtime, std::move(message)), part_(part) {}
  Part part() const noexcept { return part_; }

 private:
  Part part_;
};

template <class... Args>
[[noreturn]] TG_COLD void fail(DistError::Part part, fmt::format_string<Args...> format, Args&&... args) {
  throw DistError(part, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tapegrad::distributed
