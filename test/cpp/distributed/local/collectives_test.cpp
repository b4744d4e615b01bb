// The engines of one machine, for threads and for processes: collectives against plain loops.
#include <catch2/catch.hpp>

#include "distributed/local/engines.h"
#include "distributed/random_calls.h"
#include "tapegrad/distributed/meeting.h"

using namespace tapegrad;
using namespace tapegrad::distributed;
using namespace tapegrad::distributed::test;

TEST_CASE("random collectives equal plain loops", "[distributed]") {
  for (int size : {1, 2, 3, 4, 5}) on_all(size, [](Backend& ranks) { RandomCalls(ranks, 11, 60).run(60); });
}

TEST_CASE("a reduction has the same bits on all ranks and in every run", "[distributed]") {
  for (int size : {2, 3, 4, 5}) {
    for (DType t : {DType::float32, DType::bfloat16, DType::float16, DType::complex64}) {
      // Of each size and dtype, all engines and all ranks.
      constexpr int64_t kNumel = 100'003;
      std::vector<char> expected(kNumel * element_size(t));
      auto data_of = [&](int rank) {
        std::mt19937_64 random(static_cast<uint64_t>(rank));
        std::vector<char> bytes(expected.size());
        dispatch_dtype(to_real(t), [&]<class T>() {
          if constexpr (is_floating_type<T>)
            for (size_t i = 0; i < bytes.size() / sizeof(T); ++i)
              reinterpret_cast<T*>(bytes.data())[i] =
                  static_cast<T>(static_cast<float>(static_cast<double>(random() % 1'000'003) / 1000));
        });
        return bytes;
      };
      std::vector<std::vector<char>> all;
      std::vector<const void*> rows;
      for (int r = 0; r < size; ++r) all.push_back(data_of(r));
      for (const auto& a : all) rows.push_back(a.data());
      reduce_bytes(expected.data(), rows, kNumel, t, Reduce::Sum);
      on_all(size, [&](Backend& ranks) {
        auto data = data_of(ranks.rank());
        ranks.all_reduce(data.data(), kNumel, t, Reduce::Sum, wait_for(30));
        must(data == expected, "the same bits");
      });
    }
  }
}

TEST_CASE("reductions that make no sense are refused before data moves", "[distributed]") {
  on_all(2, [](Backend& ranks) {
    float x = 1;
    const std::string text = text_of([&] { ranks.all_reduce(&x, 1, DType::float32, Reduce::BitAnd, wait_for(5)); });
    must(text == "all_reduce: bitwise and is for integers and bool: got float32", text);
    must(x == 1, "untouched");
  });
}

TEST_CASE("more ranks than processors end in time", "[distributed]") {
  on_all(12, [](Backend& ranks) {
    RandomCalls(ranks, 3, 60).run(10);
    for (int i = 0; i < 50; ++i) ranks.barrier(wait_for(60));
  });
}

TEST_CASE("a rank that was forked from another cannot use its group", "[distributed]") {
  if (!kForks) return;
  const auto texts = as_processes(2, make_shared_backend, [](Backend& ranks) {
    ranks.barrier(wait_for(10));
    if (ranks.rank() == 1) {
      const pid_t child = fork();
      if (child == 0) {
        const std::string text = text_of([&] { ranks.barrier(wait_for(5)); });
        _exit(text.find("forked") == std::string::npos);
      }
      int status = 1;
      waitpid(child, &status, 0);
      must(status == 0, "the child is refused");
    }
    ranks.barrier(wait_for(10));
  });
  for (const std::string& text : texts) REQUIRE(text == "");
}

TEST_CASE("ranks see whether they are on one machine", "[distributed]") {
  for (const char* wish : {"1", "0"}) {
    auto store = make_hash_store();
    std::vector<std::thread> threads;
    std::atomic<int> yes{0};
    setenv("TAPEGRAD_SHARED_MEMORY", wish, 1);
    for (int r = 0; r < 3; ++r)
      threads.emplace_back([&, r] { yes += Meeting(place_of(store, r, 3)).all_share_memory(); });
    for (auto& t : threads) t.join();
    unsetenv("TAPEGRAD_SHARED_MEMORY");
    REQUIRE(yes == (*wish == '1' ? 3 : 0));
  }
}
