#include "tapegrad/c10/threads/parallel.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "c10/threads/children.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/c10/threads/serial_for.h"

using tapegrad::parallel_for;
using tapegrad::split_range;

namespace {

struct Threads {
  explicit Threads(int n) : before(tapegrad::get_num_threads()) { tapegrad::set_num_threads(n); }
  ~Threads() { tapegrad::set_num_threads(before); }
  int before;
};

void spend(std::chrono::microseconds time) {
  const auto until = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < until) {
  }
}

std::set<std::pair<int64_t, int64_t>> pieces(int64_t begin, int64_t end, int64_t grain) {
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> seen;
  parallel_for(begin, end, grain, [&](int64_t a, int64_t b) {
    std::lock_guard lock(mutex);
    seen.emplace(a, b);
  });
  return seen;
}

}  // namespace

TEST_CASE("ranges are cut by their size only", "[c10][parallel]") {
  STATIC_REQUIRE(split_range(0, 10).count == 0);
  STATIC_REQUIRE(split_range(10, 10).count == 1);
  STATIC_REQUIRE(split_range(11, 0).count == 11);
  for (int64_t n : {1, 2, 3, 7, 100, 1000, 4097, 100000, 1 << 24})
    for (int64_t grain : {1, 2, 5, 64, 1000, 32768}) {
      const auto s = split_range(n, grain);
      REQUIRE(s.count <= 512);
      REQUIRE((s.count - 1) * s.chunk < n);
      REQUIRE(s.count * s.chunk >= n);
    }
}

TEST_CASE("every item is visited once and the pieces are the same for any number of threads", "[c10][parallel]") {
  for (auto [begin, end, grain] : {std::tuple<int64_t, int64_t, int64_t>{0, 1, 1},
                                   {0, 2, 1},
                                   {-50, 50, 7},
                                   {5, 5, 1},
                                   {9, 3, 1},
                                   {0, 100000, 1000},
                                   {3, 1000003, 4096}}) {
    std::set<std::pair<int64_t, int64_t>> first;
    for (int n : {1, 2, 3, 8}) {
      Threads threads(n);
      auto seen = pieces(begin, end, grain);
      int64_t at = begin;
      for (auto [a, b] : seen) {
        REQUIRE(a == at);
        REQUIRE(b > a);
        at = b;
      }
      REQUIRE(at == std::max(begin, end));
      if (n == 1) first = seen;
      REQUIRE(seen == first);
    }
  }
}

TEST_CASE("chunk indices number the chunks", "[c10][parallel]") {
  Threads threads(4);
  const auto s = split_range(100000, 1000);
  std::vector<double> partial(static_cast<size_t>(s.count));
  std::atomic<int> wrong{0};  // assertions are for the main thread only
  parallel_for(0, 100000, 1000, [&](int64_t a, int64_t b, int64_t index) {
    if (a != index * s.chunk) ++wrong;
    for (int64_t i = a; i < b; ++i) partial[static_cast<size_t>(index)] += 1.0 / static_cast<double>(i + 1);
  });
  REQUIRE(wrong == 0);
  double expected = 0;
  for (int64_t c = 0; c < s.count; ++c) {
    double sum = 0;
    for (int64_t i = c * s.chunk; i < std::min<int64_t>(100000, (c + 1) * s.chunk); ++i)
      sum += 1.0 / static_cast<double>(i + 1);
    expected += sum;
  }
  REQUIRE(std::accumulate(partial.begin(), partial.end(), 0.0) == expected);
}

TEST_CASE("a range of one grain is one plain call on the caller", "[c10][parallel]") {
  Threads threads(4);
  int calls = 0;
  parallel_for(0, 1000, 1000, [&](int64_t a, int64_t b) {
    ++calls;
    REQUIRE((a == 0 && b == 1000));
    REQUIRE(!tapegrad::in_parallel_region());
  });
  REQUIRE(calls == 1);
}

