// Divisions by constants and places in space, as kernels do them.
#include "tapegrad/cuda/launch/divide.h"

#include <catch2/catch.hpp>

using tapegrad::cuda::Divider;
using tapegrad::cuda::Point;
using tapegrad::cuda::Space;

TEST_CASE("Divider and Space divide in 32 and in 64 bits", "[cuda]") {
  for (const int64_t limit : {int64_t{1} << 20, int64_t{1} << 40})
    for (const int64_t divisor : {int64_t{1}, int64_t{7}, int64_t{1000}, limit - 1}) {
      const Divider divide(divisor, limit);
      for (const int64_t n : {int64_t{0}, int64_t{6}, divisor, limit / 3, limit - 1}) {
        int64_t q, rest;
        divide.divide(n, q, rest);
        REQUIRE(q == n / divisor);
        REQUIRE(rest == n % divisor);
      }
    }
  const Space small(3, 4, 5), large(2, 50000, 60000);
  for (int64_t i = 0; i < small.numel(); ++i) {
    const Point p = small.point(i);
    REQUIRE(small.place(p.at[0], p.at[1], p.at[2]) == i);
    REQUIRE((p.at[1] < 4 && p.at[2] < 5));
  }
  const Point last = large.point(large.numel() - 1);
  CHECK((last.at[0] == 1 && last.at[1] == 49999 && last.at[2] == 59999));
}
