#include "tapegrad/c10/memory/caching_allocator.h"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "c10/memory/fake_memory.h"
#include "c10/threads/children.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/c10/error.h"

using tapegrad::CachingAllocator;
using tapegrad::Error;
using tapegrad::ErrorKind;

namespace {

constexpr size_t MiB = size_t{1} << 20;

ErrorKind kind_of_failure(tapegrad::Allocator& a, size_t nbytes, std::string* text = nullptr) {
  try {
    a.deallocate(a.allocate(nbytes), nbytes);
  } catch (const Error& e) {
    if (text != nullptr) *text = e.message();
    return e.kind();
  }
  return ErrorKind::Internal;
}

}  // namespace

TEST_CASE("blocks are aligned, large enough and of bounded slack", "[c10][allocator]") {
  FakeMemory source(256 * MiB);
  CachingAllocator a(source);
  std::vector<std::pair<char*, size_t>> held;
  for (size_t n = 1; n < 2 * MiB; n += n / 7 + 1) {
    char* p = static_cast<char*>(a.allocate(n));
    REQUIRE(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    REQUIRE(CachingAllocator::block_size(n) >= n);
    REQUIRE(CachingAllocator::block_size(n) <= std::max<size_t>(n + n / 4, n + 63));
    std::memset(p, static_cast<int>(held.size()), n);
    held.emplace_back(p, n);
  }
  for (size_t i = 0; i < held.size(); ++i) {
    auto [p, n] = held[i];
    const char mark = static_cast<char>(i);
    REQUIRE((p[0] == mark && p[n / 2] == mark && p[n - 1] == mark));
    a.deallocate(p, n);
  }
  REQUIRE(a.stats().allocated == 0);
  a.check();
}

TEST_CASE("zero bytes give an address and cost nothing", "[c10][allocator]") {
  FakeMemory source(0);
  CachingAllocator a(source);
  void* p = a.allocate(0);
  REQUIRE(p != nullptr);
  a.deallocate(p, 0);
  REQUIRE(a.stats().num_allocs == 0);
}

TEST_CASE("a freed block is the next one given out", "[c10][allocator]") {
  FakeMemory source(512 * MiB);
  CachingAllocator a(source);
  for (size_t n : {size_t{1}, size_t{64}, size_t{1000}, size_t{5000}, size_t{100000}, size_t{300000}, 64 * MiB}) {
    void* p = a.allocate(n);
    a.deallocate(p, n);
    const int reserves = source.reserves;
    REQUIRE(a.allocate(n) == p);
    REQUIRE(source.reserves == reserves);
    a.deallocate(p, n);
  }
}

TEST_CASE("memory statistics are exact for one thread", "[c10][allocator]") {
  FakeMemory source(512 * MiB);
  CachingAllocator a(source);
  void* p = a.allocate(400);
  void* q = a.allocate(3 * MiB);
  REQUIRE(a.stats().allocated == 400 + 3 * MiB);
  a.deallocate(q, 3 * MiB);
  REQUIRE(a.stats().allocated == 400);
  REQUIRE(a.stats().max_allocated == 400 + 3 * MiB);
  a.reset_peak();
  REQUIRE(a.stats().max_allocated == 400);
  void* r = a.allocate(1000);
  a.deallocate(r, 1000);
  REQUIRE(a.stats().max_allocated == 1400);
  REQUIRE(a.stats().num_allocs == 3);
  REQUIRE(a.stats().num_frees == 2);
  REQUIRE(a.stats().reserved == source.used);
  REQUIRE(a.stats().num_system_allocs == static_cast<uint64_t>(source.reserves));
  a.deallocate(p, 400);
  REQUIRE_THAT(a.summary(), Catch::Matchers::Contains("allocated") && Catch::Matchers::Contains("1.37 KiB"));
}

TEST_CASE("empty_cache returns everything that is free", "[c10][allocator]") {
  FakeMemory source(512 * MiB);
  CachingAllocator a(source);
  for (size_t n : {size_t{64}, size_t{4000}, size_t{200000}, 3 * MiB, 40 * MiB}) a.deallocate(a.allocate(n), n);
  REQUIRE(source.used > 40 * MiB);
  a.empty_cache();
  REQUIRE(source.used == 0);
  REQUIRE(a.stats().reserved == 0);
  REQUIRE(a.stats().cached == 0);
}

TEST_CASE("out of memory: caches are emptied first, then the error has the numbers", "[c10][allocator]") {
  FakeMemory source(64 * MiB);
  CachingAllocator a(source);
  void* kept = a.allocate(1000);
  a.deallocate(a.allocate(40 * MiB), 40 * MiB);
  // Fits only after the 40 MiB segment has gone back.
  void* p = a.allocate(50 * MiB);
  REQUIRE(a.stats().num_retries == 1);
  std::string text;
  REQUIRE(kind_of_failure(a, 60 * MiB, &text) == ErrorKind::OutOfMemory);
  REQUIRE_THAT(text, Catch::Matchers::StartsWith("allocate: out of cpu memory: asked for 60.00 MiB (62914560 bytes), "
                                                 "50.00 MiB allocated, 52.00 MiB reserved, 12.00 MiB available\n"));
  a.check();
  REQUIRE(a.stats().allocated == 1000 + 50 * MiB);
  a.deallocate(p, 50 * MiB);
  a.deallocate(a.allocate(60 * MiB), 60 * MiB);
  a.deallocate(kept, 1000);
}

TEST_CASE("absurd sizes are refused without arithmetic overflow", "[c10][allocator]") {
  FakeMemory source(64 * MiB);
  CachingAllocator a(source);
  for (size_t n : {SIZE_MAX, SIZE_MAX - 4095, SIZE_MAX / 2, size_t{10'000'000'000'000}})
    REQUIRE(kind_of_failure(a, n) == ErrorKind::OutOfMemory);
  REQUIRE(source.reserves == 0);
}

TEST_CASE("out of memory among small blocks", "[c10][allocator]") {
  FakeMemory source(4 * MiB);
  CachingAllocator a(source);
  std::vector<void*> held;
  REQUIRE_THROWS_AS(
      [&] {
        for (;;) held.push_back(a.allocate(1024));
      }(),
      Error);
  REQUIRE(held.size() > 3900);
  for (void* p : held) a.deallocate(p, 1024);
  a.empty_cache();
  REQUIRE(source.used == 0);
}

TEST_CASE("thread lists are bounded", "[c10][allocator]") {
  FakeMemory source(512 * MiB);
  CachingAllocator a(source);
  std::vector<void*> small, medium;
  for (int i = 0; i < 20000; ++i) small.push_back(a.allocate(1024));
  for (int i = 0; i < 500; ++i) medium.push_back(a.allocate(200000));
  for (void* p : small) a.deallocate(p, 1024);
  for (void* p : medium) a.deallocate(p, 200000);
  const auto s = a.stats();
  REQUIRE(s.allocated == 0);
  REQUIRE(s.reserved - s.cached <= CachingAllocator::kMediumCache + 2 * MiB);
  a.check();
}

TEST_CASE("blocks freed by another thread go home", "[c10][allocator]") {
  FakeMemory source(512 * MiB);
  CachingAllocator a(source);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::pair<void*, size_t>> blocks;
    for (size_t n : {size_t{64}, size_t{1000}, size_t{4096}, size_t{50000}, size_t{300000}})
      for (int i = 0; i < 100; ++i) blocks.emplace_back(a.allocate(n), n);
    std::thread([&] {
      for (auto [p, n] : blocks) a.deallocate(p, n);
    }).join();
  }
  const auto s = a.stats();
  REQUIRE(s.allocated == 0);
  REQUIRE(s.num_allocs == 20 * 500);
  REQUIRE(s.num_frees == 20 * 500);
  REQUIRE(source.used < 80 * MiB);  // one round's worth: the rounds reuse each other's blocks
  a.empty_cache();
  REQUIRE(source.used == 0);
  a.check();
}

