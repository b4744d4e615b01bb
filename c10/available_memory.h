// Some libraries end the process when a small piece of memory is refused to them: the C library where a thread first
// uses thread-local memory of a library or an object with a destructor, libgomp where it makes a team. What is here
// asks for a larger piece first, gives it back, and throws std::bad_alloc where there is none. Any thread.
#pragma once

#include <cstddef>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

// Throws std::bad_alloc where there are not so many bytes in one piece. 16 KiB take 50 ns, 128 and more 1 us.
TG_API void require_memory(size_t nbytes = 16 << 10);

// A thread's first exception needs some bytes, too. They are got when it first calls us, from a reserve where there are
// no others.
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
