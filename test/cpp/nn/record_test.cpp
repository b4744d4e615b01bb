#include "tapegrad/nn/record.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_softmax.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/record/tracer.h"
#include "tapegrad/nn/files/program_file.h"

using namespace tapegrad;
using record::Program, record::Tracer;

namespace {

using List = std::vector<Tensor>;

struct Path {
  std::string text = "/tmp/tapegrad-record-" + std::to_string(::getpid());
  ~Path() { ::unlink(text.c_str()); }
};

bool same(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), static_cast<size_t>(a.nbytes())) == 0;
}

Tensor network(const Tensor& x, const Tensor& w, const Tensor& v) {
  const Tensor h = tanh(add(matmul(x, w), 0.5));
  const Tensor wide = cat(List{h, mul(h, 2)}, 1);
  return softmax(matmul(wide, v), 1);
}

struct Traced {
  Tensor w = randn({8, 6}), v = randn({12, 3});
  std::unique_ptr<Program> program;
  explicit Traced(int64_t rows = 4) {
    const NoGradGuard no_grad;
    const Tensor x = randn({rows, 8});
    Tracer tracer({{"x", x}}, {{"w", w}, {"v", v}});
    program = tracer.finish(List{network(x, w, v)});
  }
};

}  // namespace

TEST_CASE("a program has the bits of the code, from a file as well", "[record]") {
  const Path path;
  Traced traced;
  nn::save_program(*traced.program, path.text);
  const Record record = Record::load(path.text);
  REQUIRE(record.inputs().size() == 1);
  CHECK(record.inputs()[0].name == "x");
  CHECK(record.inputs()[0].sizes == std::vector<int64_t>{4, 8});
  REQUIRE(record.outputs().size() == 1);
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({4, 8});
    const std::vector<Tensor> results = record.run({x});
    CHECK(same(results[0], network(x, traced.w, traced.v)));
  }
  CHECK(record.num_plans() == 1);
  // Another layout of the input, and one that lies elsewhere in its memory.
  const Tensor turned = transpose(randn({8, 4}), 0, 1), part = narrow(randn({9, 8}), 0, 2, 4);
  CHECK(same(record.run({turned})[0], network(turned.contiguous(), traced.w, traced.v)));
  CHECK(same(record.run({part})[0], network(part, traced.w, traced.v)));
  CHECK_THROWS_WITH(record.run({randn({5, 8})}), Catch::Contains("expected x of size [4, 8]"));
  CHECK_THROWS_WITH(record.run({zeros({4, 8}, DType::float64)}), Catch::Contains("dtype"));
  CHECK_THROWS_WITH(record.run(TensorSpan()), Catch::Contains("expected 1 tensors: got 0"));
}

TEST_CASE("threads share the weights of a record", "[record]") {
  Traced traced;
  const std::shared_ptr<const Program> program = std::move(traced.program);
  const Record record(program);
  std::vector<Tensor> inputs, expected;
  for (int i = 0; i < 8; ++i) {
    inputs.push_back(randn({4, 8}));
    expected.push_back(network(inputs.back(), traced.w, traced.v));
  }
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 200; ++i) {
        const size_t k = (i + static_cast<size_t>(t)) % inputs.size();
        wrong += !same(record.run({inputs[k]})[0], expected[k]);
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(record.num_plans() >= 1);
  CHECK(record.num_plans() <= 4);
}

TEST_CASE("what a program cannot repeat is refused with the reason", "[record]") {
  const NoGradGuard no_grad;
  const Tensor x = randn({3}), w = randn({3});
  {
    Tracer tracer({{"x", x}}, {});
    const Tensor y = add(x, sum(x).item<float>());
    CHECK_THROWS_WITH(tracer.finish(List{y}), Catch::Contains("reads a value"));
  }
  {
    Tracer tracer({{"x", x}}, {{"w", w}});
    add_(w, x);
    CHECK_THROWS_WITH(tracer.finish(List{w}), Catch::Contains("it writes to w"));
  }
  {
    Tracer tracer({{"x", x}}, {});
    const Tensor y = raw::mul(x, x);  // no call of a public function
    CHECK_THROWS_WITH(tracer.finish(List{add(y, 1)}), Catch::Contains("no operator"));
  }
  Tracer tracer({{"x", x}}, {});
  CHECK_THROWS_WITH(Tracer({{"x", x}}, {}), Catch::Contains("recording already"));
}

TEST_CASE("a part of a program computes what is asked for from what is given", "[record]") {
  const NoGradGuard no_grad;
  const Tensor x = randn({4}), z = randn({4});
  Tracer tracer({{"x", x}, {"z", z}}, {});
  Tensor a = mul(x, 2);
  REQUIRE(Tracer::name(a, "a"));
  const Tensor view = narrow(a, 0, 0, 2);
  add_(view, 1);  // changes a
  const Tensor b = exp(a), c = sin(z);
  const std::unique_ptr<Program> program = tracer.finish(List{b, c});
  const int only_b[] = {program->outputs[0]}, only_x[] = {program->value("x")}, from_a[] = {program->value("a")};
  const auto part = program->part(only_x, only_b);
  CHECK(part->operations.size() == 4);
  CHECK(same(part->run(List{x})[0], b));
  const auto later = program->part(from_a, only_b);
  const Tensor given = ones({4});
  const Tensor expected = exp(cat(List{mul(ones({2}), 2), ones({2})}, 0));
  CHECK(same(later->run(List{given})[0], expected));
  CHECK(same(given, ones({4})));  // it is not the program's to change
  CHECK_THROWS_WITH(program->part(only_x, program->outputs), Catch::Contains("need z"));
  CHECK_THROWS_WITH(program->value("nobody"), Catch::Contains("nobody"));
}

TEST_CASE("control flow in a program: bodies are served with plans of their own, by several threads", "[record]") {
  const Path path;
  const Tensor w = randn({4, 4});
  const auto eager = [&](const Tensor& x) {
    const Tensor h = mul(x, 2);
    Tensor y = sum(x).item().to<double>() > 0 ? matmul(h, w) : sub(x, h);
    while (sum(abs(y)).item().to<double>() < 50) y = add(mul(y, 2), h);
    return y;
  };
  std::unique_ptr<Program> program;
  {
    const NoGradGuard no_grad;
    const Tensor x = randn({3, 4});
    Tracer tracer({{"x", x}}, {{"w", w}});
    const Tensor h = mul(x, 2), pred = gt(sum(x), 0);
    std::vector<Tracer::Body> bodies;
    for (const bool chosen : {true, false}) {
      Tracer body(List{x});
      bodies.push_back(body.finish_body(List{chosen ? matmul(h, w) : sub(x, h)}));
    }
    const List y = Tracer::control(Program::Control::Cond, std::move(bodies), List{pred}, List{x});
    bodies.clear();
    for (const bool turn : {false, true}) {
      Tracer body(y);
      bodies.push_back(body.finish_body(List{turn ? add(mul(y[0], 2), h) : lt(sum(abs(y[0])), 50)}));
    }
    program = tracer.finish(Tracer::control(Program::Control::While, std::move(bodies), y, {}));
  }
  nn::save_program(*program, path.text);
  const Record record = Record::load(path.text);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      const NoGradGuard no_grad;
      for (int i = 0; i < 20; ++i) {
        const Tensor x = randn({3, 4});
        if (!same(record.run({x})[0], eager(x))) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(record.num_plans() >= 1);
  CHECK_THROWS_AS(Tracer(List{w}), Error);  // outside of a Tracer
}
