// Calls are made again, shortly before what they wrote is read in the backward pass, so that it need not be kept
// (Chen, Xu, Zhang and Guestrin: Training Deep Nets with Sublinear Memory Cost, 2016; here for single temporaries,
// chosen by what they free per time: as in Dynamic Tensor Rematerialization, Kirisame and others, 2021, but ahead of
// the run).
#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

#include "tapegrad/aten/record/memory.h"

namespace tapegrad::record {

void redirect(Recording& r, Call& call, const std::map<int, int>& to) {
  auto moved = [&](int slot) {
    const auto found = to.find(slot);
    return found == to.end() ? slot : found->second;
  };
  if (std::none_of(call.uses.begin(), call.uses.end(), [&](const Use& u) { return to.contains(u.slot); })) return;
  if (call.kind != Call::Kind::Kernel) {
    for (Use& use : call.uses) use.slot = moved(use.slot);
    return;
  }
  for_operands(call, [&](const Tensor& t, Use& use, auto&& put) {
    if (!to.contains(use.slot)) return;
    use.slot = moved(use.slot);
    auto impl = make_intrusive<TensorImpl>(r.slots[static_cast<size_t>(use.slot)].own, t.dtype(), t.sizes(),
                                           t.impl()->strides(), t.impl()->offset());
    impl->set_inference(t.impl()->is_inference());
    put(Tensor(std::move(impl)));
  });
  for (size_t i = 0; i < call.arguments.size(); ++i)
    call.arguments[i] = refer_to(call.values[i], call.arguments[i].type());
}

namespace {

constexpr size_t kLeast = 4096;    // bytes that are worth it
constexpr int kMostDepth = 6;      // calls whose inputs are made again, too
constexpr double kPerCall = 1e-6;  // seconds, at least
constexpr int kLeastGap = 4;       // calls between two uses

Call copy_of(const Call& from) {
  Call made;
  made.kind = from.kind;
  made.again = true;
  made.seconds = from.seconds;
  made.entry = from.entry;
  made.kernel = from.kernel;
  made.uses = from.uses;
  made.invoke = from.invoke;
  made.numbers = from.numbers;
  made.function = from.function;
  made.given = from.given;
  if (from.pointwise) made.pointwise = std::make_unique<pointwise::Iterator>(*from.pointwise);
  if (from.reduce) made.reduce = std::make_unique<reduce::Iterator>(*from.reduce);
  made.arguments = from.arguments;
  if (from.values) made.values = std::make_unique<Value[]>(from.arguments.size());
  for (size_t i = 0; i < from.arguments.size(); ++i) {
    made.values[i] = from.values[i];
    made.arguments[i] = refer_to(made.values[i], from.arguments[i].type());
  }
  made.philox = from.philox;
  if (from.draw) made.repeats = &from.values[from.philox];
  return made;
}

struct Touch {
  int call;
  bool written;
};

// What it takes to have the contents of a slot once more before a call.
struct Trial {
  std::set<int> calls;                      // to make again
  std::set<int> made;                       // slots that they write
  std::map<int, int> versions;              // slots that they read, as copies that are there
  std::vector<std::pair<int, int>> longer;  // slots that must live longer, from a call on
  double seconds = 0;
};

class Again {
 public:
  Again(Recording& r, size_t stages) : r_(r), stages_(stages) {}

  // Lowers what lives at one time to `target` bytes; false where nothing is left that lowers it. In stages, what cannot
  // be lowered that far is at least lowered.
  bool lower(size_t target) {
    target_ = SIZE_MAX;
    for (;;) {
      find_sharing(r_);
      live_ = live_bytes(r_);
      const size_t most = *std::max_element(live_.begin(), live_.end());
      if (most <= target) return true;
      if (most <= target_) target_ = stages_ == 1 ? target : std::max(target, most - most / stages_ - 1);
      note_uses();
      if (!move_one() && !apply_best()) return false;
    }
  }

 private:
  Slot& slot(int i) { return r_.slots[static_cast<size_t>(i)]; }
  const std::vector<Touch>& uses(int i) const { return uses_[static_cast<size_t>(i)]; }

