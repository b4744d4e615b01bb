// Operations on storages. A storage that a tensor refers to never shrinks, so that no live view points outside of it.
// Needs exclusive use of the storage.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Gives the storage `nbytes` bytes; the old content is kept as far as it fits, new bytes are uninitialised.
// Shrinking is refused (Runtime) while anything but `storage` itself refers to the bytes.
TG_API void resize_storage(const Storage& storage, size_t nbytes);

// Replaces the geometry of `self` by a contiguous one of `sizes`, growing the storage where needed.
TG_API void resize_tensor(const Tensor& self, IntSpan sizes, std::optional<MemoryFormat> format, const char* op);

}  // namespace tapegrad
