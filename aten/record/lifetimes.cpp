#include <algorithm>

#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/aten/record/memory.h"
#include "tapegrad/aten/record/passes/passes.h"

namespace tapegrad::record {

namespace {

Slot& slot_at(Recording& r, int i) { return r.slots[static_cast<size_t>(i)]; }

// A pointwise operand that lies as the result of the call does: element by element at the same place.
bool lies_alike(const pointwise::Iterator& it, const std::vector<Use>& uses, size_t k) {
  const auto item = [&](size_t i) { return element_size(it.dtype[i]); };
  return uses[k].offset == uses[0].offset && item(k) == item(0) &&
         std::equal(it.strides[k], it.strides[k] + it.ndim, it.strides[0]);
}

// The calls [first, last), one or those of a chain, read x for the last time before they write y for the first time, or
// in the same call, which reads each element before it writes it.
bool may_take_over(const Recording& r, size_t first, size_t last, int x, int y) {
  bool begun = false;
  const Use* place = nullptr;
  for (size_t i = first; i < last; ++i) {
    const Call& call = r.calls[i];
    for (size_t k = 1; k < call.uses.size(); ++k) {
      if (call.uses[k].slot == y && !begun) return false;
      if (call.uses[k].slot != x) continue;
      if (begun || call.uses[k].written || !lies_alike(*call.pointwise, call.uses, k)) return false;
      if (place != nullptr && place->offset != call.uses[k].offset) return false;
      place = &call.uses[k];
    }
    const Use& out = call.uses[0];
    if (out.slot == x) return false;
    if (out.slot == y) {
      if (!begun && place != nullptr && place->offset != out.offset) return false;
      begun = true;
    }
  }
  return begun && place != nullptr;
}

void take_over(Recording& r, const Chains& chains) {
  auto next = chains.begin();
  for (size_t i = 0; i < r.calls.size(); ++i) {
    if (r.calls[i].kind != Call::Kind::Pointwise || r.calls[i].dead) continue;
    const size_t first = i;
    size_t end = i + 1;
    if (next != chains.end() && i == next->first) end = next++->second;
    const auto from = static_cast<int>(first), to = static_cast<int>(end) - 1;
    i = end - 1;
    for (size_t w = first; w < end; ++w) {
      const int y = r.calls[w].uses[0].slot;
      if (y < 0) continue;
      Slot& made = slot_at(r, y);
      if (made.kind != Slot::Kind::Temporary || made.chained || made.first != from || made.inside >= 0 ||
          !made.initial.empty() || made.last <= to)
        continue;
      for (size_t c = first; c < end && made.inside < 0; ++c)
        for (size_t k = 1; k < r.calls[c].uses.size() && made.inside < 0; ++k) {
          const int x = r.calls[c].uses[k].slot;
          if (x < 0 || x == y) continue;
          const Slot& dying = slot_at(r, x);
          if (dying.kind != Slot::Kind::Temporary || dying.chained || dying.first >= from || dying.last != to ||
              dying.nbytes != made.nbytes)
            continue;
          const int root = dying.inside < 0 ? x : dying.inside;
          if (slot_at(r, root).last != to || !may_take_over(r, first, end, x, y)) continue;
          made.inside = root;
          slot_at(r, root).last = made.last;
        }
    }
  }
}

bool needs_memory(const Slot& slot) {
  return slot.kind == Slot::Kind::Temporary && !slot.chained && slot.first >= 0 && slot.inside < 0;
}

}  // namespace

void find_lifetimes(Recording& r) {
  for (Slot& slot : r.slots) {
    slot.first = slot.last = slot.inside = -1;
    slot.chained = false;
  }
  for (size_t i = 0; i < r.calls.size(); ++i) {
    const Call& call = r.calls[i];
    if (call.dead) continue;
    for (const Use& use : call.uses) {
      if (use.slot < 0) continue;
      Slot& slot = slot_at(r, use.slot);
      if (slot.first < 0) slot.first = static_cast<int>(i);
      slot.last = std::max(slot.last, static_cast<int>(i));
      // A gradient may be read where nobody is told: until the end.
      if (call.kind == Call::Kind::Gradient && !call.consumed) slot.last = INT32_MAX;
    }
  }
}

Chains find_sharing(Recording& r) {
  find_lifetimes(r);
  Chains chains;
  if (pass_enabled(kPassChains)) chains = find_chains(r);
  if (pass_enabled(kPassTakeOver)) take_over(r, chains);
  return chains;
}

std::vector<size_t> live_bytes(const Recording& r) {
  std::vector<size_t> live(r.calls.size() + 1, 0);
  for (const Slot& slot : r.slots) {
    if (!needs_memory(slot)) continue;
    live[static_cast<size_t>(slot.first)] += aligned(slot.nbytes, alignment_of(r));
    live[std::min(static_cast<size_t>(slot.last) + 1, r.calls.size())] -= aligned(slot.nbytes, alignment_of(r));
  }
  for (size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];  // unsigned: what was taken away comes back
  live.pop_back();
  return live;
}

namespace {

// Each slot at the lowest offset that is free, in this order.
size_t place_in(const Recording& r, const std::vector<int>& order, std::vector<size_t>& offset) {
  struct Placed {
    size_t from, to;
    int first, last;
  };
  std::vector<Placed> placed;  // by `from`
  placed.reserve(order.size());
  const size_t alignment = alignment_of(r);
  size_t bytes = 0;
  for (int i : order) {
    const Slot& slot = r.slots[static_cast<size_t>(i)];
    const size_t n = aligned(slot.nbytes, alignment);
    size_t at = 0;
    for (const Placed& p : placed) {
      if (p.first > slot.last || slot.first > p.last) continue;
      if (at + n <= p.from) break;
      at = std::max(at, p.to);
    }
    offset[static_cast<size_t>(i)] = at;
    bytes = std::max(bytes, at + n);
    const auto behind =
        std::upper_bound(placed.begin(), placed.end(), at, [](size_t x, const Placed& p) { return x < p.from; });
    placed.insert(behind, {at, at + n, slot.first, slot.last});
  }
  return bytes;
}

}  // namespace

// The largest first: for large tensors that is as good as can be. Where it is not, the largest areas of bytes and calls
// first, and those that live longest.
Layout lay_out(Recording& r) {
  Layout layout;
  layout.chains = find_sharing(r);
  const std::vector<size_t> live = live_bytes(r);
  const size_t least = live.empty() ? 0 : *std::max_element(live.begin(), live.end());
  std::vector<int> order;
  for (size_t i = 0; i < r.slots.size(); ++i)
    if (needs_memory(r.slots[i])) order.push_back(static_cast<int>(i));
  std::vector<size_t> best;
  for (int way = 0; way < 3; ++way) {
    auto key = [&](int i) {
      const Slot& slot = slot_at(r, i);
      const auto bytes = static_cast<double>(slot.nbytes), calls = static_cast<double>(slot.last) - slot.first + 1;
      return way == 0 ? bytes : way == 1 ? bytes * calls : calls;
    };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key(a) > key(b); });
    std::vector<size_t> offset(r.slots.size(), 0);
    const size_t bytes = place_in(r, order, offset);
    if (way == 0 || bytes < layout.bytes) {
      layout.bytes = bytes;
      best = std::move(offset);
    }
    if (layout.bytes <= least) break;
  }
  for (size_t i = 0; i < r.slots.size(); ++i) {
    const Slot& slot = r.slots[i];
    if (needs_memory(slot))
      layout.offsets.emplace_back(static_cast<int>(i), best[i]);
    else if (slot.inside >= 0)
      layout.offsets.emplace_back(static_cast<int>(i), best[static_cast<size_t>(slot.inside)]);
  }
  return layout;
}

void mark_dead(Recording& r) {
  std::vector<bool> read(r.slots.size(), false);
  for (const Output& out : r.outputs) read[static_cast<size_t>(out.slot)] = true;
  for (const Call& call : r.calls)  // what reads a gradient reads it as the leaf's, and is not seen
    if (call.kind == Call::Kind::Gradient)
      for (const Use& use : call.uses) read[static_cast<size_t>(use.slot)] = true;
  for (size_t i = r.calls.size(); i-- > 0;) {
    Call& call = r.calls[i];
    bool wanted = !is_kernel(call) || call.draw.has_value();
    wanted |= std::none_of(call.uses.begin(), call.uses.end(), [](const Use& use) { return use.written; });
    for (const Use& use : call.uses)
      if (use.written && use.slot >= 0)
        wanted |= slot_at(r, use.slot).kind != Slot::Kind::Temporary || read[static_cast<size_t>(use.slot)];
    if (!wanted && !may_raise(r, i)) {
      call.dead = true;
      continue;
    }
    // What is written in part may be read in the other part, or by the call itself.
    for (const Use& use : call.uses)
      if (use.slot >= 0) read[static_cast<size_t>(use.slot)] = true;
  }
}

}  // namespace tapegrad::record
