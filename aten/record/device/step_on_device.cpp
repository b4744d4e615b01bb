// The part of a step that only devices need. Calls between which the host does nothing form a run, which is captured in
// a graph when the step is planned, and replayed by one launch. What a graph reads and writes lies at fixed addresses:
//   temporaries  in the plan's buffer
//   weights      where they are (Step::changed)
//   arguments    are copied to a place of their own before a replay, and back where they are written
//   results      lie in memory that is lent to whoever gets them, where that is likely to come back before the next
//                replay (gradients), or are copied into fresh memory. A run whose results have not come back is
//                replayed call by call, into fresh memory.
// `.grad` of leaves is set behind the launch of the run; the calls in it know gradients by their slots.
#include <algorithm>
#include <cstring>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/aten/record/chain/loop.h"
#include "tapegrad/aten/record/device/device_chain.h"
#include "tapegrad/aten/record/device/graph.h"
#include "tapegrad/aten/record/step.h"
#include "tapegrad/c10/device/device_interface.h"

namespace tapegrad::record {

namespace {

constexpr size_t kWorth = 2;  // kernels: a launch of one is as cheap as that of a graph

struct Run {
  size_t begin = 0, end = 0, kernels = 0;
  std::vector<size_t> allocations, gradients;
  std::vector<int> results;                        // slots
  std::vector<std::pair<size_t, uint64_t>> draws;  // of generators that are set back: which, and the first number
  std::vector<uint64_t> drawn;                     // numbers of each other generator
  std::unique_ptr<DeviceGraph> graph;
};

struct Place {
  Tensor tensor;       // where a graph finds an argument
  bool bytes = false;  // all bytes from its first to its last element are copied
};

Tensor bytes_at(const Storage& storage, ptrdiff_t offset, ptrdiff_t n) {
  return Tensor(make_intrusive<TensorImpl>(storage, DType::uint8, DimVector{n}, DimVector{1}, offset));
}

bool is_used(const Call& call, int slot) {
  if (call.kind == Call::Kind::Chain)
    return std::ranges::any_of(call.chain->calls, [&](const Call& part) { return is_used(part, slot); });
  return std::any_of(call.uses.begin(), call.uses.end(), [&](const Use& use) { return use.slot == slot; });
}

// How many kernels of the recording it stands for.
size_t kernels_of(const Call& call) {
  if (call.kind == Call::Kind::Chain) return call.chain->calls.size();
  return is_kernel(call) && !call.dead ? 1 : 0;
}

}  // namespace

struct Step::OnDevice {
  explicit OnDevice(Device d) : device(d), interface(need_device(d.type, "recorded step")) {}
  Device device;
  DeviceInterface& interface;
  int64_t stream = 0;          // that the memory was used on last
  std::vector<int64_t> noted;  // streams that the allocator knows of
  bool wanted = false, fixed_places = false, stale = false;
  std::vector<Run> runs;
  std::vector<int> run_of;        // the run that begins at a call
  std::vector<Storage> fixed;     // memory of slots for graphs
  std::vector<bool> copied;       // results that are never lent,
  std::vector<bool> may_copy;     // and that need not be
  std::vector<Place> places;      // of arguments
  std::vector<ptrdiff_t> begins;  // of slots of arguments: the first byte that is used
  std::string reason;

