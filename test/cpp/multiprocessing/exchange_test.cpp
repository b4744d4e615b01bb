// Two exchanges in one process stand for two processes: they know each other through handles and sockets only.
#include "tapegrad/multiprocessing/exchange.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <thread>
#include <vector>

#include "tapegrad/c10/error.h"

using namespace tapegrad;
using shared::Exchange;
using shared::Handle;

namespace {

Storage plain(size_t nbytes, int value) {
  Storage s = allocate_storage(nbytes, Device());
  if (nbytes != 0) std::memset(s->data(), value, nbytes);
  return s;
}

uint64_t little() noexcept { return uint64_t{3} << 20; }

}  // namespace

TEST_CASE("sharing keeps the storage and moves its bytes", "[multiprocessing]") {
  Exchange a;
  for (size_t nbytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{5} << 20}) {
    Storage s = plain(nbytes, 7);
    REQUIRE_FALSE(a.is_shared(s));
    Storage same = a.share(s);
    REQUIRE(same.get() == s.get());
    REQUIRE(a.is_shared(s));
    REQUIRE(s->nbytes() == nbytes);
    if (nbytes != 0) REQUIRE(static_cast<char*>(s->data())[nbytes - 1] == 7);
    REQUIRE(a.share(s).get() == s.get());
  }
  REQUIRE(a.stats().blocks == 0);
  REQUIRE(a.stats().allocated_bytes == 0);
}

TEST_CASE("foreign memory is copied once and kept", "[multiprocessing]") {
  Exchange a;
  Storage s = plain(100, 3);
  s->set_resizable(false);
  Storage copy = a.share(s);
  REQUIRE(copy.get() != s.get());
  REQUIRE(a.share(s).get() == copy.get());
  REQUIRE(s.use_count() == 2);
  copy.reset();
  REQUIRE(s.use_count() == 1);
  REQUIRE(a.stats().blocks == 0);
}

TEST_CASE("a handle gives the same memory to another process", "[multiprocessing]") {
  Exchange a, b;
  Storage sent = a.share(plain(1000, 1));
  Storage got = b.receive(a.give(sent));
  REQUIRE(got->nbytes() == 1000);
  REQUIRE(got->data() != sent->data());
  static_cast<char*>(got->data())[10] = 42;
  REQUIRE(static_cast<char*>(sent->data())[10] == 42);

  SECTION("the same storage again while it is alive, and at home") {
    REQUIRE(b.receive(a.give(sent)).get() == got.get());
    REQUIRE(a.receive(b.give(got)).get() == sent.get());
  }
  SECTION("it lives until both have dropped it") {
    sent.reset();
    REQUIRE(a.stats().pending == 1);
    REQUIRE(static_cast<char*>(got->data())[10] == 42);
    Storage home = a.receive(b.give(got));
    got.reset();
    REQUIRE(static_cast<char*>(home->data())[10] == 42);
    home.reset();
    REQUIRE(a.stats().blocks == 0);
  }
  SECTION("passed on to a third") {
    Exchange c;
    Storage third = c.receive(b.give(got));
    sent.reset();
    got.reset();
    REQUIRE(a.stats().blocks == 1);
    REQUIRE(static_cast<char*>(third->data())[10] == 42);
  }
}

TEST_CASE("a handle is good for one receipt", "[multiprocessing]") {
  Exchange a, b;
  Storage s = a.share(plain(64, 1));
  Handle h = a.give(s);
  REQUIRE(a.on_its_way(h));
  Storage got = b.receive(h);
  REQUIRE_FALSE(a.on_its_way(h));
  REQUIRE_THROWS_WITH(b.receive(h), Catch::Contains("stale handle"));
  REQUIRE(b.stats().received == 1);
  got.reset();
  h = a.give(s);
  REQUIRE(a.take_back(h));
  REQUIRE_FALSE(a.take_back(h));
  REQUIRE_THROWS_WITH(b.receive(h), Catch::Contains("stale handle"));
  h = a.give(s);
  REQUIRE(a.take_back(h));
  s.reset();
  s = a.share(plain(64, 2));  // the same block, another generation
  Handle fresh = a.give(s);
  h.ticket = fresh.ticket;
  h.ticket_generation = fresh.ticket_generation;
  h.seal();
  REQUIRE(h.generation != fresh.generation);
  REQUIRE_THROWS_WITH(b.receive(h), Catch::Contains("stale handle"));
  Storage right = b.receive(fresh);
  REQUIRE(static_cast<char*>(right->data())[0] == 2);
}

