// Plans of recorded steps, checked by a second, slow algorithm: it keeps for each byte of the buffer whose it is, and
// goes through the calls in the order in which they run.
#include <catch2/catch.hpp>
#include <random>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_norm.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/aten/record/step.h"
#include "tapegrad/autograd/engine/engine.h"

using namespace tapegrad;
using record::Budget, record::Call, record::HostParts, record::Recorder, record::Recording, record::Slot, record::Step;

namespace {

bool same(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), static_cast<size_t>(a.nbytes())) == 0;
}

// A training step over weights of its own, whose layers are drawn by a seed. The optimizer is code of the test.
struct Training {
  std::vector<Tensor> weights;
  std::vector<int> layers;
  Tensor x;
  bool clears;

  Training(unsigned seed, int64_t rows, int64_t width, bool clears_after) : clears(clears_after) {
    std::mt19937 random(seed);
    default_generator().manual_seed(seed);
    const size_t n = 3 + random() % 6;
    for (size_t i = 0; i < n; ++i) {
      layers.push_back(static_cast<int>(random() % 9));
      weights.push_back(mul(randn({width, width}), Scalar(0.2)));
      weights.push_back(randn({width}));
    }
    x = randn({rows, width});
    for (const Tensor& w : weights) w.set_requires_grad();
  }

  Tensor forward(const Tensor& input) const {
    Tensor h = input;
    std::vector<Tensor> seen{h};
    for (size_t i = 0; i < layers.size(); ++i) {
      const Tensor &w = weights[2 * i], &b = weights[2 * i + 1];
      switch (layers[i]) {
        case 0:
          h = sin(linear(h, w, b));
          break;
        case 1:
          h = layer_norm(linear(h, w), IntSpan({h.size(1)}), b);
          break;
        case 2:
          h = dropout(linear(h, w, b), 0.3);
          break;
        case 3:
          h = add(mul(h, b), linear(seen[i / 2], w));
          break;
        case 4:
          h = mul(transpose(tanh(transpose(h, 0, 1)), 0, 1), sum(linear(h, w, b)));
          h = add(h, seen.back());
          break;
        case 5:
          h = narrow(cat(std::vector<Tensor>{linear(h, w), add(h, b)}, 1), 1, h.size(1) / 2, h.size(1)).contiguous();
          break;
        case 6:
          h = mul(sin(add(linear(h, w), b)), sin(add(linear(h, w), b)));  // equal calls, and so are their gradients
          break;
        case 7:  // calls of numbers alone
          h = add(mul(linear(h, w), cos(arange(Scalar(h.size(1))))),
                  where(lt(arange(Scalar(h.size(1))), Scalar(7)), b, h));
          break;
        default:
          h = exp(mul(tanh(linear(h, w, b)), Scalar(-0.5)));
      }
      seen.push_back(h);
    }
    return mean(mul(h, h));
  }

  void update(const Tensor& w) const {
    const NoGradGuard no_grad;
    if (w.grad().defined()) raw::add_(w, w.grad(), Scalar(-0.01));
  }
  Tensor run(const Tensor& input) const {
    const Tensor loss = forward(input);
    loss.backward();
    record::host_call(
        "update", {this},
        [this] {
          for (const Tensor& w : weights) update(w);
        },
        /*repeatable=*/false,
        [this] {
          HostParts made;
          for (const Tensor& w : weights) made.parts.push_back({w, {}, [this, w] { update(w); }});
          return made;
        });
    if (clears)
      for (const Tensor& w : weights) w.set_grad({});
    return loss.detach();
  }
  std::unique_ptr<Recording> recorded() const {
    for (const Tensor& w : weights) w.set_grad({});
    Recorder recorder(std::vector<Tensor>{x});
    const std::vector<Tensor> results{run(x)};
    const std::vector<const void*> nodes(1, nullptr);
    return recorder.finish(results, nodes);
  }
  std::vector<Tensor> copies() const {
    const NoGradGuard no_grad;
    std::vector<Tensor> all;
    for (const Tensor& w : weights) all.push_back(raw::clone(w));
    return all;
  }
  void restore(const std::vector<Tensor>& all) const {
    const NoGradGuard no_grad;
    for (size_t i = 0; i < all.size(); ++i) raw::copy_(weights[i], all[i]);
  }
};

