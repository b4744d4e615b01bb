// Inner parts of the caching allocator: size classes, the lists of one thread, and the register of them all.
// A ThreadCache belongs to its thread: only that thread touches the lists. Its counters are written by that
// thread and read by any.
#pragma once

#include <pthread.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tapegrad/c10/memory/caching_allocator.h"

namespace tapegrad::detail {

// A thread publishes its counts when they have changed by this much, see MemoryStats.
inline constexpr int64_t kPublishBytes = 1 << 20;
inline constexpr unsigned kNumBins = 49;
inline constexpr unsigned kFirstMediumBin = 25;  // bins below hold blocks of slabs

// Size 64 * bin up to bin 16, then four sizes per doubling. Needs 1 <= n <= kMaxCached.
inline unsigned bin_of(size_t n) noexcept {
  if (n <= 1024) return static_cast<unsigned>((n + 63) / 64);
  const unsigned shift = static_cast<unsigned>(std::bit_width(n - 1)) - 3;  // 8 for (1024, 2048]
  return 17 + (shift - 8) * 4 + static_cast<unsigned>(((n - 1) >> shift) & 3);
}

constexpr size_t size_of_bin(unsigned bin) noexcept {
  if (bin <= 16) return size_t{bin} * 64;
  return size_t{(bin - 17) % 4 + 5} << ((bin - 17) / 4 + 8);
}
static_assert(size_of_bin(kFirstMediumBin - 1) == SlabPool::kMaxBlock);
static_assert(size_of_bin(kNumBins - 1) == CachingAllocator::kMaxCached);

struct ThreadCache {
  struct Bin {
    void* head = nullptr;  // the first word of a free block points to the next
    uint32_t count = 0;
    uint32_t limit = 0;
  };
  std::atomic<CachingAllocator*> owner{nullptr};  // null once the allocator is gone
  uint64_t medium_bytes = 0;
  Bin bins[kNumBins];
  std::atomic<int64_t> delta{0};      // bytes allocated less bytes freed since the last hand-over
  int64_t handed_over = 0;            // the sum of all deltas before
  std::atomic<int64_t> delta_max{0};  // the largest delta since then
  std::atomic<uint64_t> allocs{0};
  std::atomic<uint64_t> frees{0};
  ThreadCache* next_of_thread = nullptr;

  // Both return true when the counts should be handed over.
  bool count_alloc(size_t n) noexcept {
    const int64_t d = bump(delta, static_cast<int64_t>(n));
    if (d > delta_max.load(std::memory_order_relaxed)) delta_max.store(d, std::memory_order_relaxed);
    bump(allocs, uint64_t{1});
    return d > kPublishBytes;
  }
  bool count_free(size_t n) noexcept {
    bump(frees, uint64_t{1});
    return bump(delta, -static_cast<int64_t>(n)) < -kPublishBytes;
  }

 private:
  // Written by one thread only: a plain load and store, no locked instruction.
  template <class T>
  static T bump(std::atomic<T>& counter, T by) noexcept {
    const T value = counter.load(std::memory_order_relaxed) + by;
    counter.store(value, std::memory_order_relaxed);
    return value;
  }
};

// Every allocator and every thread cache of the process. Its mutex is taken before any allocator's own.
struct Registry {
  std::mutex mutex;
  std::vector<CachingAllocator*> allocators;
  std::vector<ThreadCache*> caches;
  pthread_key_t key;
  bool have_key = false;
};
Registry& registry();

}  // namespace tapegrad::detail
