#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "tapegrad/tapegrad.h"

namespace tapegrad::optim {
namespace {

Tensor parameter(double value) {
  Tensor p = tapegrad::full({1}, value, DType::float64);
  p.set_requires_grad();
  return p;
}

void set_gradient(const Tensor& p, double value) { p.set_grad(tapegrad::full({1}, value, DType::float64)); }

}  // namespace

TEST_CASE("SGD follows its formula", "[optim]") {
  const Tensor p = parameter(1);
  SGD sgd({p}, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
  double expected = 1, momentum = 0;
  for (int step = 0; step < 3; ++step) {
    set_gradient(p, 0.5);
    sgd.step();
    const double g = 0.5 + 0.01 * expected;
    momentum = step == 0 ? g : 0.9 * momentum + g;
    expected -= 0.1 * momentum;
    CHECK(p.item<double>() == Approx(expected));
  }
}

TEST_CASE("Adam and AdamW follow their formulas", "[optim]") {
  for (const bool decoupled : {false, true}) {
    const Tensor p = parameter(1);
    const AdamOptions options{.lr = 0.1, .weight_decay = 0.05};
    const std::unique_ptr<Optimizer> optimizer = decoupled ? std::unique_ptr<Optimizer>(new AdamW({p}, options))
                                                           : std::unique_ptr<Optimizer>(new Adam({p}, options));
    double expected = 1, m = 0, v = 0;
    for (int step = 1; step <= 3; ++step) {
      set_gradient(p, 0.5);
      optimizer->step();
      if (decoupled) expected *= 1 - 0.1 * 0.05;
      const double g = 0.5 + (decoupled ? 0 : 0.05 * expected);
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      expected -= 0.1 * (m / (1 - std::pow(0.9, step))) / (std::sqrt(v / (1 - std::pow(0.999, step))) + 1e-8);
      CHECK(p.item<double>() == Approx(expected));
    }
  }
}

TEST_CASE("parameters without a gradient are left alone", "[optim]") {
  const Tensor a = parameter(1), b = parameter(1);
  Adam adam({a, b}, {.lr = 0.1});
  set_gradient(a, 1);
  adam.step();
  CHECK(a.item<double>() < 1);
  CHECK(b.item<double>() == 1);
}

TEST_CASE("wrong settings are refused", "[optim]") {
  const Tensor p = parameter(1);
  CHECK_THROWS_AS(Adam({}), Error);
  CHECK_THROWS_AS(Adam({p}, {.lr = -1}), Error);
  CHECK_THROWS_AS(SGD({p}, {.nesterov = true}), Error);
  CHECK_THROWS_AS(SGD({p * 2}), Error);
}

TEST_CASE("a small network learns", "[optim]") {
  default_generator().manual_seed(0);
  const Tensor x = tapegrad::rand({64, 2});
  const Tensor y = x.select(1, 0) * x.select(1, 1);
  const nn::Sequential net(nn::Linear(2, 16), nn::Tanh(), nn::Linear(16, 1));
  AdamW optimizer(net->parameters(), AdamOptions{.lr = 0.02});
  float first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    const Tensor loss = mse_loss(net(x).squeeze(IntSpan{1}), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  CHECK(last < first / 10);
}

}  // namespace tapegrad::optim
