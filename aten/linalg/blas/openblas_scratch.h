// OpenBLAS ends the process when it cannot allocate a buffer. It allocates one of 32 MiB, and keeps it forever, when
// more calls run at once than it has buffers. Therefore each thread, before it calls OpenBLAS, makes sure that a spare
// buffer exists, allocated by OpenBLAS or ready to be handed to it, and that its thread-local variables are allocated;
// if there is no memory for them, the thread gets an Error(OutOfMemory) and OpenBLAS is not called. Thread rules: any
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

// Replaces the allocation function of the loaded library. Call once, before the library is used.
void supply_scratch(void* library) noexcept;

// A destructor of OpenBLAS unmaps its buffers and forgets its kernels when the process ends, while threads may still
// compute: daemon threads of Python, and calls that an interrupt has abandoned (stoppable.h). The end of the process
// frees all of it, so the dynamic linker is told that the library has no destructors.
void skip_destructors(void* library) noexcept;

}  // namespace tapegrad::blas
