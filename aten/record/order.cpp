// Weights are updated as soon as their gradient is complete, so that its memory is free for what comes next.
#include <algorithm>
#include <map>

#include "tapegrad/aten/record/memory.h"

namespace tapegrad::record {

namespace {

bool is_index(const Tensor& t) { return !t.is_floating_point() && !t.is_complex() && t.dtype() != DType::bool_; }

// What goes back through a call that has succeeded with the same indices.
bool goes_back(std::string_view name) {
  return name.ends_with("_backward") || name.ends_with("_grad") || name == "_plane_scatter";
}

bool checks_numbers(std::string_view name) {
  for (const char* part : {"linalg", "cholesky", "lu_", "solve", "inverse", "lstsq", "geqrf", "histogram"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

}  // namespace

bool may_raise(const Recording& r, size_t i) {
  const Call& call = r.calls[i];
  switch (call.kind) {
    case Call::Kind::Pointwise:  // division by zero
      return !is_floating_point(call.pointwise->compute) && !is_complex(call.pointwise->compute) &&
             call.pointwise->compute != DType::bool_ && call.pointwise->result != DType::bool_;
    case Call::Kind::Host:
      return true;
    case Call::Kind::Kernel:
      break;
    default:
      return false;
  }
  const std::string_view name = call.entry->name;
  if (call.draw || call.function != nullptr || checks_numbers(name)) return true;
  bool unknown = false;
  for_operands(call, [&](const Tensor& t, const Use& read, auto&&) {
    if (read.written || !is_index(t)) return;
    bool known = false;
    for (size_t k = 0; k < i && goes_back(name); ++k)
      for (const Use& use : r.calls[k].uses)
        if (use.slot == read.slot)
          known = is_kernel(r.calls[k]) && (!use.written || r.calls[k].kind == Call::Kind::Kernel);
    unknown |= !known;
  });
  return unknown;
}

namespace {

// Two storages may be over the same memory.
bool overlap(const StorageImpl& a, const StorageImpl& b) {
  const auto *p = static_cast<const char*>(a.data()), *q = static_cast<const char*>(b.data());
  return p < q + b.nbytes() && q < p + a.nbytes();
}

// A leaf in a host call.
struct Candidate {
  Candidate(size_t at, const HostPart& p) : call(at), part(p) {}
  size_t call;
  HostPart part;
  size_t after = 0;          // the call that it follows
  std::vector<size_t> sets;  // calls that set the gradient
  std::vector<int> touched;  // slots that it writes
};

class Order {
 public:
  explicit Order(Recording& r) : r_(r), known_(r.calls.size()) {}

  int run(std::vector<std::function<bool()>>& hold) {
    std::map<const TensorImpl*, int> times;
    for (size_t i = 0; i < r_.calls.size(); ++i) {
      if (!r_.calls[i].parts) continue;
      known_[i] = r_.calls[i].parts();
      for (const HostPart& part : known_[i]->parts)
        if (!part.clears) ++times[part.leaf.impl()];
    }
    for (size_t i = 0; i < r_.calls.size(); ++i) raises_.push_back(may_raise(r_, i));
    std::vector<Candidate> found;
    for (size_t i = 0; i < known_.size(); ++i) {
      if (!known_[i]) continue;
      const size_t before = found.size();
      for (HostPart& part : known_[i]->parts)
        if (part.run && times[part.leaf.impl()] == 1)
          if (Candidate c(i, part); place(c)) found.push_back(std::move(c));
      if (found.size() > before && known_[i]->hold) hold.push_back(known_[i]->hold);
    }
    insert(found);
    return static_cast<int>(found.size());
  }

 private:
  // Whether the host call `i` may do something to the leaf.
  bool touches(size_t i, const Tensor& leaf) const {
    if (!known_[i]) return true;
    return std::any_of(known_[i]->parts.begin(), known_[i]->parts.end(),
                       [&](const HostPart& p) { return p.leaf.is_same(leaf); });
  }

  // Finds the earliest place; false where there is none, or none that frees memory.
  bool place(Candidate& c) {
    const Tensor& leaf = c.part.leaf;
    std::vector<int> gradients;
    for (size_t i = 0; i < c.call; ++i) {
      const Call& call = r_.calls[i];
      if (call.kind != Call::Kind::Gradient || !call.leaf.is_same(leaf)) continue;
      c.after = i;
      if (!call.grad.defined()) {
        c.sets.clear();
        gradients.clear();
        continue;
      }
      // One that is the leaf's at the end, or was there before, is not ours to take away.
      if (r_.slots[static_cast<size_t>(call.uses[0].slot)].kind != Slot::Kind::Temporary) return false;
      c.sets.push_back(i);
      gradients.push_back(call.uses[0].slot);
    }
    if (c.sets.empty()) return false;
    auto touch = [&](const Tensor& t) {
      for (size_t k = 0; k < r_.slots.size(); ++k)
        if (const Slot& slot = r_.slots[k]; slot.real && overlap(*slot.real, *t.impl()->storage()))
          c.touched.push_back(static_cast<int>(k));
    };
    touch(leaf);
    for (const Tensor& t : c.part.written) touch(t);
    auto among = [](const std::vector<int>& all, int slot) {
      return std::find(all.begin(), all.end(), slot) != all.end();
    };
    for (size_t i = 0; i < r_.calls.size(); ++i) {
      const Call& call = r_.calls[i];
      const bool sets = std::find(c.sets.begin(), c.sets.end(), i) != c.sets.end();
      for (const Use& use : call.uses) {
        if (among(gradients, use.slot) && !sets) {
          if (i > c.call || call.kind == Call::Kind::Gradient) return false;  // or of another leaf, too
          c.after = std::max(c.after, i);
        }
        if (i < c.call && among(c.touched, use.slot)) c.after = std::max(c.after, i);
      }
      if (i >= c.call) continue;
      if (call.kind == Call::Kind::Host ? touches(i, leaf) : raises_[i]) c.after = std::max(c.after, i);
    }
    c.touched.insert(c.touched.end(), gradients.begin(), gradients.end());
    return std::any_of(r_.slots.begin(), r_.slots.end(),
                       [&](const Slot& slot) {  // which may lie where the gradient was
                         return slot.kind == Slot::Kind::Temporary && slot.first > static_cast<int>(c.after) &&
                                slot.first < static_cast<int>(c.call);
                       });
  }

  void insert(std::vector<Candidate>& found) {
    std::stable_sort(found.begin(), found.end(),
                     [](const Candidate& a, const Candidate& b) { return a.after < b.after; });
    std::vector<Call> calls;
    calls.reserve(r_.calls.size() + found.size());
    for (Candidate& c : found) {
      for (size_t i : c.sets) r_.calls[i].consumed = true;
      r_.calls[c.call].consumed = true;
    }
    auto next = found.begin();
    for (size_t i = 0; i < r_.calls.size(); ++i) {
      calls.push_back(std::move(r_.calls[i]));
      for (; next != found.end() && next->after == i; ++next) {
        Call& update = calls.emplace_back();
        update.kind = Call::Kind::Update;
        update.again = true;
        update.leaf = next->part.leaf;
        update.host = next->part.run;
        for (int slot : next->touched)
          update.uses.push_back({slot, 0, 0, 0, r_.slots[static_cast<size_t>(slot)].kind != Slot::Kind::Temporary});
      }
    }
    r_.calls = std::move(calls);
  }

  Recording& r_;
  std::vector<std::optional<HostParts>> known_;
  std::vector<bool> raises_;
};

}  // namespace

int update_early(Recording& recording, std::vector<std::function<bool()>>& hold) {
  return recording.two_parts ? 0 : Order(recording).run(hold);
}

}  // namespace tapegrad::record
