// For kernels with two algorithms: a faster one that needs scratch memory, and one that needs none.
#pragma once

#include "tapegrad/c10/error.h"

namespace tapegrad::cuda {

// The result of f(), or false if it ran out of memory.
template <class F>
bool where_memory_suffices(const F& f) {
  try {
    return f();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::OutOfMemory) throw;
    return false;
  }
}

}  // namespace tapegrad::cuda
