// A faster way that needs scratch memory beside one that needs none.
#pragma once

#include "tapegrad/c10/error.h"

namespace tapegrad::cuda {

// The result of f(); false where memory was short for it.
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
