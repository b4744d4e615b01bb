// OpenBLAS ends the process when it finds no memory for a buffer. It takes one of 32 MiB where as many calls are under
// way as it has buffers, and keeps it for ever. So each thread that is going to call it sees to it first that there is
// one buffer more, made or ready to be handed out when OpenBLAS asks for it, and that its thread-local variables are
// there; without memory for them that thread gets an Error(OutOfMemory) and OpenBLAS is not called. Thread rules: any
// thread.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad::blas {

namespace detail {
extern constinit thread_local bool have_scratch __attribute__((tls_model("initial-exec")));
void take_scratch();
}  // namespace detail

// Before every call of the library. Throws Error(OutOfMemory) or std::bad_alloc.
inline void need_scratch() {
  if (TG_UNLIKELY(!detail::have_scratch)) detail::take_scratch();
}

// Puts ours in the place of the function that the opened library asks for memory. Once, before it is called.
void supply_scratch(void* library) noexcept;

}  // namespace tapegrad::blas
