// The central pool of the caching allocator: blocks of any size cut out of large segments, best fit, merged with their
// free neighbours when they are freed. Not thread-safe: the owner locks. Tested on a fake source.
//
// Rules:
// - Sizes are multiples of kGranule. A block is cut from the smallest free block that is large enough.
// - A request below kBigBlock never splits a wholly free big segment while memory can be reserved: small long-lived
//   blocks inside it would keep the next large tensor from reusing its (already faulted in) pages.
// - A big block is a multiple of kHugePage and has a segment of its own; smaller ones share segments that grow with
//   use.
// - Free bytes beyond the limit go back to the system: first wholly free segments, longest idle first, then the pages
//   of large free blocks in segments that are in use (their addresses stay reserved).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>

#include "tapegrad/c10/memory/memory_source.h"

namespace tapegrad::detail {

// A memory source with counters, shared by the pools of one allocator. It refuses requests that would not fit into
// memory.
class TG_API Reservoir {
 public:
  explicit Reservoir(MemorySource& source) : source_(source) {}
  void* reserve(size_t nbytes) noexcept;
  void release(void* p, size_t nbytes, size_t purged) noexcept;
  // `already` of these bytes had been purged before.
  void purge(void* p, size_t nbytes, size_t already) noexcept;
  // Purged pages that are about to be used again.
  void refill(size_t nbytes) noexcept;
  // Bytes that can still be reserved now: the source's figure less what was reserved but not yet touched.
  uint64_t available() noexcept;

  uint64_t reserved = 0;
  uint64_t max_reserved = 0;
  uint64_t num_reserves = 0;
  uint64_t num_releases = 0;

 private:
  MemorySource& source_;
};

class TG_API BlockPool {
 public:
  static constexpr size_t kGranule = 1 << 10;
  static constexpr size_t kBigBlock = size_t{32} << 20;

  BlockPool(Reservoir& reservoir, uint64_t cache_limit) : reservoir_(reservoir), cache_limit_(cache_limit) {}
  // Releases every segment; blocks still in use die with it.
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // `size` is a multiple of kGranule. Null when the reservoir refuses, std::bad_alloc when even the
  // bookkeeping has no memory; nothing has changed then.
  void* allocate(size_t size);
  void deallocate(void* p) noexcept;
  // Gives free memory back until at most `keep` bytes of it remain. `purge_min` is the smallest free block
  // within a used segment whose pages are given back.
  void trim(uint64_t keep, size_t purge_min) noexcept;

  uint64_t cached() const noexcept { return cached_; }  // free bytes that are backed by memory
  uint64_t cache_limit() const noexcept { return cache_limit_; }
  size_t largest_free() const noexcept;
  size_t num_segments() const noexcept { return segments_.size(); }
  // Walks over all blocks and throws Error(Internal) where the lists disagree. For tests.
  void check() const;

 private:
  struct Block;
  struct BySize {
    bool operator()(const Block* a, const Block* b) const noexcept;
  };
  using FreeSet = std::set<Block*, BySize>;
  struct Segment {
    char* base;
    size_t size;
    bool big;
  };
  struct Block {
    char* ptr = nullptr;
    size_t size = 0;
    size_t purged = 0;  // bytes of a free block that are not backed, at least
    Segment* segment = nullptr;
    Block* prev = nullptr;  // neighbours within the segment, by address
    Block* next = nullptr;
    uint64_t freed_at = 0;
    bool free = false;
    FreeSet::node_type node;  // kept while in use, so that freeing never allocates
  };

  Block* find(size_t size, bool break_big) const noexcept;
  Block* grow(size_t size);
  void* take(Block* b, size_t size);
  void insert_free(Block* b) noexcept;
  void remove_free(Block* b) noexcept;
  void absorb_next(Block* b) noexcept;
  void release_segment(Block* whole) noexcept;
  Block* add_block(std::unique_ptr<Block> b);

  Reservoir& reservoir_;
  const uint64_t cache_limit_;
  uint64_t cached_ = 0;
  uint64_t shared_bytes_ = 0;  // of the segments that are not big
  uint64_t clock_ = 0;
  FreeSet free_;
  std::unordered_map<char*, std::unique_ptr<Block>> blocks_;  // by address, free and used
  std::unordered_map<char*, Segment> segments_;
};

}  // namespace tapegrad::detail
