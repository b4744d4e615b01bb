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
  // Takes back exactly what one `reserve` gave.
  virtual void release(void* p, size_t nbytes) noexcept = 0;
  // Gives the pages back but keeps the addresses: the range may be used again, its contents are lost.
  virtual void purge(void* p, size_t nbytes) noexcept = 0;
  // Bytes that could be reserved and touched without driving the machine out of memory.
  virtual uint64_t available() noexcept = 0;
  // Bytes of this process that are in memory, or UINT64_MAX where unknown. What was reserved and is not
  // resident has yet to be taken from `available`.
  virtual uint64_t resident() noexcept { return UINT64_MAX; }
};

// Anonymous mappings in huge pages where the kernel offers them (TAPEGRAD_HUGE_PAGES=0 turns that off);
// `available` respects the control group's limit as well as the machine's memory.
TG_API MemorySource& system_memory();

// Memory of the machine or the control group's limit, whichever is less.
TG_API uint64_t total_memory() noexcept;

}  // namespace tapegrad
