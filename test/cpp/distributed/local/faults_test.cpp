// What ranks of one machine see when others are killed, stopped, leave, fail, never come, or write nonsense into the
// memory that all share.
#include <dirent.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <new>

#include "distributed/local/engines.h"
#include "distributed/random_calls.h"
#include "tapegrad/multiprocessing/exchange.h"

using namespace tapegrad;
using namespace tapegrad::distributed;
using namespace tapegrad::distributed::test;

namespace {

double now() { return Seconds(Clock::now().time_since_epoch()).count(); }

// Seen by a process and its children.
struct Seen {
  std::atomic<int> ready{0};
  std::atomic<double> ended[8] = {};  // when the rank's engine threw
};
struct SeenByAll {
  Seen* seen = new (mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Seen;
  ~SeenByAll() { munmap(seen, sizeof(Seen)); }
  Seen* operator->() const { return seen; }
  void await(int ranks) const {
    while (seen->ready < ranks) usleep(1000);
  }
};

// All kinds of calls until one throws.
void work(Backend& ranks, uint64_t seed, double limit) {
  RandomCalls calls(ranks, seed, limit);
  for (;;) {
    calls.run(1);
    const int next = (ranks.rank() + 1) % ranks.size(), last = (ranks.rank() + ranks.size() - 1) % ranks.size();
    std::vector<char> sent(400'000, 1), got(400'000);
    for (int turn : {0, 1}) {
      if ((ranks.rank() == 0) == (turn == 0))
        ranks.send({sent.data(), sent.size()}, next, 1, wait_for(limit, "send"));
      else
        ranks.recv({got.data(), got.size()}, last, 1, wait_for(limit, "recv"));
    }
    if (ranks.size() > 2) ranks.barrier(wait_for(limit, "barrier"));
  }
}

int num_descriptors() {
  int n = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

}  // namespace

TEST_CASE("all ranks hear at once of one that was killed", "[distributed]") {
  if (!kForks) return;
  std::mt19937 random(1);
  for (int size : {2, 3, 4}) {
    for (int round = 0; round < 12; ++round) {
      const SeenByAll seen;
      const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
      Processes ranks(size, make_shared_backend, [&](Backend& engine) {
        seen->ready++;
        try {
          work(engine, static_cast<uint64_t>(round), 30);
        } catch (const std::exception& e) {
          seen->ended[engine.rank()] = now();
          engine.abort(
              e.what());  // as a group does, so that the others hear of the death and not of this rank's leaving
          throw;
        }
      });
      seen.await(size);
      usleep(random() % 15'000);
      const double killed = now();
      ranks.send_signal(victim, SIGKILL);
      for (int r = 0; r < size; ++r) {
        const std::string text = ranks.end_of(r);
        INFO(size << " ranks, round " << round << ", victim " << victim << ", rank " << r << ": " << text);
        if (r == victim) {
          REQUIRE(text == "signal 9");
          continue;
        }
        REQUIRE(text.find("rank " + std::to_string(victim) + " has died: process ") != std::string::npos);
        REQUIRE(seen->ended[r] - killed < 0.5);  // 0.1 on a machine that does nothing else
      }
    }
  }
}

TEST_CASE("ranks that sleep hear of a death", "[distributed]") {
  if (!kForks) return;
  const SeenByAll seen;
  Processes ranks(3, make_shared_backend, [&](Backend& engine) {
    seen->ready++;
    if (engine.rank() == 1) pause();
    engine.barrier(wait_for(30, "barrier"));
  });
  seen.await(3);
  usleep(300'000);
  const double killed = now();
  ranks.send_signal(1, SIGKILL);
  for (int r : {0, 2}) REQUIRE(ranks.end_of(r).find("barrier: rank 1 has died: process ") != std::string::npos);
  REQUIRE(now() - killed < 0.5);
}

TEST_CASE("a rank that is stopped is waited for until the deadline", "[distributed]") {
  if (!kForks) return;
  std::mt19937 random(2);
  for (int round = 0; round < 4; ++round) {
    const SeenByAll seen;
    Processes ranks(3, make_shared_backend, [&](Backend& engine) {
      seen->ready++;
      try {
        work(engine, 9, 1.0);
      } catch (const std::exception& e) {
        engine.abort(e.what());
        throw;
      }
    });
    seen.await(3);
    usleep(random() % 10'000);
    ranks.send_signal(1, SIGSTOP);
    const double stopped = now();
    for (int r : {0, 2}) {
      const std::string text = ranks.end_of(r);
      INFO("rank " << r << ": " << text);
      // Also where a channel was to be opened, of which only the stopped rank has the memory.
      const bool in_time =
          text.find("timed out after ") != std::string::npos && text.find("waiting for rank") != std::string::npos;
      REQUIRE((in_time || text.find("has not answered") != std::string::npos));
    }
    REQUIRE(now() - stopped < 13);
    ranks.send_signal(1, SIGCONT);
    const std::string text = ranks.end_of(1);
    INFO(text);
    REQUIRE((text.find("has failed: ") != std::string::npos || text.find("timed out") != std::string::npos));
  }
}

TEST_CASE("a rank that leaves is not waited for", "[distributed]") {
  on_all(3, [](Backend& ranks) {
    ranks.barrier(wait_for(10));
    if (ranks.rank() == 2) return;
    const std::string text = text_of([&] { ranks.barrier(wait_for(10, "barrier")); });
    must(text.find("rank 2 has left the group") != std::string::npos, text);
    must(text_of([&] { ranks.barrier(wait_for(10, "again")); }).find("rank 2 has left") != std::string::npos, "again");
  });
}

TEST_CASE("an abort wakes all threads of all ranks", "[distributed]") {
  on_all(2, [](Backend& ranks) {
    ranks.barrier(wait_for(10));
    char byte = 0;
    std::vector<std::string> texts(2);
    std::vector<std::thread> threads;
    threads.emplace_back([&] { texts[0] = text_of([&] { ranks.recv_any({&byte, 1}, 0, wait_for(30, "recv")); }); });
    if (ranks.rank() == 0) {
      threads.emplace_back([&] { texts[1] = text_of([&] { ranks.barrier(wait_for(30, "barrier")); }); });
      usleep(100'000);
      ranks.abort("the user's reason");
    }
    const double since = now();
    for (auto& t : threads) t.join();
    must(now() - since < 2, "in time");
    for (size_t i = 0; i < threads.size(); ++i) {
      must(texts[i].find("the user's reason") != std::string::npos, texts[i]);
      must((texts[i].find("rank 0 has failed") != std::string::npos) == (ranks.rank() == 1), texts[i]);
    }
  });
}

TEST_CASE("a rank that never comes is named, and nothing is left behind", "[distributed]") {
  for (Maker make : {make_thread_backend, make_shared_backend}) {
    const std::string text = text_of([&] { make(place_of(make_hash_store(), 0, 3, 0.3)); });
    REQUIRE(text.find("process group: timed out after 0.3 s of waiting for ranks 1, 2") == 0);
  }
  const auto stats = shared::exchange().stats();
  REQUIRE(stats.blocks == 0);
  REQUIRE(stats.tickets == 0);
}

TEST_CASE("groups leave no descriptor and no memory behind", "[distributed]") {
  auto use = [](int size) {
    const auto texts = as_threads(size, make_shared_backend, [](Backend& ranks) {
      char byte = 0;
      if (ranks.rank() == 0) ranks.send({&byte, 1}, 1, 0, wait_for(10));
      if (ranks.rank() == 1) ranks.recv({&byte, 1}, 0, 0, wait_for(10));
      ranks.barrier(wait_for(10));
    });
    for (const auto& text : texts) REQUIRE(text == "");
  };
  use(3);
  const int before = num_descriptors();
  for (int i = 0; i < 20; ++i) use(3);
  const auto stats = shared::exchange().stats();
  REQUIRE(stats.blocks == 0);
  REQUIRE(stats.tickets == 0);
  REQUIRE(num_descriptors() == before);
  if (!kForks) return;
  const auto texts = as_processes(3, make_shared_backend, [](Backend& ranks) {
    ranks.barrier(wait_for(10));
    const int before = num_descriptors();
    for (int i = 0; i < 5; ++i) {
      auto store = make_file_store("/tmp/tapegrad-again-" + std::to_string(getppid()) + "-" + std::to_string(i), 3);
      auto again = make_shared_backend(place_of(store, ranks.rank(), 3));
      again->barrier(wait_for(10));
      ranks.barrier(wait_for(10));
      if (ranks.rank() == 0)
        std::filesystem::remove("/tmp/tapegrad-again-" + std::to_string(getppid()) + "-" + std::to_string(i));
    }
    // What another process has closed is closed here when its thread comes to it.
    const auto until = Clock::now() + std::chrono::seconds(5);
    while (num_descriptors() > before && Clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    must(num_descriptors() <= before, "descriptors");
  });
  for (const auto& text : texts) REQUIRE(text == "");
}

TEST_CASE("nonsense in the common memory ends with errors, not with a crash", "[distributed]") {
  if (!kForks) return;
  for (uint64_t round = 0; round < 6; ++round) {
    const auto texts = as_processes(3, make_shared_backend, [&](Backend& ranks) {
      char byte = 0;  // so that there are channels
      if (ranks.rank() == 0) ranks.send({&byte, 1}, 2, 1, wait_for(10));
      if (ranks.rank() == 2) ranks.recv({&byte, 1}, 0, 1, wait_for(10));
      ranks.barrier(wait_for(10));
      if (ranks.rank() != 1) return work(ranks, round, 0.5);
      // The arenas of others: the mappings of 64 MB.
      std::ifstream maps("/proc/self/maps");
      std::mt19937_64 random(round);
      int found = 0;
      for (std::string line; std::getline(maps, line);) {
        unsigned long first = 0, last = 0;
        if (line.find("memfd:tapegrad") == std::string::npos || sscanf(line.c_str(), "%lx-%lx", &first, &last) != 2 ||
            last - first != size_t{64} << 20)
          continue;
        ++found;
        // Some of the first words: counters, passes, channels. Small numbers among them, so that not all is refused.
        auto* words = reinterpret_cast<std::atomic<uint64_t>*>(first);
        const size_t dense = round % 2 == 0 ? 97 : 5003;
        for (size_t i = 8 + random() % dense; i < (size_t{3} << 20) / 8; i += 1 + random() % dense)
          words[i].store(random() % 3 == 0 ? random() % 100 : random());
      }
      must(found > 0, "an arena was found");
    });
    REQUIRE(texts[1] == "");
    for (int r : {0, 2}) {
      INFO("round " << round << ", rank " << r << ": " << texts[static_cast<size_t>(r)]);
      REQUIRE(texts[static_cast<size_t>(r)] != "");
      REQUIRE(texts[static_cast<size_t>(r)].find("signal") == std::string::npos);
    }
  }
}

TEST_CASE("groups meet whatever the bytes of the passes are", "[distributed]") {
  // A pass has random bytes; one in 256 began as the reason why there is none does.
  std::string wrong;
  for (int i = 0; i < 1500 && wrong.empty(); ++i) {
    auto store = make_hash_store();
    std::string texts[2];
    const auto start = [&](int r) { texts[r] = text_of([&] { make_thread_backend(place_of(store, r, 2, 5)); }); };
    std::thread other([&] { start(1); });
    start(0);
    other.join();
    wrong = texts[1] + texts[0];
  }
  REQUIRE(wrong == "");
}
