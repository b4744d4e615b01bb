#include "tapegrad/autograd/view.h"

#include <catch2/catch.hpp>

#include "autograd/helpers.h"
#include "tapegrad/aten/functions.h"

namespace tapegrad::autograd {

using namespace tapegrad::test;

TEST_CASE("in-place operators on whole tensors", "[view]") {
  Tensor x = leaf({1, 2, 3});
  Tensor y = x * 2;
  y.mul_(x);
  CHECK(close(y, {2, 8, 18}));
  y.sum().backward();
  CHECK(close(x.grad(), {4, 8, 12}));
}

TEST_CASE("a write to a view becomes history of its base", "[view]") {
  Tensor x = leaf({1, 2, 3, 4});
  Tensor w = leaf({10, 20});

  SECTION("one view") {
    Tensor y = x * 1;
    Tensor v = y.narrow(0, 1, 2);
    v.mul_(w);
    CHECK(std::string(y.grad_fn()->name()) == "CopySlices");
    CHECK(std::string(v.grad_fn()->name()) == "AsStridedBackward0");
    (y * y).sum().backward();
    CHECK(close(y, {1, 20, 60, 4}));
    CHECK(close(x.grad(), {2, 2 * 20 * 10, 2 * 60 * 20, 8}));
    CHECK(close(w.grad(), {2 * 20 * 2, 2 * 60 * 3}));
  }
  SECTION("a view of a view") {
    Tensor y = x * 1;
    Tensor m = y.view({2, 2});
    m.select(0, 1).select(0, 0).mul_(5);
    y.sum().backward();
    CHECK(close(x.grad(), {1, 1, 5, 1}));
  }
  SECTION("other views follow") {
    Tensor y = x * 1;
    Tensor a = y.narrow(0, 0, 2);
    Tensor b = y.narrow(0, 1, 2);
    a.mul_(w);
    b.sum().backward();
    CHECK(close(x.grad(), {0, 20, 1, 0}));
    CHECK(close(w.grad(), {0, 2}));
  }
  SECTION("the base written to, then an old view used") {
    Tensor y = x * 1;
    Tensor v = y.narrow(0, 2, 2);
    y.mul_(3);
    (v * w).sum().backward();
    CHECK(close(x.grad(), {0, 0, 30, 60}));
  }
  SECTION("a base that needed no gradient comes to need one, and so do its views") {
    Tensor y = values({1, 2, 3, 4});
    Tensor before = y.narrow(0, 0, 2);
    CHECK(!before.requires_grad());
    y.narrow(0, 0, 2).mul_(w);
    CHECK(y.requires_grad());
    CHECK(before.requires_grad());
    CHECK(!before.is_leaf());
    before.sum().backward();
    CHECK(close(w.grad(), {1, 2}));
  }
  SECTION("a copy into a part cuts the old history there") {
    Tensor y = x * 1;
    y.narrow(0, 0, 2).copy_(w);
    (y * y).sum().backward();
    CHECK(close(x.grad(), {0, 0, 6, 8}));
    CHECK(close(w.grad(), {20, 40}));
  }
  SECTION("transposed views") {
    Tensor y = (x * 1).view({2, 2});
    y.transpose(0, 1).select(0, 0).mul_(7);
    y.sum().backward();
    CHECK(close(x.grad(), {7, 1, 7, 1}));
  }
  SECTION("saved results of an in-place operator on a view, differentiated twice") {
    Tensor y = x * 1;
    y.narrow(0, 0, 2).exp_();
    Tensor g = grad({{y.sum()}}, {{x}}, {}, false, true)[0];
    CHECK(close(g, {std::exp(1), std::exp(2), 1, 1}));
    CHECK(close(grad({{g.sum()}}, {{x}})[0], {std::exp(1), std::exp(2), 0, 0}));
  }
}

TEST_CASE("gradients of gradients through writes to views", "[view]") {
  Tensor x = leaf({1, 2, 3});
  Tensor y = x * x;
  y.select(0, 1).mul_(y.select(0, 2).clone());
  Tensor z = (y * y).sum();  // x0^4 + (x1 x2)^4 + x2^4
  Tensor g = grad({{z}}, {{x}}, {}, false, true)[0];
  CHECK(close(g, {4, 4 * 8 * 81, 4 * 27 * 16 + 4 * 27}));
  CHECK(close(grad({{g.select(0, 1)}}, {{x}})[0], {0, 12 * 4 * 81, 16 * 8 * 27}));
}

TEST_CASE("in-place writes that cannot be recorded are refused before anything is written", "[view]") {
  Tensor x = leaf({1, 2, 3, 4});
  auto refused = [&](const Tensor& t, const char* text) {
    std::vector<double> before = read(t.detach());
    std::string message = error_of([&] { t.mul_(2); });
    CHECK(contains(message, text));
    CHECK(read(t.detach()) == before);
  };
  refused(x, "a leaf Variable that requires grad is being used in an in-place operation");
  refused(x.narrow(0, 0, 2), "a view of a leaf Variable that requires grad is being used in an in-place operation");
  Tensor y = x * 1;
  Tensor part = y.split(2, 0)[0];
  refused(part, "is the output of a function that returns multiple views");
  Tensor hidden;
  {
    NoGradGuard no_grad;
    hidden = y.narrow(0, 0, 2);
    x.narrow(0, 0, 2).mul_(1);  // parameters may be written to here
  }
  Tensor w = leaf({1, 1});
  CHECK(contains(error_of([&] { hidden.mul_(w); }), "A view was created in no_grad mode and is being modified"));
  y.mul_(2);
  CHECK(contains(error_of([&] { hidden* w; }), "its base or another view of its base has been modified"));
  CHECK(contains(error_of([&] { part* w; }), "its base or another view of its base has been modified"));
  Tensor wide = values({1}).expand({3});
  CHECK(contains(error_of([&] { wide.add_(1); }), "more than one element of the written-to tensor"));
}

TEST_CASE("detach shares memory and version", "[view]") {
  Tensor x = leaf({1, 2});
  Tensor y = exp(x);
  Tensor d = y.detach();
  CHECK(!d.requires_grad());
  d.add_(1);
  CHECK(y.version() == d.version());
  CHECK(contains(error_of([&] { y.sum().backward(); }), "modified by an inplace operation"));

  SECTION("data_alias does not share the version") {
    Tensor z = exp(x);
    z.data_alias().mul_(1);
    CHECK(z.version() == 0);
    z.sum().backward();
    CHECK(close(x.grad(), {std::exp(1), std::exp(2)}));
  }
}

TEST_CASE("as_strided with overlaps", "[view]") {
  Tensor x = leaf({1, 2, 3, 4});
  SECTION("in the view") {
    as_strided(x, {3, 2}, {1, 1}, 0).sum().backward();
    CHECK(close(x.grad(), {1, 2, 2, 1}));
  }
  SECTION("in the input") {
    Tensor s = leaf({5});
    Tensor wide = s.expand({3});
    as_strided(wide, {2}, {0}, 0).sum().backward();
    CHECK(close(s.grad(), {2}));
  }
}

}  // namespace tapegrad::autograd
