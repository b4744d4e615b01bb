// Index arithmetic of the kernels of networks against plain loops: coordinates, convolutions, windows, padding,
// triangles.
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "tapegrad/aten/create/triangle.h"
#include "tapegrad/aten/pad/source.h"
#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/cuda/conv/plan.h"

using tapegrad::IntSpan;
using tapegrad::cuda::Divider;
using tapegrad::cuda::Point;
using tapegrad::cuda::Space;
using tapegrad::cuda::conv_plan::Plan;

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

TEST_CASE("A convolution's input and output places are each other's inverse", "[cuda]") {
  const std::vector<int64_t> input{2, 4, 7, 9}, weight{6, 2, 3, 2}, stride{2, 3}, pad{1, 2}, dilation{2, 1};
  std::vector<int64_t> output{2, 6};
  for (size_t d = 0; d < 2; ++d)
    output.push_back((input[d + 2] + 2 * pad[d] - dilation[d] * (weight[d + 2] - 1) - 1) / stride[d] + 1);
  const Plan p(tapegrad::conv::make_geometry(input, weight, output, stride, pad, dilation, 2));
  CHECK((p.icg == 2 && p.ocg == 3 && p.out_numel == output[2] * output[3]));
  int64_t met = 0, found = 0;
  for (int64_t k = 0; k < p.kernel_numel; ++k) {
    std::map<int64_t, int64_t> expected;  // input to output
    for (int64_t oy = 0; oy < output[2]; ++oy)
      for (int64_t ox = 0; ox < output[3]; ++ox) {
        const int64_t y = oy * 2 + k / 2 * 2 - 1, x = ox * 3 + k % 2 - 2, o = oy * output[3] + ox;
        const int64_t place = y < 0 || y >= 7 || x < 0 || x >= 9 ? -1 : y * 9 + x;
        REQUIRE(p.input_place(p.out.point(o), p.kernel.point(k)) == place);
        if (place >= 0) expected[place] = o;
      }
    met += static_cast<int64_t>(expected.size());
    for (int64_t i = 0; i < p.in_numel; ++i) {
      const int64_t o = p.output_place(p.in.point(i), p.kernel.point(k));
      REQUIRE(o == (expected.count(i) ? expected[i] : -1));
      found += o >= 0;
    }
  }
  CHECK(met == found);
  CHECK(met > 20);
}

TEST_CASE("The windows that hold an element are found from the element", "[cuda]") {
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

TEST_CASE("The targets of a padded element are those whose source it is, in order", "[cuda]") {
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

TEST_CASE("Rows of a triangle count the elements before", "[cuda]") {
  using namespace tapegrad::triangle;
  for (int64_t rows : {0, 3, 6})
    for (int64_t columns : {0, 1, 4, 9})
      for (int64_t offset = -8; offset <= 10; ++offset) {
        int64_t below = 0, above = 0;
        for (int64_t i = 0; i < rows; ++i) {
          REQUIRE(lower_rows(i, columns, offset).count == below);
          REQUIRE(upper_rows(i, columns, offset).count == above);
          below += lower(i, columns, offset).end - lower(i, columns, offset).begin;
          above += upper(i, columns, offset).end - upper(i, columns, offset).begin;
        }
        REQUIRE(lower_rows(rows, columns, offset).count == below);
        REQUIRE(upper_rows(rows, columns, offset).count == above);
      }
}
