#include "tapegrad/c10/memory/slab_pool.h"

#include <bit>

namespace tapegrad::detail {

namespace {
constexpr uint32_t kAllFree = 0xffffffffu;
}

SlabPool::~SlabPool() {
  for (auto& [base, chunk] : chunks_) reservoir_.release(base, kHugePage, 0);
}

void SlabPool::link(Slab* s) noexcept {
  Slab*& first = partial_[s->size / kUnit];
  s->prev = nullptr;
  s->next = first;
  if (first != nullptr) first->prev = s;
  first = s;
}

void SlabPool::unlink(Slab* s) noexcept {
  (s->prev != nullptr ? s->prev->next : partial_[s->size / kUnit]) = s->next;
  if (s->next != nullptr) s->next->prev = s->prev;
}

SlabPool::Slab* SlabPool::new_slab(size_t size) {
  static_assert(kSlabsPerChunk == 32, "one bit per slab");
  // The fullest chunk with a free slot, so that others get a chance to become empty.
  Chunk* chunk = nullptr;
  for (auto& [base, c] : chunks_) {
    if (c->free_slabs == 0) continue;
    if (chunk == nullptr || std::popcount(c->free_slabs) < std::popcount(chunk->free_slabs)) chunk = c.get();
  }
  if (chunk == nullptr) {
    auto fresh = std::make_unique<Chunk>();
    void* base = reservoir_.reserve(kHugePage);
    if (base == nullptr) return nullptr;
    *fresh = Chunk{static_cast<char*>(base), kAllFree};
    try {
      chunk = (chunks_[fresh->base] = std::move(fresh)).get();
    } catch (...) {
      reservoir_.release(base, kHugePage, 0);
      throw;
    }
    cached_ += kHugePage;
  } else if (chunk->free_slabs == kAllFree) {
    --empty_chunks_;
  }
  const int index = std::countr_zero(chunk->free_slabs);
  chunk->free_slabs &= ~(1u << index);
  auto* s = reinterpret_cast<Slab*>(chunk->base + static_cast<size_t>(index) * kSlab);
  const auto capacity = static_cast<uint32_t>((kSlab - kHeader) / size);
  *s = Slab{chunk, nullptr, nullptr, nullptr, static_cast<uint32_t>(size), 0, 0, capacity};
  link(s);
  return s;
}

void* SlabPool::allocate(size_t size, uint32_t wanted, uint32_t& got) {
  got = 0;
  Slab* s = partial_[size / kUnit];
  if (s == nullptr && (s = new_slab(size)) == nullptr) return nullptr;
  // From one slab only: a caller that needs more comes again.
  void* first = nullptr;
  void** tail = &first;
  while (got < wanted && s->used < s->capacity) {
    void* p = s->free;
    if (p != nullptr) {
      s->free = *static_cast<void**>(p);
    } else {
      p = reinterpret_cast<char*>(s) + kHeader + size_t{s->carved++} * size;
    }
    *tail = p;
    tail = static_cast<void**>(p);
    ++s->used;
    ++got;
  }
  *tail = nullptr;
  if (s->used == s->capacity) unlink(s);
  cached_ -= uint64_t{got} * size;
  return first;
}

void SlabPool::deallocate(void* p) noexcept {
  auto* s = reinterpret_cast<Slab*>(reinterpret_cast<uintptr_t>(p) & ~uintptr_t{kSlab - 1});
  *static_cast<void**>(p) = s->free;
  s->free = p;
  if (s->used-- == s->capacity) link(s);
  cached_ += s->size;
  if (s->used != 0) return;
  unlink(s);
  Chunk* chunk = s->chunk;
  chunk->free_slabs |= 1u << ((reinterpret_cast<char*>(s) - chunk->base) / static_cast<ptrdiff_t>(kSlab));
  if (chunk->free_slabs != kAllFree) return;
  if (empty_chunks_ == 0) {
    empty_chunks_ = 1;
  } else {
    release(chunk);
  }
}

void SlabPool::release(Chunk* c) noexcept {
  char* base = c->base;
  cached_ -= kHugePage;
  chunks_.erase(base);
  reservoir_.release(base, kHugePage, 0);
}

void SlabPool::trim() noexcept {
  for (auto it = chunks_.begin(); it != chunks_.end();) {
    Chunk* c = (it++)->second.get();
    if (c->free_slabs == kAllFree) release(c);
  }
  empty_chunks_ = 0;
}

}  // namespace tapegrad::detail
