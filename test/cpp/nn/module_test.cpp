#include <catch2/catch.hpp>
#include <sstream>

#include "tapegrad/aten/functions.h"
#include "tapegrad/tapegrad.h"

namespace tapegrad::nn {
namespace {

struct PairImpl : Module {
  Linear first = register_module("first", Linear(2, 3));
  Linear second = register_module("second", Linear(3, 1, false));
  Tensor scale = register_parameter("scale", tapegrad::ones({1}));
  Tensor count = register_buffer("count", tapegrad::zeros({1}));
  Tensor forward(const Tensor& x) { return second(relu(first(x))) * scale; }
};
TG_MODULE(Pair);

std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& entry : tensors) names.push_back(entry.first);
  return names;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

}  // namespace

TEST_CASE("a module lists what is registered, submodules behind its own", "[nn]") {
  const Pair net;
  CHECK(names_of(net->named_parameters()) ==
        std::vector<std::string>{"scale", "first.weight", "first.bias", "second.weight"});
  CHECK(names_of(net->named_parameters(false)) == std::vector<std::string>{"scale"});
  CHECK(names_of(net->named_buffers()) == std::vector<std::string>{"count"});
  CHECK(net->parameters().size() == 4);
  CHECK(net->named_modules().size() == 2);
  for (const Tensor& p : net->parameters()) CHECK(p.requires_grad());
  CHECK_FALSE(net->count.requires_grad());
}

TEST_CASE("a tensor or module that is reached twice is listed once", "[nn]") {
  struct TwiceImpl : Module {
    Linear a = register_module("a", Linear(2, 2));
    Linear b = register_module("b", a);
  };
  CHECK(std::make_shared<TwiceImpl>()->parameters().size() == 2);
}

TEST_CASE("names are checked", "[nn]") {
  struct BareImpl : Module {};
  BareImpl bare;
  CHECK(error_of([&] { bare.register_parameter("", tapegrad::ones({1})); }) == "register_parameter: the name is empty");
  CHECK(error_of([&] { bare.register_parameter("a.b", tapegrad::ones({1})); }) ==
        "register_parameter: a name cannot contain a dot: got \"a.b\"");
  bare.register_buffer("a", {});
  CHECK(error_of([&] { bare.register_parameter("a", tapegrad::ones({1})); }) ==
        "register_parameter: the name \"a\" is in use in this Bare");
}

TEST_CASE("train and eval reach every submodule", "[nn]") {
  const Sequential net(Linear(2, 2), Sequential(Dropout(0.5), ReLU()));
  net->eval();
  for (const auto& entry : net->named_modules()) CHECK_FALSE(entry.second->is_training());
  net->train();
  for (const auto& entry : net->named_modules()) CHECK(entry.second->is_training());
}

TEST_CASE("gradients arrive and zero_grad forgets them", "[nn]") {
  const Pair net;
  net(tapegrad::ones({4, 2})).sum().backward();
  for (const Tensor& p : net->parameters()) REQUIRE(p.grad().defined());
  net->zero_grad(false);
  CHECK(net->scale.grad().item<float>() == 0);
  net->zero_grad();
  for (const Tensor& p : net->parameters()) CHECK_FALSE(p.grad().defined());
}

TEST_CASE("to changes the registered tensors in place", "[nn]") {
  const Pair net;
  const Tensor weight = net->first->weight;
  net(tapegrad::ones({4, 2})).sum().backward();
  net->to(DType::float64);
  CHECK(weight.dtype() == DType::float64);
  CHECK(weight.grad().dtype() == DType::float64);
  CHECK(weight.requires_grad());
  CHECK(net(tapegrad::ones({4, 2}, DType::float64)).dtype() == DType::float64);
  CHECK_THROWS_AS(net->to(DType::int64), Error);
}

TEST_CASE("a state is copied from one module to another", "[nn]") {
  const Pair a, b;
  const Tensor x = tapegrad::rand({5, 2});
  b->load_state_dict(a->state_dict());
  CHECK(tapegrad::equal(a(x), b(x)));

  NamedTensors state = a->state_dict();
  state.back().first = "other";
  const std::string message = error_of([&] { b->load_state_dict(state); });
  CHECK(message.find("missing: \"second.weight\"") != std::string::npos);
  CHECK(message.find("unexpected: \"other\"") != std::string::npos);
  b->load_state_dict(state, false);

  const Linear narrow(2, 2);
  CHECK(error_of([&] { Linear(2, 3)->load_state_dict(narrow->state_dict()); }) ==
        "load_state_dict: size mismatch for weight: the state has [2, 2], this Linear has [3, 2]");
}

TEST_CASE("modules print as in Python", "[nn]") {
  const Sequential net(Conv2d(Conv2dOptions(1, 16, 3).padding(1)), ReLU(), MaxPool2d(2), Flatten(),
                       Linear(3136, 10, false));
  std::ostringstream out;
  out << net;
  CHECK(out.str() == R"(Sequential(
  (0): Conv2d(1, 16, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1))
  (1): ReLU()
  (2): MaxPool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1), ceil_mode=False)
  (3): Flatten(start_dim=1, end_dim=-1)
  (4): Linear(in_features=3136, out_features=10, bias=False)
))");
}

TEST_CASE("an empty holder says so", "[nn]") {
  const Linear none{nullptr};
  CHECK(none.is_empty());
  CHECK(error_of([&] { none(tapegrad::ones({2})); }).starts_with("module: an empty module was used"));
}

}  // namespace tapegrad::nn
