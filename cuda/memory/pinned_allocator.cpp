#include "tapegrad/cuda/memory/pinned_allocator.h"

#include <algorithm>
#include <bit>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/allocator.h"

namespace tapegrad::cuda {

PinnedAllocator::~PinnedAllocator() {
  try {
    empty_cache();
  } catch (...) {  // the driver is gone
  }
}

PinnedAllocator::Block* PinnedAllocator::containing(const void* p, char** start) {
  auto* c = const_cast<char*>(static_cast<const char*>(p));
  auto it = blocks_.upper_bound(c);
  if (it == blocks_.begin()) return nullptr;
  --it;
  if (c >= it->first + it->second.size || !it->second.held) return nullptr;
  *start = it->first;
  return &it->second;
}

bool PinnedAllocator::owns(const void* p) const {
  std::lock_guard lock(mutex_);
  char* start;
  return const_cast<PinnedAllocator*>(this)->containing(p, &start) != nullptr;
}

void PinnedAllocator::keep(char* p, Block& block) { free_[block.size].push_back(p); }

// Frees the blocks whose copies are done. In order: a copy that is done late holds later ones up, which costs memory
// for a moment and saves asking every event each time.
void PinnedAllocator::process(bool wait) {
  while (!events_.empty()) {
    auto [event, p] = events_.front();
    if (!driver_.has_passed(event, wait)) return;
    events_.pop_front();
    driver_.destroy_event(event);
    Block& block = blocks_.at(p);
    if (--block.pending == 0) keep(p, block);
  }
}

void* PinnedAllocator::allocate(std::size_t nbytes) {
  std::lock_guard lock(mutex_);
  TG_CHECK(nbytes > 0 && nbytes <= (std::size_t{1} << 60), OutOfMemory, "pin_memory: out of memory: asked for {} bytes",
           nbytes);
  const std::size_t size = std::bit_ceil(std::max<std::size_t>(nbytes, 512));
  // During a capture events must not be queried; free blocks stay free.
  const bool capturing = driver_.capture_state(current_stream().handle) != CaptureState::None;
  if (!capturing) process(false);
  char* p = nullptr;
  if (auto it = free_.find(size); it != free_.end() && !it->second.empty()) {
    p = it->second.back();
    it->second.pop_back();
  } else {
    p = static_cast<char*>(driver_.allocate_pinned(size));
    if (p == nullptr && !capturing) {
      release_cached();
      p = static_cast<char*>(driver_.allocate_pinned(size));
    }
    TG_CHECK(p != nullptr, OutOfMemory, "pin_memory: out of pinned host memory: asked for {}, {} are held",
             format_bytes(size), format_bytes(stats_.reserved));
    blocks_[p].size = size;
    stats_.reserved += size;
    stats_.reserved_total += size;
    stats_.max_reserved = std::max(stats_.max_reserved, stats_.reserved);
    ++stats_.num_host_alloc;
    stats_.max_host_blocks = std::max(stats_.max_host_blocks, stats_.num_host_alloc - stats_.num_host_free);
  }
  blocks_[p].held = true;
  stats_.allocated += size;
  stats_.allocated_total += size;
  stats_.max_allocated = std::max(stats_.max_allocated, stats_.allocated);
  ++stats_.num_allocs;
  stats_.max_blocks = std::max(stats_.max_blocks, stats_.num_allocs - stats_.num_frees);
  return p;
}

void PinnedAllocator::free(void* pointer) {
  std::lock_guard lock(mutex_);
  char* p = static_cast<char*>(pointer);
  Block& block = blocks_.at(p);
  block.held = false;
  stats_.allocated -= block.size;
  ++stats_.num_frees;
  for (const Stream& s : block.uses) {
    DeviceGuard guard(s.device);
    if (driver_.capture_state(s.handle) != CaptureState::None) {
      // The graph reads these addresses at every replay: they are never used for anything else.
      block.pending = UINT32_MAX / 2;
      continue;
    }
    EventHandle event = driver_.create_event(s.device, kEventPlain);
    driver_.record_event(event, s.handle);
    events_.emplace_back(event, p);
    ++block.pending;
  }
  block.uses.clear();
  if (block.pending == 0) keep(p, block);
}

void PinnedAllocator::note_use(const void* p, Stream stream) {
  std::lock_guard lock(mutex_);
  char* start;
  Block* block = containing(p, &start);
  if (block == nullptr) return;
  if (std::find(block->uses.begin(), block->uses.end(), stream) == block->uses.end()) block->uses.push_back(stream);
}

void PinnedAllocator::empty_cache() {
  std::lock_guard lock(mutex_);
  release_cached();
}

void PinnedAllocator::release_cached() {
  process(true);
  for (auto& [bytes, list] : free_)
    for (char* p : list) {
      driver_.free_pinned(p);
      blocks_.erase(p);
      stats_.reserved -= bytes;
      ++stats_.num_host_free;
    }
  free_.clear();
}

PinnedStats PinnedAllocator::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void PinnedAllocator::reset_peak() {
  std::lock_guard lock(mutex_);
  stats_.max_allocated = stats_.allocated;
  stats_.max_reserved = stats_.reserved;
  stats_.max_blocks = stats_.num_allocs - stats_.num_frees;
  stats_.max_host_blocks = stats_.num_host_alloc - stats_.num_host_free;
}

PinnedAllocator& pinned_allocator() {
  static auto& instance = *new PinnedAllocator(driver());
  return instance;
}

}  // namespace tapegrad::cuda
