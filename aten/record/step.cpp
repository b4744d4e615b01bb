#include "tapegrad/aten/record/step.h"

#include <algorithm>
#include <cstring>

#include "tapegrad/aten/dispatch/function.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/record/chain/chain.h"
#include "tapegrad/aten/record/numbers/given.h"
#include "tapegrad/aten/record/passes/passes.h"
#include "tapegrad/c10/threads/uninterrupted.h"

namespace tapegrad::record {

namespace {

// Giving away the GIL and taking it back costs 0.2 us where nobody wants it.
constexpr float kShort = 50e-6f;

// As they lie in their storages.
bool lie_alike(const TensorImpl& a, const TensorImpl& b) {
  bool alike = a.dtype() == b.dtype() && a.ndim() == b.ndim() && a.offset() == b.offset();
  for (int d = 0; alike && d < a.ndim(); ++d) alike = a.size(d) == b.size(d) && a.stride(d) == b.stride(d);
  return alike;
}

ptrdiff_t first_byte(const TensorImpl& t) { return t.offset() * static_cast<ptrdiff_t>(t.itemsize()); }

}  // namespace

// The passes that need less memory, and where temporaries lie then.
Layout Step::fit(Budget budget) {
  Recording& r = *recording_;
  MemoryUse& use = memory_use_;
  for (size_t i = 0; i < r.calls.size(); ++i) r.calls[i].number = static_cast<int>(i);
  if (pass_enabled(kPassDead)) mark_dead(r);
  use.same = make_once(r, !budget.given());
  // With a budget, memory is what is short.
  if (!budget.given()) {
    const Folded folded = fold_constants(r);
    use.folded = folded.calls;
    use.constants = folded.bytes;
  }
  set_aside_dead(r);
  find_lifetimes(r);
  const std::vector<size_t> live = live_bytes(r);
  if (!live.empty()) use.live = *std::max_element(live.begin(), live.end());
  for (const Slot& slot : r.slots)
    if (slot.kind == Slot::Kind::Result) use.results += slot.nbytes;
  Layout layout = lay_out(r);
  use.unlimited = layout.bytes + use.results + use.constants;
  if (budget.given()) {
    const auto part = static_cast<size_t>(budget.share * static_cast<double>(use.unlimited));
    const size_t wanted = budget.share > 0 ? part : budget.bytes;
    const bool branches = std::any_of(r.calls.begin(), r.calls.end(), [](const Call& call) {
      return call.kind == Call::Kind::Nested || call.kind == Call::Kind::Guard;
    });
    if (use.unlimited > wanted && branches) {
      use.lacks = "it has branches or loops, and its calls are kept as they are";
    } else if (use.unlimited > wanted) {
      use.updates = update_early(r, hold_);
      make_again(r, wanted > use.results ? wanted - use.results : 0, use);
      layout = lay_out(r);
    }
  }
  // With a memory budget many orders of calls are tried, and a kernel takes long to compile.
  if (on_device(r)) {
    r.device_chains = true;
    Layout chained = lay_out(r);
    r.device_chains = !budget.given() || chained.bytes <= layout.bytes;
    layout = r.device_chains ? std::move(chained) : lay_out(r);
  }
  use.planned = layout.bytes + use.results + use.constants;
  return layout;
}

// Up to the last guard a replay may have to be undone.
void Step::keep_what_guards_undo() {
  Recording& r = *recording_;
  size_t end = r.calls.size(), guards = 0;
  while (end > 0 && r.calls[end - 1].kind != Call::Kind::Guard) --end;
  for (size_t i = 0; i < end; ++i) {
    if (r.calls[i].kind == Call::Kind::Guard) r.calls[i].guard = guards++;
    for (const Use& use : r.calls[i].uses) {
      if (!use.written || use.slot < 0 || use.begin == use.end) continue;
      const Slot::Kind kind = r.slots[static_cast<size_t>(use.slot)].kind;
      if (kind == Slot::Kind::Weight || kind == Slot::Kind::Feed) saved_.push_back({use.slot, use.begin, use.end});
    }
  }
  std::sort(saved_.begin(), saved_.end(),
            [](const Saved& a, const Saved& b) { return std::pair(a.slot, a.begin) < std::pair(b.slot, b.begin); });
  std::vector<Saved> merged;
  for (const Saved& s : saved_)
    if (!merged.empty() && merged.back().slot == s.slot && s.begin <= merged.back().end)
      merged.back().end = std::max(merged.back().end, s.end);
    else
      merged.push_back(s);
  saved_ = std::move(merged);
  size_t bytes = 0;
  for (const Saved& s : saved_) bytes += static_cast<size_t>(s.end - s.begin);
  before_.resize(bytes);
}

void Step::plan(Budget budget) {
  Recording& r = *recording_;
  limited_ = budget.given();
  float seconds = 0;
  for (const Call& call : r.calls) {
    seconds += call.kind == Call::Kind::Nested ? kShort : call.seconds;
    if (call.kind == Call::Kind::Host && call.repeatable && call.parts)
      if (auto hold = call.parts().hold) same_clears_.push_back(std::move(hold));
  }
  short_ = !r.dry && seconds < kShort && !on_device(r);
  const Layout layout = fit(budget);
  keep_what_guards_undo();
  for (Call& call : r.calls) {
    if (call.dead) continue;
    if (call.pointwise)
      for (size_t k = 0; k < call.uses.size(); ++k)
        if (const Use& use = call.uses[k]; use.slot >= 0)
          r.slots[static_cast<size_t>(use.slot)].pointers.emplace_back(&call.pointwise->data[k], use.offset);
    if (call.reduce) {
      char** const addresses[] = {&call.reduce->output, const_cast<char**>(&call.reduce->input)};
      for (size_t k = 0; k < 2; ++k)
        if (const Use& use = call.uses[k]; use.slot >= 0)
          r.slots[static_cast<size_t>(use.slot)].pointers.emplace_back(addresses[k], use.offset);
    }
  }
  arrange(layout);
}

// Puts temporaries into one buffer, and calls between what prepares slots.
void Step::arrange(const Layout& layout) {
  Recording& r = *recording_;
  weights_.clear();
  for (std::vector<int>* slots : {&memory_, &fed_, &results_, &written_, &read_second_}) slots->clear();
  places_.clear();
  committed_ = last_update_ = 0;
  // No memory is asked for while some weights are updated and others not.
  int first_update = INT32_MAX, last_update = -1;
  for (size_t i = 0; i < r.calls.size(); ++i) {
    if (r.calls[i].kind == Call::Kind::Update) first_update = std::min(first_update, static_cast<int>(i));
    if (r.calls[i].kind == Call::Kind::Host && r.calls[i].consumed) last_update = static_cast<int>(i);
  }
  std::unordered_set<int> read_later;  // by the second part
  if (r.two_parts)
    for (size_t i = r.first_calls; i < r.calls.size(); ++i)
      for (const Use& use : r.calls[i].uses) read_later.insert(use.slot);
  const Chains& chains = layout.chains;
  std::vector<std::vector<int>> before(r.calls.size() + 1);  // slots to prepare before each call
  for (size_t i = 0; i < r.slots.size(); ++i) {
    Slot& slot = r.slots[i];
    size_t first = static_cast<size_t>(std::max(slot.first, 0));
    if (r.two_parts &&
        (slot.first < 0 || first >= r.first_calls)) {  // a result may be made by the host, for either part
      const bool of_first = std::any_of(r.outputs.begin(), r.outputs.begin() + static_cast<ptrdiff_t>(r.first_outputs),
                                        [&](const Output& out) { return out.slot == static_cast<int>(i); });
      first = of_first ? 0 : std::max(first, r.first_calls);
    }
    if (slot.kind == Slot::Kind::Result && slot.first > first_update && slot.first <= last_update)
      first = static_cast<size_t>(first_update);
    if (read_later.contains(static_cast<int>(i)) && slot.first < static_cast<int>(r.first_calls) &&
        slot.kind != Slot::Kind::Temporary && slot.kind != Slot::Kind::Constant)
      read_second_.push_back(static_cast<int>(i));
    switch (slot.kind) {
      case Slot::Kind::Weight:
        weights_.insert(slot.real.get());
        memory_.push_back(static_cast<int>(i));
        if (slot.written) written_.push_back(static_cast<int>(i));
        place(slot, static_cast<char*>(slot.real->data()));
        places_.push_back({slot.real.get(), slot.own->data(), slot.nbytes});
        break;
      case Slot::Kind::Temporary:
        if (slot.chained || slot.first < 0) break;
        if (!slot.initial.empty()) before[first].push_back(static_cast<int>(i));
        break;
      case Slot::Kind::Result:
        results_.push_back(static_cast<int>(i));
        before[first].push_back(static_cast<int>(i));
        break;
      case Slot::Kind::Constant:
        place(slot, static_cast<char*>(slot.real->data()));
        break;
      case Slot::Kind::Feed:
        fed_.push_back(static_cast<int>(i));
        break;
    }
  }
  planned_ = layout.bytes;
  offsets_ = layout.offsets;
  take_memory();

  std::vector<Call> calls;
  calls.reserve(r.calls.size() + results_.size());
  auto next = chains.begin();
  const size_t boundary = r.first_calls;
  for (size_t i = 0; i <= r.calls.size(); ++i) {
    if (r.two_parts && i == boundary) r.first_calls = calls.size();
    for (int slot : before[i]) {
      Call& made = calls.emplace_back();
      made.kind =
          r.slots[static_cast<size_t>(slot)].kind == Slot::Kind::Result ? Call::Kind::Allocate : Call::Kind::Restore;
      made.slot = slot;
    }
    if (next != chains.end() && i == next->first) {
      Call& chain = calls.emplace_back();
      chain.kind = Call::Kind::Chain;
      chain.chain = make_chain(r, next->first, next->second);
      i = next++->second - 1;
    } else if (i < r.calls.size()) {
      calls.push_back(std::move(r.calls[i]));
    }
  }
  if (!r.two_parts) r.first_calls = calls.size();  // with results that the host makes: behind the last call
  r.calls = std::move(calls);
  for (size_t i = 0; i < r.calls.size(); ++i) {
    if (r.calls[i].kind == Call::Kind::Guard) committed_ = i + 1;
    if (r.calls[i].kind == Call::Kind::Host && r.calls[i].consumed) last_update_ = i;
  }
}

void Step::take_memory() {
  Recording& r = *recording_;
  const size_t alignment = alignment_of(r);
  try {
    arena_ = allocate_storage(planned_ + alignment, r.device.value_or(Device()));
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::OutOfMemory || !arena_ || arena_->nbytes() < planned_ + alignment) throw;
  }
  auto* start = reinterpret_cast<char*>(aligned(reinterpret_cast<uintptr_t>(arena_->data()), alignment));
  for (const auto& [slot, offset] : offsets_) place(r.slots[static_cast<size_t>(slot)], start + offset);
}

