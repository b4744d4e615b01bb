#include "tapegrad/c10/memory/caching_allocator.h"

#include <pthread.h>

#include <algorithm>
#include <new>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/available_memory.h"
#include "tapegrad/c10/memory/thread_cache.h"

namespace tapegrad {

using detail::bin_of;
using detail::kFirstMediumBin;
using detail::kNumBins;
using detail::registry;
using detail::Registry;
using detail::size_of_bin;
using detail::ThreadCache;

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

// Results of 0-byte requests; never read or written.
alignas(64) char no_bytes[64];

// The cache that this thread used last, and all it has (one per allocator).
constinit thread_local ThreadCache* last_cache __attribute__((tls_model("initial-exec"))) = nullptr;
constinit thread_local ThreadCache* first_cache __attribute__((tls_model("initial-exec"))) = nullptr;

}  // namespace

// What the system calls on us: the end of a thread, and fork.
struct CachingAllocator::Hooks {
  static void thread_ends(void* first) {
    // Runs after the destructors of C++ thread_local objects. If the allocator is used even later, a new cache is
    // created and this function is called again.
    first_cache = last_cache = nullptr;
    Registry& r = registry();
    std::lock_guard lock(r.mutex);
    for (auto* cache = static_cast<ThreadCache*>(first); cache != nullptr;) {
      ThreadCache* next = cache->next_of_thread;
      if (CachingAllocator* owner = cache->owner.load(kRelaxed)) {
        owner->flush(cache, true);
        owner->publish(cache);
        owner->ended_allocs_.fetch_add(cache->allocs.load(kRelaxed), kRelaxed);
        owner->ended_frees_.fetch_add(cache->frees.load(kRelaxed), kRelaxed);
      }
      std::erase(r.caches, cache);
      delete cache;
      cache = next;
    }
  }
  // The forking thread holds every lock, so no operation is in progress when the process is copied.
  static void before_fork() {
    registry().mutex.lock();
    for (CachingAllocator* a : registry().allocators) a->mutex_.lock();
  }
  static void after_fork() {
    for (CachingAllocator* a : registry().allocators) a->mutex_.unlock();
    registry().mutex.unlock();
  }
};

CachingAllocator::CachingAllocator(MemorySource& source, CachingAllocatorOptions options)
    : options_(options), reservoir_(source), slabs_(reservoir_), blocks_(reservoir_, options.cache_limit) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  if (!r.have_key) {
    TG_CHECK(pthread_key_create(&r.key, Hooks::thread_ends) == 0, Runtime, "allocator: no thread-specific key is left");
    pthread_atfork(Hooks::before_fork, Hooks::after_fork, Hooks::after_fork);
    r.have_key = true;
  }
  r.allocators.push_back(this);
}

CachingAllocator::~CachingAllocator() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  std::erase(r.allocators, this);
  // The caches belong to their threads, which free them when they end.
  for (ThreadCache* cache : r.caches)
    if (cache->owner.load(kRelaxed) == this) cache->owner.store(nullptr, kRelaxed);
}

ThreadCache* CachingAllocator::my_cache() noexcept {
  prepare_thread();
  for (ThreadCache* cache = first_cache; cache != nullptr; cache = cache->next_of_thread)
    if (cache->owner.load(kRelaxed) == this) return last_cache = cache;
  // Without memory for a cache the caller goes to the central pools.
  auto* cache = new (std::nothrow) ThreadCache;
  if (cache == nullptr) return nullptr;
  for (unsigned i = 1; i < kNumBins; ++i) {
    const size_t size = size_of_bin(i);
    cache->bins[i].limit =
        static_cast<uint32_t>(i < kFirstMediumBin ? std::max<size_t>(16, (64 << 10) / size) : kMediumCache / size);
  }
  cache->owner.store(this, kRelaxed);
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  try {
    r.caches.push_back(cache);
  } catch (...) {
    delete cache;
    return nullptr;
  }
  if (pthread_setspecific(r.key, cache) != 0) {
    r.caches.pop_back();
    delete cache;
    return nullptr;
  }
  cache->next_of_thread = first_cache;
  return first_cache = last_cache = cache;
}

