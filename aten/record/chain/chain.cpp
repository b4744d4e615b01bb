#include "tapegrad/aten/record/chain/chain.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tapegrad/aten/record/device/device_chain.h"
#include "tapegrad/aten/record/memory.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::record {

OperandLayout layout_of(const pointwise::Iterator& it, int k) {
  const auto item = static_cast<int64_t>(element_size(it.dtype[k]));
  const int64_t outer = it.strides[k][0], inner = it.strides[k][it.ndim - 1];
  if (it.ndim == 1)
    return inner == item ? OperandLayout::Dense : inner == 0 ? OperandLayout::Number : OperandLayout::Other;
  if (inner == item)
    return outer == item * it.shape[1] ? OperandLayout::Dense
           : outer == 0                ? OperandLayout::PerColumn
                                       : OperandLayout::Other;
  return inner != 0 ? OperandLayout::Other : outer == 0 ? OperandLayout::Number : OperandLayout::PerRow;
}

namespace {

constexpr int64_t kPieceBytes =
    16 << 10;                         // of one operand: four of them fit into a first-level cache of 32 KB and more
constexpr int64_t kShared = 1 << 17;  // elements times calls, from which on threads help
constexpr int64_t kLoopPieces = 16;   // that loops do at once, which use no buffers
constexpr int64_t kLeast = 8192;      // elements: what is smaller stays in the cache anyway

// The number of columns of a call by rows, 0 for one of elements one behind the other, -1 for one that is in no chain.
int64_t columns_of(const Call& call) {
  const pointwise::Iterator& it = *call.pointwise;
  if (it.ndim < 1 || it.ndim > 2 || call.dead) return -1;
  if (it.device.is_cpu() ? it.numel < kLeast : !chain_compiler.load()->knows(call)) return -1;
  for (int k = 0; k <= it.num_inputs; ++k) {
    const OperandLayout layout = layout_of(it, k);
    if (layout == OperandLayout::Other || (k == 0 && layout != OperandLayout::Dense)) return -1;
  }
  return it.ndim == 2 ? it.shape[1] : 0;
}

size_t widest_of(const Call& call) {
  size_t widest = 1;
  for (int k = 0; k <= call.pointwise->num_inputs; ++k)
    widest = std::max(widest, element_size(call.pointwise->dtype[k]));
  return widest;
}

// Kernels stage elements of 16 bits in tiles of 4 KB, and do the rest of one, or a few alone, in other ways, which NaN
// show: pieces and loops begin and end at multiples of that, and kernels do the last ones, more than a tile. Not where
// operands have a number per row or column, whose pieces would be too long.
constexpr int64_t kNarrowTile = 4096;
bool is_narrow(const Call& call) {
  const DType* const dtypes = call.pointwise->dtype;
  return std::any_of(dtypes, dtypes + call.pointwise->num_inputs + 1,
                     [](DType t) { return t == DType::float16 || t == DType::bfloat16; });
}

// Elements of a piece: whole rows, and a multiple of 64; 0 where that is too much for the cache.
int64_t piece_of(int64_t columns, size_t widest, bool narrow) {
  const int64_t wanted = kPieceBytes / static_cast<int64_t>(widest);
  if (columns == 0) return narrow ? std::max(wanted, kNarrowTile) : wanted;
  const int64_t least = std::lcm(columns, int64_t{64});
  return least > 4 * wanted ? 0 : std::max(least, wanted / least * least);
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
      const Place here{use.offset, layout_of(*call.pointwise, static_cast<int>(k)), call.pointwise->dtype[k],
                       use.written};
      auto [known, fresh] = next.try_emplace(use.slot, here);
      if (fresh) continue;
      const bool same = known->second.offset == here.offset && known->second.layout == here.layout &&
                        known->second.dtype == here.dtype;
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
    OperandLayout layout;
    DType dtype;
    bool written;
    bool several = false;  // others are read as well
  };
  const Recording& r_;
  std::map<int, Place> places_;
};

}  // namespace

bool only_used_in(const Recording& recording, int slot, size_t first, size_t last) {
  const Slot& s = recording.slots[static_cast<size_t>(slot)];
  return s.kind == Slot::Kind::Temporary && s.initial.empty() && s.first >= static_cast<int>(first) &&
         s.last < static_cast<int>(last);
}

std::vector<std::pair<size_t, size_t>> find_chains(Recording& recording) {
  std::vector<std::pair<size_t, size_t>> chains;
  const bool device = on_device(recording);
  if (device && !has_device_chains(recording)) return chains;
  const std::vector<Call>& calls = recording.calls;
  for (size_t i = 0; i < calls.size();) {
    size_t end = i;
    int64_t columns = 0;
    size_t widest = 1;
    Uses uses(recording);
    for (; end < calls.size() && calls[end].kind == Call::Kind::Pointwise; ++end) {
      const int64_t here = columns_of(calls[end]);
      if (here < 0 || (here > 0 && columns > 0 && here != columns)) break;
      const size_t wider = std::max(widest, widest_of(calls[end]));
      if (calls[end].pointwise->numel != calls[i].pointwise->numel ||
          (device ? end - i == kLongestDeviceChain : piece_of(std::max(columns, here), wider, false) == 0) ||
          (end > i && recording.two_parts && end == recording.first_calls) || !uses.add(calls[end]))
        break;
      columns = std::max(columns, here);
      widest = wider;
    }
    const auto n = static_cast<int64_t>(end - i);
    if (device ? n >= 2 && check_device_chain(recording, i, end, recording.no_chains)
               : n > 0 && is_worth_a_chain(n, calls[i].pointwise->numel))
      chains.emplace_back(i, end);
    i = std::max(end, i + 1);
  }
  for (const auto& [first, last] : chains)
    for (Slot& slot : recording.slots) {
      const auto from = static_cast<int>(first), to = static_cast<int>(last) - 1;
      if (slot.first < 0 || slot.first > to || slot.last < from) continue;
      slot.chained = only_used_in(recording, static_cast<int>(&slot - recording.slots.data()), first, last);
      slot.first = std::min(slot.first, from);  // the calls of a chain run at the same time
      slot.last = std::max(slot.last, to);
    }
  return chains;
}

