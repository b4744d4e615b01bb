// How much stack a thread has left. Calls that re-enter the library (a backward that runs backward, a hook or a module
// that calls itself) raise an error while there is still enough stack for one operator and for unwinding, independently
// of the recursion limit of the language above.
#pragma once

#include <cstdint>

#include "tapegrad/c10/error.h"

namespace tapegrad {

// Python's RecursionError.
class TG_API StackExhausted : public Error {
 public:
  using Error::Error;
};

namespace detail {
// The lowest address that a frame of this thread may have; the highest possible address before the first check.
TG_API extern constinit thread_local uintptr_t stack_floor __attribute__((tls_model("initial-exec")));
TG_API TG_COLD void look_at_stack(const char* op);
}  // namespace detail

// Throws StackExhausted if less is left than the largest kernels need, 160 kB (eigh and qr of small matrices: 100), or
// less than five eighths of a stack that is smaller than 256 kB. Costs one comparison.
inline void check_stack(const char* op) {
  if (TG_UNLIKELY(reinterpret_cast<uintptr_t>(__builtin_frame_address(0)) < detail::stack_floor))
    detail::look_at_stack(op);
}

}  // namespace tapegrad
