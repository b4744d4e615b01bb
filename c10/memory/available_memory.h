// Some libraries end the process when a small allocation fails: the C library when a thread first uses a library's
// thread-local memory or an object with a destructor, libgomp when it creates a team. The functions here allocate a
// larger piece first, free it, and throw std::bad_alloc if that failed. Any thread.
#pragma once

#include <cstddef>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

// Throws std::bad_alloc if that many contiguous bytes cannot be allocated. Costs 50 ns for 16 KiB, 1 us for 128 KiB and
// more.
TG_API void require_memory(size_t nbytes = 16 << 10);

// A thread's first exception allocates a few bytes, too. They are allocated when the thread first calls the library,
// from a reserve if there is no other memory.
namespace detail {
extern TG_API constinit thread_local bool thread_prepared __attribute__((tls_model("initial-exec")));
TG_API void prepare_thread_slowly() noexcept;
}  // namespace detail
inline void prepare_thread() noexcept {
  if (TG_UNLIKELY(!detail::thread_prepared)) detail::prepare_thread_slowly();
}

// As require_memory, once per thread and `Tag`, before the first use of a thread_local object with a destructor.
template <class Tag>
void require_thread_memory() {
  static constinit thread_local bool had = false;
  if (TG_LIKELY(had)) return;
  require_memory();
  had = true;
}

}  // namespace tapegrad