void Step::rest() noexcept {
  if (!device_) arena_.reset();
}

bool Step::fits(TensorSpan feeds) const noexcept {
  const Recording& r = *recording_;
  if (feeds.size() != (r.two_parts ? r.first_feeds : r.feeds.size())) return false;
  for (size_t i = 0; i < feeds.size(); ++i) {
    const TensorImpl& t = *feeds[i].impl();
    const FeedGeometry& f = r.feeds[i];
    const StorageImpl* storage = t.storage().get();
    if (t.dtype() != f.dtype || t.device() != *r.device || !(t.sizes() == IntSpan(f.sizes)) ||
        !(t.strides() == IntSpan(f.strides)) || t.needs_grad() || weights_.contains(storage))
      return false;
    for (size_t k = 0; k < i; ++k) {
      const TensorImpl& other = *feeds[k].impl();
      const bool shared = other.storage().get() == storage;
      if (shared != (r.feeds[k].slot == f.slot)) return false;
      if (shared && first_byte(t) - first_byte(other) != f.offset - r.feeds[k].offset) return false;
    }
  }
  return true;
}

const char* Step::changed() const noexcept {
  const Recording& r = *recording_;
  constexpr const char* kTensor = "a tensor that it uses";
  for (const Known& p : places_)
    if (p.storage->data() != p.data || p.storage->nbytes() != p.nbytes) return kTensor;
  for (const Tensor& leaf : r.leaves)
    if (!leaf.requires_grad()) return kTensor;
  for (const auto& holds : same_clears_)
    if (!holds()) return "an optimizer's list of parameters";
  return broken_ ? kTensor : nullptr;
}

