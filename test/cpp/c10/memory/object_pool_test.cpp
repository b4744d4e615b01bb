#include "tapegrad/c10/memory/object_pool.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

using tapegrad::pool_allocate;
using tapegrad::pool_free;

TEST_CASE("pool blocks are aligned, distinct and reused", "[c10][pool]") {
  for (size_t n : {0, 1, 15, 16, 17, 100, 500, 512, 513, 5000}) {
    std::vector<char*> blocks;
    for (int i = 0; i < 100; ++i) {
      char* p = static_cast<char*>(pool_allocate(n));
      REQUIRE(reinterpret_cast<uintptr_t>(p) % 16 == 0);
      std::memset(p, i, n);
      blocks.push_back(p);
    }
    for (int i = 0; i < 100; ++i) {
      REQUIRE(std::all_of(blocks[i], blocks[i] + n, [i](char c) { return c == static_cast<char>(i); }));
      pool_free(blocks[i], n);
    }
  }
  pool_free(nullptr, 64);
#if !defined(__SANITIZE_ADDRESS__)
  void* p = pool_allocate(40);
  pool_free(p, 40);
  REQUIRE(pool_allocate(48) == p);  // one class
  pool_free(p, 48);
#endif
}

TEST_CASE("pool lists are bounded", "[c10][pool]") {
  std::vector<void*> blocks;
  for (int i = 0; i < 100000; ++i) blocks.push_back(pool_allocate(200));
  for (void* p : blocks) pool_free(p, 200);
#if !defined(__SANITIZE_ADDRESS__)
  const auto& bin = tapegrad::detail::pool_cache->bins[13];
  REQUIRE(bin.count == bin.limit);
  REQUIRE(bin.limit * size_t{208} <= tapegrad::kPoolBytesPerClass);
#endif
}

namespace {

// Uses the pool in its destructor, which runs while the thread ends.
struct Late {
  void* p = pool_allocate(64);
  ~Late() {
    pool_free(p, 64);
    pool_free(pool_allocate(128), 128);
  }
};

}  // namespace

TEST_CASE("pool blocks move between threads and outlive them", "[c10][pool]") {
  std::atomic<void*> passed[64] = {};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      static thread_local Late late;
      unsigned random = static_cast<unsigned>(t) + 1;
      for (int i = 0; i < 50000; ++i) {
        random = random * 1664525u + 1013904223u;
        void* p = pool_allocate(96);
        std::memset(p, t, 96);
        if (void* old = passed[random >> 26].exchange(p)) pool_free(old, 96);
      }
    });
  for (auto& t : threads) t.join();
  for (auto& p : passed) pool_free(p.load(), 96);
}
