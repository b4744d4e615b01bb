// The policy of the caching allocator on a simulated device.
#include "tapegrad/cuda/memory/device_allocator.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

using namespace tapegrad;
using namespace tapegrad::cuda;
using simulated::Options;
using simulated::Schedule;
using simulated::SimulatedDriver;

namespace {

constexpr size_t KiB = 1024, MiB = 1024 * KiB, GiB = 1024 * MiB;

Options machine(size_t memory, Schedule schedule = Schedule::Lazy) {
  Options o;
  o.memory = memory;
  o.schedule = schedule;
  o.poison = false;
  return o;
}

// A device, a stream beside the default one, and a block that the default one had.
struct FreedBlock {
  SimulatedDriver driver{machine(256 * MiB)};
  StreamHandle side = driver.create_stream(0, 0);
  DeviceAllocator a{driver, 0};
  Block* b = a.allocate(3 * MiB, nullptr);
  char* p = b->address;
};

uint64_t driver_allocations(const SimulatedDriver& d) { return d.calls("allocate") + d.calls("create_memory"); }

}  // namespace

TEST_CASE("sizes are rounded to classes") {
  CHECK(DeviceAllocator::round(1) == 512);
  CHECK(DeviceAllocator::round(512) == 512);
  CHECK(DeviceAllocator::round(513) == 1024);
  CHECK(DeviceAllocator::round(MiB) == MiB);
  CHECK(DeviceAllocator::round(MiB + 1) == MiB + 64 * KiB);
  CHECK(DeviceAllocator::round(100 * MiB) == 100 * MiB);
  for (size_t n = 1; n < GiB; n = n * 5 / 4 + 3) {
    CHECK(DeviceAllocator::round(n) >= n);
    CHECK(static_cast<double>(DeviceAllocator::round(n)) <= std::max(static_cast<double>(n) * 1.0626, n + 511.0));
    CHECK(DeviceAllocator::round(DeviceAllocator::round(n)) == DeviceAllocator::round(n));
  }
}

TEST_CASE("a block that was freed is used again by its stream and by no other") {
  FreedBlock of;
  auto& [driver, side, a, b, p] = of;
  a.free(b);
  Block* other = a.allocate(3 * MiB, side);
  CHECK(other->address != p);
  Block* same = a.allocate(3 * MiB, nullptr);
  CHECK(same->address == p);
  a.free(other);
  a.free(same);
  CHECK(driver.calls("synchronize_stream") == 0);
  a.empty_cache();
  CHECK(driver.bytes_in_use(0) == 0);
  CHECK(a.stats().reserved_bytes[0].current == 0);
}

TEST_CASE("work of another stream holds a block back") {
  FreedBlock of;
  auto& [driver, side, a, b, p] = of;
  bool ran = false;
  driver.enqueue(side, "reader", [&] { ran = true; });
  a.note_use(p, {side, 0});
  a.free(b);
  Block* next = a.allocate(3 * MiB, nullptr);  // asks the event once, which lets one operation run
  CHECK(next->address != p);
  CHECK(a.stats().active_bytes[0].current == 2 * a.stats().allocated_bytes[0].current);
  driver.synchronize_stream(side);
  CHECK(ran);
  Block* again = a.allocate(3 * MiB, nullptr);
  CHECK(again->address == p);
  a.free(next);
  a.free(again);
  a.check();
}