TEST_CASE("a thread that ends returns its lists", "[c10][allocator]") {
  FakeMemory source(512 * MiB);
  CachingAllocator a(source);
  std::thread([&] {
    for (size_t n : {size_t{64}, size_t{4000}, size_t{200000}}) a.deallocate(a.allocate(n), n);
    REQUIRE(a.stats().num_allocs == 3);
  }).join();
  REQUIRE(a.stats().num_allocs == 3);
  REQUIRE(a.stats().num_frees == 3);
  a.empty_cache();
  REQUIRE(source.used == 0);
}

TEST_CASE("an allocator may die before the threads that used it", "[c10][allocator]") {
  FakeMemory source(64 * MiB);
  auto first = std::make_unique<CachingAllocator>(source);
  std::mutex mutex;
  std::condition_variable changed;
  int stage = 0;
  std::thread worker([&] {
    first->deallocate(first->allocate(100), 100);
    std::unique_lock lock(mutex);
    stage = 1;
    changed.notify_all();
    changed.wait(lock, [&] { return stage == 2; });
    CachingAllocator second(source);  // may sit at the address of the first
    second.deallocate(second.allocate(100), 100);
  });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return stage == 1; });
    first.reset();
    stage = 2;
    changed.notify_all();
  }
  worker.join();
  REQUIRE(source.used == 0);
  REQUIRE(source.mistakes == 0);
}