size_t CachingAllocator::block_size(size_t n) noexcept {
  if (n == 0) return 0;
  if (n <= kMaxCached) return size_of_bin(bin_of(n));
  return (n + 4095) / 4096 * 4096;
}

void* CachingAllocator::allocate(size_t nbytes) {
  ThreadCache* cache = last_cache;
  if (TG_LIKELY(cache != nullptr && cache->owner.load(kRelaxed) == this && nbytes - 1 < kMaxCached)) {
    ThreadCache::Bin& bin = cache->bins[bin_of(nbytes)];
    if (void* p = bin.head; TG_LIKELY(p != nullptr)) {
      bin.head = *static_cast<void**>(p);
      --bin.count;
      if (nbytes > detail::SlabPool::kMaxBlock) cache->medium_bytes -= size_of_bin(bin_of(nbytes));
      if (TG_UNLIKELY(cache->count_alloc(nbytes))) publish(cache);
      return p;
    }
  }
  return allocate_slow(nbytes);
}

void CachingAllocator::deallocate(void* p, size_t nbytes) noexcept {
  ThreadCache* cache = last_cache;
  if (TG_LIKELY(cache != nullptr && cache->owner.load(kRelaxed) == this && nbytes - 1 < kMaxCached)) {
    const unsigned index = bin_of(nbytes);
    ThreadCache::Bin& bin = cache->bins[index];
    const size_t medium = nbytes > detail::SlabPool::kMaxBlock ? size_of_bin(index) : 0;
    if (TG_LIKELY(bin.count < bin.limit && cache->medium_bytes + medium <= kMediumCache)) {
      cache->medium_bytes += medium;
      *static_cast<void**>(p) = bin.head;
      bin.head = p;
      ++bin.count;
      if (TG_UNLIKELY(cache->count_free(nbytes))) publish(cache);
      return;
    }
  }
  deallocate_slow(p, nbytes);
}

void* CachingAllocator::allocate_slow(size_t nbytes) {
  if (nbytes == 0) return no_bytes;
  ThreadCache* cache = last_cache;
  if (cache == nullptr || cache->owner.load(kRelaxed) != this) {
    cache = my_cache();
    if (cache != nullptr && nbytes <= kMaxCached && cache->bins[bin_of(nbytes)].head != nullptr)
      return allocate(nbytes);
  }
  void* p = central_allocate(nbytes, block_size(nbytes), cache);
  if (cache == nullptr) {
    live_.fetch_add(static_cast<int64_t>(nbytes), kRelaxed);
    ended_allocs_.fetch_add(1, kRelaxed);
  } else if (cache->count_alloc(nbytes)) {
    publish(cache);
  }
  return p;
}

// Takes a block from the pools; for small sizes a batch, whose rest fills the thread's list.
void* CachingAllocator::central_allocate(size_t nbytes, size_t size, ThreadCache* cache) {
  if (nbytes > (size_t{1} << 60)) throw_out_of_memory(nbytes);  // rounding would overflow
  const bool from_slab = size <= detail::SlabPool::kMaxBlock;
  const uint32_t batch = cache == nullptr ? 1 : static_cast<uint32_t>(std::clamp<size_t>(8192 / size, 2, 32));
  for (int attempt = 0; attempt < 2; ++attempt) {
    uint32_t got = 1;
    void* p = nullptr;
    try {
      std::lock_guard lock(mutex_);
      p = from_slab ? slabs_.allocate(size, batch, got) : blocks_.allocate(size);
    } catch (const std::bad_alloc&) {
      p = nullptr;
    }
    if (p != nullptr) {
      if (from_slab && got > 1) {
        ThreadCache::Bin& bin = cache->bins[bin_of(nbytes)];
        bin.head = *static_cast<void**>(p);  // the list was empty, or we would not be here
        bin.count = got - 1;
      }
      return p;
    }
    if (attempt == 0) {
      if (cache != nullptr) flush(cache, true);
      std::lock_guard lock(mutex_);
      blocks_.trim(0, 64 << 10);
      slabs_.trim();
      ++num_retries_;
    }
  }
  throw_out_of_memory(nbytes);
}

