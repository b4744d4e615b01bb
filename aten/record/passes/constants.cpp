#include <algorithm>
#include <cstring>

#include "tapegrad/aten/dispatch/function.h"
#include "tapegrad/aten/record/memory.h"
#include "tapegrad/aten/record/numbers/given.h"
#include "tapegrad/aten/record/passes/passes.h"
#include "tapegrad/c10/threads/uninterrupted.h"

namespace tapegrad::record {

namespace {

constexpr size_t kMostKept = 1 << 20;
constexpr size_t kMostMade = 4 << 20;  // with what is needed for them in between

class Constants {
 public:
  explicit Constants(Recording& r) : r_(r), may_(r.slots.size()), folded_(r.calls.size()) {}

  Folded run() {
    begin();
    do {
      settle();
    } while (drop_what_is_too_much());
    Folded made;
    made.calls = static_cast<int>(std::count(folded_.begin(), folded_.end(), char{true}));
    for (size_t s = 0; s < may_.size(); ++s)
      if (kept_[s]) made.bytes += r_.slots[s].nbytes;
    if (made.bytes == 0) return {};
    const Uninterrupted uninterrupted;
    try {
      make();
    } catch (...) {  // it is raised where the program makes the call, if it is still raised then
      return {};
    }
    return made;
  }

 private:
  template <class F>
  void for_uses(const Call& call, F&& f) {
    for (const Use& use : call.uses)
      if (use.slot >= 0) f(use, static_cast<size_t>(use.slot));
  }

  void begin() {
    for (size_t s = 0; s < may_.size(); ++s) {
      const Slot& slot = r_.slots[s];
      may_[s] = slot.kind == Slot::Kind::Temporary && slot.nbytes > 0 && slot.nbytes <= kMostKept;
    }
    last_write_.assign(may_.size(), -1);
    for (size_t i = 0; i < r_.calls.size(); ++i) {
      const Call& call = r_.calls[i];
      if (call.dead) continue;
      for_uses(call, [&](const Use& use, size_t s) {
        if (use.written) last_write_[s] = static_cast<int>(i);
        // Code above the kernels may have it, and a leaf.
        if (!is_kernel(call) && call.kind != Call::Kind::Guard) may_[s] = false;
      });
    }
  }

  // All that is written to a constant is made of constants, and nothing else reads it before.
  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < r_.calls.size(); ++i) {
        const Call& call = r_.calls[i];
        if (call.dead) continue;
        bool writes = false, constant = is_kernel(call) && !call.draw;
        for_uses(call, [&](const Use& use, size_t s) {
          writes |= use.written;
          constant &= may_[s];
        });
        folded_[i] = constant && writes;
        if (folded_[i]) continue;
        for_uses(call, [&](const Use& use, size_t s) {
          if (!may_[s] || (!use.written && last_write_[s] < static_cast<int>(i))) return;
          may_[s] = false;
          changed = true;
        });
      }
    }
    used_.assign(may_.size(), false);
    kept_.assign(may_.size(), false);
    for (size_t i = 0; i < r_.calls.size(); ++i)
      if (!r_.calls[i].dead)
        for_uses(r_.calls[i], [&](const Use&, size_t s) {
          used_[s] = used_[s] || may_[s];
          kept_[s] = kept_[s] || (may_[s] && !folded_[i]);
        });
  }

  bool drop_what_is_too_much() {
    size_t made = 0, kept = 0;
    std::optional<size_t> largest;
    for (size_t s = 0; s < may_.size(); ++s) {
      if (!used_[s]) continue;
      made += r_.slots[s].nbytes;
      if (kept_[s]) kept += r_.slots[s].nbytes;
      if (!largest || r_.slots[s].nbytes > r_.slots[*largest].nbytes) largest = s;
    }
    if (made <= kMostMade && kept <= kMostKept) return false;
    may_[*largest] = false;
    return true;
  }

  void make() {
    const ModeGuard plain(kModeNoGrad, kModeRecord | kModeTrace);
    std::vector<Storage> memory(may_.size());
    for (size_t s = 0; s < may_.size(); ++s) {
      if (!used_[s]) continue;
      Slot& slot = r_.slots[s];
      memory[s] = allocate_storage(slot.nbytes, Device());
      slot.own->replace(memory[s]->data(), slot.nbytes, nullptr, nullptr);
      if (!slot.initial.empty()) std::memcpy(memory[s]->data(), slot.initial.data(), slot.nbytes);
    }
    for (size_t i = 0; i < r_.calls.size(); ++i)
      if (folded_[i]) make(r_.calls[i]);
    for (size_t i = 0; i < r_.calls.size(); ++i) r_.calls[i].dead |= folded_[i];
    for (size_t s = 0; s < may_.size(); ++s) {
      Slot& slot = r_.slots[s];
      if (kept_[s]) {
        slot.kind = Slot::Kind::Constant;
        slot.real = memory[s];
      } else if (used_[s]) {
        slot.own->replace(nullptr, slot.nbytes, nullptr, nullptr);
      }
    }
  }

  void make(Call& call) {
    const auto address = [&](size_t k) {
      const Use& use = call.uses[k];
      return static_cast<char*>(r_.slots[static_cast<size_t>(use.slot)].own->data()) + use.offset;
    };
    if (call.pointwise) {
      for (size_t k = 0; k < call.uses.size(); ++k)
        if (call.uses[k].slot >= 0) call.pointwise->data[k] = address(k);
      return reinterpret_cast<pointwise::Kernel>(call.kernel)(*call.pointwise);
    }
    if (call.reduce) {
      call.reduce->output = address(0);
      if (call.uses[1].slot >= 0) call.reduce->input = address(1);
      return reinterpret_cast<reduce::Kernel>(call.kernel)(*call.reduce);
    }
    if (call.function != nullptr) return run_with_numbers(call);
    dispatch::Results none;
    call.invoke(call.kernel, call.arguments.data(), none);
  }

  Recording& r_;
  std::vector<char> may_, used_, kept_;  // slots
  std::vector<char> folded_;             // calls
  std::vector<int> last_write_;
};

}  // namespace

Folded fold_constants(Recording& r) {
  if (!pass_enabled(kPassConstants) || on_device(r)) return {};
  return Constants(r).run();
}

}  // namespace tapegrad::record