  void refuse(std::string_view why) {
    if (reason.empty()) reason = std::string(why.substr(0, why.find('\n')));
  }
  bool is_fixed(const Slot& slot, int i) const {
    const Storage& memory = fixed[static_cast<size_t>(i)];
    return memory && slot.own->data() == memory->data();
  }
};

Step::Step(std::unique_ptr<Recording> recording, Budget budget, bool graphs) : recording_(std::move(recording)) {
  TG_ASSERT(recording_->reason.empty());
  plan(budget);
  if (on_device(*recording_)) set_up_device(graphs);
}
Step::~Step() = default;

// `former`: of a plan whose calls have been arranged anew.
void Step::set_up_device(bool graphs, std::unique_ptr<OnDevice> former) {
  Recording& r = *recording_;
  device_ = std::make_unique<OnDevice>(*r.device);
  OnDevice& d = *device_;
  d.stream = former ? former->stream : d.interface.current_stream(d.device.index);
  d.wanted = graphs;
  d.run_of.assign(r.calls.size(), -1);
  d.fixed.resize(r.slots.size());
  d.copied.resize(r.slots.size());
  d.may_copy.resize(r.slots.size());
  d.begins.resize(r.slots.size());
  if (former && !graphs) d.reason = former->reason;
  if (!graphs) return;
  const auto joins = [](const Call& call) {
    return is_kernel(call) || call.kind == Call::Kind::Chain || call.kind == Call::Kind::Gradient ||
           call.kind == Call::Kind::Allocate;
  };
  for (size_t i = 0; i < r.calls.size();) {
    Run run;
    run.begin = i;
    for (; i < r.calls.size() && joins(r.calls[i]) && (i == run.begin || !r.two_parts || i != r.first_calls); ++i) {
      const Call& call = r.calls[i];
      if (call.kind == Call::Kind::Allocate) run.allocations.push_back(i);
      if (call.kind == Call::Kind::Gradient) run.gradients.push_back(i);
      run.kernels += kernels_of(call);
    }
    run.end = i;
    if (run.end == run.begin) {
      ++i;
    } else if (run.kernels >= kWorth) {
      d.run_of[run.begin] = static_cast<int>(d.runs.size());
      d.runs.push_back(std::move(run));
    }
  }
  std::vector<bool> gradient(r.slots.size());
  for (const Call& call : r.calls)
    if (call.kind == Call::Kind::Gradient)
      for (const Use& use : call.uses) gradient[static_cast<size_t>(use.slot)] = true;
  for (size_t i = 0; i < r.outputs.size(); ++i)
    if (const int slot = r.outputs[i].slot; slot >= 0 && !gradient[static_cast<size_t>(slot)]) {
      d.may_copy[static_cast<size_t>(slot)] = true;
      // The results of a backward pass become gradients.
      if (!r.two_parts || i < r.first_outputs) d.copied[static_cast<size_t>(slot)] = true;
    }
  for (Run& run : d.runs) {
    for (size_t k = 0; k < r.slots.size(); ++k)
      if (r.slots[k].kind == Slot::Kind::Result && r.slots[k].nbytes > 0 &&
          std::any_of(r.calls.begin() + static_cast<ptrdiff_t>(run.begin),
                      r.calls.begin() + static_cast<ptrdiff_t>(run.end),
                      [&](const Call& call) { return is_used(call, static_cast<int>(k)); }))
        run.results.push_back(static_cast<int>(k));
    run.drawn.resize(r.generators.size());
    const int part = r.two_parts && run.begin >= r.first_calls ? 1 : 0;
    std::vector<const Value*> numbers;
    for (size_t i = run.begin; i < run.end && run.kernels > 0; ++i) {
      const Call& call = r.calls[i];
      if (call.draw) {
        numbers.push_back(&call.values[call.philox]);
        const size_t from = call.draw->from;
        if (!r.generators[from].set_back) {
          run.drawn[from] += call.draw->n;
        } else if (call.draw->part != part) {
          run.kernels = 0;
        } else if (std::none_of(run.draws.begin(), run.draws.end(), [&](auto& each) { return each.first == from; })) {
          run.draws.emplace_back(from, call.draw->delta);
        }
      }
      if (call.repeats != nullptr && std::find(numbers.begin(), numbers.end(), call.repeats) == numbers.end())
        run.kernels = 0;
    }
    if (run.kernels == 0) d.refuse("it draws random numbers of an earlier part once more");
  }
  if (former) {
    d.fixed = std::move(former->fixed);
    for (size_t i = 0; i < d.copied.size(); ++i) d.copied[i] = d.copied[i] || former->copied[i];
    former.reset();  // its graphs have memory of their own
  }
  make_graphs();
}

void Step::make_graphs() {
  Recording& r = *recording_;
  OnDevice& d = *device_;
  d.stale = false;
  const NoGradGuard no_grad;
  const auto fails = [&](std::string_view why) {
    d.refuse(why);
    d.wanted = d.fixed_places = false;
    d.runs.clear();
    d.run_of.assign(r.calls.size(), -1);
    std::fill(d.fixed.begin(), d.fixed.end(), Storage());
  };
  try {
    std::vector<ptrdiff_t> ends(r.slots.size());
    std::vector<bool> seen(r.slots.size());
    for (const FeedGeometry& f : r.feeds) {
      const auto slot = static_cast<size_t>(f.slot);
      d.begins[slot] = seen[slot] ? std::min(d.begins[slot], f.offset) : f.offset;
      ends[slot] = std::max(ends[slot], f.end);
      seen[slot] = true;
    }
    for (size_t i = 0; i < r.slots.size(); ++i) {
      const Slot& slot = r.slots[i];
      if (slot.kind != Slot::Kind::Feed && slot.kind != Slot::Kind::Result) continue;
      const size_t n = slot.kind == Slot::Kind::Feed ? static_cast<size_t>(ends[i] - d.begins[i]) : slot.nbytes;
      if (n > 0 && !d.fixed[i]) d.fixed[i] = allocate_storage(n, d.device);
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::OutOfMemory) throw;
    return fails("there is no memory for what graphs read and write");
  }
  d.places.clear();
  for (const FeedGeometry& f : r.feeds) {
    Place& place = d.places.emplace_back();
    const auto slot = static_cast<size_t>(f.slot);
    if (!d.fixed[slot]) continue;
    const ptrdiff_t at = f.offset - d.begins[slot], item = static_cast<ptrdiff_t>(element_size(f.dtype));
    const DType dtype = f.dtype == DType::bool_ ? DType::uint8 : f.dtype;
    if (at % item == 0)
      place.tensor = Tensor(make_intrusive<TensorImpl>(d.fixed[slot], dtype, f.sizes, f.strides, at / item));
    place.bytes = !place.tensor.defined() || place.tensor.impl()->is_non_overlapping_and_dense() ||
                  has_internal_overlap(place.tensor);
    if (place.bytes) place.tensor = bytes_at(d.fixed[slot], at, f.end - f.offset);
  }
  for (size_t i = 0; i < r.slots.size(); ++i)
    if (d.fixed[i]) {
      char* at = static_cast<char*>(d.fixed[i]->data());
      place(r.slots[i], r.slots[i].kind == Slot::Kind::Feed ? at - d.begins[i] : at);
    }
  std::vector<Storage> touched{arena_};
  for (const Storage& memory : d.fixed)
    if (memory) touched.push_back(memory);
  for (int i : memory_) touched.push_back(r.slots[static_cast<size_t>(i)].real);

  const auto bases = bases_;
  const int part = part_;
  bases_.resize(r.generators.size());
  std::vector<uint64_t> before;
  for (size_t g = 0; g < bases_.size(); ++g) {
    before.push_back(r.generators[g].generator->offset());
    bases_[g][0] = bases_[g][1] = {r.generators[g].generator->initial_seed(), before[g]};
  }
  // Others may draw meanwhile.
  std::vector<uint64_t> after = before;
  const auto restore = [&] {
    for (size_t g = 0; g < before.size(); ++g) r.generators[g].generator->set_offset(after[g]);
    before = after;
  };
  const auto captured = [&](Run& run) {
    part_ = r.two_parts && run.begin >= r.first_calls ? 1 : 0;
    for (size_t g = 0; g < bases_.size(); ++g) bases_[g][0].offset = bases_[g][1].offset = before[g];
    bool alone = true;
    const auto calls = [&] {
      for (size_t i = run.begin; i < run.end; ++i)
        if (Call& call = r.calls[i]; kernels_of(call) > 0) this->run(call);
      for (size_t g = 0; g < before.size(); ++g) {
        const uint64_t expected = before[g] + run.drawn[g], now = r.generators[g].generator->offset();
        if (r.generators[g].set_back || now <= expected) continue;
        after[g] = before[g] + (now - expected);
        alone = false;
      }
    };
    auto graph = std::make_unique<DeviceGraph>(d.device, calls, touched);
    if (alone) run.graph = std::move(graph);
    if (!alone) d.refuse("another thread drew random numbers while a graph was made");
  };
  for (Run& run : d.runs) {
    if (run.graph || run.kernels == 0) continue;
    const auto capture = [&] {
      try {
        captured(run);
      } catch (...) {
        restore();
        throw;
      }
      restore();
    };
    try {
      try {
        capture();
      } catch (const Error& e) {
        if (e.kind() != ErrorKind::OutOfMemory) throw;
        // Memory of graphs that are gone cannot be given back during a capture, as that waits for the device.
        d.interface.call("empty_cache", {false});
        capture();
      }
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Interrupt) {
        fails("it was interrupted while a graph was made");
        throw;
      }
      d.refuse(e.what());
    } catch (const std::bad_alloc&) {
      d.refuse("there is no memory for a graph");
    }
  }
  bases_ = bases;
  part_ = part;
  const bool any = std::any_of(d.runs.begin(), d.runs.end(), [](const Run& run) { return run.graph != nullptr; });
  if (!any) fails("");
  d.fixed_places = any;
  for (size_t i = 0; i < r.slots.size(); ++i)
    if (r.slots[i].kind == Slot::Kind::Result) place(r.slots[i], nullptr);
}

