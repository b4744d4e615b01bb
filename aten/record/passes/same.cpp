#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/aten/record/memory.h"
#include "tapegrad/aten/record/passes/passes.h"

namespace tapegrad::record {

namespace {

constexpr size_t kSmall = 4096;         // bytes that may be kept for a later call
constexpr size_t kMostSmall = 1 << 16;  // of all of them

class Same {
 public:
  Same(Recording& r, bool small) : r_(r), left_(small ? kMostSmall : 0), slots_(r.slots.size()) {}

  int run() {
    for (const Call& call : r_.calls) {
      if (call.dead) continue;
      for (const Use& use : call.uses) {
        if (use.slot < 0) continue;
        Known& slot = at(use);
        slot.writes += use.written;
        // Code above the kernels has it, and is not seen when it writes.
        slot.shown |= !is_kernel(call);
      }
    }
    if (!has_equal_keys()) return 0;
    find_lifetimes(r_);
    note_chains();
    for (const KnownGradient& g : r_.gradients) adds_ |= g.defined;
    int made = 0;
    for (size_t i = 0; i < r_.calls.size(); ++i) {
      if (r_.two_parts && i == r_.first_calls) found_.clear();  // what the program does in between is not known
      const Call& call = r_.calls[i];
      if (call.dead) continue;
      if (may_be_made_once(i)) {
        const size_t key = key_of(call);
        if (replace(i, key)) {
          ++made;
          continue;
        }
        found_.emplace(key, i);
      }
      const auto now = static_cast<int>(i);
      for (const Use& use : call.uses) {
        if (use.slot < 0 || !use.written) continue;
        at(use).written = now;
        if (outside(use)) outside_ = now;
      }
      if (call.kind == Call::Kind::Host || call.kind == Call::Kind::Nested ||
          (call.kind == Call::Kind::Gradient && adds_))
        outside_ = now;
    }
    return made;
  }

 private:
  struct Known {
    int writes = 0;
    int written = -1;  // the last call up to now that did
    bool shown = false;
    bool chained = false;
  };
  Known& at(const Use& use) { return slots_[static_cast<size_t>(use.slot)]; }
  Slot& slot(const Use& use) { return r_.slots[static_cast<size_t>(use.slot)]; }
  // Two of them may be over the same memory.
  bool outside(const Use& use) {
    const Slot::Kind kind = slot(use).kind;
    return kind == Slot::Kind::Weight || kind == Slot::Kind::Feed;
  }

  // Most steps have none.
  bool has_equal_keys() const {
    std::unordered_set<size_t> keys;
    for (const Call& call : r_.calls)
      if (is_kernel(call) && !call.dead && !keys.insert(key_of(call)).second) return true;
    return false;
  }

  void note_chains() {
    chain_of_.assign(r_.calls.size(), -1);
    if (!pass_enabled(kPassChains)) return;
    for (const auto& [first, last] : find_chains(r_)) {
      for (size_t i = first; i < last; ++i) chain_of_[i] = static_cast<int>(calls_of_chain_.size());
      calls_of_chain_.push_back(static_cast<int64_t>(last - first));
    }
    for (size_t s = 0; s < slots_.size(); ++s) slots_[s].chained = r_.slots[s].chained;
    find_lifetimes(r_);
  }

  bool may_be_made_once(size_t i) {
    const Call& call = r_.calls[i];
    if (!is_kernel(call) || call.draw) return false;
    bool writes = false;
    for (const Use& use : call.uses) {
      if (use.slot < 0) continue;
      writes |= use.written;
      if (at(use).shown || (use.written && !is_made_by(i, use))) return false;
    }
    return writes;
  }
  // All that is ever written to it is this.
  bool is_made_by(size_t i, const Use& use) {
    const Slot& made = slot(use);
    const bool fresh = made.kind == Slot::Kind::Temporary || (made.kind == Slot::Kind::Result && !r_.two_parts);
    return fresh && made.born && made.initial.empty() && at(use).writes == 1 && made.first == static_cast<int>(i);
  }

  static size_t key_of(const Call& call) {
    auto key = reinterpret_cast<size_t>(call.entry);
    for (const Use& use : call.uses)
      if (!use.written)
        key = key * 1099511628211U + static_cast<size_t>(use.slot) * 31 + static_cast<size_t>(use.offset);
    return key;
  }

  bool replace(size_t i, size_t key) {
    const auto [from, to] = found_.equal_range(key);
    for (auto e = from; e != to; ++e)
      if (fits(e->second, i)) {
        merge(e->second, i);
        return true;
      }
    return false;
  }

  bool fits(size_t earlier, size_t i) {
    const Call &a = r_.calls[earlier], &b = r_.calls[i];
    if (!are_alike(r_, a, b)) return false;
    size_t kept = 0;
    const int chain = chain_of_[i];
    const bool one_chain = chain >= 0 && chain_of_[earlier] == chain &&
                           is_worth_a_chain(calls_of_chain_[static_cast<size_t>(chain)] - 1, b.pointwise->numel);
    for (size_t k = 0; k < b.uses.size(); ++k) {
      const Use &x = a.uses[k], &y = b.uses[k];
      if (y.slot < 0) continue;
      if (!y.written) {
        const int since = outside(y) ? std::max(at(y).written, outside_) : at(y).written;
        if (since >= static_cast<int>(earlier)) return false;
        continue;
      }
      const Slot &first = slot(x), &second = slot(y);
      if (second.kind != Slot::Kind::Temporary || first.nbytes != second.nbytes) return false;
      if (first.kind != Slot::Kind::Temporary || first.last >= static_cast<int>(i)) continue;
      if (one_chain && at(x).chained && at(y).chained) continue;
      kept += aligned(first.nbytes);
    }
    if (kept > std::min(left_, kSmall)) return false;
    left_ -= kept;
    if (chain >= 0) --calls_of_chain_[static_cast<size_t>(chain)];
    return true;
  }

  void merge(size_t earlier, size_t i) {
    std::map<int, int> to;
    int last = 0;
    for (size_t k = 0; k < r_.calls[i].uses.size(); ++k) {
      const Use &x = r_.calls[earlier].uses[k], &y = r_.calls[i].uses[k];
      if (y.slot < 0 || !y.written) continue;
      to[y.slot] = x.slot;
      last = std::max(last, slot(y).last);
      slot(x).last = std::max(slot(x).last, slot(y).last);
    }
    r_.calls[i].dead = true;
    for (size_t c = i + 1; c < r_.calls.size() && static_cast<int>(c) <= last; ++c) {
      Call& call = r_.calls[c];
      for (Use& use : call.uses)
        if (use.was < 0 && to.contains(use.slot)) use.was = use.slot;
      redirect(r_, call, to);
    }
  }

  Recording& r_;
  size_t left_;
  std::vector<Known> slots_;
  std::vector<int> chain_of_;  // of each call, or -1
  std::vector<int64_t> calls_of_chain_;
  std::unordered_multimap<size_t, size_t> found_;
  int outside_ = -1;   // the last call up to now that may have written to what is not the plan's
  bool adds_ = false;  // gradients may be added to memory that was there before
};

}  // namespace

int make_once(Recording& r, bool small) {
  if (!pass_enabled(kPassSame) || on_device(r)) return 0;
  return Same(r, small).run();
}

}  // namespace tapegrad::record