TEST_CASE("a block that is lent again waits for what other streams do with it") {
  FreedBlock of;
  auto& [driver, side, a, b, p] = of;
  std::string order;
  driver.enqueue(side, "reader", [&] { order += "r"; });
  a.note_use(p, {side, 0});
  a.await_uses(p, {nullptr, 0});
  driver.enqueue(nullptr, "writer", [&] { order += "w"; });
  driver.synchronize_stream(nullptr);
  CHECK(order == "rw");
  // Nothing is left to wait for, also where the block is freed.
  const uint64_t events = driver.calls("record_event");
  a.await_uses(p, {nullptr, 0});
  CHECK(driver.calls("record_event") == events);
  // On another stream than its own that one's work comes first, and its own use delays the next owner.
  driver.enqueue(nullptr, "owner", [&] { order += "o"; });
  a.await_uses(p, {side, 0});
  driver.enqueue(side, "writer", [&] { order += "s"; });
  a.free(b);
  Block* next = a.allocate(3 * MiB, nullptr);
  CHECK(next->address != p);
  driver.synchronize_stream(side);
  CHECK(order == "rwos");
  a.free(next);
  a.await_uses(p, {side, 0});  // nobody's any more
  a.check();
}

TEST_CASE("a use that was captured and has not run is forgotten") {
  FreedBlock of;
  auto& [driver, side, a, b, p] = of;
  a.note_use(p, {side, 0});
  a.forget_use(p, {side, 0});
  a.forget_use(p, {side, 0});
  driver.enqueue(side, "other", [] {});
  a.free(b);
  Block* next = a.allocate(3 * MiB, nullptr);
  CHECK(next->address == p);
  a.free(next);
  a.check();
}

TEST_CASE("memory is never given to new work while old work uses it") {
  // Kernels on several streams write their block's number all over it and verify it later; operations run at random
  // points.
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Options options = machine(64 * MiB, Schedule::Random);
    options.seed = seed;
    SimulatedDriver driver(options);
    DeviceAllocator a(driver, 0);
    std::vector<StreamHandle> streams{nullptr, driver.create_stream(0, 0), driver.create_stream(0, -1)};
    std::mt19937_64 random(seed);
    uint64_t wrong = 0, number = 0;
    for (int i = 0; i < 3000; ++i) {
      const size_t n = 512 * (1 + random() % 64);
      StreamHandle owner = streams[random() % 3], user = streams[random() % 3];
      Block* b = a.allocate(n, owner);
      auto* words = reinterpret_cast<uint64_t*>(b->address);
      const uint64_t mine = ++number;
      driver.enqueue(owner, "write", [=] { std::fill_n(words, n / 8, mine); });
      EventHandle event = driver.create_event(0, kEventPlain);
      driver.record_event(event, owner);
      driver.stream_wait_event(user, event);
      driver.destroy_event(event);
      driver.enqueue(user, "verify", [=, &wrong] {
        wrong += std::any_of(words, words + n / 8, [=](uint64_t w) { return w != mine; });
      });
      a.note_use(b->address, {user, 0});
      a.free(b);
    }
    driver.synchronize_device(0);
    CHECK(wrong == 0);
    a.check();
  }
}

