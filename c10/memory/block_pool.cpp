#include "tapegrad/c10/memory/block_pool.h"

#include <algorithm>

#include "tapegrad/c10/error.h"

namespace tapegrad::detail {

namespace {

constexpr size_t kMinSegment = size_t{4} << 20;
constexpr size_t kMaxSharedSegment = size_t{64} << 20;
constexpr size_t kSmallPage = 4096;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

void* Reservoir::reserve(size_t nbytes) noexcept {
  if (nbytes > available()) return nullptr;
  void* p = source_.reserve(nbytes);
  if (p == nullptr) return nullptr;
  ++num_reserves;
  reserved += nbytes;
  max_reserved = std::max(max_reserved, reserved);
  return p;
}

void Reservoir::release(void* p, size_t nbytes, size_t purged) noexcept {
  source_.release(p, nbytes);
  ++num_releases;
  reserved -= nbytes - purged;
}

void Reservoir::purge(void* p, size_t nbytes, size_t already) noexcept {
  source_.purge(p, nbytes);
  reserved -= nbytes - already;
}

void Reservoir::refill(size_t nbytes) noexcept {
  reserved += nbytes;
  max_reserved = std::max(max_reserved, reserved);
}

uint64_t Reservoir::available() noexcept {
  // The kernel grants addresses freely and allocates memory on first touch. Without subtracting untouched reservations,
  // two tensors of two thirds of the memory each would both be granted, and filling them would end the process.
  const uint64_t resident = source_.resident();
  const uint64_t untouched = reserved - std::min(reserved, resident);
  const uint64_t available = source_.available();
  return available - std::min(available, untouched);
}

bool BlockPool::BySize::operator()(const Block* a, const Block* b) const noexcept {
  return a->size != b->size ? a->size < b->size : a->ptr < b->ptr;
}

BlockPool::~BlockPool() {
  std::unordered_map<char*, size_t> purged;
  for (auto& [ptr, block] : blocks_) purged[block->segment->base] += block->purged;
  for (auto& [base, segment] : segments_) reservoir_.release(base, segment.size, purged[base]);
}

size_t BlockPool::largest_free() const noexcept { return free_.empty() ? 0 : (*free_.rbegin())->size; }

BlockPool::Block* BlockPool::find(size_t size, bool break_big) const noexcept {
  Block probe;
  probe.size = size;
  for (auto it = free_.lower_bound(&probe); it != free_.end(); ++it) {
    Block* b = *it;
    const bool whole_big = b->segment->big && b->size == b->segment->size;
    if (!whole_big || size >= kBigBlock || break_big) return b;
  }
  return nullptr;
}

void BlockPool::insert_free(Block* b) noexcept {
  b->free = true;
  b->freed_at = ++clock_;
  cached_ += b->size - b->purged;
  free_.insert(std::move(b->node));
}

void BlockPool::remove_free(Block* b) noexcept {
  b->node = free_.extract(b);
  b->free = false;
  cached_ -= b->size - b->purged;
}

BlockPool::Block* BlockPool::add_block(std::unique_ptr<Block> b) {
  Block* raw = b.get();
  // Making the set's node here, by way of a set of its own, is what allows freeing without allocation.
  FreeSet maker;
  raw->node = maker.extract(maker.insert(raw).first);
  blocks_.emplace(raw->ptr, std::move(b));
  return raw;
}

void BlockPool::absorb_next(Block* b) noexcept {
  Block* gone = b->next;
  b->size += gone->size;
  b->purged += gone->purged;
  b->next = gone->next;
  if (b->next != nullptr) b->next->prev = b;
  blocks_.erase(gone->ptr);
}

void* BlockPool::take(Block* b, size_t size) {
  if (b->size > size) {
    auto rest = std::make_unique<Block>();
    rest->ptr = b->ptr + size;
    rest->size = b->size - size;
    rest->segment = b->segment;
    rest->prev = b;
    rest->next = b->next;
    Block* raw = add_block(std::move(rest));
    // Nothing throws from here on.
    remove_free(b);
    if (raw->next != nullptr) raw->next->prev = raw;
    b->next = raw;
    b->size = size;
    insert_free(raw);
  } else {
    remove_free(b);
  }
  // Which part of the block was purged is not known any more: both parts count as backed again.
  reservoir_.refill(b->purged);
  b->purged = 0;
  return b->ptr;
}

BlockPool::Block* BlockPool::grow(size_t size) {
  const bool big = size >= kBigBlock;
  const size_t least = round_up(size, kHugePage);
  size_t wanted = least;
  if (!big) {
    const size_t quarter = round_up(static_cast<size_t>(shared_bytes_ / 4), kHugePage);
    wanted = std::max(least, std::clamp(quarter, kMinSegment, kMaxSharedSegment));
  }
  auto b = std::make_unique<Block>();
  segments_.reserve(segments_.size() + 1);
  char* base = static_cast<char*>(reservoir_.reserve(wanted));
  if (base == nullptr && wanted > least) {
    wanted = least;
    base = static_cast<char*>(reservoir_.reserve(wanted));
  }
  if (base == nullptr) return nullptr;
  try {
    Segment& segment = segments_[base] = Segment{base, wanted, big};
    b->ptr = base;
    b->size = wanted;
    b->segment = &segment;
    Block* raw = add_block(std::move(b));
    if (!big) shared_bytes_ += wanted;
    insert_free(raw);
    return raw;
  } catch (...) {
    segments_.erase(base);
    reservoir_.release(base, wanted, 0);
    throw;
  }
}

void* BlockPool::allocate(size_t size) {
  // No remainder, in which a small block could keep the segment from being released.
  if (size >= kBigBlock) size = round_up(size, kHugePage);
  Block* b = find(size, false);
  if (b == nullptr) b = grow(size);
  if (b == nullptr) b = find(size, true);
  return b == nullptr ? nullptr : take(b, size);
}

void BlockPool::deallocate(void* p) noexcept {
  auto it = blocks_.find(static_cast<char*>(p));
  if (it == blocks_.end() || it->second->free) return;  // not ours; the sized interface cannot report it
  Block* b = it->second.get();
  if (b->next != nullptr && b->next->free) {
    remove_free(b->next);
    absorb_next(b);
  }
  if (b->prev != nullptr && b->prev->free) {
    b = b->prev;
    remove_free(b);
    absorb_next(b);
  }
  insert_free(b);
  // One eighth below the limit, so that the next few frees do not come here again.
  if (cached_ > cache_limit_) trim(cache_limit_ - cache_limit_ / 8, kHugePage);
}

void BlockPool::release_segment(Block* whole) noexcept {
  Segment segment = *whole->segment;
  remove_free(whole);
  const size_t purged = whole->purged;
  blocks_.erase(segment.base);
  segments_.erase(segment.base);
  if (!segment.big) shared_bytes_ -= segment.size;
  reservoir_.release(segment.base, segment.size, purged);
}

void BlockPool::trim(uint64_t keep, size_t purge_min) noexcept {
  while (cached_ > keep) {
    Block* oldest = nullptr;
    for (Block* b : free_)
      if (b->size == b->segment->size && (oldest == nullptr || b->freed_at < oldest->freed_at)) oldest = b;
    if (oldest == nullptr) break;
    release_segment(oldest);
  }
  for (auto it = free_.rbegin(); it != free_.rend() && cached_ > keep && (*it)->size >= purge_min; ++it) {
    Block* b = *it;
    char* begin = b->segment->base + round_up(static_cast<size_t>(b->ptr - b->segment->base), kSmallPage);
    const size_t skipped = static_cast<size_t>(begin - b->ptr);
    if (skipped >= b->size) continue;
    const size_t pages = (b->size - skipped) / kSmallPage * kSmallPage;
    if (pages <= b->purged) continue;
    reservoir_.purge(begin, pages, b->purged);
    cached_ -= pages - b->purged;
    b->purged = pages;
  }
}

void BlockPool::check() const {
  uint64_t cached = 0, total = 0;
  size_t free_blocks = 0;
  for (const auto& [ptr, owner] : blocks_) {
    const Block* b = owner.get();
    TG_ASSERT(b->ptr == ptr && b->size > 0 && b->size % kGranule == 0 && b->purged <= b->size);
    TG_ASSERT(b->free ? free_.count(owner.get()) == 1 && !b->node : bool(b->node) && b->purged == 0);
    TG_ASSERT(b->prev == nullptr ? ptr == b->segment->base : b->prev->ptr + b->prev->size == ptr);
    TG_ASSERT(b->next == nullptr ? ptr + b->size == b->segment->base + b->segment->size : b->next->prev == b);
    TG_ASSERT(!(b->free && b->next != nullptr && b->next->free));
    total += b->size;
    if (!b->free) continue;
    ++free_blocks;
    cached += b->size - b->purged;
  }
  uint64_t reserved = 0;
  for (const auto& [base, segment] : segments_) reserved += segment.size;
  TG_ASSERT(free_blocks == free_.size() && cached == cached_ && total == reserved);
}

}  // namespace tapegrad::detail