  void note_uses() {
    uses_.assign(r_.slots.size(), {});
    leaf_from_.assign(r_.slots.size(), INT32_MAX);
    read_second_.assign(r_.slots.size(), false);
    host_.assign(1, 0);
    outside_.clear();
    for (size_t i = 0; i < r_.calls.size(); ++i) {
      const Call& call = r_.calls[i];
      const auto at = static_cast<int>(i);
      host_.push_back(host_.back() + (call.kind == Call::Kind::Host));
      if (call.dead) continue;
      for (const Use& use : call.uses) {
        if (use.slot < 0) continue;
        const auto s = static_cast<size_t>(use.slot);
        const Slot::Kind kind = r_.slots[s].kind;
        if (use.written && (kind == Slot::Kind::Weight || kind == Slot::Kind::Feed))
          outside_.emplace_back(at, use.slot);
        if (call.kind == Call::Kind::Gradient) leaf_from_[s] = std::min(leaf_from_[s], at);
        if (i >= r_.first_calls && !call.again) read_second_[s] = true;
        if (!uses_[s].empty() && uses_[s].back().call == at)
          uses_[s].back().written |= use.written;
        else
          uses_[s].push_back({at, use.written});
      }
    }
  }

  size_t excess(int call) const {
    const size_t here = live_[static_cast<size_t>(call)];
    return here > target_ ? here - target_ : 0;
  }
  double total() const { return freed(-1, static_cast<int>(live_.size()), SIZE_MAX); }
  // What is over the target between two calls falls by so much if `bytes` less live there.
  double freed(int after, int before, size_t bytes) const {
    double sum = 0;
    for (int p = after + 1; p < before; ++p) sum += static_cast<double>(std::min(excess(p), bytes));
    return sum;
  }
  // And rises by so much with `bytes` more.
  double added(int from, int to, size_t bytes) const {
    double sum = 0;
    for (int p = from; p <= to; ++p) {
      const size_t here = live_[static_cast<size_t>(p)] + bytes;
      if (here > target_) sum += static_cast<double>(std::min(here - target_, bytes));
    }
    return sum;
  }

  bool written_between(int s, int after, int before) const {
    return std::any_of(uses(s).begin(), uses(s).end(),
                       [&](const Touch& t) { return t.written && t.call > after && t.call < before; });
  }

  // Whether a slot that is not the plan's has the same contents before call `before` as for call `at`.
  bool stays(int s, int at, int before) {
    const Slot& kept = slot(s);
    if (host_[static_cast<size_t>(before)] != host_[static_cast<size_t>(at)]) return false;
    const bool second = r_.two_parts && before >= static_cast<int>(r_.first_calls);
    // The program may write to it between the parts, unless it is told that the second part needs it.
    if (second && at < static_cast<int>(r_.first_calls) && !read_second_[static_cast<size_t>(s)]) return false;
    if (kept.kind == Slot::Kind::Result) return true;
    for (const auto& [call, k] : outside_) {
      if (call <= at || call >= before || k == s) continue;
      const Slot& other = slot(k);
      // Two storages may be over the same memory.
      if (kept.kind != Slot::Kind::Weight || other.kind != Slot::Kind::Weight) return false;
      const auto *p = static_cast<const char*>(kept.real->data()), *q = static_cast<const char*>(other.real->data());
      if (p < q + other.nbytes && q < p + kept.nbytes) return false;
    }
    return true;
  }

  bool may_be_made(int s) const {
    const Slot& made = r_.slots[static_cast<size_t>(s)];
    return made.kind == Slot::Kind::Temporary && made.initial.empty() && made.copy_of < 0 &&
           leaf_from_[static_cast<size_t>(s)] == INT32_MAX;
  }

