// The statistics of the caching allocator.
#include <fmt/format.h>

#include <algorithm>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/caching_allocator.h"
#include "tapegrad/c10/memory/thread_cache.h"

namespace tapegrad {

using detail::ThreadCache;

namespace {
constexpr auto kRelaxed = std::memory_order_relaxed;

uint64_t clamp_to_zero(int64_t n) { return n > 0 ? static_cast<uint64_t>(n) : 0; }
}  // namespace

detail::Registry& detail::registry() {
  static Registry& instance = *new Registry;
  return instance;
}

MemoryStats CachingAllocator::stats() const {
  MemoryStats s;
  detail::Registry& r = detail::registry();
  {
    std::lock_guard lock(r.mutex);
    int64_t live = live_.load(kRelaxed), rise = 0;
    s.num_allocs = ended_allocs_.load(kRelaxed);
    s.num_frees = ended_frees_.load(kRelaxed);
    for (const ThreadCache* cache : r.caches) {
      if (cache->owner.load(kRelaxed) != this) continue;
      const int64_t delta = cache->delta.load(kRelaxed);
      live += delta;
      rise = std::max(rise, cache->delta_max.load(kRelaxed) - delta);
      s.num_allocs += cache->allocs.load(kRelaxed);
      s.num_frees += cache->frees.load(kRelaxed);
    }
    s.allocated = clamp_to_zero(live);
    s.max_allocated = clamp_to_zero(std::max(peak_.load(kRelaxed), live + rise));
  }
  std::lock_guard lock(mutex_);
  s.reserved = reservoir_.reserved;
  s.max_reserved = reservoir_.max_reserved;
  s.cached = blocks_.cached() + slabs_.cached();
  s.largest_free_block = blocks_.largest_free();
  s.num_system_allocs = reservoir_.num_reserves;
  s.num_system_frees = reservoir_.num_releases;
  s.num_retries = num_retries_;
  return s;
}

void CachingAllocator::reset_peak() {
  detail::Registry& r = detail::registry();
  {
    std::lock_guard lock(r.mutex);
    int64_t live = live_.load(kRelaxed);
    for (ThreadCache* cache : r.caches) {
      if (cache->owner.load(kRelaxed) != this) continue;
      const int64_t delta = cache->delta.load(kRelaxed);
      live += delta;
      cache->delta_max.store(delta, kRelaxed);
    }
    peak_.store(live, kRelaxed);
  }
  std::lock_guard lock(mutex_);
  reservoir_.max_reserved = reservoir_.reserved;
}

std::string CachingAllocator::summary() const {
  const MemoryStats s = stats();
  std::string text = fmt::format("memory of {}\n", options_.name);
  auto line = [&](const char* what, const std::string& now, const std::string& peak) {
    text += fmt::format("  {:<28}{:>14}{:>14}\n", what, now, peak);
  };
  line("", "now", "peak");
  line("allocated", format_bytes(s.allocated), format_bytes(s.max_allocated));
  line("reserved from the system", format_bytes(s.reserved), format_bytes(s.max_reserved));
  line("free in the central pools", format_bytes(s.cached), "");
  line("  of these kept at most", format_bytes(options_.cache_limit), "");
  line("  largest free block", format_bytes(s.largest_free_block), "");
  const uint64_t known = s.allocated + s.cached;
  line("thread caches, rounding", format_bytes(s.reserved - std::min(s.reserved, known)), "");
  line("blocks in use", fmt::to_string(s.num_allocs - std::min(s.num_allocs, s.num_frees)), "");
  line("allocations", fmt::to_string(s.num_allocs), "");
  line("reservations, releases", fmt::format("{}, {}", s.num_system_allocs, s.num_system_frees), "");
  line("retries after emptying caches", fmt::to_string(s.num_retries), "");
  return text;
}

void CachingAllocator::empty_cache() {
  if (ThreadCache* cache = my_cache()) flush(cache, true);
  std::lock_guard lock(mutex_);
  blocks_.trim(0, 64 << 10);
  slabs_.trim();
}

void CachingAllocator::check() const {
  std::lock_guard lock(mutex_);
  blocks_.check();
}

void CachingAllocator::throw_out_of_memory(size_t nbytes) {
  uint64_t available = 0;
  {
    std::lock_guard lock(mutex_);
    available = reservoir_.available();
  }
  const MemoryStats s = stats();
  TG_THROW(OutOfMemory,
           "allocate: out of {} memory: asked for {} ({} bytes), {} allocated, {} reserved, {} available\n"
           "drop tensors that are not needed any more, use smaller batches, or see {}.memory_summary()",
           options_.name, format_bytes(nbytes), nbytes, format_bytes(s.allocated), format_bytes(s.reserved),
           format_bytes(available), options_.name);
}

}  // namespace tapegrad
