// Calls that go through handlers: what a handler sees, what it may change, and in which order handlers are asked.
#include "tapegrad/aten/dispatch/call.h"

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::dispatch {
namespace {

// A handler for the mode of the profiler, which does what the running test says. Without one it proceeds.
thread_local std::function<void(Call&, Results&)> on_call;
void handle(Call& call, Results& results) {
  if (on_call)
    on_call(call, results);
  else
    call.proceed(results);
}
const Registration registration({kOrderProfiler - 1, Stage::Public, kModeProfile, &handle});

// What the running test's handler does, for its lifetime.
struct Handling {
  explicit Handling(std::function<void(Call&, Results&)> f) { on_call = std::move(f); }
  ~Handling() { on_call = nullptr; }
};

Tensor numbers(std::initializer_list<double> values) {
  Tensor t = empty({static_cast<int64_t>(values.size())}, DType::float64);
  auto* to = static_cast<double*>(t.data_ptr());
  for (double v : values) *to++ = v;
  return t;
}
double at(const Tensor& t, int64_t i) { return static_cast<const double*>(t.data_ptr())[i]; }

// Sets the mode. The profiler's handler, behind the one here, clears it in each call, because no profiler runs.
struct Watched : ModeGuard {
  Watched() : ModeGuard(kModeProfile, 0) {}
};

TEST_CASE("a handler sees the function and its arguments in order", "[dispatch]") {
  std::string seen;
  Handling with([&](Call& call, Results& results) {
    seen += call.function.name;
    for (const Argument& a : call.arguments) seen += " " + std::to_string(static_cast<int>(a.type()));
    CHECK(call.stage == Stage::Public);
    CHECK(call.function.form == Form::Value);
    CHECK(call.arguments[2].as<Scalar>().to<double>() == 3.0);
    call.proceed(results);
  });
  const Tensor a = numbers({1, 2}), b = numbers({10, 20});
  Watched on;
  const Tensor sum = add(a, b, 3);
  CHECK(at(sum, 1) == 62);
  CHECK(seen == "add 0 1 3");
}

TEST_CASE("changed arguments reach the function", "[dispatch]") {
  const Tensor a = numbers({1, 2}), b = numbers({10, 20}), other = numbers({5, 6});
  Handling with([&](Call& call, Results& results) {
    ChangedArguments changed(call.arguments);
    changed.set_tensor(0, other);
    changed.set_tensor(1, other);  // in the place of an operand
    call.arguments = changed.arguments();
    call.proceed(results);
  });
  {
    Watched on;
    CHECK(at(add(a, b, 1), 0) == 10);
  }
  CHECK(at(add(a, b, 1), 0) == 11);
}

TEST_CASE("lists and integers can be changed, too", "[dispatch]") {
  const Tensor a = numbers({1, 2, 3, 4});
  Handling with([&](Call& call, Results& results) {
    ChangedArguments changed(call.arguments);
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      if (call.arguments[i].is_list()) changed.set_list(i, {a, a, a});
      if (call.arguments[i].type() == ArgumentType::Ints) changed.set_ints(i, DimVector{4, 1});
    }
    call.arguments = changed.arguments();
    call.proceed(results);
  });
  {
    Watched on;
    CHECK(cat(std::vector<Tensor>{a}, 0).numel() == 12);
  }
  {
    Watched on;
    CHECK(reshape(a, {2, 2}).sizes() == IntSpan({4, 1}));
  }
}

TEST_CASE("a handler may do the call itself", "[dispatch]") {
  const Tensor a = numbers({1, 2});
  Handling with([&](Call&, Results& results) { results.set(a); });
  Watched on;
  CHECK(mul(a, a).is_same(a));
}

TEST_CASE("results of all kinds come back", "[dispatch]") {
  const Tensor a = numbers({4, 2, 3});
  int calls = 0;
  Handling with([&](Call& call, Results& results) {
    ++calls;
    call.proceed(results);
  });
  {
    Watched on;
    auto [values, indices] = sort(a, 0, false);
    CHECK(at(values, 0) == 2);
    CHECK(static_cast<const int64_t*>(indices.data_ptr())[0] == 1);
  }
  {
    Watched on;
    CHECK(split(a, 1, 0).size() == 3);
  }
  {
    Watched on;
    CHECK(equal(a, a));
  }
  {
    Watched on;
    const Tensor& same = add_(a, a, 1);
    CHECK(same.is_same(a));
    CHECK(at(a, 0) == 8);
  }
  {
    const Tensor out = numbers({0, 0, 0});
    Watched on;
    CHECK(add_out(a, a, 1, out).is_same(out));
    CHECK(at(out, 0) == 16);
  }
  CHECK(calls >= 5);
}

TEST_CASE("an error of the function passes the handlers and leaves the modes", "[dispatch]") {
  Handling with([&](Call& call, Results& results) { call.proceed(results); });
  const Tensor a = numbers({1, 2}), b = numbers({1, 2, 3});
  const uint32_t before = modes();
  {
    Watched on;
    CHECK_THROWS_AS(add(a, b, 1), Error);
  }
  CHECK(modes() == before);
}

TEST_CASE("a call below the tape asks no handler of public calls", "[dispatch]") {
  const Tensor a = numbers({1, 3, 2, 4});
  const Tensor samples = reshape(a, {2, 2});
  int calls = 0;
  Handling with([&](Call& call, Results& results) {
    ++calls;
    CHECK(call.stage == Stage::Public);
    call.proceed(results);
  });
  const int level = batch::enter(2, batch::Randomness::Error);
  {
    const Tensor batched = batch::wrap(samples, level, true);
    Watched on;
    raw::argmax(batched, std::nullopt, false);  // has no part of the tape
  }
  batch::leave(level);
  CHECK(calls == 1);  // the call for all samples, which the handler of vmap makes
}

TEST_CASE("a call without a mode asks no handler", "[dispatch]") {
  int calls = 0;
  Handling with([&](Call& call, Results& results) {
    ++calls;
    call.proceed(results);
  });
  const Tensor a = numbers({1, 2});
  add(a, a, 1);
  {
    NoGradGuard guard;
    add(a, a, 1);
  }
  CHECK(calls == 0);
}

}  // namespace
}  // namespace tapegrad::dispatch
