// Index arithmetic of convolutions against plain loops.
#include "tapegrad/cuda/conv/plan.h"

#include <catch2/catch.hpp>
#include <map>
#include <vector>

using tapegrad::cuda::conv_plan::Plan;

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
