#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "tapegrad/aten/functions.h"
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
    const AdamWOptions w{.lr = 0.1, .weight_decay = 0.05};
    const std::unique_ptr<Optimizer> optimizer =
        decoupled ? std::unique_ptr<Optimizer>(new AdamW({p}, w))
                  : std::unique_ptr<Optimizer>(new Adam({p}, {.lr = 0.1, .weight_decay = 0.05}));
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
  AdamW optimizer(net->parameters(), {.lr = 0.02});
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

namespace {

// One parameter, `n` steps with a gradient of 0.5 each, by an optimizer and by a formula.
template <class O, class Options, class Formula>
void follow(const Options& options, int n, Formula&& formula) {
  const Tensor p = parameter(1);
  O optimizer({p}, options);
  double expected = 1;
  for (int step = 1; step <= n; ++step) {
    set_gradient(p, 0.5);
    optimizer.step();
    formula(step, expected);
    CHECK(p.item<double>() == Approx(expected));
  }
}

}  // namespace

TEST_CASE("RMSprop, Adagrad, Adadelta, Adamax follow their formulas", "[optim]") {
  double square = 0, buffer = 0, delta = 0;
  follow<RMSprop>(RMSpropOptions{.lr = 0.1, .alpha = 0.9, .momentum = 0.5}, 3, [&](int, double& p) {
    square = 0.9 * square + 0.1 * 0.25;
    buffer = 0.5 * buffer + 0.5 / (std::sqrt(square) + 1e-8);
    p -= 0.1 * buffer;
  });
  square = 0;
  follow<Adagrad>(AdagradOptions{.lr = 0.1, .lr_decay = 0.5}, 3, [&](int step, double& p) {
    square += 0.25;
    p -= 0.1 / (1 + (step - 1) * 0.5) * 0.5 / (std::sqrt(square) + 1e-10);
  });
  square = 0;
  follow<Adadelta>(AdadeltaOptions{}, 3, [&](int, double& p) {
    square = 0.9 * square + 0.1 * 0.25;
    const double change = std::sqrt(delta + 1e-6) / std::sqrt(square + 1e-6) * 0.5;
    delta = 0.9 * delta + 0.1 * change * change;
    p -= change;
  });
  double mean = 0, most = 0;
  follow<Adamax>(AdamaxOptions{.lr = 0.1}, 3, [&](int step, double& p) {
    mean = 0.9 * mean + 0.1 * 0.5;
    most = std::max(0.999 * most, 0.5 + 1e-8);
    p -= 0.1 / (1 - std::pow(0.9, step)) * mean / most;
  });
}

TEST_CASE("the first state of a complex parameter counts for both of its parts", "[optim]") {
  const Tensor p = tapegrad::full({1}, Scalar(complex128_t(1, 2)), DType::complex128);
  p.set_requires_grad();
  Adagrad adagrad({p}, {.lr = 0.1, .initial_accumulator_value = 0.5});
  p.set_grad(tapegrad::full({1}, Scalar(complex128_t(1, 2)), DType::complex128));
  adagrad.step();
  const complex128_t got = p.detach().item<complex128_t>();
  CHECK(got.real() == Approx(1 - 0.1 / std::sqrt(1.5)));
  CHECK(got.imag() == Approx(2 - 0.1 * 2 / std::sqrt(4.5)));
}

TEST_CASE("an optimizer goes on from a saved state", "[optim]") {
  const Tensor a = parameter(1), b = parameter(1);
  NAdam first({a}), second({b});
  for (int step = 0; step < 4; ++step) {
    set_gradient(a, 0.5 + step);
    first.step();
    if (step < 2) continue;
    if (step == 2) {
      const NoGradGuard no_grad;
      b.copy_(a);
      second.load_state_dict(first.state_dict());
      continue;
    }
    set_gradient(b, 0.5 + step);
    second.step();
    CHECK(b.item<double>() == Approx(a.item<double>()).epsilon(1e-6));
  }
  CHECK(first.state_dict().size() == 4);
  CHECK_THROWS_AS(second.load_state_dict({{"7.step", tapegrad::ones({})}}), Error);
  CHECK_THROWS_AS(second.load_state_dict({{"0.sum", tapegrad::ones({1})}}), Error);
  CHECK_THROWS_AS(second.load_state_dict({{"0.exp_avg", tapegrad::ones({3})}}), Error);
}

