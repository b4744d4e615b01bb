#include "tapegrad/autograd/function.h"

#include <catch2/catch.hpp>

#include "autograd/helpers.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/autograd/gradcheck.h"

namespace tapegrad::autograd {

using namespace tapegrad::test;

namespace {

struct Cube : Function<Cube> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x, double factor) {
    ctx.save_for_backward({x});
    ctx.saved_data["factor"] = factor;
    CHECK(!grad_enabled());
    return x * x * x * factor;
  }
  static TensorList backward(FunctionContext& ctx, const TensorList& grads) {
    Tensor x = ctx.saved_tensors()[0];
    return {grads[0] * 3 * x * x * std::any_cast<double>(ctx.saved_data["factor"])};
  }
};

struct Exponential : Function<Exponential> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    Tensor y = exp(x);
    ctx.save_for_backward({y});
    return y;
  }
  static TensorList backward(FunctionContext& ctx, const TensorList& grads) {
    return {grads[0] * ctx.saved_tensors()[0]};
  }
};

struct Pair : Function<Pair> {
  static TensorList forward(FunctionContext& ctx, const Tensor& a, const Tensor& b) {
    ctx.save_for_backward({a, b});
    Tensor index = empty_tensor({1}, DType::int64);
    *index.data<int64_t>() = 7;
    Tensor constant = a * 0;
    ctx.mark_non_differentiable({constant});
    return {a * b, a + b, index, constant};
  }
  static TensorList backward(FunctionContext& ctx, const TensorList& grads) {
    auto saved = ctx.saved_tensors();
    CHECK(grads.size() == 4);
    CHECK(grads[1].defined());  // zeros where nothing arrived
    TensorList result(2);
    if (ctx.needs_input_grad(0)) result[0] = grads[0] * saved[1] + grads[1];
    if (ctx.needs_input_grad(1)) result[1] = grads[0] * saved[0] + grads[1];
    return result;
  }
};

struct DoubleInPlace : Function<DoubleInPlace> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    x.mul_(2);
    ctx.mark_dirty({x});
    return x;
  }
  static TensorList backward(FunctionContext&, const TensorList& grads) { return {grads[0] * 2}; }
};

struct Same : Function<Same> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x; }
  static TensorList backward(FunctionContext&, const TensorList& grads) { return {grads[0] * -1}; }
};

struct TooFew : Function<TooFew> {
  static Tensor forward(FunctionContext&, const Tensor& a, const Tensor& b) { return a + b; }
  static TensorList backward(FunctionContext&, const TensorList& grads) { return {grads[0]}; }
};

}  // namespace

TEST_CASE("custom functions", "[function]") {
  Tensor x = leaf({1, 2});

  SECTION("have a gradient, and one of second order") {
    Tensor y = Cube::apply(x, 0.5);
    CHECK(std::string(y.grad_fn()->name()) == "CubeBackward");
    Tensor g = grad({{y.sum()}}, {{x}}, {}, false, true)[0];
    CHECK(close(g, {1.5, 6}));
    CHECK(close(grad({{g.sum()}}, {{x}})[0], {3, 6}));
  }
  SECTION("pass gradcheck") {
    gradcheck([](TensorSpan in) { return TensorList{Cube::apply(in[0], 2.0)}; }, {{x}});
    gradgradcheck([](TensorSpan in) { return TensorList{Cube::apply(in[0], 2.0)}; }, {{x}});
    gradgradcheck([](TensorSpan in) { return TensorList{Exponential::apply(in[0])}; }, {{x}});
  }
  SECTION("may save their result without a cycle") {
    weak_intrusive_ptr<Node> node;
    {
      Tensor y = Exponential::apply(x);
      node = weak_intrusive_ptr<Node>(y.grad_fn());
      y.sum().backward({}, true);
    }
    CHECK(close(x.grad(), {std::exp(1), std::exp(2)}));
    CHECK(node.expired());
  }
  SECTION("may have several results, some without gradient") {
    Tensor w = leaf({10, 20});
    auto out = Pair::apply(x, w);
    CHECK(!out[2].requires_grad());
    CHECK(!out[3].requires_grad());
    out[0].sum().backward();
    CHECK(close(x.grad(), {10, 20}));
    CHECK(close(w.grad(), {1, 2}));
  }
  SECTION("may write in place") {
    Tensor y = x * 1;
    Tensor z = DoubleInPlace::apply(y);
    CHECK(z.is_same(y));
    CHECK(y.version() > 0);
    (y * 3).sum().backward();
    CHECK(close(x.grad(), {6, 6}));
  }
  SECTION("may write to a view in place") {
    Tensor y = x * 1;
    DoubleInPlace::apply(y.select(0, 1));
    y.sum().backward();
    CHECK(close(x.grad(), {1, 2}));
  }
  SECTION("cannot write to a leaf") {
    CHECK(contains(error_of([&] { DoubleInPlace::apply(x); }), "a leaf Variable that requires grad"));
  }
  SECTION("returning their input give it a history of its own") {
    Tensor y = Same::apply(x);
    CHECK(!y.is_same(x));
    y.sum().backward();
    CHECK(close(x.grad(), {-1, -1}));
    Tensor z = Same::apply(x * 1);
    CHECK(contains(error_of([&] { z.mul_(2); }), "created inside a custom Function"));
  }
  SECTION("are not recorded when nothing needs a gradient") {
    Tensor c = values({1, 2});
    CHECK(!Cube::apply(c, 1.0).requires_grad());
    NoGradGuard no_grad;
    CHECK(!Cube::apply(x, 1.0).requires_grad());
  }
  SECTION("must return one gradient per tensor") {
    CHECK(contains(error_of([&] { TooFew::apply(x, x).sum().backward(); }),
                   "incorrect number of gradients (expected 2, got 1)"));
  }
}

TEST_CASE("gradcheck finds wrong gradients", "[function]") {
  Tensor x = leaf({1, 2});
  CHECK(contains(error_of([&] { gradcheck([](TensorSpan in) { return TensorList{Same::apply(in[0])}; }, {{x}}); }),
                 "gradcheck: the gradient of output 0 with respect to input 0 is wrong"));
}

}  // namespace tapegrad::autograd