const char* Step::refuses() const noexcept {
  const Recording& r = *recording_;
  for (const auto& holds : hold_)
    if (!holds()) return "an optimizer has other groups, options or state, and its step cannot be taken in parts";
  for (const KnownGradient& g : r.gradients) {
    const Tensor grad = g.leaf.grad();
    if (grad.defined() != g.defined || (g.storage != nullptr && grad.impl()->storage().get() != g.storage))
      return "another gradient was there before it";
  }
  return nullptr;
}

Storage part_of(const Storage& memory, void* at, size_t nbytes) {
  return make_intrusive<StorageImpl>(
      at, nbytes, memory->device(), [](void* whole, void*, size_t) noexcept { delete static_cast<Storage*>(whole); },
      new Storage(memory));
}

Tensor Step::over_real(const Tensor& view, const Slot& slot) const {
  return Tensor(make_intrusive<TensorImpl>(slot.real ? slot.real : slot.own, view.dtype(), view.sizes(),
                                           view.impl()->strides(), view.impl()->offset()));
}

// A view of an argument.
Tensor Step::over_feed(const Tensor& view, const Tensor& feed, int index) const {
  const auto item = static_cast<ptrdiff_t>(view.itemsize()), from = static_cast<ptrdiff_t>(feed.itemsize());
  const ptrdiff_t moved = feed.impl()->offset() * from - recording_->feeds[static_cast<size_t>(index)].offset;
  TG_CHECK(moved % item == 0, Runtime, "recorded step: an argument begins at another byte than when it was recorded");
  return Tensor(make_intrusive<TensorImpl>(feed.impl()->storage(), view.dtype(), view.sizes(), view.impl()->strides(),
                                           view.impl()->offset() + moved / item));
}

