// Where allocators get memory from: an interface, so that their policy is tested on a fake, and the system's
// instance of it. Implementations need no locking of their own: their user serialises the calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

inline constexpr size_t kHugePage = size_t{2} << 20;

class TG_API MemorySource {
 public:
  virtual ~MemorySource();
  // `nbytes` (a multiple of kHugePage) aligned to kHugePage, or null. Contents unspecified.
  virtual void* reserve(size_t nbytes) noexcept = 0;
  // Releases a range, exactly as one call of `reserve` returned it.
  virtual void release(void* p, size_t nbytes) noexcept = 0;
  // Returns the pages to the system but keeps the addresses: the range may be used again, its contents are lost.
  virtual void purge(void* p, size_t nbytes) noexcept = 0;
  // Bytes that could be reserved and touched without driving the machine out of memory.
  virtual uint64_t available() noexcept = 0;
  // The resident size of this process in bytes, or UINT64_MAX if unknown. Memory that was reserved but is not resident
  // yet still counts in `available`.
  virtual uint64_t resident() noexcept { return UINT64_MAX; }
};

// Anonymous mappings in huge pages where the kernel offers them (TAPEGRAD_HUGE_PAGES=0 turns that off);
// `available` respects the control group's limit as well as the machine's memory.
TG_API MemorySource& system_memory();

// Memory of the machine or the control group's limit, whichever is less.
TG_API uint64_t total_memory() noexcept;

}  // namespace tapegrad
