// Messages between ranks of one machine: sizes, tags, several threads at once, and what both sides hear of mistakes.
#include <catch2/catch.hpp>

#include "distributed/local/engines.h"
#include "distributed/random_calls.h"

using namespace tapegrad;
using namespace tapegrad::distributed;
using namespace tapegrad::distributed::test;

namespace {

void send_bytes(Backend& ranks, int peer, uint64_t tag, uint64_t call, size_t n) {
  const auto bytes = bytes_of(call, ranks.rank(), peer, n);
  ranks.send({bytes.data(), n}, peer, tag, wait_for(30, "send"));
}

void check_bytes(Backend& ranks, const std::vector<char>& got, int from, uint64_t call, size_t n) {
  must(std::memcmp(got.data(), bytes_of(call, from, ranks.rank(), n).data(), n) == 0,
       "message " + std::to_string(call) + " of " + std::to_string(n) + " bytes");
  must(got[n] == 55, "received too much");
}

void receive_bytes(Backend& ranks, int peer, uint64_t tag, uint64_t call, size_t n) {
  std::vector<char> got(n + 1, 55);
  ranks.recv({got.data(), n}, peer, tag, wait_for(30, "recv"));
  check_bytes(ranks, got, peer, call, n);
}

const size_t kSizes[] = {0, 1, 63, 64, 65, 4096, 100'000, 262'144, 262'145, 3'000'001};

}  // namespace

TEST_CASE("messages of all sizes arrive in order, both ways", "[distributed]") {
  on_all(2, [](Backend& ranks) {
    const int peer = 1 - ranks.rank();
    for (int turn = 0; turn < 2; ++turn)
      for (uint64_t call = 0; call < std::size(kSizes) * 3; ++call) {
        const size_t n = kSizes[call % std::size(kSizes)];
        if (turn == ranks.rank())
          send_bytes(ranks, peer, 5, call, n);
        else
          receive_bytes(ranks, peer, 5, call, n);
      }
  });
}

TEST_CASE("tags do not wait for each other", "[distributed]") {
  on_all(2, [](Backend& ranks) {
    constexpr uint64_t kTags = 10;
    for (uint64_t tag = 0; tag < kTags && ranks.rank() == 0; ++tag)
      for (uint64_t i : {0, 1}) send_bytes(ranks, 1, tag, tag * 2 + i, kSizes[tag] + i);
    for (uint64_t tag = kTags; tag-- > 0 && ranks.rank() == 1;)
      for (uint64_t i : {0, 1}) receive_bytes(ranks, 0, tag, tag * 2 + i, kSizes[tag] + i);
  });
}

TEST_CASE("messages of other tags are kept up to a bound", "[distributed]") {
  on_all(2, [](Backend& ranks) {
    char byte = 0;
    const std::string text = text_of([&] {
      if (ranks.rank() == 1) ranks.recv({&byte, 1}, 0, 7, wait_for(30, "recv"));
      for (;;) ranks.send({&byte, 1}, 1, 8, wait_for(30, "send"));
    });
    if (ranks.rank() == 1)
      must(text == "recv: 1025 messages of other tags (1025 bytes) have come from rank 0, and none of tag 7", text);
    else
      must(text.starts_with("send: rank 1 has failed: recv: 1025 messages"), text);
  });
}

TEST_CASE("messages from any rank", "[distributed]") {
  on_all(4, [](Backend& ranks) {
    constexpr int kEach = 20;
    if (ranks.rank() != 0) {
      for (uint64_t i = 0; i < kEach; ++i) {
        send_bytes(ranks, 0, 9, 1000 + i, 10);  // not asked for at first
        send_bytes(ranks, 0, 3, i, 70'000);
      }
      return;
    }
    std::vector<uint64_t> come(4);
    for (int i = 0; i < 3 * kEach; ++i) {
      std::vector<char> got(70'001, 55);
      const int from = ranks.recv_any({got.data(), 70'000}, 3, wait_for(30, "recv"));
      check_bytes(ranks, got, from, come[static_cast<size_t>(from)]++, 70'000);
    }
    for (int r = 1; r < 4; ++r)
      for (uint64_t i = 0; i < kEach; ++i) receive_bytes(ranks, r, 9, 1000 + i, 10);
  });
}

TEST_CASE("both sides hear of sizes that differ", "[distributed]") {
  for (size_t sent : {size_t{0}, size_t{8}, size_t{1} << 20}) {
    on_all(2, [sent](Backend& ranks) {
      std::vector<char> data(sent + 1, 1), got(17, 55);
      const std::string text = text_of([&] {
        if (ranks.rank() == 0)
          ranks.send({data.data(), sent}, 1, 4, wait_for(10, "send"));
        else
          ranks.recv({got.data(), 16}, 0, 4, wait_for(10, "recv"));
      });
      const std::string size = std::to_string(sent);
      if (ranks.rank() == 0)
        must(text == "send: rank 1 refused a message of " + size +
                         " bytes, tag 4: it wants another size\nsend and receive tensors of one size and dtype",
             text);
      else
        must(text == "recv: a message of " + size + " bytes came from rank 0, tag 4: expected 16", text);
      must(got == std::vector<char>(17, 55), "untouched");
    });
  }
}

TEST_CASE("messages of several threads run beside collectives", "[distributed]") {
  on_all(3, [](Backend& ranks) {
    std::vector<std::string> texts(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        texts[static_cast<size_t>(i)] = text_of([&] {
          const int peer = (ranks.rank() + 1 + i / 2) % 3;
          for (uint64_t call = 0; call < 60; ++call)
            i % 2 == 0 ? send_bytes(ranks, peer, call % 3, call, kSizes[call % std::size(kSizes)] / 4)
                       : receive_bytes(ranks, peer, call % 3, call, kSizes[call % std::size(kSizes)] / 4);
        });
      });
    const std::string own = text_of([&] { RandomCalls(ranks, 5, 60).run(30); });
    for (auto& t : threads) t.join();
    must(own.empty(), own);
    for (const auto& text : texts) must(text.empty(), text);
  });
}

TEST_CASE("ranks of messages are checked", "[distributed]") {
  on_all(2, [](Backend& ranks) {
    char byte = 0;
    for (int peer : {-1, 2, ranks.rank()}) {
      must(text_of([&] { ranks.send({&byte, 1}, peer, 0, wait_for(5)); }) ==
               "send: not the rank of a peer: " + std::to_string(peer),
           "send");
      must(text_of([&] { ranks.recv({&byte, 1}, peer, 0, wait_for(5)); }) ==
               "recv: not the rank of a peer: " + std::to_string(peer),
           "recv");
    }
    ranks.barrier(wait_for(10));
  });
}
