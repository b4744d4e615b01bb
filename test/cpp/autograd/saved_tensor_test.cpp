#include "tapegrad/autograd/saved_tensor.h"

#include <catch2/catch.hpp>

#include "autograd/helpers.h"
#include "tapegrad/aten/functions.h"

namespace tapegrad::autograd {

using namespace tapegrad::test;

namespace {
uint32_t site_for_test = 0;

// Call sites as the bindings would give them: what the test says.
struct SiteScope {
  SiteScope() {
    capture_site = []() noexcept { return site_for_test; };
    describe_site_hook = [](uint32_t site) { return "train.py:" + std::to_string(site); };
  }
  ~SiteScope() {
    capture_site = nullptr;
    describe_site_hook = nullptr;
  }
};
}  // namespace

TEST_CASE("an overwritten saved tensor names reader and writer", "[saved]") {
  SiteScope scope;
  Tensor x = leaf({1, 2, 3});

  SECTION("a result") {
    site_for_test = 31;
    Tensor y = exp(x);
    site_for_test = 40;
    y.add_(1);
    std::string message = error_of([&] { y.sum().backward(); });
    CHECK(contains(message,
                   "exp: the result saved at train.py:31 for the gradient was overwritten by add_ at train.py:40"));
    CHECK(contains(message, "modified by an inplace operation"));
    CHECK(contains(message, "is at version 1; expected version 0 instead"));
  }
  SECTION("an input, written through a view") {
    site_for_test = 5;
    Tensor y = x * 1;
    Tensor z = y * y;
    site_for_test = 6;
    y.select(0, 0).mul_(2);
    std::string message = error_of([&] { z.sum().backward(); });
    CHECK(
        contains(message, "mul: the input saved at train.py:5 for the gradient was overwritten by mul_ at train.py:6"));
  }
  SECTION("writes of which nothing was saved do no harm") {
    Tensor y = x + 1;
    y.add_(1);
    y.sum().backward();
    CHECK(close(x.grad(), {1, 1, 1}));
  }
  SECTION("nodes made by backward have the line of the forward call") {
    site_for_test = 77;
    Tensor y = exp(x * x).sum();
    site_for_test = 1;
    Tensor g = grad({{y}}, {{x}}, {}, false, true)[0];
    CHECK(describe_site(g.grad_fn()->site) == "train.py:77");
  }
}

TEST_CASE("a result saved by its own node makes no cycle", "[saved]") {
  Tensor x = leaf({1, 2});
  weak_intrusive_ptr<Node> node;
  {
    Tensor y = exp(x);
    node = weak_intrusive_ptr<Node>(y.grad_fn());
    Tensor z = x * 1;
    z.select(0, 0).exp_();  // in place, through a view
  }
  CHECK(node.expired());
  CHECK(x.ptr().use_count() == 1);
}

TEST_CASE("an absent tensor is saved as such", "[saved]") {
  Tensor x = leaf({1});
  Tensor y = x * 2;
  SavedTensor saved{Tensor()};
  CHECK(!saved.unpack(*y.grad_fn()).defined());
}

namespace {
// Keeps a saved tensor as twice its value, to show that the unpacked one is used.
struct Doubling : SavedTensorHooks {
  int packed = 0, unpacked = 0;
  std::shared_ptr<void> pack(const Tensor& t) override {
    ++packed;
    CHECK(!t.requires_grad());
    return std::make_shared<Tensor>(t * 2);
  }
  Tensor unpack(const std::shared_ptr<void>& object) override {
    ++unpacked;
    return *static_cast<Tensor*>(object.get()) + 0;
  }
};
}  // namespace

TEST_CASE("saved-tensor hooks", "[saved]") {
  Tensor x = leaf({1, 2});
  auto hooks = std::make_shared<Doubling>();
  push_saved_tensor_hooks(hooks);
  Tensor y = x * x;
  pop_saved_tensor_hooks();
  Tensor z = y * 1;
  CHECK(hooks->packed == 2);
  z.sum().backward({}, true);
  CHECK(hooks->unpacked == 2);
  CHECK(close(x.grad(), {4, 8}));

  SECTION("keep the place on the tape for gradients of gradients") {
    Tensor g = grad({{z.sum()}}, {{x}}, {}, true, true)[0];
    CHECK(close(grad({{g.sum()}}, {{x}})[0], {2, 2}));
  }
  SECTION("nothing to pop") {
    CHECK(!error_of([] { pop_saved_tensor_hooks(); }).empty());
  }
}

}  // namespace tapegrad::autograd
