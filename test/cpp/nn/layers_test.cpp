// The generated layers: constructors, options, state, and the forward passes that C++ has for itself. The operators and
// the Python classes of the same rows are compared with PyTorch's in test/python/nn.
#include <catch2/catch.hpp>

#include "tapegrad/aten/functions.h"
#include "tapegrad/tapegrad.h"

namespace tapegrad::nn {

TEST_CASE("options come by position or by name", "[nn]") {
  const Conv2d by_position(2, 4, IntArray<2>{3, 5}, 2, 1);
  const Conv2d by_name(Conv2dOptions(2, 4, {3, 5}).stride(2).padding(1));
  CHECK(by_position->weight.sizes() == IntSpan{4, 2, 3, 5});
  CHECK(by_position->options.stride() == by_name->options.stride());
  CHECK(by_name(tapegrad::rand({1, 2, 9, 9})).sizes() == IntSpan{1, 4, 5, 4});
  CHECK(Conv2d(Conv2dOptions(2, 4, 3).padding("same"))(tapegrad::rand({1, 2, 9, 9})).sizes() == IntSpan{1, 4, 9, 9});
}

TEST_CASE("every way of padding a convolution", "[nn]") {
  const Tensor x = tapegrad::rand({2, 2, 6, 7});
  for (const char* mode : {"reflect", "replicate", "circular"}) {
    const Conv2d conv(Conv2dOptions(2, 3, 3).padding({1, 2}).padding_mode(mode));
    const Tensor padded = tapegrad::pad(x, {2, 2, 1, 1}, mode);
    CHECK(tapegrad::equal(conv(x), tapegrad::conv2d(padded, conv->weight, conv->bias, IntSpan{1, 1}, IntSpan{0, 0})));
  }
  const Conv2d even(Conv2dOptions(2, 3, 2).padding("same"));  // one more behind than before
  const Tensor padded = tapegrad::pad(x, {0, 1, 0, 1});
  CHECK(tapegrad::equal(even(x), tapegrad::conv2d(padded, even->weight, even->bias, IntSpan{1, 1}, IntSpan{0, 0})));
}

TEST_CASE("a transposed convolution takes the size of its output", "[nn]") {
  const ConvTranspose2d conv(ConvTranspose2dOptions(2, 3, 3).stride(2));
  const Tensor x = tapegrad::rand({1, 2, 4, 4});
  CHECK(conv(x).sizes() == IntSpan{1, 3, 9, 9});
  CHECK(conv(x, IntSpan{10, 9}).sizes() == IntSpan{1, 3, 10, 9});
  CHECK_THROWS_AS(conv(x, IntSpan{12, 9}), Error);
}

TEST_CASE("wrong options are refused", "[nn]") {
  CHECK_THROWS_AS(Conv2d(3, 4, 3, 1, 0, 1, 2), Error);
  CHECK_THROWS_AS(Conv2d(Conv2dOptions(2, 4, 3).padding_mode("odd")), Error);
  CHECK_THROWS_AS(GroupNorm(3, 4), Error);
  CHECK_THROWS_AS(Padding<2>("full"), Error);
}

TEST_CASE("weights start within the bounds of their fan-in", "[nn]") {
  const Linear linear(64, 32);
  CHECK(linear->weight.abs().max().item<float>() <= 0.125f);
  CHECK(linear->weight.abs().max().item<float>() > 0.1f);
  CHECK(linear->bias.abs().max().item<float>() <= 0.125f);
}

TEST_CASE("the same seed gives the same weights", "[nn]") {
  default_generator().manual_seed(3);
  const Linear a(8, 8);
  default_generator().manual_seed(3);
  const Linear b(8, 8);
  CHECK(tapegrad::equal(a->weight, b->weight));
}

TEST_CASE("batch norm keeps running statistics in training and uses them afterwards", "[nn]") {
  const BatchNorm1d norm(3);
  const Tensor x = tapegrad::rand({16, 3}) * 5;
  const Tensor y = norm(x);
  CHECK(y.mean().item<float>() == Approx(0).margin(1e-5));
  CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
  CHECK(tapegrad::allclose(norm->running_mean, x.mean(IntSpan{0}) * 0.1));
  norm->eval();
  norm(x);
  CHECK(norm->num_batches_tracked.item<int64_t>() == 1);
  CHECK_THROWS_AS(norm(tapegrad::ones({2, 3, 4, 5})), Error);
}

TEST_CASE("dropout only drops in training", "[nn]") {
  const Dropout dropout(0.5);
  const Tensor x = tapegrad::ones({1000});
  const float kept = dropout(x).ne(0).sum().item<float>();
  CHECK(kept > 400);
  CHECK(kept < 600);
  dropout->eval();
  CHECK(tapegrad::equal(dropout(x), x));
}

TEST_CASE("recurrent cells go from step to step", "[nn]") {
  const LSTMCell lstm(4, 3);
  const State first = lstm(tapegrad::ones({2, 4}));
  const auto [h, c] = lstm(tapegrad::ones({2, 4}), first);
  CHECK(h.sizes() == IntSpan{2, 3});
  CHECK_FALSE(tapegrad::equal(c, std::get<1>(first)));
  CHECK(std::get<0>(lstm(tapegrad::ones({4}))).sizes() == IntSpan{3});
  const GRUCell gru(4, 3);
  CHECK(gru(tapegrad::ones({2, 4}), gru(tapegrad::ones({2, 4}))).sizes() == IntSpan{2, 3});
  CHECK(RNNCell(4, 3)(tapegrad::ones({4})).sizes() == IntSpan{3});
}

TEST_CASE("losses take their options", "[nn]") {
  const Tensor scores = tapegrad::zeros({4, 5});
  const Tensor target = tapegrad::zeros({4}, DType::int64);
  CHECK(CrossEntropyLoss()(scores, target).item<float>() == Approx(std::log(5.0)));
  CHECK(CrossEntropyLoss(CrossEntropyLossOptions().reduction("sum"))(scores, target).item<float>() ==
        Approx(4 * std::log(5.0)));
}

}  // namespace tapegrad::nn
