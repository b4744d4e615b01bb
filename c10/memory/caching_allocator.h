// The caching allocator for host memory. Fresh pages are what makes large eager operators slow (the kernel
// has to find and zero them), so memory that was touched once is used again:
//   up to 4 KiB     lists of free blocks per thread and size class; behind them slabs (slab_pool.h)
//   up to 256 KiB   lists per thread and size class, kMediumCache bytes in all; behind them the block pool
//   larger          the central block pool (block_pool.h), best fit
// The first two touch neither locks nor shared cache lines. Size classes are multiples of 64 bytes up to 1
// KiB, then four per doubling (at most 25 % slack). A block freed by another thread joins that thread's list
// and goes back to its slab or segment when the list overflows or the thread ends. Thread rules: all
// functions from any thread. The destructor releases everything; no thread may use the allocator by then
// (threads that used it may live on). After fork the child goes on; what other threads had in their lists is
// lost to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "tapegrad/c10/memory/allocator.h"
#include "tapegrad/c10/memory/block_pool.h"
#include "tapegrad/c10/memory/slab_pool.h"

namespace tapegrad {

namespace detail {
struct ThreadCache;
}

struct CachingAllocatorOptions {
  // Upper limit of the free memory that the central pools keep.
  uint64_t cache_limit = uint64_t{1} << 30;
  // The name of this memory in messages.
  const char* name = "cpu";
};

class TG_API CachingAllocator final : public Allocator {
 public:
  static constexpr size_t kMaxCached = 256 << 10;              // the largest block of a thread's lists
  static constexpr uint64_t kMediumCache = uint64_t{8} << 20;  // bytes of blocks above 4 KiB per thread

  explicit CachingAllocator(MemorySource& source, CachingAllocatorOptions options = {});
  ~CachingAllocator() override;
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  void* allocate(size_t nbytes) override;
  void deallocate(void* p, size_t nbytes) noexcept override;
  MemoryStats stats() const override;
  void reset_peak() override;
  void empty_cache() override;
  int64_t thread_bytes() const noexcept override;
  std::string summary() const override;

  // The size of the block that a request of `nbytes` bytes occupies.
  static size_t block_size(size_t nbytes) noexcept;
  // Verifies the central pool's lists; throws Error(Internal). For tests.
  void check() const;

 private:
  using ThreadCache = detail::ThreadCache;
  struct Hooks;

  ThreadCache* my_cache() noexcept;
  void* allocate_slow(size_t nbytes);
  void deallocate_slow(void* p, size_t nbytes) noexcept;
  void* central_allocate(size_t nbytes, size_t size, ThreadCache* cache);
  void flush(ThreadCache* cache, bool everything) noexcept;
  void flush_bin(ThreadCache* cache, unsigned bin, uint32_t keep) noexcept;
  void publish(ThreadCache* cache) noexcept;
  [[noreturn]] void throw_out_of_memory(size_t nbytes);

  const CachingAllocatorOptions options_;
  mutable std::mutex mutex_;  // guards the four members below
  mutable detail::Reservoir reservoir_;
  detail::SlabPool slabs_;
  detail::BlockPool blocks_;
  uint64_t num_retries_ = 0;

  // Thread caches add their counts here; readers add the counts that the caches have not handed over yet.
  std::atomic<int64_t> live_{0};
  std::atomic<int64_t> peak_{0};
  std::atomic<uint64_t> ended_allocs_{0};  // of threads that are gone
  std::atomic<uint64_t> ended_frees_{0};
};

}  // namespace tapegrad
