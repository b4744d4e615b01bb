// Storage of tensors on a device: implements allocate_storage(nbytes, cuda device) with memory of the caching
// allocator, which belongs to the thread's current stream. A kernel that uses a tensor on another stream must be
// recorded with `note_use` (the launch layer does this for every operand): the memory is then reused only after that
// work, no matter when and by which thread it is freed. The check costs one load while every thread uses only default
// streams.
#pragma once

#include <atomic>

#include "tapegrad/c10/tensor/tensor_impl.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

namespace detail {
// Whether any thread of the process ever made a non-default stream current.
TG_API extern std::atomic<bool> several_streams;
TG_API void note_use_slow(const StorageImpl& storage, Stream stream);
}  // namespace detail

// Records that work which reads or writes the storage is queued on `stream`.
inline void note_use(const StorageImpl& storage, Stream stream) {
  if (TG_UNLIKELY(detail::several_streams.load(std::memory_order_relaxed))) detail::note_use_slow(storage, stream);
}

// Pinned host memory, for CPU tensors.
TG_API Storage allocate_pinned_storage(std::size_t nbytes);

struct Block;

// Temporary device memory of one operator (a workspace), in the order of `stream`: freed when the scope ends, and
// reused by later work of the same stream without waiting.
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
