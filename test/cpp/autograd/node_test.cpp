#include "tapegrad/autograd/engine/node.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

#include "autograd/helpers.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/autograd/engine/accumulate.h"

namespace tapegrad::autograd {

using namespace tapegrad::test;

TEST_CASE("nodes remember order, inputs and what their outputs looked like", "[node]") {
  Tensor x = leaf({1, 2, 3});
  Tensor y = exp(x);
  Tensor z = y * x;
  const Node& node = *z.grad_fn();
  CHECK(std::string(node.name()) == "MulBackward0");
  CHECK(operator_of(node) == "mul");
  CHECK(node.sequence > y.grad_fn()->sequence);
  REQUIRE(node.edges.size() == 2);
  CHECK(node.edges[0].node == y.grad_fn());
  CHECK(node.edges[1].node->is_accumulator);
  CHECK(node.edges[1].node == accumulator_of(x));
  REQUIRE(node.outputs.size() == 1);
  CHECK(node.outputs[0].matches(z));
}

TEST_CASE("an accumulator goes while other threads ask for it", "[node]") {
  Tensor x = leaf({1, 2});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 20000; ++i) {
        const Edge one = edge_of(x), same = edge_of(x);
        if (one.node != same.node || !static_cast<AccumulateGrad&>(*one.node).variable.is_same(x)) ++wrong;
      }
    });
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(x.ptr().use_count() == 1);
  (x * x).sum().backward();
  CHECK(close(x.grad(), {2, 4}));
}

TEST_CASE("leaves and results", "[node]") {
  Tensor x = leaf({1, 2});
  Tensor c = values({1, 2});
  CHECK(x.is_leaf());
  CHECK(c.is_leaf());
  CHECK(!(x * c).is_leaf());
  CHECK((c * c).is_leaf());
  CHECK(contains(error_of([&] { (x * c).set_requires_grad(false); }),
                 "you can only change requires_grad flags of leaf variables"));
  CHECK(contains(error_of([&] { empty_tensor({2}, DType::int64).set_requires_grad(); }),
                 "Only Tensors of floating point and complex dtype can require gradients"));
  x.set_requires_grad(false);
  CHECK(!(x * c).requires_grad());
}

TEST_CASE("grad can be set to what fits", "[node]") {
  Tensor x = leaf({1, 2});
  x.set_grad(values({3, 4}));
  CHECK(close(x.grad(), {3, 4}));
  CHECK(contains(error_of([&] { x.set_grad(values({3})); }), "must have the tensor's shape [2]: got [1]"));
  CHECK(contains(error_of([&] { x.set_grad(empty_tensor({2}, DType::float32)); }), "got float32"));
  CHECK(!error_of([&] { x.set_grad(x); }).empty());
  x.set_grad({});
  CHECK(!x.grad().defined());
}

TEST_CASE("the tape keeps its leaves alive", "[node]") {
  Tensor y;
  weak_intrusive_ptr<TensorImpl> leaf_seen;
  {
    Tensor x = leaf({1, 2});
    leaf_seen = weak_intrusive_ptr<TensorImpl>(x.ptr());
    y = x * 2;
  }
  CHECK(!leaf_seen.expired());
  y.reset();
  CHECK(leaf_seen.expired());
}

TEST_CASE("gradients are brought to the shape and dtype of the input", "[node]") {
  Tensor g = values({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(close(reduce_to(g, OutputMeta({3}, DType::float64, {})), {5, 7, 9}));
  CHECK(close(reduce_to(g, OutputMeta({2, 1}, DType::float64, {})), {6, 15}));
  CHECK(close(reduce_to(g, OutputMeta(IntSpan(), DType::float64, {})), {21}));
  CHECK(reduce_to(g, OutputMeta({1, 1}, DType::float32, {})).dtype() == DType::float32);
  CHECK(reduce_to(g, meta_of(g)).is_same(g));
  CHECK(close(grad_or_zeros({}, OutputMeta({2}, DType::float64, {})), {0, 0}));
}

}  // namespace tapegrad::autograd