class Shadow {
 public:
  explicit Shadow(const Step& step) : r_(step.recording()), owner_(step.planned_bytes() + 64, -1) {
    base_ = nullptr;
    for (const Slot& slot : r_.slots)
      if (lies(slot) && (base_ == nullptr || address(slot) < base_)) base_ = address(slot);
  }
  // The number of bytes that belonged to more than one temporary in turn.
  int check() {
    for (const Call& call : r_.calls) {
      if (call.kind == Call::Kind::Chain)
        for (const Call& member : call.chain->calls) one(member);
      else if (call.kind == Call::Kind::Restore)
        write({call.slot, 0, 0, static_cast<ptrdiff_t>(r_.slots[static_cast<size_t>(call.slot)].nbytes), true});
      else if (!call.dead)
        one(call);
    }
    return again_;
  }

 private:
  static const char* address(const Slot& slot) { return static_cast<const char*>(slot.own->data()); }
  static bool lies(const Slot& slot) { return slot.kind == Slot::Kind::Temporary && !slot.chained && slot.first >= 0; }
  std::span<int> owners(const record::Use& use) {
    const ptrdiff_t at = address(r_.slots[static_cast<size_t>(use.slot)]) + use.begin - base_;
    REQUIRE(at >= 0);
    REQUIRE(static_cast<size_t>(at + use.end - use.begin) <= owner_.size());
    return {owner_.data() + at, static_cast<size_t>(use.end - use.begin)};
  }
  void write(const record::Use& use) {
    for (int& o : owners(use)) {
      again_ += o >= 0 && o != use.slot;
      o = use.slot;
    }
  }
  void one(const Call& call) {
    for (const bool writes : {false, true})  // a call reads before it writes
      for (const record::Use& use : call.uses) {
        if (use.slot < 0 || use.written != writes) continue;
        REQUIRE((!writes || r_.slots[static_cast<size_t>(use.slot)].kind != Slot::Kind::Constant));
        if (!lies(r_.slots[static_cast<size_t>(use.slot)])) continue;
        if (writes) {
          write(use);
          continue;
        }
        INFO("slot " << use.slot << ", " << (call.entry != nullptr ? call.entry->name : "no kernel"));
        const auto all = owners(use);
        const auto other = std::find_if(all.begin(), all.end(), [&](int o) { return o != use.slot; });
        INFO("byte " << other - all.begin() << " of " << all.size());
        REQUIRE(other == all.end());
      }
  }
  const Recording& r_;
  std::vector<int> owner_;
  const char* base_;
  int again_ = 0;
};

[[noreturn]] void fail() { TG_THROW(Value, "call that fails"); }
void failing_kernel(dispatch::AnyFunction, const dispatch::Argument*, dispatch::Results&) { fail(); }
void failing_pointwise(const pointwise::Iterator&) { fail(); }
void failing_reduce(const reduce::Iterator&) { fail(); }

bool make_fail(Call& call) {
  if (call.kind == Call::Kind::Kernel) call.invoke = failing_kernel;
  if (call.kind == Call::Kind::Pointwise) call.kernel = reinterpret_cast<AnyKernel>(&failing_pointwise);
  if (call.kind == Call::Kind::Reduce) call.kernel = reinterpret_cast<AnyKernel>(&failing_reduce);
  return call.kind == Call::Kind::Kernel || call.kind == Call::Kind::Pointwise || call.kind == Call::Kind::Reduce;
}

}  // namespace

