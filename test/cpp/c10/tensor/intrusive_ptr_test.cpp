#include "tapegrad/c10/tensor/intrusive_ptr.h"

#include <catch2/catch.hpp>

#include <thread>
#include <vector>

namespace tapegrad {
namespace {

struct Counted : intrusive_ptr_target {
  static inline std::atomic<int> alive{0};
  static inline std::atomic<int> released{0};
  Counted() { ++alive; }
  ~Counted() override { --alive; }
  void release_resources() noexcept override { ++released; }
};

struct Derived final : Counted {};

// Puts its own end off by a weak reference, as nodes of the tape do.
struct Postponed final : intrusive_ptr_target {
  static inline Postponed* waiting = nullptr;
  static inline int alive = 0;
  Postponed() { ++alive; }
  ~Postponed() override { --alive; }
  void release_resources() noexcept override {
    auto self = intrusive_ptr<Postponed>::reclaim(this);
    weak_intrusive_ptr<Postponed>(self).release();
    self.release();
    waiting = this;
  }
};

}  // namespace

TEST_CASE("owners are counted", "[c10][intrusive_ptr]") {
  Counted::released = 0;
  {
    auto a = make_intrusive<Counted>();
    CHECK(a.use_count() == 1);
    auto b = a;
    CHECK(a.use_count() == 2);
    CHECK(a == b);
    b = std::move(a);
    CHECK(!a);
    CHECK(b.use_count() == 1);
    Counted* raw = b.release();
    CHECK(Counted::alive == 1);
    b = intrusive_ptr<Counted>::reclaim(raw);
    CHECK(b.use_count() == 1);
    const intrusive_ptr<Counted>& same = b;
    b = same;
    CHECK(b.use_count() == 1);
  }
  CHECK(Counted::alive == 0);
  CHECK(Counted::released == 1);
}

TEST_CASE("handles convert to those of a base", "[c10][intrusive_ptr]") {
  intrusive_ptr<Derived> d = make_intrusive<Derived>();
  intrusive_ptr<Counted> base = d;
  CHECK(base.use_count() == 2);
  intrusive_ptr<Counted> moved = std::move(d);
  CHECK(base.use_count() == 2);
  CHECK(!d);
}

TEST_CASE("weak references see the end", "[c10][intrusive_ptr]") {
  Counted::released = 0;
  weak_intrusive_ptr<Counted> weak;
  CHECK(weak.expired());
  CHECK(!weak.lock());
  {
    auto p = make_intrusive<Counted>();
    weak = weak_intrusive_ptr<Counted>(p);
    CHECK(p->weak_count() == 1);
    auto locked = weak.lock();
    CHECK(locked == p);
    CHECK(p.use_count() == 2);
  }
  CHECK(weak.expired());
  CHECK(!weak.lock());
  CHECK(Counted::released == 1);
  CHECK(Counted::alive == 1);  // the memory waits for the observer
  weak.reset();
  CHECK(Counted::alive == 0);
}

TEST_CASE("an object may put its end off", "[c10][intrusive_ptr]") {
  make_intrusive<Postponed>();
  REQUIRE(Postponed::waiting != nullptr);
  CHECK(Postponed::alive == 1);
  weak_intrusive_ptr<Postponed>::reclaim(Postponed::waiting).reset();
  CHECK(Postponed::alive == 0);
}

TEST_CASE("counting is safe on many threads", "[c10][intrusive_ptr]") {
  for (int round = 0; round < 200; ++round) {
    auto p = make_intrusive<Counted>();
    weak_intrusive_ptr<Counted> weak(p);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([copy = p, weak]() mutable {
        for (int i = 0; i < 50; ++i) {
          auto again = copy;
          if (auto locked = weak.lock()) again = std::move(locked);
        }
        copy.reset();
      });
    p.reset();
    for (auto& t : threads) t.join();
    CHECK(weak.expired());
  }
  CHECK(Counted::alive == 0);
}

}  // namespace tapegrad
