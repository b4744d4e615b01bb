// All pairs of columns, round by round, so that no column is in two pairs of a round: a tournament in which the last
// column stays and the others go round in a circle (Brent and Luk 1985). Functions of host and device.
#pragma once

#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda {

// Rounds and pairs of n columns. If n is odd, a dummy column is added, and a column paired with it is left out of that
// round.
struct Tournament {
  int64_t players;
  TG_HD explicit Tournament(int64_t n) : players(n + n % 2) {}
  TG_HD int64_t rounds() const { return players - 1; }
  TG_HD int64_t pairs() const { return players / 2; }
  TG_HD void pair(int64_t round, int64_t i, int64_t& a, int64_t& b) const {
    const int64_t circle = players - 1;
    a = (round + i) % circle;
    b = i == 0 ? circle : (round + circle - i) % circle;
    if (a > b) {
      const int64_t t = a;
      a = b;
      b = t;
    }
  }
};

}  // namespace tapegrad::cuda
