#include "tapegrad/aten/record/step.h"

#include <catch2/catch.hpp>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"

using namespace tapegrad;
using record::Recorder, record::Recording, record::Slot, record::Step;

namespace {

template <class F>
std::unique_ptr<Recording> recorded(const std::vector<Tensor>& feeds, F&& function, bool follows_values = false) {
  const NoGradGuard no_grad;
  Recorder recorder(feeds, follows_values);
  const std::vector<Tensor> results = function(feeds);
  const std::vector<const void*> nodes(results.size(), nullptr);
  return recorder.finish(results, nodes);
}

bool same(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && raw::all(raw::eq(a, b)).item<bool>(); }

// Temporaries of several sizes and lives.
std::vector<Tensor> program(const std::vector<Tensor>& in) {
  Tensor x = add(in[0], 1);
  std::vector<Tensor> kept;
  for (int64_t i = 0; i < 12; ++i) {
    Tensor y = mul(x, Scalar(static_cast<double>(i) * 0.25 + 0.5));
    if (i % 3 == 0) kept.push_back(sum(y, IntSpan({0}), true));
    if (i % 4 == 1) x = add(x, mm(y, transpose(in[1], 0, 1)));
    if (i % 5 == 2) kept.push_back(tanh(narrow(y, 1, 0, 3)));
    if (i % 2 == 0) x = tanh(x);
  }
  Tensor total = sum(x);
  for (const Tensor& t : kept) total = add(total, sum(t));
  return {total, x};
}

}  // namespace

TEST_CASE("a replay has the bits of the run, for other arguments at other addresses", "[record]") {
  std::vector<Tensor> feeds{randn({5, 8}), randn({8, 8})};
  auto first = recorded(feeds, program);
  auto second = recorded({randn({5, 8}), randn({8, 8})}, program);
  REQUIRE(second->reason.empty());
  REQUIRE(second->compare(*first).empty());
  Step step(std::move(second));
  for (int i = 0; i < 3; ++i) {
    const std::vector<Tensor> given{randn({5, 8}), randn({8, 8})};
    REQUIRE(step.fits(given));
    REQUIRE(step.refuses() == nullptr);
    step.scribble(0x5B);
    const std::vector<Tensor> results = step.replay(given);
    const std::vector<Tensor> expected = program(given);
    REQUIRE(same(results[0], expected[0]));
    REQUIRE(same(results[1], expected[1]));
    REQUIRE(results[1].impl()->storage()->use_count() == 1);  // it belongs to the receiver alone
  }
  REQUIRE_FALSE(step.fits(std::vector<Tensor>{randn({4, 8}), randn({8, 8})}));
  REQUIRE_FALSE(step.fits(std::vector<Tensor>{randn({5, 8})}));
}

TEST_CASE("temporaries that live at the same time share no byte", "[record]") {
  auto recording = recorded({randn({50, 80}), randn({80, 80})}, program);
  REQUIRE(recording->reason.empty());
  const Step step(std::move(recording));
  std::vector<const Slot*> all;
  size_t bytes = 0;
  for (const Slot& slot : step.recording().slots)
    if (slot.kind == Slot::Kind::Temporary && !slot.chained && slot.first >= 0) {
      all.push_back(&slot);
      bytes += slot.nbytes;
    }
  REQUIRE(all.size() > 10);
  int shared = 0;
  for (const Slot* a : all)
    for (const Slot* b : all) {
      const auto* p = static_cast<const char*>(a->own->data());
      const auto* q = static_cast<const char*>(b->own->data());
      const bool overlap = p < q + b->nbytes && q < p + a->nbytes;
      if (a == b || !overlap || a->inside >= 0 || b->inside >= 0) continue;  // nn/record_memory_test.cpp checks those
      ++shared;
      REQUIRE((a->last < b->first || b->last < a->first));
    }
  REQUIRE(shared > 0);  // memory is used again
  REQUIRE(step.planned_bytes() < bytes);
}

