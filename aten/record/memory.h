// The memory of a step: when its temporaries live and where they lie, and the passes that need less of it. Used while a
// Step (step.h) is planned, on one thread. All bits stay: passes leave calls out, move them or make them once more, and
// none is changed.
#pragma once

#include <map>

#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

// What the temporaries and results of a step may take. Neither: as much as the recorded order of calls needs.
struct Budget {
  size_t bytes = 0;
  double share = 0;  // of what it would take without a budget
  bool given() const noexcept { return bytes > 0 || share > 0; }
};

struct MemoryUse {
  size_t live = 0;       // the most bytes of temporaries that lived at one time when it was recorded
  size_t unlimited = 0;  // the plan without a budget, and the results
  size_t planned = 0;    // the plan, and the results
  size_t results = 0;    // the results alone, gradients that stay included
  int updates = 0;       // leaves that are updated as soon as their gradient is complete
  int again = 0;         // calls that are made again,
  double seconds = 0;    // the time that they took when they were recorded,
  double share = 0;      // and that as a share of the time of all calls
  int folded = 0;        // calls that were made with the plan, for all replays,
  size_t constants = 0;  // and the bytes that they left, which are part of the plan
  int same = 0;          // calls that equal others, and are not made
  std::string lacks;     // why it is more than the budget; empty: it is not
};

using Chains = std::vector<std::pair<size_t, size_t>>;

// Where temporaries lie in one buffer.
struct Layout {
  Chains chains;
  std::vector<std::pair<int, size_t>> offsets;  // of slots
  size_t bytes = 0;
};

constexpr size_t kSlotAlignment = 64;
constexpr size_t kDeviceAlignment = 512;  // that of its allocator: libraries choose algorithms by alignment
inline size_t aligned(size_t n, size_t to = kSlotAlignment) { return (n + to - 1) / to * to; }
inline bool on_device(const Recording& r) { return r.device && !r.device->is_cpu(); }
inline size_t alignment_of(const Recording& r) { return on_device(r) ? kDeviceAlignment : kSlotAlignment; }

inline bool is_kernel(const Call& call) {
  return call.kind == Call::Kind::Kernel || call.kind == Call::Kind::Pointwise || call.kind == Call::Kind::Reduce;
}

// Puts the bytes of a slot there: what the calls' own tensors and iterators point to.
inline void place(Slot& slot, char* at) noexcept {
  slot.own->replace(at, slot.nbytes, nullptr, nullptr);
  for (const auto& [pointer, offset] : slot.pointers) *pointer = at + offset;
}

// f(tensor, use, put) for the tensors in slots among the arguments of a call of Kind::Kernel; put(tensor) exchanges it.
template <class C, class F>
void for_operands(C& call, F&& f) {
  size_t at = 0;
  auto visit = [&](const Tensor& t, auto&& put) {
    if (!t.defined()) return;
    auto& use = call.uses[at++];
    if (use.slot >= 0) f(t, use, put);
  };
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    Value& value = call.values[i];
    if (auto* t = std::get_if<Tensor>(&value)) visit(*t, [&](Tensor made) { *t = std::move(made); });
    if (auto* o = std::get_if<Operand>(&value))
      visit(o->tensor(), [&](Tensor made) { value = Operand(std::move(made)); });
    if (auto* list = std::get_if<ListValue>(&value))
      for (Tensor& t : list->tensors) visit(t, [&](Tensor made) { t = std::move(made); });
  }
}

// Lets a call use other slots, of the same sizes.
void redirect(Recording& recording, Call& call, const std::map<int, int>& to);
// Calls whose results nobody reads, and that have no other effect: Call::dead.
void mark_dead(Recording& recording);
// When slots are used: from the calls as they are now.
void find_lifetimes(Recording& recording);
// Lifetimes and chains, and which temporaries take over the memory of one that dies.
Chains find_sharing(Recording& recording);
// All of it, and places: no two temporaries that live at the same time share a byte. Takes O(n^2) of n temporaries.
Layout lay_out(Recording& recording);
// Bytes of temporaries that live at each call.
std::vector<size_t> live_bytes(const Recording& recording);

// Whether values of tensors may make it raise an error.
bool may_raise(const Recording& recording, size_t call);

// The part of an optimizer's step that belongs to a leaf is run as soon as the leaf's gradient is complete, where
// nobody can tell the difference but by its memory. Returns how many, and appends what says whether that holds for a
// replay.
int update_early(Recording& recording, std::vector<std::function<bool()>>& hold);

// Makes calls again, so that what they wrote need not be kept, until all temporaries fit into as many bytes or nothing
// that is worth it is left.
void make_again(Recording& recording, size_t bytes, MemoryUse& use);

}  // namespace tapegrad::record