Step::GraphUse Step::graphs() const {
  GraphUse use;
  if (!device_) return use;
  for (const Call& call : recording_->calls) {
    use.others += kernels_of(call);
    if (call.kind != Call::Kind::Chain) continue;
    ++use.chains;
    use.in_chains += call.chain->calls.size();
  }
  for (const auto& awaited : recording_->awaited) use.awaited += awaited->job.done() ? 0 : 1;
  use.no_chains = recording_->no_chains;
  for (const Run& run : device_->runs)
    if (run.graph) ++use.graphs, use.calls += run.kernels;
  use.others -= use.calls;
  use.reason = device_->reason;
  return use;
}

bool Step::prepare() {
  if (!device_) return false;
  bool told = false;
  auto& awaited = recording_->awaited;
  if (!awaited.empty() && std::ranges::all_of(awaited, [](const auto& each) { return each->job.done(); })) {
    bool any = false;
    for (const auto& each : awaited) {
      if (!each->taken && each->why.empty()) settle(*each, device_->device);
      any |= each->taken;
      if (each->taken || !recording_->no_chains.empty()) continue;
      recording_->no_chains = each->why;
      told = true;
    }
    if (any && loops_enabled()) take_kernels();
    awaited.clear();
  }
  if (device_->stale) make_graphs();
  return told;
}