  // Adds what makes the contents of slot `s` as they are before call `before`.
  bool add(Trial& trial, int s, int before, int depth) {
    if (trial.made.contains(s)) return true;
    std::vector<int> writers;
    for (const Touch& t : uses(s))
      if (t.written && t.call < before) writers.push_back(t.call);
    if (writers.empty() || !may_be_made(s)) return false;
    trial.made.insert(s);
    for (int w : writers) {
      const Call& call = r_.calls[static_cast<size_t>(w)];
      if (!is_kernel(call) || call.again) return false;
      if (!trial.calls.insert(w).second) continue;
      trial.seconds += std::max(static_cast<double>(call.seconds), kPerCall);
      for (const Use& use : call.uses) {
        if (use.slot < 0 || use.slot == s) continue;
        if (use.written) {
          if (!may_be_made(use.slot) || uses(use.slot)[0].call != w || written_between(use.slot, w, before))
            return false;
          trial.made.insert(use.slot);
        } else if (!available(trial, use.slot, w, before, depth)) {
          return false;
        }
      }
    }
    return true;
  }

  bool available(Trial& trial, int x, int at, int before, int depth) {
    if (written_between(x, at, before) || leaf_from_[static_cast<size_t>(x)] < before) return false;
    const Slot& input = slot(x);
    if (input.kind != Slot::Kind::Temporary) return stays(x, at, before);
    // Written beside another result of a call that is made again: what comes before is checked, the rest is there.
    if (trial.made.contains(x) || input.last >= before) return true;
    for (size_t k = r_.slots.size() - r_.copies; k < r_.slots.size(); ++k) {
      const Slot& copy = r_.slots[k];
      const auto c = static_cast<int>(k);
      if (copy.copy_of != x || copy.first < 0 || copy.last < before) continue;
      // Of a chain, `first` is where that begins.
      const bool whole = std::all_of(uses(c).begin(), uses(c).end(), [&](const Touch& t) {
        return !t.written || (t.call < before && r_.calls[static_cast<size_t>(t.call)].again);
      });
      if (whole && versions_fit(x, c)) {
        trial.versions[x] = c;
        return true;
      }
    }
    if (depth > 0) {
      Trial deeper = trial;
      if (add(deeper, x, before, depth - 1)) {
        trial = std::move(deeper);
        return true;
      }
    }
    trial.longer.emplace_back(x, input.chained ? input.first : input.last + 1);
    return true;
  }
  // Whether the copy has what the slot has in the end: a copy is made from all that was written up to then.
  bool versions_fit(int x, int copy) const {
    size_t writers = 0, copied = 0;
    for (const Touch& t : uses(x)) writers += t.written;
    for (const Touch& t : uses(copy)) copied += t.written;
    return writers == copied;
  }

  // Makes one call later, as late as it lowers what is over the target: what it writes is not needed before. Costs
  // nothing.
  bool move_one() {
    const auto n = static_cast<int>(r_.calls.size());
    for (int i = 0; i + 1 < n; ++i) {
      const Call& call = r_.calls[static_cast<size_t>(i)];
      if (!is_kernel(call) || call.kind == Call::Kind::Pointwise || call.dead || call.draw) continue;
      const void* name = call.values ? static_cast<const void*>(call.values.get()) : call.reduce.get();
      if (moved_.contains(name)) continue;
      size_t bytes = 0;
      bool own = true;
      std::set<int> read, written;
      for (const Use& use : call.uses) {
        if (use.slot < 0) continue;
        (use.written ? written : read).insert(use.slot);
        if (!use.written) continue;
        const Slot& out = slot(use.slot);
        own &= out.kind == Slot::Kind::Temporary && out.first == i && out.inside < 0 &&
               leaf_from_[static_cast<size_t>(use.slot)] == INT32_MAX;
        bytes += aligned(out.nbytes);
      }
      if (!own || bytes < kLeast || may_raise(r_, static_cast<size_t>(i))) continue;
      double best = 0;
      int place = -1;
      for (int q = i + 1; q < n; ++q) {
        const Call& passed = r_.calls[static_cast<size_t>(q)];
        const bool conflicts = std::any_of(passed.uses.begin(), passed.uses.end(), [&](const Use& u) {
          return written.contains(u.slot) || (u.written && read.contains(u.slot));
        });
        // What the program sees after an error must not depend on the order.
        const bool seen = passed.kind == Call::Kind::Host || (passed.kind == Call::Kind::Gradient && !passed.consumed);
        if (conflicts || seen || (r_.two_parts && q == static_cast<int>(r_.first_calls))) break;
        if (q + 1 < n && passed.kind == Call::Kind::Pointwise &&
            r_.calls[static_cast<size_t>(q) + 1].kind == Call::Kind::Pointwise)
          continue;
        double gain = freed(i, q + 1, bytes);
        for (int x : read) {
          const Slot& input = slot(x);
          if (input.kind == Slot::Kind::Temporary && input.last < q)
            gain -= added(std::max(i, input.last + 1), q, aligned(input.nbytes));
        }
        if (gain <= best) continue;
        best = gain;
        place = q;
      }
      if (place < 0) continue;
      moved_.insert(name);  // once: what others free may be counted twice
      const double before = total();
      const auto from = r_.calls.begin() + i, to = r_.calls.begin() + place + 1;
      std::rotate(from, from + 1, to);
      find_sharing(r_);
      live_ = live_bytes(r_);
      if (total() < before) return true;
      std::rotate(from, to - 1, to);
      find_sharing(r_);
      live_ = live_bytes(r_);
    }
    return false;
  }