PhiloxState Step::drawn(const Draw& draw) {
  const DrawnFrom& g = recording_->generators[draw.from];
  if (!g.set_back) return g.generator->next(draw.n);
  const auto [seed, offset] = bases_[draw.from][draw.part];
  if (draw.part != part_) return {seed, offset + draw.delta};  // once more what the first part drew
  g.generator->set_offset(offset + draw.delta);
  return g.generator->next(draw.n);
}

void Step::run(Call& call) {
  Recording& r = *recording_;
  switch (call.kind) {
    case Call::Kind::Pointwise:
      return reinterpret_cast<pointwise::Kernel>(call.kernel)(*call.pointwise);
    case Call::Kind::Reduce:
      return reinterpret_cast<reduce::Kernel>(call.kernel)(*call.reduce);
    case Call::Kind::Kernel: {
      if (call.function != nullptr) return run_with_numbers(call);
      if (call.draw) std::get<PhiloxState>(call.values[call.philox]) = drawn(*call.draw);
      if (call.repeats != nullptr) call.values[call.philox] = *call.repeats;
      dispatch::Results none;
      return call.invoke(call.kernel, call.arguments.data(), none);
    }
    case Call::Kind::Host:
      return call.host();
    case Call::Kind::Update:
      call.host();
      return call.leaf.set_grad({});
    case Call::Kind::Nested:
      return run_nested(call);
    case Call::Kind::Guard:
      return;  // run_up_to_guards looks at it
    case Call::Kind::Gradient: {
      if (!call.grad.defined()) return call.leaf.set_grad({});
      const Tensor made = gradient(call);
      if (const Tensor old = call.leaf.grad(); TG_UNLIKELY(old.defined() && !call.replaces))
        raw::add_(old, made);
      else
        call.leaf.set_grad(made);
      return;
    }
    case Call::Kind::Chain:
      return call.chain->run();
    case Call::Kind::Allocate:
    case Call::Kind::Restore: {
      Slot& slot = r.slots[static_cast<size_t>(call.slot)];
      if (call.kind == Call::Kind::Allocate) allocate_result(call.slot);
      if (!slot.initial.empty()) std::memcpy(slot.own->data(), slot.initial.data(), slot.nbytes);
      return;
    }
  }
}

