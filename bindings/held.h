// What a storage over memory of others keeps: the object that owns the memory, until the storage goes.
#pragma once

#include <cstddef>

#include "tapegrad/bindings/gil.h"

namespace tapegrad::python {

// Destroyed with the GIL, on any thread; not at all once the interpreter ends.
struct Held {
  virtual ~Held() = default;
  Held* next = nullptr;
};

// The deleter of such a storage, which gets a Held. An owner may be the last owner of another such storage, and so on
// (arrays over tensors over arrays): they go one after the other, not within each other.
void release_held(void* held, void*, size_t) noexcept;

}  // namespace tapegrad::python
