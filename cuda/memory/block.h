// The data structures of the caching allocator: segments of device memory, divided into blocks in a list ordered by
// address. Guarded by the allocator's lock; private to the allocator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

struct BlockPool;
struct PrivatePool;
struct Segment;

// Free means: mapped, not held by a caller, and not in use by pending work of another stream.
struct Block {
  char* address = nullptr;
  std::size_t size = 0;
  std::size_t requested = 0;
  Segment* segment = nullptr;
  Block* prev = nullptr;  // the neighbours in the segment
  Block* next = nullptr;
  bool allocated = false;
  bool mapped = true;        // false: addresses of an expandable segment without memory
  bool deferred = false;     // freed during a capture; decided when it ends
  uint32_t site = 0;         // the line that allocated it
  uint32_t pending = 0;      // events that must pass before it is free
  uint64_t freed_at = 0;     // when, in calls of the allocator
  std::vector<Stream> uses;  // other streams that work on it was queued on

  bool is_free() const noexcept { return mapped && !allocated && !deferred && pending == 0; }
  bool is_split() const noexcept { return prev != nullptr || next != nullptr; }
};

// One piece of memory of the driver, or a range of addresses that memory is mapped into piece by piece (`unit` bytes
// each).
struct Segment {
  char* base = nullptr;
  std::size_t size = 0;  // of the addresses
  std::size_t unit = 0;  // 0: not expandable
  std::size_t mapped_bytes = 0;
  StreamHandle stream = nullptr;
  BlockPool* pool = nullptr;
  Block* first = nullptr;
  std::vector<PhysicalHandle> memory;  // of each unit; 0: none
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const noexcept {
    if (a->segment->stream != b->segment->stream) return a->segment->stream < b->segment->stream;
    if (a->size != b->size) return a->size < b->size;
    return a->address < b->address;
  }
};
struct ByAddress {
  bool operator()(const Block* a, const Block* b) const noexcept {
    if (a->segment->stream != b->segment->stream) return a->segment->stream < b->segment->stream;
    return a->address < b->address;
  }
};

// Free blocks of one kind: small or large, general or of a capture's pool.
struct BlockPool {
  bool small = false;
  bool fixed = false;  // fixed segments only, which other processes can open
  PrivatePool* owner = nullptr;
  std::set<Block*, BySize> free;
  std::set<Block*, ByAddress> unmapped;
};

// The private memory of one or more graphs: replays reuse it at the same addresses.
struct PrivatePool {
  uint64_t id = 0;
  int users = 0;  // captures and graphs that need it
  BlockPool small_blocks, large_blocks;
  std::size_t live = 0;  // blocks held by callers
};

}  // namespace tapegrad::cuda