TEST_CASE("plans within budgets pass the slow check, and have eager's bits", "[record]") {
  const Budget budgets[] = {{}, {0, 0.9}, {0, 0.6}, {0, 0.3}, {1, 0}};
  int shared = 0, again = 0, updates = 0, same_calls = 0, folded = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    // Large ones have chains, which take 2^16 elements.
    Training training(seed, seed % 4 == 0 ? 600 : 24, seed % 4 == 0 ? 64 : 32, seed % 3 != 0);
    for (const Budget& budget : budgets) {
      const std::vector<Tensor> before = training.copies();
      auto first = training.recorded();
      auto recording = training.recorded();
      INFO("seed " << seed << ", " << recording->reason << recording->compare(*first));
      REQUIRE(recording->reason.empty());
      REQUIRE(recording->compare(*first).empty());
      // What is chosen depends on the time that calls took: here on numbers that are drawn.
      std::mt19937 random(seed);
      for (Call& call : recording->calls) call.seconds = 1e-6F * static_cast<float>(1 + random() % 200);
      Step step(std::move(recording), budget);
      shared += Shadow(step).check();
      again += step.memory().again;
      updates += step.memory().updates;
      same_calls += step.memory().same;
      folded += step.memory().folded;
      REQUIRE(step.memory().planned <= step.memory().unlimited / 10 * 11);  // small ones leave holes
      // An audit finds the same calls.
      auto audit = training.recorded();
      REQUIRE(audit->compare(step.recording()).empty());
      training.restore(before);
      for (int i = 0; i < 2; ++i) {
        const Tensor input = randn(IntSpan(training.x.sizes()));
        const std::vector<Tensor> start = training.copies();
        default_generator().manual_seed(seed + 100);
        step.scribble(0x5B);
        for (const Tensor& w : training.weights) w.set_grad({});
        REQUIRE(step.refuses() == nullptr);
        const Tensor got = step.replay(std::vector<Tensor>{input})[0];
        const std::vector<Tensor> after = training.copies();
        std::vector<Tensor> grads;
        for (const Tensor& w : training.weights) grads.push_back(w.grad());
        const uint64_t offset = default_generator().offset();
        training.restore(start);
        for (const Tensor& w : training.weights) w.set_grad({});
        default_generator().manual_seed(seed + 100);
        const Tensor expected = training.run(input);
        REQUIRE(same(got, expected));
        REQUIRE(default_generator().offset() == offset);
        for (size_t k = 0; k < after.size(); ++k) {
          REQUIRE(same(after[k], training.weights[k]));
          REQUIRE(grads[k].defined() == training.weights[k].grad().defined());
          REQUIRE((!grads[k].defined() || same(grads[k], training.weights[k].grad())));
        }
      }
      training.restore(before);
    }
  }
  REQUIRE(shared > 1000);
  REQUIRE(again > 50);
  REQUIRE(updates > 50);
  REQUIRE(same_calls > 50);
  REQUIRE(folded > 50);
}

TEST_CASE("an error in any call leaves whole weights, and gradients in memory of their own", "[record]") {
  Training training(5, 24, 32, true);
  const size_t calls = training.recorded()->calls.size();
  int before_updates = 0, between = 0;
  for (const Budget& budget : {Budget{}, Budget{0, 0.5}})
    for (size_t n = 0; n < calls; ++n) {
      auto recording = training.recorded();
      if (!make_fail(recording->calls[n])) continue;
      std::vector<Tensor> set;  // by calls before
      for (size_t i = 0; i < n; ++i)
        if (recording->calls[i].kind == Call::Kind::Gradient) set.push_back(recording->calls[i].leaf);
      const std::vector<Tensor> before = training.copies();
      for (const Tensor& w : training.weights) w.set_grad({});
      std::vector<Tensor> grads;
      std::string what;
      {
        Step step(std::move(recording), budget);
        try {
          step.replay(std::vector<Tensor>{training.x});
        } catch (const Error& e) {
          what = e.what();
        }
        step.scribble(0x5B);
      }
      INFO("call " << n << ": " << what);
      REQUIRE(what.find("call that fails") != std::string::npos);
      const std::vector<Tensor> after = training.copies();
      int changed = 0;
      for (size_t k = 0; k < after.size(); ++k) changed += !same(after[k], before[k]);
      if (what.find("weights were updated before this error") != std::string::npos) {
        ++between;
        REQUIRE(budget.given());
        REQUIRE(changed > 0);
        REQUIRE(what.find(fmt::format("{} of ", changed)) != std::string::npos);
      } else {
        ++before_updates;
        REQUIRE(changed == 0);
        for (const Tensor& w : training.weights) {
          const bool expected = std::any_of(set.begin(), set.end(), [&](const Tensor& t) { return t.is_same(w); });
          REQUIRE(w.grad().defined() == expected);
        }
        // The same as an eager run has made.
        std::vector<Tensor> had;
        for (const Tensor& w : training.weights) had.push_back(w.grad());
        for (const Tensor& w : training.weights) w.set_grad({});
        default_generator().manual_seed(1);
        for (const Tensor& g : had)
          if (g.defined()) REQUIRE(std::isfinite(raw::sum(g).item<float>()));
      }
      training.restore(before);
    }
  REQUIRE(before_updates > 20);
  REQUIRE(between > 2);
}
