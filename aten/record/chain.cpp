#include "tapegrad/aten/record/chain.h"

#include <algorithm>
#include <map>

#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::record {

namespace {

constexpr int64_t kPieceBytes =
    16 << 10;                         // of one operand: four of them fit into a first-level cache of 32 KB and more
constexpr int64_t kShared = 1 << 17;  // elements times calls, from which on threads help
constexpr int64_t kLeast = 8192;      // elements: what is smaller stays in the cache anyway

// Elements lie one behind the other, or are one number for all.
bool is_flat(const Call& call) {
  const pointwise::Iterator& it = *call.pointwise;
  if (it.ndim != 1 || it.numel < kLeast || it.on_host != 0) return false;
  for (int k = 0; k <= it.num_inputs; ++k) {
    const auto item = static_cast<int64_t>(element_size(it.dtype[k]));
    if (it.strides[k][0] != item && (k == 0 || it.strides[k][0] != 0)) return false;
  }
  return true;
}

// The places in slots that the calls of a chain use: with writes, there must be one per slot.
class Uses {
 public:
  explicit Uses(const Recording& r) : r_(r) {}
  bool add(const Call& call) {
    std::map<int, Place> next = places_;
    for (size_t k = 0; k < call.uses.size(); ++k) {
      const Use& use = call.uses[k];
      if (use.slot < 0) continue;
      const Slot::Kind kind = r_.slots[static_cast<size_t>(use.slot)].kind;
      // Others may lie in the same memory as one that is not the step's own.
      if (use.written && kind != Slot::Kind::Temporary && kind != Slot::Kind::Result) return false;
      const Place here{use.offset, call.pointwise->strides[k][0], use.written};
      auto [known, fresh] = next.try_emplace(use.slot, here);
      if (fresh) continue;
      const bool same = known->second.offset == here.offset && known->second.stride == here.stride;
      Place& place = known->second;
      place.several |= !same;
      place.written |= here.written;
      if (place.several && place.written) return false;
    }
    places_ = std::move(next);
    return true;
  }

 private:
  struct Place {
    ptrdiff_t offset;
    int64_t stride;
    bool written;
    bool several = false;  // others are read as well
  };
  const Recording& r_;
  std::map<int, Place> places_;
};

}  // namespace

std::vector<std::pair<size_t, size_t>> find_chains(Recording& recording) {
  std::vector<std::pair<size_t, size_t>> chains;
  const std::vector<Call>& calls = recording.calls;
  for (size_t i = 0; i < calls.size();) {
    size_t end = i;
    Uses uses(recording);
    while (end < calls.size() && calls[end].kind == Call::Kind::Pointwise && is_flat(calls[end]) &&
           calls[end].pointwise->numel == calls[i].pointwise->numel &&
           (end == i || !recording.two_parts || end != recording.first_calls) && uses.add(calls[end]))
      ++end;
    if (end - i >= 2) chains.emplace_back(i, end);
    i = std::max(end, i + 1);
  }
  for (const auto& [first, last] : chains)
    for (Slot& slot : recording.slots) {
      const auto from = static_cast<int>(first), to = static_cast<int>(last) - 1;
      if (slot.first < 0 || slot.first > to || slot.last < from) continue;
      slot.chained =
          slot.kind == Slot::Kind::Temporary && slot.initial.empty() && slot.first >= from && slot.last <= to;
      slot.first = std::min(slot.first, from);  // the calls of a chain run at the same time
      slot.last = std::max(slot.last, to);
    }
  return chains;
}

std::unique_ptr<Chain> make_chain(Recording& recording, size_t first, size_t last) {
  auto chain = std::make_unique<Chain>();
  size_t widest = 1;
  std::map<int, int> buffer_of;
  for (size_t i = first; i < last; ++i) {
    Call& call = recording.calls[i];
    const pointwise::Iterator& it = *call.pointwise;
    auto& buffers = chain->buffers.emplace_back();
    buffers.fill(-1);
    for (int k = 0; k <= it.num_inputs; ++k) {
      widest = std::max(widest, element_size(it.dtype[k]));
      const int slot = call.uses[static_cast<size_t>(k)].slot;
      if (slot < 0 || !recording.slots[static_cast<size_t>(slot)].chained) continue;
      buffers[static_cast<size_t>(k)] = buffer_of.try_emplace(slot, static_cast<int>(buffer_of.size())).first->second;
    }
    chain->calls.push_back(std::move(call));
  }
  chain->numel = chain->calls[0].pointwise->numel;
  chain->piece = kPieceBytes / static_cast<int64_t>(widest);
  chain->buffer_bytes = static_cast<size_t>(chain->piece) * widest;
  // Buffers are given to those that live at the same time: the last use of one frees it.
  std::map<int, size_t> last_use;
  for (size_t i = 0; i < chain->buffers.size(); ++i)
    for (int b : chain->buffers[i])
      if (b >= 0) last_use[b] = i;
  std::vector<int> free;
  std::map<int, int> place;
  for (size_t i = 0; i < chain->buffers.size(); ++i) {
    const auto wanted = chain->buffers[i];
    for (int& b : chain->buffers[i]) {
      if (b < 0) continue;
      if (!place.contains(b)) {
        if (free.empty()) free.push_back(chain->num_buffers++);
        place[b] = free.back();
        free.pop_back();
      }
      b = place[b];
    }
    std::vector<int> ending(wanted.begin(), wanted.end());
    std::sort(ending.begin(), ending.end());
    ending.erase(std::unique(ending.begin(), ending.end()), ending.end());
    for (int b : ending)
      if (b >= 0 && last_use[b] == i) free.push_back(place[b]);
  }
  return chain;
}

void Chain::run() {
  const int64_t pieces = (numel + piece - 1) / piece;
  // A few shares per thread, so that one which is late delays little; none for what takes less than some 20 us.
  const bool alone = get_num_threads() == 1 || numel * static_cast<int64_t>(calls.size()) < kShared;
  const auto shares = std::clamp<int64_t>(alone ? 1 : int64_t{4} * get_num_threads(), 1, pieces);
  if (static_cast<int64_t>(workers.size()) < shares || !workers.back().memory) {
    workers.resize(std::max(workers.size(), static_cast<size_t>(shares)));
    for (Worker& w : workers) {
      if (w.memory) continue;
      Worker made;  // whole, or not at all where there is no memory
      for (const Call& call : calls) made.iterators.push_back(*call.pointwise);
      made.memory.reset(new char[static_cast<size_t>(num_buffers) * buffer_bytes + 64]);
      w = std::move(made);
    }
  }
  parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      Worker& w = workers[static_cast<size_t>(t)];
      auto* memory = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(w.memory.get()) + 63) / 64 * 64);
      for (int64_t p = pieces * t / shares; p < pieces * (t + 1) / shares; ++p) {
        const int64_t from = p * piece, n = std::min(piece, numel - from);
        for (size_t i = 0; i < calls.size(); ++i) {
          const pointwise::Iterator& whole = *calls[i].pointwise;
          pointwise::Iterator& part = w.iterators[i];
          part.numel = part.shape[0] = n;
          for (int k = 0; k <= whole.num_inputs; ++k) {
            const int buffer = buffers[i][static_cast<size_t>(k)];
            part.data[k] = buffer >= 0 ? memory + static_cast<size_t>(buffer) * buffer_bytes
                                       : whole.data[k] + from * whole.strides[k][0];
          }
          reinterpret_cast<pointwise::Kernel>(calls[i].kernel)(part);
        }
      }
    }
  });
}

}  // namespace tapegrad::record
