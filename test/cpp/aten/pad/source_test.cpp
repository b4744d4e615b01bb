// Places of padding against plain loops.
#include "tapegrad/aten/pad/source.h"

#include <catch2/catch.hpp>
#include <vector>

TEST_CASE("The targets of a padded element are those whose source it is, in order", "[pad]") {
  using namespace tapegrad::padding;
  for (const Mode mode : {Mode::Constant, Mode::Reflect, Mode::Replicate, Mode::Circular})
    for (int64_t n : {1, 2, 5})
      for (int64_t before = -1; before < n; ++before)
        for (int64_t after = -1; after < n; ++after) {
          const int64_t out = n + before + after;
          if (out < 0) continue;
          for (int64_t i = 0; i < n; ++i) {
            std::vector<int64_t> expected, got;
            for (int64_t j = 0; j < out; ++j)
              if (source(j - before, n, mode) == i) expected.push_back(j);
            Range to[3];
            targets(i, n, before, out, mode, to);
            for (const Range& r : to)
              for (int64_t j = r.first; j < r.last; ++j) got.push_back(j);
            REQUIRE(got == expected);
          }
        }
}