void CachingAllocator::deallocate_slow(void* p, size_t nbytes) noexcept {
  if (nbytes == 0 || p == nullptr) return;
  ThreadCache* cache = last_cache;
  if (cache == nullptr || cache->owner.load(kRelaxed) != this) {
    cache = my_cache();
    if (cache != nullptr && nbytes <= kMaxCached) return deallocate(p, nbytes);
  }
  if (cache != nullptr && nbytes <= kMaxCached) {
    // The list is full: the least recently used half of it is released, then the block is pushed.
    const unsigned index = bin_of(nbytes);
    if (index < kFirstMediumBin) {
      flush_bin(cache, index, cache->bins[index].limit / 2);
    } else {
      flush(cache, false);
    }
    return deallocate(p, nbytes);
  }
  {
    std::lock_guard lock(mutex_);
    if (block_size(nbytes) <= detail::SlabPool::kMaxBlock) {
      slabs_.deallocate(p);
    } else {
      blocks_.deallocate(p);
    }
  }
  if (cache == nullptr) {
    live_.fetch_sub(static_cast<int64_t>(nbytes), kRelaxed);
    ended_frees_.fetch_add(1, kRelaxed);
  } else if (cache->count_free(nbytes)) {
    publish(cache);
  }
}

// Hands all but the newest `keep` blocks of a list back to the pools.
void CachingAllocator::flush_bin(ThreadCache* cache, unsigned index, uint32_t keep) noexcept {
  ThreadCache::Bin& bin = cache->bins[index];
  if (bin.count <= keep) return;
  void** link = &bin.head;
  for (uint32_t i = 0; i < keep; ++i) link = static_cast<void**>(*link);
  void* p = *link;
  *link = nullptr;
  if (index >= kFirstMediumBin) cache->medium_bytes -= uint64_t{bin.count - keep} * size_of_bin(index);
  bin.count = keep;
  std::lock_guard lock(mutex_);
  while (p != nullptr) {
    void* next = *static_cast<void**>(p);
    if (index < kFirstMediumBin) {
      slabs_.deallocate(p);
    } else {
      blocks_.deallocate(p);
    }
    p = next;
  }
}

void CachingAllocator::flush(ThreadCache* cache, bool everything) noexcept {
  for (unsigned i = everything ? 1 : kFirstMediumBin; i < kNumBins; ++i)
    flush_bin(cache, i, everything ? 0 : cache->bins[i].count / 2);
}

int64_t CachingAllocator::thread_bytes() const noexcept {
  const ThreadCache* cache = last_cache;
  if (cache == nullptr || cache->owner.load(kRelaxed) != this) return 0;
  return cache->handed_over + cache->delta.load(kRelaxed);
}

void CachingAllocator::publish(ThreadCache* cache) noexcept {
  const int64_t delta = cache->delta.load(kRelaxed), top = cache->delta_max.load(kRelaxed);
  const int64_t before = live_.fetch_add(delta, kRelaxed);
  cache->handed_over += delta;
  cache->delta.store(0, kRelaxed);
  cache->delta_max.store(0, kRelaxed);
  const int64_t candidate = before + std::max(delta, top);
  int64_t peak = peak_.load(kRelaxed);
  while (peak < candidate && !peak_.compare_exchange_weak(peak, candidate, kRelaxed)) {
  }
}

}  // namespace tapegrad
