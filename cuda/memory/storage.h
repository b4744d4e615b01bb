// Memory of tensors on a device. allocate_storage(nbytes, cuda device) comes here: bytes of the caching allocator,
// owned by the thread's current stream. A kernel that uses a tensor on another stream than the one its memory belongs
// to must say so, by `note_use` (the launch layer does it for every operand): then the memory is used again only after
// that work, whoever frees it and whenever. Asking costs one load while every thread stays on the default streams.
#pragma once

#include <atomic>

#include "tapegrad/c10/tensor_impl.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

namespace detail {
// Whether any thread of the process ever made another than a default stream current.
TG_API extern std::atomic<bool> several_streams;
TG_API void note_use_slow(const StorageImpl& storage, Stream stream);
}  // namespace detail

// Work that reads or writes the storage goes to `stream`.
inline void note_use(const StorageImpl& storage, Stream stream) {
  if (TG_UNLIKELY(detail::several_streams.load(std::memory_order_relaxed))) detail::note_use_slow(storage, stream);
}

// Host memory that devices reach on their own, for tensors of the CPU.
TG_API Storage allocate_pinned_storage(std::size_t nbytes);

struct Block;

// Bytes for the use of one kernel (workspaces), in the order of `stream`: freed when the scope ends, used again by
// later work of the same stream without waiting.
class TG_API Workspace {
 public:
  Workspace(std::size_t nbytes, Stream stream);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  void* data() const noexcept;
  std::size_t nbytes() const noexcept { return nbytes_; }

 private:
  Block* block_;
  std::size_t nbytes_;
  int device_;
};

}  // namespace tapegrad::cuda