TEST_CASE("a million random operations on several streams") {
  for (const bool expandable : {true, false}) {
    SimulatedDriver driver(machine(2 * GiB));
    AllocatorOptions options;
    options.expandable_segments = expandable;
    DeviceAllocator a(driver, 0, options);
    a.watch_changes(true);
    std::vector<StreamHandle> streams{nullptr, driver.create_stream(0, 0), driver.create_stream(0, 0)};
    std::mt19937_64 random(7);
    struct Held {
      Block* block;
      size_t size;
    };
    std::vector<Held> held;
    std::map<char*, size_t> ranges;  // a model apart from the allocator: what callers hold does not overlap
    uint64_t ooms = 0;
    const int operations = 500000;
    for (int i = 0; i < operations; ++i) {
      const uint64_t r = random();
      if (held.empty() || r % 100 < 52) {
        const uint64_t kind = random() % 100;
        const size_t n = kind < 70   ? 1 + random() % (64 * KiB)
                         : kind < 95 ? 1 + random() % (4 * MiB)
                                     : 1 + random() % (96 * MiB);
        try {
          Block* b = a.allocate(n, streams[random() % 3], static_cast<uint32_t>(r % 17));
          auto next = ranges.lower_bound(b->address);
          bool apart = next == ranges.end() || b->address + n <= next->first;
          if (next != ranges.begin()) {
            auto before = std::prev(next);
            apart &= before->first + before->second <= b->address;
          }
          if (!apart || b->size < n) FAIL("a block overlaps another or is too small");
          ranges[b->address] = n;
          held.push_back({b, n});
        } catch (const Error& e) {
          if (e.kind() != ErrorKind::OutOfMemory) throw;
          ++ooms;
          for (int k = 0; k < 200 && !held.empty(); ++k) {
            const size_t at = random() % held.size();
            ranges.erase(held[at].block->address);
            a.free(held[at].block);
            held[at] = held.back();
            held.pop_back();
          }
        }
      } else {
        const size_t at = random() % held.size();
        if (r % 7 == 0) a.note_use(held[at].block->address, {streams[random() % 3], 0});
        ranges.erase(held[at].block->address);
        a.free(held[at].block);
        held[at] = held.back();
        held.pop_back();
      }
      a.check_changed();
      if (i % 50000 == 0) a.check();
      if (i % 100000 == 99999) a.empty_cache();
    }
    CHECK(ooms > 0);
    for (const Held& h : held) a.free(h.block);
    a.empty_cache();
    a.check();
    CHECK(driver.bytes_in_use(0) == 0);
  }
}

TEST_CASE("at least 95 % of a fragmented device is reachable") {
  SimulatedDriver driver(machine(8 * GiB));
  DeviceAllocator a(driver, 0);
  std::mt19937_64 random(3);
  std::vector<Block*> held;
  auto size = [&](double most) {  // spread evenly over the orders of magnitude
    const double low = std::log(256.0), high = std::log(most);
    return static_cast<size_t>(std::exp(low + (high - low) * static_cast<double>(random() % 100000) / 100000));
  };
  // Churn: fill the device, free half at random, and so on, with ever other sizes.
  for (int round = 0; round < 12; ++round) {
    try {
      for (;;) held.push_back(a.allocate(size(round % 2 ? 200.0 * MiB : 6.0 * MiB), nullptr));
    } catch (const Error& e) {
      REQUIRE(e.kind() == ErrorKind::OutOfMemory);
    }
    const double live = static_cast<double>(a.stats().allocated_bytes[0].current);
    // What did not fit was large: small ones fill what is left.
    std::vector<Block*> filling;
    for (size_t n = 64 * MiB; n >= 4 * KiB; n /= 2) try {
        for (;;) filling.push_back(a.allocate(n, nullptr));
      } catch (const Error& e) {
        REQUIRE(e.kind() == ErrorKind::OutOfMemory);
      }
    const double reached = static_cast<double>(a.stats().requested_bytes[0].current) / (8.0 * GiB);
    CAPTURE(round, live / (8.0 * GiB));
    CHECK(reached >= 0.95);
    for (Block* b : filling) a.free(b);
    std::shuffle(held.begin(), held.end(), random);
    for (size_t n = held.size() / 2; n > 0; --n) {
      a.free(held.back());
      held.pop_back();
    }
    // One block of nearly all that is free, whatever lies between: the rest of the segment moves elsewhere by mapping.
    const size_t rest = static_cast<size_t>(8.0 * GiB - static_cast<double>(a.stats().allocated_bytes[0].current));
    if (round % 2) {
      Block* big = a.allocate(rest / 2, nullptr);
      a.free(big);
    }
    a.check();
  }
  for (Block* b : held) a.free(b);
}

