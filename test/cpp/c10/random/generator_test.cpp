#include "tapegrad/c10/random/default_generators.h"
#include "tapegrad/c10/random/thread_generator.h"

#include <catch2/catch.hpp>
#include <set>
#include <thread>
#include <vector>

#include "tapegrad/c10/error.h"

using tapegrad::Generator;
using tapegrad::make_intrusive;

TEST_CASE("a seed fixes the sequence of calls", "[c10][random]") {
  auto a = make_intrusive<Generator>(5), b = make_intrusive<Generator>();
  REQUIRE(b->initial_seed() == Generator::kDefaultSeed);
  b->next(1);
  b->manual_seed(5);
  for (int i = 0; i < 3; ++i) {
    const auto x = a->next(100), y = b->next(1);
    REQUIRE((x.seed == 5 && y.seed == 5));
    REQUIRE(x.offset == static_cast<uint64_t>(i));
    REQUIRE(y.offset == x.offset);
  }
  REQUIRE(a->next(0).offset == 3);  // nothing drawn, nothing used up
  REQUIRE(a->next(10, 4).offset == 3);
  REQUIRE(a->offset() == 7);
}

TEST_CASE("a generator's state can be saved and restored", "[c10][random]") {
  auto g = make_intrusive<Generator>(0xFEDCBA9876543210u);
  g->next(1);
  const auto state = g->get_state();
  REQUIRE(state.size() == Generator::kStateBytes);
  REQUIRE(state[8] == 0x10);  // little-endian on every machine
  const auto expected = g->next(1);
  auto other = make_intrusive<Generator>();
  other->set_state(state.data(), state.size());
  const auto got = other->next(1);
  REQUIRE((got.seed == expected.seed && got.offset == expected.offset));
  auto copy = other->clone();
  REQUIRE(copy->next(1).offset == other->next(1).offset);

  auto bad = state;
  bad[0] ^= 1;
  REQUIRE_THROWS_AS(other->set_state(bad.data(), bad.size()), tapegrad::Error);
  REQUIRE_THROWS_WITH(other->set_state(bad.data(), 5), "set_state: a generator's state has 24 bytes: got 5");
  REQUIRE(other->initial_seed() == 0xFEDCBA9876543210u);
}

TEST_CASE("seed() takes fresh entropy", "[c10][random]") {
  auto g = make_intrusive<Generator>();
  const uint64_t a = g->seed(), b = g->seed();
  REQUIRE(a != b);
  REQUIRE(g->initial_seed() == b);
  REQUIRE(b < uint64_t{1} << 53);
}

TEST_CASE("threads never get the same call", "[c10][random]") {
  auto g = make_intrusive<Generator>(1);
  std::vector<std::vector<uint64_t>> got(4);
  std::vector<std::thread> threads;
  for (auto& mine : got)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) mine.push_back(g->next(1).offset);
    });
  for (auto& t : threads) t.join();
  std::set<uint64_t> all;
  for (auto& mine : got) all.insert(mine.begin(), mine.end());
  REQUIRE(all.size() == 20000);
  REQUIRE(g->offset() == 20000);
}

TEST_CASE("the default generator is one", "[c10][random]") {
  REQUIRE(tapegrad::default_cpu_generator().get() == tapegrad::default_cpu_generator().get());
}

TEST_CASE("a device's generator that is first asked for after a seed has it", "[c10][random]") {
  using namespace tapegrad;
  manual_seed_all(31);
  const Device late(DeviceType::CUDA, 101), later(DeviceType::CUDA, 102);
  REQUIRE(default_generator_of(late)->initial_seed() == 31);
  REQUIRE(default_generator_of(late)->offset() == 0);
  std::vector<const Generator*> seen(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < seen.size(); ++i)
    threads.emplace_back([&, i] { seen[i] = default_generator_of(later).get(); });
  for (std::thread& thread : threads) thread.join();
  for (const Generator* generator : seen) REQUIRE(generator == seen[0]);
  const auto original = default_generator_of(late), own = make_intrusive<Generator>(5);
  set_default_generator_of(late, own);
  REQUIRE(default_generator_of(late).get() == own.get());
  REQUIRE(default_generator_of(later).get() == seen[0]);
  manual_seed_all(32);
  REQUIRE(own->initial_seed() == 32);
  REQUIRE(original->initial_seed() == 31);
  for (uint64_t i = 0; i < 3000; ++i) set_default_generator_of(late, make_intrusive<Generator>(i));
  REQUIRE(default_generator_of(late)->initial_seed() == 2999);
  REQUIRE(default_generator_of(later).get() == seen[0]);
  set_default_generator_of(late, original);
  REQUIRE(default_generator_of(late).get() == original.get());
}

TEST_CASE("every device has a default generator, and one seed begins all alike", "[c10][random]") {
  using namespace tapegrad;
  const Device first(DeviceType::CUDA, 0), second(DeviceType::CUDA, 1);
  REQUIRE(default_generator_of(Device()).get() == default_cpu_generator().get());
  REQUIRE(default_generator_of(first).get() == default_generator_of(first).get());
  REQUIRE(default_generator_of(first).get() != default_generator_of(second).get());
  manual_seed_all(9);
  (void)default_generator_of(first)->next(1);
  REQUIRE(default_generator_of(first)->offset() == 1);
  REQUIRE(default_generator_of(second)->offset() == 0);
  for (const Device device : {Device(), first, second}) REQUIRE(default_generator_of(device)->initial_seed() == 9);
  const auto own = make_intrusive<Generator>(5);
  set_thread_generator(own);
  for (const Device device : {Device(), first, second}) REQUIRE(default_generator_of(device).get() == own.get());
  manual_seed_all(6);  // of what this thread uses
  set_thread_generator(nullptr);
  REQUIRE(own->initial_seed() == 6);
  REQUIRE(default_generator_of(second)->initial_seed() == 9);
}
