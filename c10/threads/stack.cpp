#include "tapegrad/c10/threads/stack.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "tapegrad/c10/memory/available_memory.h"

namespace tapegrad::detail {

constinit thread_local uintptr_t stack_floor __attribute__((tls_model("initial-exec"))) = UINTPTR_MAX;

// The main thread's stack limit may have changed, so it is read again before a call is refused.
void look_at_stack(const char* op) {
  prepare_thread();
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t size = 0;
  const int failed = pthread_getattr_np(pthread_self(), &attributes);
  if (failed == ENOMEM) return;  // it is tried again
  if (failed == 0) {
    if (pthread_attr_getstack(&attributes, &low, &size) != 0) size = 0;
    pthread_attr_destroy(&attributes);
  }
  const auto lowest = reinterpret_cast<uintptr_t>(low);
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (here < lowest || here - lowest >= size) {  // unknown, or a stack that the program has made itself
    stack_floor = 0;
    return;
  }
  stack_floor = lowest + std::min<size_t>(size / 8 * 5, 160 << 10);
  if (here >= stack_floor) return;
  throw StackExhausted(ErrorKind::Runtime, fmt::format("{}: nested too deeply: {} of {} kB of stack are left", op,
                                                       (here - lowest) >> 10, size >> 10));
}

}  // namespace tapegrad::detail
