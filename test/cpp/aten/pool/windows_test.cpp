// Windows of pooling against plain loops.
#include "tapegrad/aten/pool/windows.h"

#include <catch2/catch.hpp>
#include <vector>

TEST_CASE("The windows that hold an element are found from the element", "[pool]") {
  using tapegrad::pool::Rule;
  std::vector<Rule> rules;
  for (int64_t in : {1, 5, 12})
    for (int64_t out : {1, 4, 7, 12}) rules.push_back({in, out});
  for (int64_t kernel : {1, 2, 3})
    for (int64_t stride : {1, 2, 4})
      for (int64_t padding = 0; padding <= kernel / 2; ++padding)
        for (bool ceil : {false, true})
          rules.push_back(
              {11, tapegrad::pool::pooled_size(11, kernel, stride, padding, 1, ceil), false, kernel, stride, padding});
  for (const Rule& r : rules)
    for (int64_t i = 0; i < r.in; ++i) {
      int64_t first, last;
      r.holding(i, first, last);
      for (int64_t o = 0; o < r.out; ++o) {
        const auto w = r.window(o);
        REQUIRE((w.first <= i && i < w.last) == (first <= o && o < last));
      }
    }
}