TEST_CASE("one thread uses several allocators in turn", "[c10][allocator]") {
  FakeMemory source(256 * MiB);
  CachingAllocator a(source), b(source);
  for (int i = 0; i < 100; ++i) {
    void* p = a.allocate(64);
    void* q = b.allocate(64);
    a.deallocate(p, 64);
    b.deallocate(q, 64);
  }
  REQUIRE(a.stats().num_allocs == 100);
  REQUIRE(b.stats().num_frees == 100);
}

TEST_CASE("threads that allocate, pass on and free at random", "[c10][allocator]") {
  FakeMemory source(1024 * MiB);
  CachingAllocator a(source, {.cache_limit = 16 * MiB});
  constexpr int kThreads = 4, kSteps = 20000;
  struct Slot {
    std::atomic<char*> p{nullptr};
  };
  // The size and a mark are in the block itself.
  std::vector<Slot> slots(256);
  std::atomic<int> bad{0};
  auto put = [&](char* p) {
    size_t n;
    std::memcpy(&n, p, sizeof(n));
    if (n < 16 || n > 600000 || p[n - 1] != static_cast<char>(n)) ++bad;
    p[n - 1] = 0;
    a.deallocate(p, n);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      std::minstd_rand random(static_cast<unsigned>(t) + 1);
      for (int i = 0; i < kSteps; ++i) {
        const size_t n = (size_t{16} << (random() % 15)) + random() % 100;
        char* p = static_cast<char*>(a.allocate(n));
        std::memcpy(p, &n, sizeof(n));
        p[n - 1] = static_cast<char>(n);
        if (char* old = slots[random() % slots.size()].p.exchange(p)) put(old);
        if (i % 1000 == 0) a.stats();
        if (i % 5000 == 0) a.empty_cache();
      }
    });
  for (auto& t : threads) t.join();
  for (auto& s : slots)
    if (char* p = s.p.load()) put(p);
  REQUIRE(bad == 0);
  REQUIRE(a.stats().allocated == 0);
  REQUIRE(a.stats().num_allocs == kThreads * kSteps);
  a.check();
  a.empty_cache();
  REQUIRE(source.used == 0);
  REQUIRE(source.mistakes == 0);
}

TEST_CASE("the cpu allocator", "[c10][allocator]") {
  tapegrad::Allocator& a = tapegrad::cpu_allocator();
  REQUIRE(&a == &tapegrad::cpu_allocator());

  SECTION("refuses what the machine cannot hold") {
    std::string text;
    REQUIRE(kind_of_failure(a, size_t{10'000'000'000'000}, &text) == ErrorKind::OutOfMemory);
    REQUIRE_THAT(text, Catch::Matchers::Contains("9.09 TiB"));
    REQUIRE(kind_of_failure(a, tapegrad::total_memory() * 2) == ErrorKind::OutOfMemory);
  }
  SECTION("keeps large blocks") {
    const size_t n = 128 * MiB;
    void* p = a.allocate(n);
    std::memset(p, 1, 4096);
    a.deallocate(p, n);
    const auto before = a.stats();
    void* q = a.allocate(n);
    REQUIRE(q == p);
    a.deallocate(q, n);
    REQUIRE(a.stats().num_system_allocs == before.num_system_allocs);
  }
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // their own locks do not survive fork
  SECTION("works in forked children while other threads allocate") {
    std::atomic<bool> stop{false};
    std::thread busy([&] {
      while (!stop) {
        for (size_t n : {size_t{64}, size_t{3000}, size_t{300000}}) a.deallocate(a.allocate(n), n);
      }
    });
    const int failures = failures_of_children(50, [&] {
      for (size_t n : {size_t{64}, size_t{3000}, size_t{300000}, 3 * MiB}) {
        std::vector<void*> held;
        for (int k = 0; k < 50; ++k) held.push_back(std::memset(a.allocate(n), 1, n));
        for (void* p : held) a.deallocate(p, n);
      }
      return true;
    });
    stop = true;
    busy.join();
    REQUIRE(failures == 0);
  }
#endif
}