// Plans once more, for the same calls and with the kernels that there are now.
void Step::take_kernels() {
  Recording& r = *recording_;
  broken_ = true;  // until it is whole again
  std::vector<Call> calls;
  size_t first_calls = 0;
  for (size_t i = 0; i <= r.calls.size(); ++i) {
    if (r.two_parts && i == r.first_calls) first_calls = calls.size();
    if (i == r.calls.size()) break;
    Call& call = r.calls[i];
    if (call.kind == Call::Kind::Chain)
      std::ranges::move(call.chain->calls, std::back_inserter(calls));
    else if (call.kind != Call::Kind::Allocate && call.kind != Call::Kind::Restore)
      calls.push_back(std::move(call));
  }
  r.calls = std::move(calls);
  r.first_calls = first_calls;
  r.device_chains = true;
  Layout layout = lay_out(r);
  if (limited_ && layout.bytes > planned_) {
    r.device_chains = false;
    layout = lay_out(r);
  }
  memory_use_.planned -= planned_;
  arrange(layout);
  memory_use_.planned += planned_;
  const bool graphs = device_->wanted;
  set_up_device(graphs, std::move(device_));
  broken_ = false;
}

// Orders this replay behind the last one, which may have been on another stream, and brings arguments to their places.
void Step::enter_device(TensorSpan feeds, size_t first_feed) {
  Recording& r = *recording_;
  OnDevice& d = *device_;
  const int64_t now = d.interface.current_stream(d.device.index);
  if (now != d.stream) {
    d.interface.order_streams(d.device.index, d.stream, now);
    d.stream = now;
  }
  if (std::find(d.noted.begin(), d.noted.end(), now) == d.noted.end()) {
    d.interface.note_use(*arena_, now);
    for (const Storage& memory : d.fixed)
      if (memory) d.interface.note_use(*memory, now);
    for (int i : memory_) d.interface.note_use(*r.slots[static_cast<size_t>(i)].real, now);
    d.noted.push_back(now);
  }
  if (!d.fixed_places) return;
  for (size_t k = 0; k < feeds.size(); ++k) {
    const FeedGeometry& f = r.feeds[first_feed + k];
    const Place& to = d.places[first_feed + k];
    const auto slot = static_cast<size_t>(f.slot);
    if (!to.tensor.defined()) continue;
    raw::copy_(to.tensor, view_for(to.tensor, to.bytes, feeds[k]));
    place(r.slots[slot], static_cast<char*>(d.fixed[slot]->data()) - d.begins[slot]);
  }
}

// An argument as its place sees it.
Tensor Step::view_for(const Tensor& to, bool bytes, const Tensor& feed) {
  const auto item = static_cast<ptrdiff_t>(feed.itemsize());
  if (bytes) return bytes_at(feed.impl()->storage(), feed.impl()->offset() * item, to.numel());
  return Tensor(make_intrusive<TensorImpl>(feed.impl()->storage(), to.dtype(), feed.sizes(), feed.impl()->strides(),
                                           feed.impl()->offset()));
}