TEST_CASE("several threads take part when there is work for them", "[c10][parallel]") {
  Threads threads(3);
  std::set<std::thread::id> ids;
  // On a machine whose processors are busy the pool keeps to the caller for a while: try again then.
  for (int attempt = 0; attempt < 50 && ids.size() < 2; ++attempt) {
    ids.clear();
    std::mutex mutex;
    std::atomic<int> inside{0};
    parallel_for(0, 200, 1, [&](int64_t, int64_t) {
      inside += tapegrad::in_parallel_region();
      spend(std::chrono::microseconds(500));
      std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    REQUIRE((inside == 0 || inside == 200));
    REQUIRE(ids.count(std::this_thread::get_id()) == 1);
    REQUIRE(ids.size() <= 3);
  }
  REQUIRE(ids.size() > 1);
}

TEST_CASE("the first exception by position reaches the caller", "[c10][parallel]") {
  for (int n : {1, 2, 6}) {
    Threads threads(n);
    for (int round = 0; round < 100; ++round) {
      std::atomic<int> running{0};
      std::string what;
      try {
        parallel_for(0, 400, 1, [&](int64_t a, int64_t) {
          ++running;
          if (a % 10 == 7) throw std::runtime_error("item " + std::to_string(a));
          --running;
        });
      } catch (const std::runtime_error& e) {
        what = e.what();
      }
      REQUIRE(what == "item 7");
    }
  }
  // The pool works on afterwards.
  REQUIRE(pieces(0, 100, 10).size() == static_cast<size_t>(split_range(100, 10).count));
}

TEST_CASE("nested calls run on the thread they are made on", "[c10][parallel]") {
  Threads threads(4);
  std::atomic<int64_t> total{0}, strangers{0};
  parallel_for(0, 64, 1, [&](int64_t a, int64_t b) {
    const auto me = std::this_thread::get_id();
    parallel_for(a * 100, b * 100, 1, [&](int64_t x, int64_t y) {
      if (std::this_thread::get_id() != me) ++strangers;
      total += y - x;
    });
  });
  REQUIRE(total == 6400);
  REQUIRE(strangers == 0);
}

TEST_CASE("many more threads than processors", "[c10][parallel]") {
  Threads threads(32);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int64_t> sum{0};
    parallel_for(0, 10000, 10, [&](int64_t a, int64_t b) {
      int64_t part = 0;
      for (int64_t i = a; i < b; ++i) part += i;
      sum += part;
    });
    REQUIRE(sum == int64_t{10000} * 9999 / 2);
  }
}

TEST_CASE("several callers at once", "[c10][parallel]") {
  Threads threads(3);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&, c] {
      for (int round = 0; round < 500; ++round) {
        std::vector<int> seen(static_cast<size_t>(1000 + c));
        parallel_for(0, 1000 + c, 20, [&](int64_t a, int64_t b) {
          for (int64_t i = a; i < b; ++i) ++seen[static_cast<size_t>(i)];
        });
        for (int s : seen) wrong += s != 1;
      }
    });
  for (auto& t : callers) t.join();
  REQUIRE(wrong == 0);
}

TEST_CASE("the number of threads", "[c10][parallel]") {
  REQUIRE(tapegrad::get_num_threads() >= 1);
  Threads threads(5);
  REQUIRE(tapegrad::get_num_threads() == 5);
  for (int n : {0, -1, 100000}) {
    try {
      tapegrad::set_num_threads(n);
      FAIL("accepted");
    } catch (const tapegrad::Error& e) {
      REQUIRE(e.kind() == tapegrad::ErrorKind::Value);
    }
  }
}

namespace {

std::atomic<bool> want_interrupt{false};
std::atomic<int> questions{0};
bool ask() {
  ++questions;
  return want_interrupt.load();
}

}  // namespace