// Small gradients that a program drops before the next ones are made again in the same place: that is cheaper than a
// new tensor, and a plan keeps little memory by it. Nobody can tell, for nobody else has them.
void Step::allocate_result(int i) {
  Slot& slot = recording_->slots[static_cast<size_t>(i)];
  if (slot.spare.defined()) {
    const TensorImpl& last = *slot.spare.impl();
    const Storage& memory = last.storage();
    if (last.use_count() == 1 && last.weak_count() == 0 && last.python_object() == nullptr && !last.autograd() &&
        memory->use_count() == 1 && memory->weak_count() == 0 && memory->data() == slot.own->data() &&
        memory->nbytes() == slot.nbytes) {
      memory->version().version.store(0, std::memory_order_relaxed);
      slot.real = memory;
      return;
    }
    slot.spare = {};
    spare_bytes_ -= slot.nbytes;
  }
  slot.real = memory_for_result(i);
  place(slot, static_cast<char*>(slot.real->data()));
}

Tensor Step::gradient(const Call& call) {
  constexpr size_t kMostBytes = size_t{1} << 18;
  Slot& slot = recording_->slots[static_cast<size_t>(call.uses[0].slot)];
  if (slot.spare.defined()) {
    const TensorImpl &last = *slot.spare.impl(), &wanted = *call.grad.impl();
    if (last.use_count() == 1 && last.storage() == slot.real && lie_alike(last, wanted)) return slot.spare;
  }
  Tensor made = over_real(call.grad, slot);
  if (!device_ && slot.real && slot.kind == Slot::Kind::Result && !slot.spare.defined() &&
      spare_bytes_ + slot.nbytes <= kMostBytes) {
    slot.spare = made;
    spare_bytes_ += slot.nbytes;
  }
  return made;
}

// Its inputs are tensors that own or share what they lie on, for it may be code of the program that gets them.
void Step::run_nested(Call& call) {
  const Recording& r = *recording_;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Use& use = call.uses[i];
    const Tensor& view = call.inputs[i];
    if (use.slot < 0) {
      inputs.push_back(view);
      continue;
    }
    const Slot& slot = r.slots[static_cast<size_t>(use.slot)];
    if (slot.kind == Slot::Kind::Feed) {
      const auto at = static_cast<size_t>(slot.feed);
      inputs.push_back(over_feed(view, at >= first_feed_ ? feeds_[at - first_feed_] : held_[at], slot.feed));
    } else if (slot.real) {
      inputs.push_back(over_real(view, slot));
    } else {
      Storage storage = part_of(arena_, slot.own->data(), slot.nbytes);
      inputs.emplace_back(make_intrusive<TensorImpl>(std::move(storage), view.dtype(), view.sizes(),
                                                     view.impl()->strides(), view.impl()->offset()));
    }
  }
  const std::vector<Tensor> made = call.nested->run(inputs);
  TG_CHECK(made.size() == call.results.size(), Runtime, "{}: it gave {} tensors, and {} when it was recorded",
           call.name, made.size(), call.results.size());
  for (size_t i = 0; i < made.size(); ++i) {
    const Tensor &from = made[i], &to = call.results[i];
    TG_CHECK(from.is_cpu() && from.dtype() == to.dtype() && from.sizes() == to.sizes(), Runtime,
             "{}: its bodies must give tensors of the same sizes and dtypes: got {}{}, and {}{} when it was recorded",
             call.name, from.dtype(), format_ints(from.sizes()), to.dtype(), format_ints(to.sizes()));
    raw::copy_(to, from);
  }
}

void Step::tell_of_writes(TensorSpan feeds) {
  const Recording& r = *recording_;
  if (part_ == 0)
    for (int i : written_) r.slots[static_cast<size_t>(i)].real->version().bump({"recorded step", 0});
  for (int i : fed_) {
    const Slot& slot = r.slots[static_cast<size_t>(i)];
    const size_t feed = static_cast<size_t>(slot.feed) - first_feed_;
    if (slot.written && static_cast<size_t>(slot.feed) >= first_feed_ && feed < feeds.size())
      feeds[feed].impl()->bump_version("recorded step", 0);
  }
}