TEST_CASE("handles that make no sense are refused", "[multiprocessing]") {
  Exchange a, b;
  Storage s = a.share(plain(64, 1));
  Handle h = a.give(s);
  Handle wrong = h;
  wrong.owner ^= 1;
  REQUIRE_THROWS_WITH(b.receive(wrong), Catch::Contains("checksum"));
  wrong.seal();
  REQUIRE_THROWS_WITH(b.receive(wrong), Catch::Contains("has ended"));
  // Every bit of it, with the checksum of what was sent and with one of its own; by another process and by the owner.
  Storage near[4];
  for (Storage& n : near) n = a.share(plain(64, 2));
  for (size_t bit = 0; bit < 8 * Handle::kArenaBytes; ++bit) {
    wrong = h;
    reinterpret_cast<unsigned char*>(&wrong)[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    REQUIRE_FALSE(wrong.intact());
    for (Exchange* who : {&a, &b}) {
      REQUIRE_THROWS_AS(who->receive(wrong), Error);
      REQUIRE_FALSE(who->take_back(wrong));
      REQUIRE_FALSE(who->on_its_way(wrong));
    }
    wrong.seal();
    if (wrong == h) continue;  // the checksum was hit
    for (Exchange* who : {&a, &b}) REQUIRE_THROWS_AS(who->receive(wrong), Error);
  }
  REQUIRE(b.stats().received == 0);
  REQUIRE(a.on_its_way(h));
  REQUIRE(static_cast<char*>(b.receive(h)->data())[0] == 1);
}

TEST_CASE("read-only memory can be written by its owner alone", "[multiprocessing]") {
  Exchange a, b;
  Storage s = a.allocate(100, true);
  static_cast<char*>(s->data())[0] = 5;
  REQUIRE_FALSE(s->read_only());
  Storage got = b.receive(a.give(s));
  REQUIRE(got->read_only());
  static_cast<char*>(s->data())[0] = 6;
  REQUIRE(static_cast<char*>(got->data())[0] == 6);
}

TEST_CASE("memory is refused before it is touched", "[multiprocessing]") {
  Exchange a(little);
  Storage ok = a.allocate(100);
  REQUIRE_THROWS_WITH(a.allocate(size_t{8} << 20),
                      Catch::Contains("asked for 8.00 MiB") && Catch::Contains("available"));
  REQUIRE(a.stats().blocks == 1);
}

TEST_CASE("warm blocks are used again", "[multiprocessing]") {
  Exchange a, b;
  const void* first = nullptr;
  for (int i = 0; i < 5; ++i) {
    Storage s = a.share(plain(size_t{64} << 20, i));
    if (i == 0) first = s->data();
    REQUIRE(s->data() == first);
    Storage got = b.receive(a.give(s));
    s.reset();
    REQUIRE(static_cast<char*>(got->data())[12345] == i);
  }
  REQUIRE(a.stats().arenas == 1);
  REQUIRE(b.stats().mapped_arenas == 1);
}

TEST_CASE("what a dead process held is free", "[multiprocessing]") {
  Exchange& e = shared::exchange();
  Storage s = e.share(plain(5000, 9));
  const uint64_t before = e.stats().blocks;
  int go[2];
  REQUIRE(pipe(go) == 0);
  const pid_t child = fork();
  if (child == 0) {
    // The child holds the block by being a copy; it can read it, and writes are seen by the parent.
    char byte = 0;
    if (static_cast<char*>(s->data())[0] == 9) static_cast<char*>(s->data())[1] = 10;
    bool fine = true;
#if !defined(__SANITIZE_THREAD__)                // which knows no threads in the child of a program with threads
    fine = e.is_shared(e.share(plain(100, 1)));  // memory of its own
#endif
    if (read(go[0], &byte, 1) < 0) _exit(2);
    _exit(fine ? 0 : 1);
  }
  s.reset();
  REQUIRE(e.stats().blocks == before);  // the child has it
  REQUIRE(write(go[1], "x", 1) == 1);
  int status = -1;
  waitpid(child, &status, 0);
  REQUIRE(status == 0);
  REQUIRE(e.stats().blocks == before - 1);
  close(go[0]);
  close(go[1]);
}

TEST_CASE("many threads give, receive and drop", "[multiprocessing]") {
  Exchange a, b;
  constexpr int kThreads = 4, kRounds = 300;
  std::atomic<int> wrong{0};
  {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::deque<Storage> kept;
        for (int i = 0; i < kRounds; ++i) {
          const size_t nbytes = 1 + static_cast<size_t>((i * 7919 + t * 104729) % 70000);
          Storage s = a.share(plain(nbytes, i % 100));
          const Handle h = a.give(s);
          if (i % 3 == 0) s.reset();
          if (i % 11 == 0) {
            a.take_back(h);
            continue;
          }
          Storage got = b.receive(h);
          if (static_cast<char*>(got->data())[nbytes - 1] != i % 100) ++wrong;
          if (i % 5 == 0) kept.push_back(a.receive(b.give(got)));
          if (kept.size() > 8) kept.pop_front();
        }
      });
    for (auto& t : threads) t.join();
  }
  REQUIRE(wrong == 0);
  REQUIRE(a.stats().blocks == 0);
  REQUIRE(a.stats().tickets == 0);
  REQUIRE(b.stats().received == 0);
}