  bool apply_best() {
    std::vector<double> over(live_.size() + 1, 0);
    for (size_t i = 0; i < live_.size(); ++i) over[i + 1] = over[i] + static_cast<double>(excess(static_cast<int>(i)));
    double best = 0;
    Trial chosen;
    int chosen_slot = -1, chosen_call = -1;
    for (size_t k = 0; k < r_.slots.size() - r_.copies; ++k) {
      const auto s = static_cast<int>(k);
      const Slot& kept = r_.slots[k];
      if (kept.kind != Slot::Kind::Temporary || kept.chained || kept.nbytes < kLeast || uses(s).empty()) continue;
      for (size_t u = 1; u < uses(s).size(); ++u) {
        const int a = uses(s)[u - 1].call, b = uses(s)[u].call;
        if (b - a < kLeastGap || over[static_cast<size_t>(b)] <= over[static_cast<size_t>(a) + 1]) continue;
        const double gain = freed(a, b, aligned(kept.nbytes));
        for (int depth : {0, 1, 2, kMostDepth}) {
          Trial trial;
          if (!add(trial, s, b, depth)) break;
          double left = gain;
          size_t beside = 0;
          for (int made : trial.made)
            if (made != s) beside += aligned(slot(made).nbytes);
          if (const size_t there = live_[static_cast<size_t>(b)] + beside; there > target_)
            left -= static_cast<double>(std::min(there - target_, beside));
          for (const auto& [x, from] : trial.longer) left -= added(from, b, aligned(slot(x).nbytes));
          if (left <= 0 || left / trial.seconds <= best) continue;
          best = left / trial.seconds;
          chosen = std::move(trial);
          chosen_slot = s;
          chosen_call = b;
        }
      }
    }
    if (chosen_slot < 0) return false;
    apply(chosen, chosen_call);
    return true;
  }

  void apply(const Trial& trial, int before) {
    std::map<int, int> copies = trial.versions, later;
    for (int s : trial.made) {
      copies[s] = static_cast<int>(r_.slots.size());
      // All that was written to it before is written again: it is as good for what follows.
      const bool whole = std::all_of(uses(s).begin(), uses(s).end(), [&](const Touch& t) {
        return !t.written || t.call >= before || trial.calls.contains(t.call);
      });
      if (whole) later[s] = copies[s];
      Slot made;
      made.kind = Slot::Kind::Temporary;
      made.born = true;
      made.copy_of = s;
      made.nbytes = slot(s).nbytes;
      made.own = make_intrusive<StorageImpl>(nullptr, made.nbytes, slot(s).own->device(), nullptr, nullptr);
      r_.slots.push_back(std::move(made));
      ++r_.copies;
    }
    std::vector<Call> calls;
    calls.reserve(r_.calls.size() + trial.calls.size());
    const auto at = static_cast<size_t>(before);
    for (size_t i = 0; i < r_.calls.size(); ++i) {
      if (i == at)
        for (int w : trial.calls) {
          const auto from = static_cast<size_t>(w);
          // Those before have been moved already, and their arguments lie where they did.
          calls.push_back(copy_of(calls[from]));
          redirect(r_, calls.back(), copies);
        }
      if (i >= at) redirect(r_, r_.calls[i], later);
      calls.push_back(std::move(r_.calls[i]));
    }
    if (r_.two_parts && at < r_.first_calls) r_.first_calls += trial.calls.size();
    r_.calls = std::move(calls);
  }