std::unique_ptr<Chain> make_chain(Recording& recording, size_t first, size_t last) {
  auto chain = std::make_unique<Chain>();
  if (on_device(recording)) chain->kernel = device_chain(recording, first, last);
  size_t widest = 1;
  std::map<int, int> buffer_of;
  for (size_t i = first; i < last; ++i) {
    Call& call = recording.calls[i];
    const pointwise::Iterator& it = *call.pointwise;
    widest = std::max(widest, widest_of(call));
    auto& buffers = chain->buffers.emplace_back();
    buffers.fill(-1);
    for (int k = 0; k <= it.num_inputs; ++k) {
      const int slot = call.uses[static_cast<size_t>(k)].slot;
      if (slot < 0 || !recording.slots[static_cast<size_t>(slot)].chained) continue;
      buffers[static_cast<size_t>(k)] = buffer_of.try_emplace(slot, static_cast<int>(buffer_of.size())).first->second;
    }
    chain->calls.push_back(std::move(call));
  }
  if (on_device(recording)) return chain;
  chain->numel = chain->calls[0].pointwise->numel;
  for (const Call& call : chain->calls) chain->columns = std::max(chain->columns, columns_of(call));
  chain->narrow = chain->columns == 0 && std::ranges::any_of(chain->calls, is_narrow);
  chain->piece = piece_of(chain->columns, widest, chain->narrow);
  // The last piece may be larger.
  chain->buffer_bytes = static_cast<size_t>(chain->narrow ? 2 * chain->piece : chain->piece) * widest;
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
  chain->fused = fuse_calls(*chain);
  return chain;
}

int64_t Chain::step() const { return narrow ? kNarrowTile : kLoopLanes; }

void Chain::run() {
  if (kernel != nullptr) return kernel->run(calls);
  const int64_t pieces = narrow ? std::max<int64_t>(numel / piece, 1) : (numel + piece - 1) / piece;
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
  const bool all_loops = fused.size() == 1 && fused[0].first == 0 && fused[0].last == calls.size();
  parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    WorkCount count;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t last = pieces * (t + 1) / shares, step = all_loops ? kLoopPieces : 1;
      for (int64_t p = pieces * t / shares; p < last; p += step) {
        const int64_t from = p * piece, end_of = std::min(p + step, last);
        const int64_t n = (end_of == pieces ? numel : end_of * piece) - from;
        // The rest, by kernels, whose loops can do it.
        const int64_t steps = n / this->step() - (narrow && n % this->step() != 0 ? 1 : 0);
        const int64_t main = fused.empty() ? 0 : std::max<int64_t>(0, steps) * this->step();
        if (main > 0) run_piece(workers[static_cast<size_t>(t)], from, main, true);
        if (main < n) run_piece(workers[static_cast<size_t>(t)], from + main, n - main, false);
        count(n * static_cast<int64_t>(calls.size()) / 8);
      }
    }
  });
}

void Chain::run_piece(Worker& w, int64_t from, int64_t n, bool with_loops) {
  auto* memory = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(w.memory.get()) + 63) / 64 * 64);
  const auto address = [&](size_t i, int k) {
    const pointwise::Iterator& whole = *calls[i].pointwise;
    const int64_t per_step = whole.ndim == 1 ? 1 : columns;  // elements that the outer stride goes over
    const int buffer = buffers[i][static_cast<size_t>(k)];
    return buffer >= 0 ? memory + static_cast<size_t>(buffer) * buffer_bytes
                       : whole.data[k] + from / per_step * whole.strides[k][0];
  };
  auto next = fused.begin();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (with_loops && next != fused.end() && i == next->first) {
      w.places.clear();
      for (const FusedCalls::Place& p : next->places)
        w.places.push_back(p.operand < 0 ? const_cast<char*>(next->numbers[p.call].data())
                                         : address(p.call, p.operand));
      next->run(w.places.data(), n);
      i = next++->last - 1;
      continue;
    }
    const pointwise::Iterator& whole = *calls[i].pointwise;
    pointwise::Iterator& part = w.iterators[i];
    part.numel = n;
    part.shape[0] = n / (whole.ndim == 1 ? 1 : columns);
    for (int k = 0; k <= whole.num_inputs; ++k) part.data[k] = address(i, k);
    reinterpret_cast<pointwise::Kernel>(calls[i].kernel)(part);
  }
}

}  // namespace tapegrad::record
