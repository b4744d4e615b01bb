#include "tapegrad/autograd/engine/engine.h"

#include <catch2/catch.hpp>
#include <thread>

#include "autograd/helpers.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/autograd/function.h"

namespace tapegrad::autograd {

using namespace tapegrad::test;

TEST_CASE("backward computes gradients of leaves", "[engine]") {
  Tensor x = leaf({1, 2, 3});
  Tensor y = leaf({4, 5, 6});

  SECTION("of a product") {
    (x * y).sum().backward();
    CHECK(close(x.grad(), {4, 5, 6}));
    CHECK(close(y.grad(), {1, 2, 3}));
  }
  SECTION("adds up what arrives over several paths") {
    Tensor a = x * 2;
    Tensor b = a + x;
    (a * b).sum().backward();  // 2x * 3x = 6x^2
    CHECK(close(x.grad(), {12, 24, 36}));
  }
  SECTION("accumulates over calls") {
    (x * y).sum().backward();
    (x * y).sum().backward();
    CHECK(close(x.grad(), {8, 10, 12}));
  }
  SECTION("of a result used by itself several times") {
    Tensor a = exp(x);
    (a + a + a + a).sum().backward();
    CHECK(close(x.grad(), {4 * std::exp(1.0), 4 * std::exp(2.0), 4 * std::exp(3.0)}));
  }
  SECTION("sums what broadcasting stretched") {
    Tensor m = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
    Tensor c = leaf(2);
    (m * x * c).sum().backward();
    CHECK(close(m.grad(), {2, 4, 6, 2, 4, 6}));
    CHECK(close(x.grad(), {10, 14, 18}));
    CHECK(close(c.grad(), {1 + 4 + 9 + 4 + 10 + 18}));
    CHECK(c.grad().ndim() == 0);
  }
  SECTION("of a leaf itself") {
    Tensor s = leaf(3);
    s.backward();
    CHECK(close(s.grad(), {1}));
  }
  SECTION("with a given gradient, which is not shared with .grad") {
    Tensor g = values({1, 10, 100});
    (x * 2).backward(g);
    CHECK(close(x.grad(), {2, 20, 200}));
    x.set_grad({});
    (x + 0).backward(g);
    CHECK(x.grad().data_ptr() != g.data_ptr());
  }
  SECTION("and two leaves never share one gradient") {
    (x + y).backward(values({1, 1, 1}));
    CHECK(x.grad().data_ptr() != y.grad().data_ptr());
  }
}

TEST_CASE("backward refuses what it cannot do", "[engine]") {
  Tensor x = leaf({1, 2, 3});
  CHECK(contains(error_of([&] { (x * 2).backward(); }), "grad can be implicitly created only for scalar outputs"));
  CHECK(contains(error_of([&] { values({1}).backward(); }),
                 "element 0 of tensors does not require grad and does not have a grad_fn"));
  CHECK(contains(error_of([&] { (x * 2).backward(values({1, 2})); }), "Mismatch in shape"));
  CHECK(contains(error_of([&] { grad({{x.sum()}}, {{leaf({1})}}); }), "appears to not have been used in the graph"));
}

TEST_CASE("grad returns gradients and leaves .grad alone", "[engine]") {
  Tensor x = leaf({1, 2, 3});
  Tensor y = x * x;
  Tensor z = exp(y).sum();

  SECTION("of a leaf and of a result in between") {
    auto g = grad({{z}}, {{x, y}});
    CHECK(close(g[1], {std::exp(1), std::exp(4), std::exp(9)}));
    CHECK(close(g[0], {2 * std::exp(1), 4 * std::exp(4), 6 * std::exp(9)}));
    CHECK(!x.grad().defined());
  }
  SECTION("does not run what is not on the way") {
    bool ran = false;
    Tensor w = leaf({1, 1, 1});
    Tensor side = w * 2;
    add_tensor_hook(side, [&](const Tensor&) -> Tensor {
      ran = true;
      return {};
    });
    grad({{(side * y).sum()}}, {{x}});
    CHECK(!ran);
  }
  SECTION("of the root itself is one") { CHECK(close(grad({{z}}, {{z}})[0], {1})); }
  SECTION("for unused inputs when allowed") {
    auto g = grad({{z}}, {{x, leaf({1})}}, {}, false, false, true);
    CHECK(g[0].defined());
    CHECK(!g[1].defined());
  }
  SECTION("twice for the same input") {
    auto g = grad({{z}}, {{x, x}});
    CHECK(read(g[0]) == read(g[1]));
  }
}

TEST_CASE("backward with inputs accumulates into those only", "[engine]") {
  Tensor x = leaf({1, 2});
  Tensor w = leaf({3, 4});
  Tensor y = x * w;
  const Tensor roots[] = {y.sum()};
  run_backward(roots, {}, {{w, y}}, {});
  CHECK(!x.grad().defined());
  CHECK(close(w.grad(), {1, 2}));
  CHECK(close(y.grad(), {1, 1}));
}

TEST_CASE("gradients of gradients", "[engine]") {
  Tensor x = leaf({1, 2, 3});
  Tensor y = (x * x * x).sum();
  Tensor g = grad({{y}}, {{x}}, {}, false, true)[0];
  CHECK(g.requires_grad());
  Tensor h = grad({{g.sum()}}, {{x}}, {}, false, true)[0];
  CHECK(close(h, {6, 12, 18}));
  CHECK(close(grad({{h.sum()}}, {{x}})[0], {6, 6, 6}));

  SECTION("through saved results") {
    Tensor e = exp(x);
    Tensor g1 = grad({{e.sum()}}, {{x}}, {}, false, true)[0];
    CHECK(close(grad({{g1.sum()}}, {{x}})[0], read(e)));
  }
  SECTION("accumulated gradients are on the tape") {
    (x * x).sum().backward({}, false, true);
    CHECK(x.grad().requires_grad());
    x.set_grad({});
  }
}

TEST_CASE("a graph is freed as it is used", "[engine]") {
  Tensor x = leaf({1, 2});
  Tensor y = exp(x).sum();

  SECTION("a second backward says so") {
    y.backward();
    std::string message = error_of([&] { y.backward(); });
    CHECK(contains(message, "Trying to backward through the graph a second time"));
    CHECK(contains(message, "ExpBackward0"));
  }
  SECTION("unless it is retained") {
    y.backward({}, true);
    y.backward();
    CHECK(close(x.grad(), {2 * std::exp(1), 2 * std::exp(2)}));
  }
  SECTION("what was saved goes as soon as its node has run") {
    Tensor a = x * 1;
    weak_intrusive_ptr<TensorImpl> saved(a.ptr());
    Tensor b = a * a;
    a.reset();
    CHECK(!saved.expired());
    b.sum().backward();
    CHECK(saved.expired());
  }
}

TEST_CASE("gradients are not copied where nobody else sees them", "[engine]") {
  Tensor x = leaf({1, 2, 3});
  void* seen = nullptr;
  Tensor y = x * 2;
  add_tensor_hook(x, [&](const Tensor& g) -> Tensor {
    seen = g.data_ptr();
    return {};
  });
  y.sum().backward();
  CHECK(x.grad().data_ptr() == seen);
  (x * 2).sum().backward();
  CHECK(close(x.grad(), {4, 4, 4}));
}

TEST_CASE("hooks", "[engine]") {
  Tensor x = leaf({1, 2});
  std::vector<std::string> log;
  auto note = [&](std::string text) {
    return [&log, text](const Tensor&) -> Tensor {
      log.push_back(text);
      return {};
    };
  };

  SECTION("of tensors run in the order of registration and may replace the gradient") {
    Tensor y = x * 3;
    add_tensor_hook(y, note("first"));
    add_tensor_hook(y, [](const Tensor& g) { return g * 10; });
    add_tensor_hook(y, note("last"));
    y.sum().backward();
    CHECK(log == std::vector<std::string>{"first", "last"});
    CHECK(close(x.grad(), {30, 30}));
  }
  SECTION("of leaves see the complete gradient once") {
    add_tensor_hook(x, [&](const Tensor& g) {
      CHECK(close(g, {5, 5}));
      log.push_back("leaf");
      return g * 2;
    });
    add_post_accumulate_hook(x, [&](const Tensor& t) {
      CHECK(close(t.grad(), {10, 10}));
      log.push_back("after");
    });
    (x * 2 + x * 3).sum().backward();
    CHECK(log == std::vector<std::string>{"leaf", "after"});
  }
  SECTION("can be removed, also by themselves") {
    Tensor y = x * 3;
    auto handle = add_tensor_hook(y, note("removed"));
    handle.remove();
    handle.remove();
    HookHandle own;
    own = add_tensor_hook(y, [&](const Tensor&) -> Tensor {
      own.remove();
      log.push_back("once");
      return {};
    });
    y.sum().backward({}, true);
    y.sum().backward();
    CHECK(log == std::vector<std::string>{"once"});
  }
  SECTION("of nodes see gradients before and after") {
    Tensor y = x * 3;
    Node& node = *y.grad_fn();
    add_node_prehook(node, [&](GradList& grads) { grads[0] = grads[0] * 2; });
    add_node_hook(node, [&](GradList& in, const GradList& out) {
      CHECK(close(out[0], {2, 2}));
      CHECK(close(in[0], {6, 6}));
      in[0] = in[0] * 100;
    });
    y.sum().backward();
    CHECK(close(x.grad(), {600, 600}));
  }
  SECTION("that throw leave the graph usable") {
    Tensor y = x * 3;
    auto handle = add_tensor_hook(y, [](const Tensor&) -> Tensor { TG_THROW(Value, "no"); });
    Tensor z = y.sum();
    CHECK(error_of([&] { z.backward({}, true); }) == "no");
    CHECK(!in_backward());
    handle.remove();
    z.backward();
    CHECK(close(x.grad(), {3, 3}));
  }
}

TEST_CASE("retain_grad keeps the gradient of a result", "[engine]") {
  Tensor x = leaf({1, 2});
  Tensor y = x * 2;
  y.retain_grad();
  (y * y).sum().backward();
  CHECK(close(y.grad(), {4, 8}));

  SECTION("after an in-place write, of the new value") {
    Tensor z = x * 2;
    z.retain_grad();
    z.mul_(10);
    (z * 3).sum().backward();
    CHECK(close(z.grad(), {3, 3}));
  }
}

TEST_CASE("no_grad, enable_grad and inference mode", "[engine]") {
  Tensor x = leaf({1, 2});
  {
    NoGradGuard no_grad;
    CHECK(!(x * 2).requires_grad());
    EnableGradGuard enable;
    CHECK((x * 2).requires_grad());
  }
  Tensor made;
  {
    InferenceGuard inference;
    made = x * 2;
    CHECK(made.impl()->is_inference());
    made.add_(1);
  }
  CHECK(contains(error_of([&] { made.add_(1); }), "outside InferenceMode is not allowed"));
  CHECK(contains(error_of([&] { x* made; }), "Inference tensors cannot be saved for backward"));
}

TEST_CASE("a chain of a million nodes", "[engine]") {
  Tensor x = leaf(1);
  SECTION("runs forward and backward") {
    Tensor y = x;
    for (int i = 0; i < 1000000; ++i) y = y + 1;
    y.backward();
    CHECK(close(x.grad(), {1}));
  }
  SECTION("with saved tensors is freed without recursion") {
    Tensor y = x;
    for (int i = 0; i < 1000000; ++i) y = y * x;
    y.reset();
    CHECK(x.ptr().use_count() == 1);
  }
  SECTION("of views and in-place writes, too") {
    Tensor y = values({1, 2});
    Tensor w = leaf({1, 1});
    y.mul_(w);
    for (int i = 0; i < 100000; ++i) y.select(0, 0).mul_(1);
    y.sum().backward();
    CHECK(close(w.grad(), {1, 2}));
  }
}

TEST_CASE("several threads over one graph", "[engine]") {
  Tensor x = leaf({1, 2});
  Tensor y = exp(x) * x;
  constexpr int kThreads = 4, kRounds = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) y.backward(values({1, 1}), true);
    });
  for (auto& t : threads) t.join();
  double n = kThreads * kRounds;
  auto got = read(x.grad());
  CHECK(got[0] == Approx(n * 2 * std::exp(1)).epsilon(1e-9));
  CHECK(got[1] == Approx(n * 3 * std::exp(2)).epsilon(1e-9));

  SECTION("one of which frees it: the others hear of it, nobody crashes") {
    std::atomic<int> failed{0};
    std::vector<std::thread> more;
    for (int t = 0; t < kThreads; ++t)
      more.emplace_back([&] {
        if (!error_of([&] { y.backward(values({1, 1})); }).empty()) ++failed;
      });
    for (auto& t : more) t.join();
    CHECK(failed <= kThreads);
  }
}