  Recording& r_;
  size_t stages_, target_ = 0;
  std::vector<size_t> live_;
  std::vector<std::vector<Touch>> uses_;
  std::vector<int> leaf_from_;     // the first call that makes a slot a leaf's gradient
  std::vector<bool> read_second_;  // by calls of the program in the second part
  std::unordered_set<const void*> moved_;
  std::vector<int> host_;                     // host calls before each call
  std::vector<std::pair<int, int>> outside_;  // calls that write weights and arguments, with the slots
};

// Where the most bytes live, for a reason.
std::string fullest(Recording& r, const std::vector<size_t>& live) {
  const auto at = static_cast<size_t>(std::max_element(live.begin(), live.end()) - live.begin());
  const Call& call = r.calls[at];
  return fmt::format("{} bytes of temporaries live at call {} of {} ({}), and making others again frees none of them",
                     live[at], at + 1, r.calls.size(), call.entry != nullptr ? call.entry->name : "no kernel");
}

}  // namespace

namespace {

// What passes look at, for trying them.
Recording twin_of(const Recording& r) {
  Recording twin;
  std::tie(twin.slots, twin.outputs) = std::tie(r.slots, r.outputs);
  std::tie(twin.two_parts, twin.first_calls, twin.copies) = std::tie(r.two_parts, r.first_calls, r.copies);
  for (const Call& call : r.calls) {
    Call& made = twin.calls.emplace_back(copy_of(call));
    std::tie(made.again, made.dead, made.consumed) = std::tuple(call.again, call.dead, call.consumed);
    made.draw = call.draw;
    made.grad = call.grad;
  }
  return twin;
}

// Bytes of temporaries, and seconds for calls that are made again.
struct Outcome {
  size_t bytes = 0;
  double seconds = 0;
};

Outcome lower(Recording& r, size_t bytes, size_t stages) {
  Again again(r, stages);
  size_t target = bytes;
  // What lives at one time fits first; holes between temporaries may need more.
  for (size_t now = lay_out(r).bytes; now > bytes && again.lower(target);) {
    now = lay_out(r).bytes;
    const size_t more = now > bytes ? std::min(now - bytes, target / 2) : 0;
    target = target > 2 * kLeast ? target - std::max(more, target / 256) : 0;
  }
  Outcome outcome{lay_out(r).bytes, 0};
  for (const Call& call : r.calls)
    if (call.again) outcome.seconds += std::max(static_cast<double>(call.seconds), is_kernel(call) ? kPerCall : 0);
  return outcome;
}

}  // namespace

void make_again(Recording& r, size_t bytes, MemoryUse& use) {
  // At once: for the least time where it succeeds. In stages: for the least memory where nothing succeeds.
  size_t stages = 0;  // not at all
  Outcome best{lay_out(r).bytes, 0};
  for (size_t tried : {size_t{1}, size_t{8}, size_t{32}}) {
    Recording twin = twin_of(r);
    const Outcome now = lower(twin, bytes, tried);
    const size_t over = std::max(now.bytes, bytes), least = std::max(best.bytes, bytes);
    if (over > least || (over == least && now.seconds >= best.seconds)) continue;
    best = now;
    stages = tried;
  }
  if (stages != 0) best = lower(r, bytes, stages);
  if (best.bytes > bytes) use.lacks = fullest(r, live_bytes(r));
  double all = 0;
  for (const Call& call : r.calls) {
    if (call.again && is_kernel(call)) {
      ++use.again;
      use.seconds += static_cast<double>(call.seconds);
    } else if (!call.dead) {
      all += static_cast<double>(call.seconds);
    }
  }
  use.share = all > 0 ? use.seconds / all : 0;
}

}  // namespace tapegrad::record
