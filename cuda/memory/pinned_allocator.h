// The caching allocator of pinned host memory, whose allocation by the driver takes a millisecond. Blocks are powers of
// two from 512 bytes. A block with queued copies is reused only when they are done; callers that queue one must call
// note_use. All functions from any thread.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// Bytes and blocks held by callers, and those allocated from the driver; `_total`: since start.
struct PinnedStats {
  uint64_t allocated = 0, max_allocated = 0, allocated_total = 0, num_allocs = 0, num_frees = 0, max_blocks = 0;
  uint64_t reserved = 0, max_reserved = 0, reserved_total = 0, num_host_alloc = 0, num_host_free = 0,
           max_host_blocks = 0;
};

class TG_API PinnedAllocator {
 public:
  explicit PinnedAllocator(Driver& driver) : driver_(driver) {}
  ~PinnedAllocator();
  PinnedAllocator(const PinnedAllocator&) = delete;
  PinnedAllocator& operator=(const PinnedAllocator&) = delete;

  void* allocate(std::size_t nbytes);  // nbytes > 0; OutOfMemory
  void free(void* p);
  // Whether p points into a block that is held; only such memory is copied without waiting.
  bool owns(const void* p) const;
  // Work on `stream` reads or writes the block that p points into. Nothing for other memory.
  void note_use(const void* p, Stream stream);
  void empty_cache();  // returns free blocks to the driver; waits for the work on them
  PinnedStats stats() const;
  void reset_peak();

 private:
  struct Block {
    std::size_t size = 0;
    std::vector<Stream> uses;
    uint32_t pending = 0;
    bool held = false;
  };
  void process(bool wait);
  void release_cached();
  Block* containing(const void* p, char** start);
  void keep(char* p, Block& block);

  Driver& driver_;
  mutable std::mutex mutex_;
  std::map<char*, Block> blocks_;
  std::map<std::size_t, std::vector<char*>> free_;  // by size
  std::deque<std::pair<EventHandle, char*>> events_;
  PinnedStats stats_;
};

TG_API PinnedAllocator& pinned_allocator();

}  // namespace tapegrad::cuda
