// Small blocks of one size are cut out of 64 KiB slabs, slabs out of 2 MiB chunks. A slab starts with its header and is
// aligned to its size, so the slab of a block is found by masking its address, without a lookup. An empty slab may be
// reused for another size; empty chunks are returned, except for one that is kept. Not thread-safe: the owner locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "tapegrad/c10/memory/block_pool.h"

namespace tapegrad::detail {

class SlabPool {
 public:
  static constexpr size_t kSlab = 64 << 10;
  static constexpr size_t kHeader = 64;
  static constexpr size_t kMaxBlock = 4096;
  static constexpr size_t kUnit = 64;  // block sizes are multiples of it

  explicit SlabPool(Reservoir& reservoir) : reservoir_(reservoir) {}
  ~SlabPool();
  SlabPool(const SlabPool&) = delete;
  SlabPool& operator=(const SlabPool&) = delete;

  // Links up to `wanted` blocks of `size` through their first words and returns the first; `got` says how
  // many there are, 0 when the reservoir refuses. May throw std::bad_alloc.
  void* allocate(size_t size, uint32_t wanted, uint32_t& got);
  void deallocate(void* p) noexcept;
  // Gives back all empty chunks.
  void trim() noexcept;

  uint64_t cached() const noexcept { return cached_; }  // bytes in free blocks and slabs
  size_t num_chunks() const noexcept { return chunks_.size(); }

 private:
  static constexpr uint32_t kSlabsPerChunk = static_cast<uint32_t>(kHugePage / kSlab);
  struct Chunk {
    char* base;
    uint32_t free_slabs;  // one bit per slab
  };
  struct Slab {
    Chunk* chunk;
    Slab* prev;  // among the slabs of this size that have a free block
    Slab* next;
    void* free;
    uint32_t size;
    uint32_t used;
    uint32_t carved;  // blocks cut so far; the rest of the slab has not been touched
    uint32_t capacity;
  };
  static_assert(sizeof(Slab) <= kHeader);

  Slab* new_slab(size_t size);
  void link(Slab* s) noexcept;
  void unlink(Slab* s) noexcept;
  void release(Chunk* c) noexcept;

  Reservoir& reservoir_;
  uint64_t cached_ = 0;
  size_t empty_chunks_ = 0;
  Slab* partial_[kMaxBlock / kUnit + 1] = {};
  std::unordered_map<char*, std::unique_ptr<Chunk>> chunks_;
};

}  // namespace tapegrad::detail
