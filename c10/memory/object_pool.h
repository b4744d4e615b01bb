// Memory for the small, short-lived objects of every operator (tensors, storages, tape nodes): thread-local free lists
// per 16-byte class up to 512 bytes, on top of malloc. An allocation and its deallocation take about 3 ns. Any thread
// may free a block, which then stays in that thread's list. Lists are limited to kPoolBytesPerClass, anything beyond
// goes to free(); a thread that ends frees its lists. Blocks are aligned to 16 bytes. Under AddressSanitizer every call
// goes to malloc, so that overruns and uses after free are found.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

inline constexpr size_t kPoolMaxSize = 512;
inline constexpr size_t kPoolBytesPerClass = 256 << 10;

namespace detail {

struct PoolBin {
  void* head = nullptr;  // the first word of a free block points to the next one
  uint32_t count = 0;
  uint32_t limit = 0;
};
struct PoolCache {
  PoolBin bins[kPoolMaxSize / 16 + 1];
};

// initial-exec: one load relative to the thread pointer instead of a call; costs 8 bytes of static TLS.
extern TG_API constinit thread_local PoolCache* pool_cache __attribute__((tls_model("initial-exec")));

TG_API TG_COLD void* pool_allocate_slow(size_t nbytes);
TG_API TG_COLD void pool_free_slow(void* p, size_t nbytes) noexcept;

}  // namespace detail

// Throws Error(OutOfMemory). The contents are unspecified.
inline void* pool_allocate(size_t nbytes) {
#if !defined(__SANITIZE_ADDRESS__)
  if (detail::PoolCache* cache = detail::pool_cache; TG_LIKELY(cache != nullptr && nbytes <= kPoolMaxSize)) {
    detail::PoolBin& bin = cache->bins[(nbytes + 15) / 16];
    if (void* p = bin.head; TG_LIKELY(p != nullptr)) {
      bin.head = *static_cast<void**>(p);
      --bin.count;
      return p;
    }
  }
#endif
  return detail::pool_allocate_slow(nbytes);
}

// `nbytes` must be the size passed to the allocation. Null is ignored.
inline void pool_free(void* p, size_t nbytes) noexcept {
#if !defined(__SANITIZE_ADDRESS__)
  if (detail::PoolCache* cache = detail::pool_cache;
      TG_LIKELY(cache != nullptr && p != nullptr && nbytes <= kPoolMaxSize)) {
    detail::PoolBin& bin = cache->bins[(nbytes + 15) / 16];
    if (TG_LIKELY(bin.count < bin.limit)) {
      *static_cast<void**>(p) = bin.head;
      bin.head = p;
      ++bin.count;
      return;
    }
  }
#endif
  detail::pool_free_slow(p, nbytes);
}

}  // namespace tapegrad