TEST_CASE("an interrupt drops the remaining chunks", "[c10][parallel]") {
  tapegrad::interrupt_hook = ask;
  for (int n : {1, 3}) {
    Threads threads(n);
    want_interrupt = false;
    questions = 0;
    std::atomic<int> done{0};
    const auto asked_from = std::chrono::steady_clock::now();
    parallel_for(0, 200, 1, [&](int64_t, int64_t) { spend(std::chrono::microseconds(500)); });
    REQUIRE(questions <=
            2 + (std::chrono::steady_clock::now() - asked_from) / std::chrono::milliseconds(10));  // one per 20 ms

    std::thread user([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      want_interrupt = true;
    });
    const auto start = std::chrono::steady_clock::now();
    tapegrad::ErrorKind kind = tapegrad::ErrorKind::Internal;
    try {
      parallel_for(0, 5000, 1, [&](int64_t a, int64_t b) {
        spend(std::chrono::microseconds(1000 * (b - a)));
        ++done;
      });
    } catch (const tapegrad::Error& e) {
      kind = e.kind();
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    user.join();
    REQUIRE(kind == tapegrad::ErrorKind::Interrupt);
    REQUIRE(done < 1500);  // of 5000: allows for a busy machine
    REQUIRE(seconds < 1.5);
  }
  tapegrad::interrupt_hook = nullptr;
}

TEST_CASE("an interrupt ends chunks that ask, on every thread", "[c10][parallel]") {
  tapegrad::interrupt_hook = ask;
  for (int n : {1, 3}) {
    Threads threads(n);
    want_interrupt = false;
    std::thread user([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      want_interrupt = true;
    });
    std::atomic<int> entered{0}, left{0}, ended{0};
    tapegrad::ErrorKind kind = tapegrad::ErrorKind::Internal;
    try {
      parallel_for(0, 64, 1, [&](int64_t a, int64_t) {
        struct Guard {
          std::atomic<int>& left;
          ~Guard() { ++left; }
        } guard{left};
        ++entered;
        if (a == 63) throw tapegrad::Error(tapegrad::ErrorKind::Value, "another error, of the last chunk");
        // One thread's work of five seconds, in parts that ask.
        tapegrad::serial_for(0, int64_t{50'000} << 16, [](int64_t, int64_t) { spend(std::chrono::microseconds(100)); });
        ++ended;
      });
    } catch (const tapegrad::Error& e) {
      kind = e.kind();
    }
    user.join();
    REQUIRE(kind == tapegrad::ErrorKind::Interrupt);
    REQUIRE(entered == left);
    REQUIRE(ended == 0);
  }
  tapegrad::interrupt_hook = nullptr;
}

TEST_CASE("a chunk that asks is left when one before it has failed", "[c10][parallel]") {
  Threads threads(3);
  std::atomic<int> waiting{0};
  try {
    parallel_for(0, 3, 1, [&](int64_t a, int64_t) {
      if (a == 0) {
        const auto patience = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
        while (waiting == 0 && std::chrono::steady_clock::now() < patience) spend(std::chrono::microseconds(100));
        throw tapegrad::Error(tapegrad::ErrorKind::Value, "the first");
      }
      ++waiting;
      tapegrad::WorkCount done;
      for (;;) {
        spend(std::chrono::microseconds(10));
        done(1 << 18);  // leaves once the first has failed
      }
    });
    REQUIRE(false);
  } catch (const tapegrad::Error& e) {
    REQUIRE(e.message() == "the first");
  }
}

namespace {
std::atomic<int> depth{0}, releases{0};
int token;
}  // namespace

TEST_CASE("blocking regions do not nest and always close", "[c10][parallel]") {
  tapegrad::set_blocking_hooks({[]() -> void* {
                                  ++depth;
                                  ++releases;
                                  return &token;
                                },
                                [](void* t) {
                                  if (t == &token) --depth;
                                }});
  {
    tapegrad::BlockingRegion outer;
    tapegrad::BlockingRegion inner;
    REQUIRE(depth == 1);
  }
  REQUIRE(depth == 0);
  for (int n : {1, 4}) {
    Threads threads(n);
    releases = 0;
    std::atomic<int> outside{0};
    REQUIRE_THROWS(parallel_for(0, 1000, 1, [&](int64_t a, int64_t) {
      outside += depth != 1;
      if (a > 500) throw 1;
    }));
    REQUIRE(outside == 0);
    REQUIRE(depth == 0);
    REQUIRE(releases == 1);
    parallel_for(0, 10, 10, [&](int64_t, int64_t) { REQUIRE(depth == 0); });
  }
  tapegrad::set_blocking_hooks({});
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they do not survive fork with threads
TEST_CASE("forked children build a pool of their own", "[c10][parallel]") {
  Threads threads(3);
  auto work = [] {
    std::atomic<int64_t> sum{0};
    parallel_for(0, 300, 1, [&](int64_t a, int64_t b) {
      spend(std::chrono::microseconds(5));
      sum += b - a;
    });
    return sum == 300;
  };
  REQUIRE(work());
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) work();
  });
  int failures = 0;
  for (int i = 0; i < 100; ++i) {
    work();
    failures += failures_of_children(1, [&] {
      bool good = true;
      for (int k = 0; k < 5; ++k) good = work() && good;
      return good;
    });
  }
  stop = true;
  busy.join();
  REQUIRE(failures == 0);
}
#endif

TEST_CASE("idle helpers sleep", "[c10][parallel]") {
  Threads threads(4);
  for (int i = 0; i < 100; ++i) pieces(0, 1000, 10);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  REQUIRE(used < 0.02);
}
