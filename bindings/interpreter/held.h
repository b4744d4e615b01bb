// The object that owns the memory of a storage over foreign memory, kept until the storage is destroyed.
#pragma once

#include <cstddef>

#include "tapegrad/bindings/interpreter/gil.h"

namespace tapegrad::python {

// Destroyed with the GIL, on any thread; not at all once the interpreter ends.
struct Held {
  virtual ~Held() = default;
  Held* next = nullptr;
};

// The deleter of such a storage, which gets a Held. An owner may hold the last reference to another such storage, and
// so on (arrays over tensors over arrays): they are destroyed iteratively, not recursively.
void release_held(void* held, void*, size_t) noexcept;

}  // namespace tapegrad::python
