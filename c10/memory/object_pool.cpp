#include "tapegrad/c10/memory/object_pool.h"

#include <pthread.h>

#include <cstdlib>
#include <new>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/available_memory.h"

namespace tapegrad::detail {

constinit thread_local PoolCache* pool_cache = nullptr;

#if !defined(__SANITIZE_ADDRESS__)
namespace {

void free_lists(void* p) {
  // Destructors of thread-specific data run after those of C++ thread_local objects. Should one that runs
  // later still use the pool, a new cache is made and this function is called again.
  pool_cache = nullptr;
  auto* cache = static_cast<PoolCache*>(p);
  for (PoolBin& bin : cache->bins) {
    while (void* block = bin.head) {
      bin.head = *static_cast<void**>(block);
      std::free(block);
    }
  }
  delete cache;
}

// Null when the system lacks the means (memory, a thread-specific key); the callers then do without a cache.
PoolCache* make_cache() {
  prepare_thread();
  static pthread_key_t key;
  static const bool have_key = pthread_key_create(&key, free_lists) == 0;
  auto* cache = have_key ? new (std::nothrow) PoolCache : nullptr;
  if (cache == nullptr) return nullptr;
  for (size_t i = 0; i < sizeof(cache->bins) / sizeof(cache->bins[0]); ++i)
    cache->bins[i].limit = static_cast<uint32_t>(kPoolBytesPerClass / (i < 4 ? 64 : i * 16));
  if (pthread_setspecific(key, cache) != 0) {
    delete cache;
    return nullptr;
  }
  return pool_cache = cache;
}

}  // namespace
#endif

void* pool_allocate_slow(size_t nbytes) {
  // The class's full size, so that the block may serve any request of the class later; at least one word.
  size_t size = nbytes <= kPoolMaxSize ? (nbytes + 15) / 16 * 16 : nbytes;
#if defined(__SANITIZE_ADDRESS__)
  size = nbytes;
#else
  if (pool_cache == nullptr) make_cache();
#endif
  void* p = std::malloc(size == 0 ? 16 : size);
  TG_CHECK(p != nullptr, OutOfMemory, "object pool: out of memory: asked for {} bytes", nbytes);
  return p;
}

void pool_free_slow(void* p, size_t nbytes) noexcept {
#if !defined(__SANITIZE_ADDRESS__)
  // A thread that only frees gets a cache, too: it will soon allocate, or else end and free it.
  if (p != nullptr && nbytes <= kPoolMaxSize && pool_cache == nullptr && make_cache() != nullptr)
    return pool_free(p, nbytes);
#endif
  (void)nbytes;
  std::free(p);
}

}  // namespace tapegrad::detail
