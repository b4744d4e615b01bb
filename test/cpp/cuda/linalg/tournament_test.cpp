// The pairs of columns that rotations work on at once.
#include "tapegrad/cuda/linalg/tournament.h"

#include <catch2/catch.hpp>
#include <set>
#include <utility>
#include <vector>

using tapegrad::cuda::Tournament;

TEST_CASE("A tournament has every pair of columns once, and no column twice in a round", "[cuda]") {
  for (int64_t n = 1; n <= 20; ++n) {
    const Tournament tournament(n);
    std::set<std::pair<int64_t, int64_t>> seen;
    for (int64_t round = 0; round < tournament.rounds(); ++round) {
      std::vector<int> used(static_cast<size_t>(tournament.players));
      for (int64_t i = 0; i < tournament.pairs(); ++i) {
        int64_t a, b;
        tournament.pair(round, i, a, b);
        REQUIRE((0 <= a && a < b && b < tournament.players));
        REQUIRE((++used[static_cast<size_t>(a)] == 1 && ++used[static_cast<size_t>(b)] == 1));
        if (b < n) REQUIRE(seen.insert({a, b}).second);
      }
    }
    REQUIRE(static_cast<int64_t>(seen.size()) == n * (n - 1) / 2);
  }
}