void Step::leave_device(TensorSpan feeds, size_t first_feed) {
  const Recording& r = *recording_;
  const OnDevice& d = *device_;
  if (!d.fixed_places) return;
  for (size_t k = 0; k < first_feed + feeds.size(); ++k) {
    const Slot& slot = r.slots[static_cast<size_t>(r.feeds[k].slot)];
    const Place& from = d.places[k];
    const bool here = k >= first_feed;
    if (!(here ? slot.written : slot.written_second) || !from.tensor.defined()) continue;
    const Tensor& feed = here ? feeds[k - first_feed] : held_[k];
    raw::copy_(view_for(from.tensor, from.bytes, feed), from.tensor);
  }
}

Storage Step::memory_for_result(int i) {
  const Slot& slot = recording_->slots[static_cast<size_t>(i)];
  if (!device_) return allocate_storage(slot.nbytes, Device());
  OnDevice& d = *device_;
  const auto at = static_cast<size_t>(i);
  Storage& memory = d.fixed[at];
  if (d.fixed_places && memory) {
    if (memory->use_count() == 1) {
      // What used it may be on other streams.
      if (!d.copied[at])
        d.interface.call("await_uses", {int64_t{d.device.index}, reinterpret_cast<int64_t>(memory->data()), d.stream});
      return part_of(memory, memory->data(), slot.nbytes);
    }
    if (d.may_copy[at]) {
      d.stale = d.copied[at] = true;
      for (Run& run : d.runs)
        if (std::find(run.results.begin(), run.results.end(), i) != run.results.end()) run.graph.reset();
      memory.reset();
    } else {
      d.refuse("a gradient of the call before is still held: such calls are replayed one by one");
    }
  }
  return allocate_storage(slot.nbytes, d.device);
}

// A result that is never lent: in memory of its own from here on, for whoever gets it.
void Step::hand_out(size_t begin, size_t end) {
  Recording& r = *recording_;
  const OnDevice& d = *device_;
  for (size_t i = begin; i < end; ++i) {
    const int at = r.outputs[i].slot;
    if (at < 0 || !d.copied[static_cast<size_t>(at)]) continue;
    Slot& slot = r.slots[static_cast<size_t>(at)];
    const Storage& memory = d.fixed[static_cast<size_t>(at)];
    if (!slot.real || !memory || slot.real->data() != memory->data()) continue;
    Storage made = allocate_storage(slot.nbytes, d.device);
    const auto n = static_cast<ptrdiff_t>(slot.nbytes);
    raw::copy_(bytes_at(made, 0, n), bytes_at(slot.real, 0, n));
    slot.real = std::move(made);
  }
}

size_t Step::run_on_device(size_t i) {
  Recording& r = *recording_;
  OnDevice& d = *device_;
  const int found = d.run_of[i];
  if (found < 0) return i;
  Run& run = d.runs[static_cast<size_t>(found)];
  for (size_t a : run.allocations) this->run(r.calls[a]);
  const bool adds = std::any_of(run.gradients.begin(), run.gradients.end(), [&](size_t g) {
    const Call& call = r.calls[g];
    return call.grad.defined() && !call.replaces && call.leaf.grad().defined();
  });
  const bool fixed = std::all_of(run.results.begin(), run.results.end(),
                                 [&](int slot) { return d.is_fixed(r.slots[static_cast<size_t>(slot)], slot); });
  if (!run.graph || adds || !fixed) {
    for (size_t k = run.begin; k < run.end; ++k)
      if (Call& call = r.calls[k]; !call.dead && call.kind != Call::Kind::Allocate) this->run(call);
    return run.end;
  }
  for (const auto& [g, first] : run.draws)
    r.generators[g].generator->set_offset(bases_[g][static_cast<size_t>(part_)].offset + first);
  run.graph->launch(d.stream);
  for (size_t g : run.gradients) this->run(r.calls[g]);
  return run.end;
}

void Step::scribble(int byte) {
  const NoGradGuard no_grad;
  if (arena_) raw::fill_(memory_of_temporaries(), byte);
  if (device_)
    for (const Storage& memory : device_->fixed)
      if (memory && memory->use_count() == 1)
        raw::fill_(bytes_at(memory, 0, static_cast<ptrdiff_t>(memory->nbytes())), byte);
}

Tensor Step::memory_of_temporaries() const { return bytes_at(arena_, 0, static_cast<ptrdiff_t>(arena_->nbytes())); }

}  // namespace tapegrad::record