struct InnerBackward : Function<InnerBackward> {
  static Tensor forward(FunctionContext& ctx, const Tensor& x) {
    ctx.save_for_backward({x});
    return x * 2;
  }
  static TensorList backward(FunctionContext& ctx, const TensorList& grads) {
    EnableGradGuard enable;
    Tensor x = ctx.saved_tensors()[0].detach();
    x.set_requires_grad();
    (x * x).sum().backward();
    return {grads[0] * x.grad()};
  }
};

TEST_CASE("backward inside backward", "[engine]") {
  Tensor x = leaf({1, 2});
  Tensor y = x * 1;
  for (int depth = 0; depth < 3; ++depth) y = InnerBackward::apply(y);
  y.sum().backward();
  CHECK(x.grad().defined());
  CHECK(!in_backward());
}

TEST_CASE("callbacks run at the end of the outermost backward", "[engine]") {
  Tensor x = leaf({1, 2});
  int calls = 0;
  add_tensor_hook(x, [&](const Tensor&) -> Tensor {
    queue_callback([&] {
      CHECK(x.grad().defined());
      ++calls;
    });
    return {};
  });
  (x * 2).sum().backward();
  CHECK(calls == 1);
  CHECK(!error_of([] { queue_callback([] {}); }).empty());
}

struct AnomalyGuard {
  AnomalyGuard() { set_anomaly(true); }
  ~AnomalyGuard() { set_anomaly(false); }
};

