// The interface of allocators of tensor memory, and the CPU's allocator. Deallocation is sized: `deallocate` must be
// given the same number of bytes as `allocate`. Thread rules: every function may be called from any thread; a block may
// be freed by a thread other than the one that allocated it. Ownership: the caller owns a block until it calls
// `deallocate`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

// Byte counts are of the caller's requests unless said otherwise. `allocated` is exact; `max_allocated` is
// exact for one thread and may miss up to 1 MiB per further thread that allocates at the same moment.
struct MemoryStats {
  uint64_t allocated = 0;           // held by callers now
  uint64_t max_allocated = 0;       // the most since start or reset_peak
  uint64_t reserved = 0;            // taken from the system and not given back (upper bound after a purge)
  uint64_t max_reserved = 0;        // the most since start or reset_peak
  uint64_t cached = 0;              // free and kept in the central pools (thread caches not counted)
  uint64_t largest_free_block = 0;  // of the central pool
  uint64_t num_allocs = 0;          // calls of allocate with at least one byte
  uint64_t num_frees = 0;
  uint64_t num_system_allocs = 0;  // reservations made from the system
  uint64_t num_system_frees = 0;
  uint64_t num_retries = 0;  // times the caches were emptied to satisfy a request
};

class TG_API Allocator {
 public:
  virtual ~Allocator();

  // A block of at least `nbytes`, aligned to 64 bytes, with unspecified contents. Never null: for 0 bytes the
  // result is a valid address that must not be read and that `deallocate(p, 0)` ignores. When memory runs out
  // an Error(OutOfMemory) with the numbers is thrown and nothing has changed.
  virtual void* allocate(size_t nbytes) = 0;
  virtual void deallocate(void* p, size_t nbytes) noexcept = 0;

  virtual MemoryStats stats() const = 0;
  // Sets the peaks to the current counts.
  virtual void reset_peak() = 0;
  // Returns free memory to the system: the caches of the calling thread and of the pools, not those of other threads
  // (they are small and bounded).
  virtual void empty_cache() = 0;
  // Bytes that the calling thread allocated less those that it freed: differences say what happened in between.
  virtual int64_t thread_bytes() const noexcept { return 0; }
  // The statistics as a human-readable table.
  virtual std::string summary() const = 0;
};

// Never destroyed, so objects with static lifetime may free their memory at any time.
TG_API Allocator& cpu_allocator();

// "1.50 GiB" and the like, for messages.
TG_API std::string format_bytes(uint64_t nbytes);

}  // namespace tapegrad
