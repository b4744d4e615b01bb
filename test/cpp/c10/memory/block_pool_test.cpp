#include "tapegrad/c10/memory/block_pool.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "c10/memory/fake_memory.h"

using tapegrad::kHugePage;
using tapegrad::detail::BlockPool;
using tapegrad::detail::Reservoir;

namespace {

constexpr size_t MiB = size_t{1} << 20;

struct Fixture {
  explicit Fixture(uint64_t budget = 512 * MiB, uint64_t limit = 512 * MiB)
      : source(budget), reservoir(source), pool(reservoir, limit) {}
  FakeMemory source;
  Reservoir reservoir;
  BlockPool pool;
};

}  // namespace

TEST_CASE("block pool reuses the block that came back", "[c10][allocator]") {
  Fixture f;
  void* p = f.pool.allocate(64 * MiB);
  f.pool.deallocate(p);
  REQUIRE(f.pool.allocate(64 * MiB) == p);
  REQUIRE(f.source.reserves == 1);
  f.pool.check();
}

TEST_CASE("block pool takes the smallest block that fits", "[c10][allocator]") {
  Fixture f;
  std::vector<void*> blocks;
  for (size_t kib : {300, 1, 500, 1, 400, 1}) blocks.push_back(f.pool.allocate(kib << 10));
  for (int i : {0, 2, 4}) f.pool.deallocate(blocks[i]);
  f.pool.check();
  REQUIRE(f.pool.allocate(390 << 10) == blocks[4]);
  REQUIRE(f.pool.allocate(300 << 10) == blocks[0]);
  REQUIRE(f.pool.allocate(390 << 10) == blocks[2]);
  f.pool.check();
}

TEST_CASE("block pool merges neighbours on both sides", "[c10][allocator]") {
  Fixture f;
  void* a = f.pool.allocate(1 * MiB);
  void* b = f.pool.allocate(1 * MiB);
  void* c = f.pool.allocate(1 * MiB);
  REQUIRE(f.source.reserves == 1);
  f.pool.deallocate(a);
  f.pool.deallocate(c);
  f.pool.check();
  f.pool.deallocate(b);
  f.pool.check();
  REQUIRE(f.pool.largest_free() == 4 * MiB);
  REQUIRE(f.pool.allocate(4 * MiB) == a);
}

TEST_CASE("a small block does not break up a free big segment", "[c10][allocator]") {
  Fixture f;
  void* big = f.pool.allocate(100 * MiB);
  f.pool.deallocate(big);
  void* small = f.pool.allocate(1 * MiB);
  REQUIRE(f.source.reserves == 2);
  REQUIRE(f.pool.allocate(100 * MiB) == big);
  f.pool.deallocate(small);
  f.pool.check();
}

TEST_CASE("without other memory a small block comes from a big segment", "[c10][allocator]") {
  Fixture f(100 * MiB);
  void* big = f.pool.allocate(100 * MiB);
  f.pool.deallocate(big);
  REQUIRE((f.pool.allocate(1 * MiB) == big && f.source.reserves == 1));
  f.pool.check();
}

TEST_CASE("block pool shrinks its growth when memory is short, then refuses", "[c10][allocator]") {
  Fixture f(6 * MiB);
  REQUIRE(f.pool.allocate(1 * MiB) != nullptr);  // a segment of 4 MiB
  REQUIRE(f.pool.allocate(3 * MiB) != nullptr);
  REQUIRE(f.pool.allocate(1 * MiB) != nullptr);  // 2 MiB is all there is
  REQUIRE(f.source.used == 6 * MiB);
  REQUIRE(f.pool.allocate(2 * MiB) == nullptr);
  f.pool.check();
}

TEST_CASE("free bytes beyond the limit go back, the longest idle segment first", "[c10][allocator]") {
  Fixture f(1024 * MiB, 100 * MiB);
  void* a = f.pool.allocate(40 * MiB);
  void* b = f.pool.allocate(42 * MiB);
  void* c = f.pool.allocate(44 * MiB);
  f.pool.deallocate(b);
  f.pool.deallocate(a);
  REQUIRE(f.source.releases == 0);
  f.pool.deallocate(c);
  REQUIRE(f.source.releases == 1);
  REQUIRE(f.pool.cached() == 84 * MiB);
  REQUIRE(f.pool.allocate(40 * MiB) == a);
  REQUIRE(f.pool.allocate(44 * MiB) == c);
  f.pool.check();
}

TEST_CASE("pages of free blocks in used segments are purged", "[c10][allocator]") {
  Fixture f(512 * MiB, 8 * MiB);
  // Every other block stays, so no segment can be released.
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(f.pool.allocate(2 * MiB));
  for (size_t i = 0; i < blocks.size(); i += 2) f.pool.deallocate(blocks[i]);
  REQUIRE(f.pool.cached() <= 8 * MiB);
  REQUIRE(f.source.purged >= 10 * MiB);
  REQUIRE(f.reservoir.reserved <= f.source.used - f.source.purged);
  f.pool.check();
  // Purged blocks can be used again and count as reserved then.
  const int reserves = f.source.reserves;
  for (size_t i = 0; i < blocks.size(); i += 2) REQUIRE(f.pool.allocate(2 * MiB) != nullptr);
  REQUIRE(f.source.reserves == reserves);
  f.pool.check();
}

TEST_CASE("memory promised but not touched is not promised twice", "[c10][allocator]") {
  Fixture f(300 * MiB);
  f.source.resident_bytes = 0;  // the kernel has given us addresses only
  REQUIRE(f.pool.allocate(100 * MiB) != nullptr);
  // 200 MiB available by the source's count, but 100 of those are spoken for.
  REQUIRE(f.pool.allocate(120 * MiB) == nullptr);
  f.source.resident_bytes = 100 * MiB;
  REQUIRE(f.pool.allocate(120 * MiB) != nullptr);
}

TEST_CASE("block pool under random load stays consistent and compact", "[c10][allocator]") {
  Fixture f(2048 * MiB, 64 * MiB);
  std::mt19937 random(1);
  struct Held {
    char* p;
    size_t size;
    char mark;
  };
  std::vector<Held> held;
  uint64_t live = 0, peak = 0;
  for (int step = 0; step < 20000; ++step) {
    if (held.empty() || (live < 60 * MiB && random() % 2)) {
      const size_t size = (size_t{1} << (random() % 12 + 10)) * (random() % 3 + 1);
      char* p = static_cast<char*>(f.pool.allocate(size));
      REQUIRE(p != nullptr);
      const char mark = static_cast<char>(step);
      p[0] = p[size - 1] = mark;
      held.push_back({p, size, mark});
      live += size;
      peak = std::max(peak, live);
    } else {
      const size_t i = random() % held.size();
      if (held[i].p[0] != held[i].mark || held[i].p[held[i].size - 1] != held[i].mark) FAIL("blocks overlap");
      f.pool.deallocate(held[i].p);
      live -= held[i].size;
      held[i] = held.back();
      held.pop_back();
    }
    if (step % 1000 == 0) f.pool.check();
  }
  INFO("peak of live bytes " << peak << ", reserved at most " << f.reservoir.max_reserved);
  REQUIRE(static_cast<double>(f.reservoir.max_reserved) < 2.0 * static_cast<double>(peak));
  for (auto& h : held) f.pool.deallocate(h.p);
  f.pool.check();
  f.pool.trim(0, 64 << 10);
  REQUIRE(f.pool.num_segments() == 0);
  REQUIRE(f.reservoir.reserved == 0);
  REQUIRE(f.source.used == 0);
  REQUIRE(f.source.mistakes == 0);
}