TEST_CASE("schedules set the rate", "[optim]") {
  SGD sgd({parameter(1)}, {.lr = 0.8});
  StepLR steps(sgd, 2, 0.5);
  for (int i = 0; i < 5; ++i) steps.step();
  CHECK(sgd.lr() == Approx(0.2));
  sgd.set_lr(1);
  CosineAnnealingLR cosine(sgd, 10, 0.1);
  for (int i = 0; i < 5; ++i) cosine.step();
  CHECK(sgd.lr() == Approx(0.55));
  cosine.set_epoch(10);
  CHECK(sgd.lr() == Approx(0.1));
  sgd.set_lr(1);
  LinearLR linear(sgd, 0.2, 1.0, 4);
  CHECK(sgd.lr() == Approx(0.2));
  linear.step();
  CHECK(sgd.lr() == Approx(0.4));
  sgd.set_lr(1);
  LambdaLR lambda(sgd, [](int64_t epoch) { return 1.0 / static_cast<double>(epoch + 1); });
  lambda.step();
  CHECK(sgd.lr() == Approx(0.5));
  sgd.set_lr(0.5);
  ExponentialLR exponential(sgd, 0.5);
  exponential.step();
  CHECK(sgd.lr() == Approx(0.25));
  CHECK_THROWS_AS(StepLR(sgd, 0), Error);
}

TEST_CASE("groups have options of their own", "[optim]") {
  const Tensor a = parameter(1), b = parameter(1), c = parameter(1);
  SGD sgd({a}, {.lr = 0.1});
  sgd.add_param_group({b}, {.lr = 1, .weight_decay = 0.5});
  sgd.add_param_group({c});
  for (const Tensor& p : sgd.parameters()) set_gradient(p, 0.5);
  sgd.step();
  CHECK(a.item<double>() == Approx(0.95));
  CHECK(b.item<double>() == Approx(0));
  CHECK(c.item<double>() == Approx(0.95));
  ParamGroup& second = sgd.param_groups()[1];
  CHECK(second.get("weight_decay") == 0.5);
  second.set("lr", 0);
  second.set("momentum", 0.9);
  sgd.step();
  CHECK(b.item<double>() == Approx(0));
  CHECK(sgd.state_dict().size() == 1);  // only this group has momentum
  CHECK(sgd.state_dict()[0].first == "1.momentum_buffer");
  CHECK_THROWS_AS(second.get("betas"), Error);
  CHECK_THROWS_AS(second.set("nothing", 1), Error);
  CHECK_THROWS_AS(second.set_lr(-1), Error);
  CHECK_THROWS_AS(sgd.add_param_group({a}), Error);
  CHECK_THROWS_AS(sgd.add_param_group({parameter(1)}, {.lr = -1}), Error);
  sgd.set_lr(0.25);
  CHECK(second.lr() == 0.25);
}

TEST_CASE("AdamW decays weights by itself", "[optim]") {
  const Tensor p = parameter(1);
  AdamW adamw({p}, {.lr = 0.1});
  CHECK(adamw.param_groups()[0].get("weight_decay") == 0.01);
  CHECK(adamw.param_groups()[0].get("betas", 1) == 0.999);
}

TEST_CASE("an option that is switched on later brings its state", "[optim]") {
  const Tensor p = parameter(1);
  Adam adam({p}, {.lr = 0.1});
  set_gradient(p, 0.5);
  adam.step();
  adam.param_groups()[0].set("amsgrad", 1);
  adam.step();
  CHECK(adam.state_dict().size() == 4);
}

TEST_CASE("schedules go through groups, and are made of schedules", "[optim]") {
  SGD sgd({parameter(1)}, {.lr = 0.8});
  sgd.add_param_group({parameter(1)}, {.lr = 0.4});
  LinearLR warm_up(sgd, 0.5, 1, 2);
  CosineAnnealingLR cosine(sgd, 4);
  SequentialLR schedule(sgd, {&warm_up, &cosine}, {2});
  CHECK(schedule.get_last_lr() == std::vector<double>{0.4, 0.2});
  schedule.set_epoch(4);
  CHECK(sgd.param_groups()[1].lr() == Approx(0.2));
  sgd.add_param_group({parameter(1)}, {.lr = 0.1});
  schedule.step();
  CHECK(sgd.param_groups()[2].lr() < 0.05);
  OneCycleLR cycle(sgd, {1, 2, 3}, 10, {.cycle_momentum = false});
  CHECK(sgd.param_groups()[2].lr() == Approx(3.0 / 25));
  CHECK_THROWS_AS(cycle.set_epoch(11), Error);
  CHECK_THROWS_AS(OneCycleLR(sgd, {1, 2}, 10), Error);
  CHECK_THROWS_AS(SequentialLR(sgd, {&warm_up}, {2}), Error);
  CHECK_THROWS_AS(LambdaLR(sgd, EpochFactor()), Error);
  Adagrad adagrad({parameter(1)});
  CHECK_THROWS_AS(CyclicLR(adagrad, 0.1, 0.2), Error);
}

}  // namespace tapegrad::optim