std::optional<Step::Diverged> Step::run_part(TensorSpan feeds, size_t first_feed, size_t begin, size_t end) {
  Recording& r = *recording_;
  const NoGradGuard no_grad;
  for (int i : fed_) {
    Slot& slot = r.slots[static_cast<size_t>(i)];
    const size_t feed = static_cast<size_t>(slot.feed) - first_feed;
    if (static_cast<size_t>(slot.feed) < first_feed || feed >= feeds.size()) continue;
    place(slot, static_cast<char*>(feeds[feed].data_ptr()) - r.feeds[static_cast<size_t>(slot.feed)].offset);
  }
  if (device_) enter_device(feeds, first_feed);
  feeds_ = feeds;
  first_feed_ = first_feed;
  part_ = first_feed == 0 && begin == 0 ? 0 : 1;
  bases_.resize(r.generators.size());
  for (size_t i = 0; i < bases_.size(); ++i) {
    const Generator& generator = *r.generators[i].generator;
    bases_[i][part_] = {generator.initial_seed(), generator.offset()};
  }
  if (begin < committed_)
    if (std::optional<Diverged> diverged = run_up_to_guards(feeds, begin, std::min(end, committed_))) return diverged;
  tell_of_writes(feeds);
  run_calls(std::max(begin, std::min(end, committed_)), end);
  if (device_) leave_device(feeds, first_feed);
  for (size_t i = 0; i < bases_.size(); ++i)
    if (const DrawnFrom& g = r.generators[i]; g.set_back)
      g.generator->set_offset(bases_[i][part_].offset + g.end[part_]);
  return {};
}

// Where a guard finds something else, all is put back: memory, gradients, and where generators stand. An error leaves
// what an eager run would leave.
std::optional<Step::Diverged> Step::run_up_to_guards(TensorSpan feeds, size_t begin, size_t end) {
  Recording& r = *recording_;
  struct Gradient {
    Tensor leaf, grad, values;  // what it had; a copy where it is added to
  };
  std::vector<Gradient> gradients;
  // f(bytes of the program, bytes kept, how many)
  auto for_saved = [&](auto&& f) {
    char* at = before_.data();
    for (const Saved& s : saved_) {
      const auto n = static_cast<size_t>(s.end - s.begin);
      f(static_cast<char*>(r.slots[static_cast<size_t>(s.slot)].own->data()) + s.begin, at, n);
      at += n;
    }
  };
  for_saved([](const char* now, char* kept, size_t n) { std::memcpy(kept, now, n); });
  const auto undo = [&] {
    const Uninterrupted uninterrupted;
    for (size_t k = 0; k < bases_.size(); ++k) r.generators[k].generator->set_offset(bases_[k][part_].offset);
    for (; !gradients.empty(); gradients.pop_back()) {
      const Gradient& g = gradients.back();
      if (g.values.defined()) raw::copy_(g.grad, g.values);
      g.leaf.set_grad(g.grad);
    }
    for_saved([](char* now, const char* kept, size_t n) { std::memcpy(now, kept, n); });
  };
  try {
    for (size_t i = begin; i < end; ++i) {
      Call& call = r.calls[i];
      if (call.dead) continue;
      if (call.kind == Call::Kind::Guard) {
        std::string found = call.condition.find(call.inputs[0]);
        if (found == call.condition.found) continue;
        undo();
        return Diverged{call.guard, std::move(found)};
      }
      if (call.kind == Call::Kind::Gradient) {
        Gradient& g = gradients.emplace_back(Gradient{call.leaf, call.leaf.grad(), {}});
        if (g.grad.defined() && call.grad.defined() && !call.replaces) g.values = raw::clone(g.grad);
      }
      run(call);
    }
  } catch (...) {
    tell_of_writes(feeds);
    keep_gradients();
    throw;
  }
  return {};
}

// Between the first weight that is updated early and the end of the optimizer's step there is no way back: Ctrl-C takes
// effect afterwards, and an error says so.
void Step::run_calls(size_t begin, size_t end) {
  Recording& r = *recording_;
  std::optional<Uninterrupted> uninterrupted;
  int updated = 0;
  try {
    for (size_t i = begin; i < end; ++i) {
      if (device_)
        if (const size_t next = run_on_device(i); next > i) {
          i = next - 1;
          continue;
        }
      Call& call = r.calls[i];
      if (call.dead) continue;
      if (call.kind == Call::Kind::Update) {
        if (!uninterrupted) uninterrupted.emplace();
        ++updated;
      }
      run(call);
      if (i == last_update_) {
        uninterrupted.reset();
        updated = 0;
      }
    }
  } catch (Error& e) {
    if (updated > 0)
      e.prepend(fmt::format("recorded step with a memory budget: {} of {} weights were updated before this error: ",
                            updated, memory_use_.updates));
    keep_gradients();
    throw;
  } catch (...) {
    keep_gradients();
    throw;
  }
}