TEST_CASE("another number, size or call is named", "[record]") {
  auto with = [](double number, bool more) {
    return recorded({ones({3})}, [=](const std::vector<Tensor>& in) {
      Tensor x = mul(in[0], Scalar(number));
      if (more) x = tanh(x);
      return std::vector<Tensor>{x};
    });
  };
  REQUIRE(with(2, false)->compare(*with(2, false)).empty());
  REQUIRE(with(3, false)->compare(*with(2, false)).find("a number was 2") != std::string::npos);
  REQUIRE(with(2, true)->compare(*with(2, false)).find("2 calls") != std::string::npos);
  REQUIRE_FALSE(with(-0.0, false)->compare(*with(0.0, false)).empty());
  REQUIRE(with(NAN, false)->compare(*with(NAN, false)).empty());
}

TEST_CASE("values that are read, and memory that is kept, are reasons", "[record]") {
  auto reads = recorded({ones({1})}, [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{add(in[0], Scalar(in[0].item<double>()))};
  });
  REQUIRE(reads->reason.find("item reads a value") != std::string::npos);
  Tensor kept;
  auto keeps = recorded({ones({1})}, [&](const std::vector<Tensor>& in) {
    kept = add(in[0], 1);
    return std::vector<Tensor>{add(kept, 1)};
  });
  REQUIRE(keeps->reason.find("kept somewhere") != std::string::npos);
  REQUIRE((modes() & kModeRecord) == 0);
}

TEST_CASE("random numbers go on where the eager run's would", "[record]") {
  default_generator().manual_seed(7);
  auto draw = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{add(rand_like(in[0]), in[0])}; };
  const std::vector<Tensor> feeds{ones({9})};
  auto recording = recorded(feeds, draw);
  REQUIRE(recording->reason.empty());
  Step step(std::move(recording));
  default_generator().manual_seed(7);
  const Tensor first = draw(feeds)[0], second = draw(feeds)[0];
  default_generator().manual_seed(7);
  REQUIRE(same(step.replay(feeds)[0], first));
  REQUIRE(same(step.replay(feeds)[0], second));
  REQUIRE(default_generator().offset() == 2);
}

TEST_CASE("a value that the step went on by is compared, and a way that was not taken is undone", "[record]") {
  const Tensor weight = ones({6});
  auto program = [&](const std::vector<Tensor>& in) {
    add_(narrow(weight, 0, 1, 3), in[1]);
    mul_(in[0], Scalar(2.0));
    const Tensor noise = rand({4});
    const bool large = record::decide("bool", gt(sum(in[0]), 100.0));
    const int64_t count = sum(gt(in[0], 0.0)).item<int64_t>();
    mul_(weight, Scalar(0.5));
    return std::vector<Tensor>{add(mul(noise, Scalar(static_cast<double>(count))), large ? 1.0 : 2.0)};
  };
  const auto given = [](double x) { return std::vector<Tensor>{full({4}, x), full({3}, 1.0)}; };
  auto first = recorded(given(1), program, true), second = recorded(given(2), program, true);
  REQUIRE(second->reason.empty());
  REQUIRE(second->compare(*first).empty());
  REQUIRE(second->path.size() == 2);
  Step step(std::move(second));
  Generator& generator = default_generator();
  for (double x : {1.0, 40.0, 3.0, -1.0, 20.0}) {
    const std::vector<Tensor> feeds = given(x);
    const Tensor before = weight.clone();
    const uint64_t offset = generator.offset();
    const uint32_t version = weight.version();
    step.scribble(0x5B);
    if (x == 1.0 || x == 3.0) {
      std::optional<Step::Diverged> diverged;
      const Tensor result = step.replay(feeds, &diverged)[0];
      const Tensor after = weight.clone();
      weight.copy_(before);
      generator.set_offset(offset);
      REQUIRE(same(result, program(given(x))[0]));
      REQUIRE(same(weight, after));
    } else {
      std::optional<Step::Diverged> diverged;
      REQUIRE(step.replay(feeds, &diverged).empty());
      REQUIRE((diverged && diverged->guard == (x < 0 ? 1 : 0)));
      REQUIRE(same(weight, before));
      REQUIRE(same(feeds[0], full({4}, x)));
      REQUIRE((generator.offset() == offset && weight.version() == version));
    }
  }
  REQUIRE(recorded(given(1), program)->reason.starts_with("bool reads a value, and the program may go on by it"));
}