TEST_CASE("after the first step of a training loop the driver is not asked again") {
  for (const int variant : {0, 1, 2, 3}) {
    const bool expandable = variant % 2, lazy_state = variant / 2;
    SimulatedDriver driver(machine(4 * GiB));
    AllocatorOptions options;
    options.expandable_segments = expandable;
    DeviceAllocator a(driver, 0, options);
    std::mt19937_64 random(11);
    std::vector<size_t> layers;
    for (int i = 0; i < 60; ++i) layers.push_back(4 * KiB << (random() % 12));
    std::vector<Block*> parameters;
    for (size_t n : layers) parameters.push_back(a.allocate(n, nullptr));
    auto make_state = [&](size_t n) {
      parameters.insert(parameters.end(), {a.allocate(n, nullptr), a.allocate(n, nullptr)});
    };
    if (!lazy_state)
      for (size_t n : layers) make_state(n);
    uint64_t before = 0;
    for (int step = 0; step < 20; ++step) {
      std::vector<Block*> activations, gradients;
      for (size_t n : layers) {  // forward: an activation stays, a workspace goes at once
        activations.push_back(a.allocate(3 * n + 100, nullptr));
        a.free(a.allocate(n / 2 + 1, nullptr));
      }
      for (size_t i = layers.size(); i-- > 0;) {
        Block* upstream = a.allocate(3 * layers[i] + 100, nullptr);
        gradients.push_back(a.allocate(layers[i], nullptr));
        a.free(activations[i]);
        a.free(upstream);
      }
      for (size_t n : layers) {
        if (lazy_state && step == 0) make_state(n);
        a.free(a.allocate(n, nullptr));
      }
      for (Block* b : gradients) a.free(b);
      // State that the first step leaves behind was not there at that step's peak: the second one grows by as much.
      if (step > (lazy_state ? 1 : 0)) CHECK(driver_allocations(driver) == before);
      before = driver_allocations(driver);
    }
    CHECK(driver.calls("free") + driver.calls("unmap") == 0);
    for (Block* b : parameters) a.free(b);
  }
}

TEST_CASE("memory that one stream cached serves another when there is no other") {
  SimulatedDriver driver(machine(256 * MiB));
  StreamHandle side = driver.create_stream(0, 0);
  for (const bool expandable : {true, false}) {
    AllocatorOptions options;
    options.expandable_segments = expandable;
    DeviceAllocator a(driver, 0, options);
    a.free(a.allocate(200 * MiB, nullptr));
    Block* b = a.allocate(200 * MiB, side);
    CHECK(b->segment->stream == side);
    a.free(b);
    a.check();
  }
}

TEST_CASE("a failing driver is asked again after the caches are empty") {
  SimulatedDriver driver(machine(256 * MiB));
  DeviceAllocator a(driver, 0);
  a.free(a.allocate(5 * MiB, nullptr));
  driver.fail_at("create_memory", 1);
  Block* b = a.allocate(50 * MiB, nullptr);
  CHECK(b->size >= 50 * MiB);
  a.free(b);
  a.check();
}

TEST_CASE("out of memory says who holds the memory, and the allocator goes on") {
  SimulatedDriver driver(machine(64 * MiB));
  DeviceAllocator a(driver, 0);
  Block* big = a.allocate(40 * MiB, nullptr, 1);
  std::vector<Block*> small;
  for (int i = 0; i < 8; ++i) small.push_back(a.allocate(MiB, nullptr, 2));
  std::string text;
  try {
    a.allocate(30 * MiB, nullptr);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::OutOfMemory);
    text = e.message();
  }
  CHECK(text.find("tried to allocate 30.00 MiB on cuda:0: 64.00 MiB in all") != text.npos);
  CHECK(text.find("40.00 MiB   83.3 %  in 1 block ") != text.npos);
  CHECK(text.find("8.00 MiB   16.7 %  in 8 blocks") != text.npos);
  CHECK(text.find("largest free block 16.00 MiB") != text.npos);
  CHECK(a.stats().ooms == 1);
  a.check();
  a.free(big);
  Block* fits = a.allocate(30 * MiB, nullptr);
  a.free(fits);
  for (Block* b : small) a.free(b);
}