// Of a step that did not come to its end: gradients that it would have cleared stay, in memory of their own.
void Step::keep_gradients() noexcept {
  const Uninterrupted uninterrupted;
  for (const Call& call : recording_->calls) {
    if (call.kind != Call::Kind::Gradient || !call.grad.defined()) continue;
    const Tensor now = call.leaf.grad();
    if (!now.defined() || now.impl()->storage() != recording_->slots[static_cast<size_t>(call.uses[0].slot)].own)
      continue;
    try {
      call.leaf.set_grad(raw::clone(now));
    } catch (...) {
      call.leaf.set_grad({});  // no memory
    }
  }
}

std::vector<Tensor> Step::results(TensorSpan feeds, size_t first_feed, size_t begin, size_t end) {
  const Recording& r = *recording_;
  std::vector<Tensor> results;
  if (device_) hand_out(begin, end);
  results.reserve(end - begin);
  for (size_t i = begin; i < end; ++i) {
    const Output& out = r.outputs[i];
    const Slot& slot = r.slots[static_cast<size_t>(out.slot)];
    if (out.same.defined())
      results.push_back(out.same);
    else if (slot.kind == Slot::Kind::Feed)
      results.push_back(over_feed(out.tensor, feeds[static_cast<size_t>(slot.feed) - first_feed], slot.feed));
    else
      results.push_back(over_real(out.tensor, slot));
  }
  return results;
}

void Step::end() noexcept {
  // What the step made belongs to its receivers.
  for (int i : results_) recording_->slots[static_cast<size_t>(i)].real.reset();
  held_.clear();
  copy_ = {};
}

namespace {
struct Ending {
  Step& step;
  bool wanted = true;
  ~Ending() {
    if (wanted) step.end();
  }
};
}  // namespace

Step::Seen Step::seen(int i) const noexcept {
  const Slot& slot = recording_->slots[static_cast<size_t>(i)];
  const bool fed = slot.kind == Slot::Kind::Feed;
  StorageImpl& storage = fed ? *held_[static_cast<size_t>(slot.feed)].impl()->storage() : *slot.real;
  const uint32_t version = fed ? held_[static_cast<size_t>(slot.feed)].version() : storage.version().version.load();
  return {slot.written_second ? 0 : version, storage.data(), storage.nbytes()};
}

std::vector<Tensor> Step::replay(TensorSpan feeds, std::optional<Diverged>* diverged) {
  Recording& r = *recording_;
  TG_ASSERT(diverged != nullptr || r.path.empty());
  if (!arena_) take_memory();
  Ending ending{*this};
  if (std::optional<Diverged> other = run_part(feeds, 0, 0, r.first_calls)) {
    *diverged = std::move(other);
    return {};
  }
  std::vector<Tensor> made = results(feeds, 0, 0, r.two_parts ? r.first_outputs : r.outputs.size());
  if (r.two_parts) {
    held_.assign(feeds.begin(), feeds.end());
    seen_.clear();
    for (int i : read_second_) seen_.push_back(seen(i));
    ending.wanted = false;
  }
  return made;
}

std::vector<Tensor> Step::replay_second(TensorSpan gradients, bool again) {
  Recording& r = *recording_;
  for (size_t k = 0; k < read_second_.size(); ++k) {
    const Seen now = seen(read_second_[k]);
    TG_CHECK(now == seen_[k], Runtime,
             "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor "
             "that a recorded forward pass used is at version {}; expected version {} instead{}",
             now.version, seen_[k].version, now.data == seen_[k].data ? "" : ", and its memory was exchanged");
  }
  if (copy_.defined())
    raw::copy_(memory_of_temporaries(), copy_);
  else if (again)
    copy_ = raw::clone(memory_of_temporaries());
  Ending ending{*this, !again};
  run_part(gradients, r.first_feeds, r.first_calls, r.calls.size());
  std::vector<Tensor> made = results(gradients, r.first_feeds, r.first_outputs, r.outputs.size());
  if (again)
    for (size_t i = r.first_outputs; i < r.outputs.size(); ++i) {
      Slot& slot = r.slots[static_cast<size_t>(r.outputs[i].slot)];
      if (slot.kind == Slot::Kind::Result) slot.real.reset();
    }
  return made;
}

}  // namespace tapegrad::record