TEST_CASE("anomaly mode finds the first NaN", "[engine]") {
  AnomalyGuard guard;
  Tensor x = leaf({0, 1});
  Tensor y = sqrt(x * 0) * 0;  // 0 * inf
  std::string message = error_of([&] { y.sum().backward(); });
  CHECK(contains(message, "returned nan values in its 0th output"));
  CHECK(contains(message, "SqrtBackward0"));
}

struct WrongShape : Function<WrongShape> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x * 1; }
  static TensorList backward(FunctionContext&, const TensorList&) { return {values({1, 2, 3, 4, 5})}; }
};

TEST_CASE("gradients are checked against the tensor they belong to", "[engine]") {
  Tensor x = leaf({1, 2});
  std::string message = error_of([&] { WrongShape::apply(x * 1).sum().backward(); });
  CHECK(contains(message, "WrongShapeBackward returned an invalid gradient at index 0 - got [5] but expected shape"));
}

struct OneValue : Function<OneValue> {
  static Tensor forward(FunctionContext&, const Tensor& x) { return x * 1; }
  static TensorList backward(FunctionContext&, const TensorList&) { return {values({1})}; }
};

TEST_CASE("gradients are summed to a shape and never stretched", "[engine]") {
  Tensor x = leaf({1, 2});
  std::string message = error_of([&] { OneValue::apply(x).sum().backward(); });
  CHECK(contains(message, "OneValueBackward returned an invalid gradient at index 0 - got [1] but expected shape"));
  CHECK(!x.grad().defined());
  Tensor y = leaf({3});
  OneValue::apply(y).backward();
  CHECK(close(y.grad(), {1}));
}

}  // namespace tapegrad::autograd