TEST_CASE("a share of the device is kept to, and old memory goes first") {
  SimulatedDriver driver(machine(GiB));
  AllocatorOptions options;
  options.fraction = 0.5;
  DeviceAllocator a(driver, 0, options);
  Block* b = a.allocate(400 * MiB, nullptr);
  CHECK_THROWS_AS(a.allocate(200 * MiB, nullptr), Error);
  a.free(b);
  b = a.allocate(500 * MiB, nullptr);
  a.free(b);
  CHECK(driver.bytes_in_use(0) <= 512 * MiB);

  AllocatorOptions collecting;
  collecting.collect_above = 0.5;
  collecting.expandable_segments = false;
  DeviceAllocator c(driver, 0, collecting);
  a.empty_cache();
  for (size_t n : {100, 110, 120, 130, 140, 150}) c.free(c.allocate(n * MiB, nullptr));
  Block* old = c.allocate(100 * MiB, nullptr);
  CHECK(driver.bytes_in_use(0) <= 512 * MiB);
  CHECK(c.stats().retries == 0);
  c.free(old);
}

TEST_CASE("captures have memory of their own, which stays theirs") {
  SimulatedDriver driver(machine(256 * MiB));
  DeviceAllocator a(driver, 0);
  StreamHandle s = driver.create_stream(0, 0);
  a.free(a.allocate(4 * MiB, s));
  a.begin_pool(5, [&](StreamHandle stream) { return stream == s; });
  Block* inside = a.allocate(4 * MiB, s);
  Block* outside = a.allocate(4 * MiB, nullptr);
  CHECK(inside->segment->pool->owner != nullptr);
  CHECK(outside->segment->pool->owner == nullptr);
  char* p = inside->address;
  a.note_use(p, {nullptr, 0});
  a.free(inside);
  Block* second = a.allocate(4 * MiB, s);  // the first waits for the end of the capture
  CHECK(second->address != p);
  a.retain_pool(5);
  a.end_pool(5);
  a.free(second);
  a.empty_cache();
  CHECK(a.stats().reserved_bytes[0].current > 8 * MiB);  // a graph needs it
  Block* normal = a.allocate(4 * MiB, s);
  CHECK(normal->segment->pool->owner == nullptr);
  a.free(normal);
  a.free(outside);
  a.release_pool(5);
  a.empty_cache();
  CHECK(driver.bytes_in_use(0) == 0);
  a.check();
}

TEST_CASE("the plain allocator asks the driver each time") {
  SimulatedDriver driver(machine(64 * MiB));
  AllocatorOptions options;
  options.caching = false;
  DeviceAllocator a(driver, 0, options);
  for (int i = 0; i < 5; ++i) a.free(a.allocate(MiB, nullptr));
  CHECK(driver.calls("allocate") == 5);
  CHECK(driver.calls("free") == 5);
  CHECK(driver.bytes_in_use(0) == 0);
  CHECK_THROWS_AS(a.allocate(65 * MiB, nullptr), Error);
  a.check();
}

TEST_CASE("threads allocate and free at the same time") {
  SimulatedDriver driver(machine(GiB));
  DeviceAllocator a(driver, 0);
  std::vector<StreamHandle> streams{nullptr, driver.create_stream(0, 0)};
  std::mutex mutex;
  std::vector<Block*> shared;  // blocks change threads
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      for (int i = 0; i < 4000; ++i) {
        Block* mine = a.allocate(1 + random() % (256 * KiB), streams[random() % 2], t);
        if (random() % 4 == 0) a.note_use(mine->address, {streams[random() % 2], 0});
        std::lock_guard lock(mutex);
        shared.push_back(mine);
        if (shared.size() > 64) {
          const size_t at = random() % shared.size();
          std::swap(shared[at], shared.back());
          a.free(shared.back());
          shared.pop_back();
        }
        if (i % 1000 == 0) a.empty_cache();
      }
    });
  for (std::thread& t : threads) t.join();
  for (Block* b : shared) a.free(b);
  a.empty_cache();
  a.check();
  CHECK(driver.bytes_in_use(0) == 0);
}
