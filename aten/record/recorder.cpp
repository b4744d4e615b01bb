#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>

#include "tapegrad/aten/dispatch/function.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/guards.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/record/numbers/given.h"
#include "tapegrad/c10/tensor/storage_recorder.h"

namespace tapegrad::record {

std::string (*describe_line)() = nullptr;

namespace {
// The recorder of this thread, or null.
constinit thread_local Recorder* current = nullptr;
// Of the last recording of this thread: the next one is often as long. Large vectors that grow cost more than all else.
constinit thread_local size_t last_calls = 0, last_slots = 0;
constexpr size_t kMostReserved = 4096;
}  // namespace

// What the functions that call sites see do to the recorder.
struct Access {
  static Recorder& now() { return *current; }
  static Recording& recording() { return *current->recording_; }
  static int next_call() { return static_cast<int>(recording().calls.size()); }

  static int slot_of(const Tensor& t) {
    const Storage& storage = t.impl()->storage();
    const auto [found, fresh] = now().slot_of_.try_emplace(storage.get(), static_cast<int>(recording().slots.size()));
    if (!fresh) {
      const Slot& known = recording().slots[static_cast<size_t>(found)];
      if (known.recorded != storage->data()) refuse("the memory of a tensor was exchanged in it (resize_, set_)");
      return found;
    }
    on(storage->device());
    Slot& slot = recording().slots.emplace_back();
    slot.born = now().born_.contains(storage.get());
    slot.seen = weak_intrusive_ptr<StorageImpl>(storage);
    slot.recorded = static_cast<char*>(storage->data());
    slot.nbytes = storage->nbytes();
    slot.own = make_intrusive<StorageImpl>(storage->data(), storage->nbytes(), storage->device(), nullptr, nullptr);
    slot.own->set_read_only(storage->read_only());
    return found;
  }

  static Use use_of(const Tensor& t, const void* address, bool written) {
    Use use{slot_of(t), 0, 0, 0, written};
    Slot& slot = recording().slots[static_cast<size_t>(use.slot)];
    use.offset = static_cast<const char*>(address) - slot.recorded;
    const auto item = static_cast<ptrdiff_t>(t.itemsize());
    use.begin = use.end = t.impl()->offset() * item;
    if (t.numel() > 0) {
      use.end += item;
      for (int d = 0; d < t.ndim(); ++d) use.end += (t.impl()->size(d) - 1) * t.impl()->stride(d) * item;
    }
    const int call = next_call();
    if (slot.first < 0) {
      slot.first = call;
      // Nobody has written it that is known: the host did, and does not in a replay.
      if (slot.born && !written && slot.nbytes > 0) {
        if (t.is_cpu())
          slot.initial.assign(slot.recorded, slot.recorded + slot.nbytes);
        else
          refuse(fmt::format("it uses memory of {} that no recorded call has written: make the tensor outside",
                             t.device()));
      }
    }
    slot.last = std::max(slot.last, call);
    slot.written |= written;
    slot.written_second |= written && recording().two_parts;
    return use;
  }

  // The same view, over the slot's own storage; what the last call had, where it is that.
  static Tensor over_own(const Tensor& t, int slot) {
    Slot& s = recording().slots[static_cast<size_t>(slot)];
    const TensorImpl& seen = *t.impl();
    if (s.view.defined())
      if (const TensorImpl& last = *s.view.impl(); last.dtype() == seen.dtype() && last.offset() == seen.offset() &&
                                                   last.sizes() == seen.sizes() && last.strides() == seen.strides() &&
                                                   last.is_wrapped_number() == seen.is_wrapped_number() &&
                                                   last.is_inference() == seen.is_inference())
        return s.view;
    auto impl = make_intrusive<TensorImpl>(s.own, t.dtype(), t.sizes(), seen.strides(), seen.offset());
    impl->set_wrapped_number(t.is_wrapped_number());
    impl->set_inference(seen.is_inference());
    return s.view = Tensor(std::move(impl));
  }
  // Numbers lie in memory that is used again: by value.
  static Tensor own_number(const Tensor& t) {
    Tensor copy = empty_tensor(t.sizes(), t.dtype());
    std::memcpy(copy.data_ptr(), t.data_ptr(), t.itemsize());
    copy.impl()->set_wrapped_number(true);
    return copy;
  }
  static Tensor keep(Call& call, const Tensor& t, bool written) {
    if (!t.defined()) return t;
    if (t.is_wrapped_number()) {
      call.uses.emplace_back();
      return own_number(t);
    }
    call.uses.push_back(use_of(t, t.data_ptr(), written));
    return over_own(t, call.uses.back().slot);
  }

  static void keep_argument(Call& call, const dispatch::Argument& from, size_t i, bool written);
  static void add(Call&& call) { recording().calls.push_back(std::move(call)); }
  // Makes the call, and keeps it where it raised nothing.
  template <class F>
  static void run(Call&& call, F&& kernel) {
    {
      const ModeGuard off(0, kModeRecord);
      const auto start = std::chrono::steady_clock::now();
      if (DryRun::active())
        recording().dry = true;
      else
        kernel();
      call.seconds = std::chrono::duration<float>(std::chrono::steady_clock::now() - start).count();
    }
    add(std::move(call));
  }
  static void drawn(Generator& generator, uint64_t n, PhiloxState state) {
    if (now().pending_) refuse("random numbers are drawn for something that is not recorded");
    const size_t from = drawn_from(generator, state.seed, state.offset);
    const DrawnFrom& g = recording().generators[from];
    const int part = recording().two_parts && state.offset >= g.base[1] ? 1 : 0;
    now().pending_ = Draw{from, n, part, state.offset - g.base[part], state};
  }
  static size_t drawn_from(Generator& generator, uint64_t seed, uint64_t offset) {
    std::vector<DrawnFrom>& all = recording().generators;
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].generator.get() == &generator) {
        if (all[i].seed != seed) refuse("the seed of a random generator is set in it");
        return i;
      }
    all.push_back({intrusive_ptr<Generator>(&generator), seed, false, {offset, offset}, {0, 0}});
    return all.size() - 1;
  }
  static void generator_set(Generator& generator, uint64_t seed, uint64_t offset) {
    if (now().trace_ != nullptr) now().trace_->refuse("it sets the state of a random generator");
    const uint64_t now_at = generator.offset();
    DrawnFrom& g = recording().generators[drawn_from(generator, generator.initial_seed(), now_at)];
    g.set_back = true;
    // Back to what the step has drawn itself, and forwards again: a checkpoint. Everything else is a state from
    // outside.
    const uint64_t first = g.base[0];
    auto& reached = now().reached_[&generator];
    reached = std::max({reached, now_at, first});
    if (seed != g.seed || offset < first || offset > reached) refuse("the state of a random generator is set in it");
  }
  static void take_draw(Call& call, size_t i, PhiloxState state) {
    auto& pending = now().pending_;
    if (!pending || pending->state.seed != state.seed || pending->state.offset != state.offset)
      return refuse("random numbers come from a place that is not recorded");
    call.draw = std::move(pending);
    call.philox = i;
    pending.reset();
  }
  static Call call_of(Call::Kind kind, const OperatorEntry& op, Device device, AnyKernel kernel) {
    settle_numbers();
    on(device);
    Call call;
    call.kind = kind;
    call.entry = &op;
    call.kernel = kernel;
    return call;
  }
  static void refuse(std::string reason) { now().refuse(std::move(reason)); }
  static void on(Device device) {
    std::optional<Device>& known = recording().device;
    if (!known) known = device;
    if (*known != device) refuse(fmt::format("it uses {} and {}: a recorded step has one device", *known, device));
  }
  static bool has_memory(const Tensor& t) { return t.is_cpu() || t.is_cuda(); }
  static void gradient(const Tensor& leaf, const Tensor& grad, bool known, bool replaces = false) {
    settle_numbers();
    if (now().trace_ != nullptr) now().trace_->gradient(leaf, grad, known);
    Recording& r = recording();
    const StorageImpl* storage = grad.defined() ? grad.impl()->storage().get() : nullptr;
    const bool listed = std::any_of(r.leaves.begin(), r.leaves.end(), [&](const Tensor& t) { return t.is_same(leaf); });
    const bool ours = listed || now().cleared_.contains(leaf.impl());
    if (known) {
      if (grad.defined()) now().kept_.emplace_back(grad.impl()->storage());
      if (!ours) r.gradients.push_back({leaf, storage != nullptr, storage});
      return;
    }
    if (!listed) r.leaves.push_back(leaf);
    if (!ours && !replaces) r.gradients.push_back({leaf, false, nullptr});
    Call call;
    call.kind = Call::Kind::Gradient;
    call.leaf = leaf;
    call.replaces = replaces;
    if (grad.defined()) {
      if (!has_memory(grad)) return refuse("a gradient is not a dense tensor");
      call.grad = keep(call, grad, false);
      // It may be read where nobody is told: until the end.
      r.slots[static_cast<size_t>(call.uses[0].slot)].last = INT32_MAX;
    }
    add(std::move(call));
  }
  static void host(Call call) {
    // What it clears is not as it was before the step.
    if (call.repeatable && call.parts)
      for (const HostPart& part : call.parts().parts)
        if (part.clears) now().cleared_.insert(part.leaf.impl());
    add(std::move(call));
  }
  static bool is_of_step(const Storage& storage) {
    if (now().born_.contains(storage.get())) return true;
    const int* found = now().slot_of_.find(storage.get());
    return found != nullptr && recording().slots[static_cast<size_t>(*found)].feed >= 0;
  }
  static std::vector<Tensor> nested(Call call, TensorSpan inputs);
  static void guard(std::string_view what, const Tensor& t, Condition condition) {
    constexpr int64_t kMostBytes = 1 << 16;
    if (!now().guard_places_ || t.is_sparse() || (condition.kind == Condition::Kind::Bits && t.nbytes() > kMostBytes))
      return detail::host_read(std::string(what).c_str());
    if (!t.is_cpu()) return refuse(fmt::format("{} reads a value on {}", what, t.device()));
    if (recording().two_parts) return refuse(fmt::format("{} reads a value in a backward pass", what));
    Call call;
    call.kind = Call::Kind::Guard;
    call.name = std::string(what);
    call.inputs.push_back(keep(call, t, false));
    const std::optional<size_t> place = now().guard_places_->find(recording(), call.uses[0]);
    if (!place) return refuse(fmt::format("{} reads a value after the step did what cannot be undone", what));
    {
      const ModeGuard off(0, kModeRecord);
      condition.found = condition.find(t);
    }
    recording().read = std::string(what) + (describe_line != nullptr ? describe_line() : "");
    recording().path.push_back(condition);
    call.condition = std::move(condition);
    auto& calls = recording().calls;
    calls.insert(calls.begin() + static_cast<ptrdiff_t>(*place), std::move(call));
    now().guard_places_->placed(*place);
  }
  static bool follows_values() { return now().guard_places_ != nullptr; }
  static void ran(const void* node) { now().nodes_run_.insert(node); }
  static void born(const Storage& made) {
    if (current != nullptr && now().born_.try_emplace(made.get(), 0).second) now().kept_.emplace_back(made);
  }
};

namespace {

[[maybe_unused]] const bool told_of_storages = (storage_recorder = Access::born, true);

}  // namespace

void Access::keep_argument(Call& call, const dispatch::Argument& from, size_t i, bool written) {
  if (from.type() == dispatch::ArgumentType::Philox) take_draw(call, i, from.as<PhiloxState>());
  call.values[i] = value_of(from, [&](const Tensor& t) { return keep(call, t, written); });
  call.arguments[i] = refer_to(call.values[i], from.type());
}

void kernel_call(const OperatorEntry& op, Device device, AnyKernel kernel, dispatch::Invoke invoke,
                 dispatch::Arguments arguments, int outputs) {
  Call call = Access::call_of(Call::Kind::Kernel, op, device, kernel);
  call.invoke = invoke;
  call.arguments.resize(arguments.size());
  call.values = std::make_unique<Value[]>(arguments.size());
  call.uses.reserve(arguments.size());
  const size_t first_output = arguments.size() - static_cast<size_t>(outputs);
  // What is read comes first, so memory that is read before it was written is noticed.
  for (size_t i = 0; i < arguments.size(); ++i)
    Access::keep_argument(call, arguments[i], i, outputs == 0 ? i == 0 : i >= first_output);
  Access::run(std::move(call), [&] {
    dispatch::Results none;
    invoke(kernel, arguments.data(), none);
  });
}

namespace {

Use operand(Call& call, const Tensor& t, char*& address, bool written) {
  if (t.is_wrapped_number() && !written) {
    call.numbers.push_back(Access::own_number(t));
    address = static_cast<char*>(call.numbers.back().data_ptr());
    return {};
  }
  return Access::use_of(t, address, written);
}

}  // namespace

void pointwise_call(const OperatorEntry& op, pointwise::Kernel kernel, const pointwise::Iterator& it,
                    const Tensor& target, std::span<const Tensor* const> inputs) {
  Call call = Access::call_of(Call::Kind::Pointwise, op, it.device, reinterpret_cast<AnyKernel>(kernel));
  call.pointwise = std::make_unique<pointwise::Iterator>(it);
  call.uses.resize(inputs.size() + 1);
  for (size_t i = 0; i < inputs.size(); ++i)
    call.uses[i + 1] = operand(call, *inputs[i], call.pointwise->data[i + 1], false);
  call.uses[0] = operand(call, target, call.pointwise->data[0], true);
  Access::run(std::move(call), [&] { kernel(it); });
}

namespace {

// What a function gives for arguments of these sizes, without a kernel that runs.
void give_without_values(const dispatch::Function& f, std::span<const dispatch::Argument> arguments,
                         dispatch::Results& results) {
  const ModeGuard plain(kModeNoGrad, kModeRecord | kModeTrace);
  const auto without = [](const Tensor& t) {
    if (!t.defined() || t.is_wrapped_number()) return t;
    return Tensor(make_intrusive<TensorImpl>(allocate_storage(t.impl()->storage()->nbytes(), Device(DeviceType::Meta)),
                                             t.dtype(), t.sizes(), t.impl()->strides(), t.impl()->offset()));
  };
  std::vector<Value> values;
  for (const dispatch::Argument& a : arguments) values.push_back(value_of(a, without));
  std::vector<dispatch::Argument> references;
  for (size_t i = 0; i < values.size(); ++i) references.push_back(refer_to(values[i], f.types[i]));
  f.invoke(f.whole, references.data(), results);
  for (Tensor& t : results.tensors)
    if (t.defined())
      t = Tensor(make_intrusive<TensorImpl>(allocate_storage(t.impl()->storage()->nbytes(), Device()), t.dtype(),
                                            t.sizes(), t.impl()->strides(), t.impl()->offset()));
}

}  // namespace

std::vector<Tensor> detail::call_with_numbers(const dispatch::Function& f, std::vector<Value>& arguments,
                                              std::span<const GivenNumber> given) {
  const bool in_place = f.form == dispatch::Form::InPlace;
  std::vector<dispatch::Argument> references;
  for (size_t i = 0; i < arguments.size(); ++i) references.push_back(refer_to(arguments[i], f.types[i]));
  Call call = Access::call_of(Call::Kind::Kernel, *f.entry, Device(), f.whole);
  call.function = &f;
  const Tensor self = in_place ? references[0].tensor() : Tensor();
  if (in_place) Access::use_of(self, self.data_ptr(), false);
  std::vector<Value> kept;
  std::vector<dispatch::ArgumentType> types(f.types.begin(), f.types.end());
  std::vector<std::pair<Tensor, uint32_t>> versions;
  for (size_t i = 0; i < references.size(); ++i)
    kept.push_back(value_of(references[i], [&](const Tensor& t) {
      const bool written = in_place && i == 0;
      if (t.defined() && !(in_place && t.impl()->storage() == self.impl()->storage()))
        versions.emplace_back(t, t.version());
      return Access::keep(call, t, written);
    }));
  const auto keep = [&](const Tensor& t, bool written) {
    kept.emplace_back(Access::keep(call, t, written));
    types.push_back(dispatch::ArgumentType::Tensor);
  };
  if (in_place) keep(self, false);  // which it reads, too
  for (const GivenNumber& g : given) {
    call.given.emplace_back(g.argument, kept.size());
    keep(g.tensor, false);
  }
  dispatch::Results made;
  const uint64_t offset = default_generator().offset();
  if (!DryRun::active()) {
    const ModeGuard off(0, kModeRecord | kModeTrace);
    const auto start = std::chrono::steady_clock::now();
    f.invoke(f.whole, references.data(), made);
    call.seconds = std::chrono::duration<float>(std::chrono::steady_clock::now() - start).count();
  } else {
    Access::recording().dry = true;
    if (!in_place) give_without_values(f, references, made);
  }
  bool plain = made.number.index() == 0 && default_generator().offset() == offset;
  for (const auto& [t, version] : versions) plain &= t.version() == version;
  for (const Tensor& t : made.tensors) plain &= t.defined() && t.is_cpu() && !is_shared(t);
  if (!plain) Access::refuse(fmt::format("item reads a value for {}", f.name));
  for (const Tensor& t : made.tensors) {
    if (!plain) break;
    Access::born(t.impl()->storage());
    keep(t, true);
  }
  call.values = std::make_unique<Value[]>(kept.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    call.values[i] = std::move(kept[i]);
    call.arguments.push_back(refer_to(call.values[i], types[i]));
  }
  Access::add(std::move(call));
  return std::vector<Tensor>(std::make_move_iterator(made.tensors.begin()),
                             std::make_move_iterator(made.tensors.end()));
}

void reduce_call(const OperatorEntry& op, reduce::Kernel kernel, const reduce::Iterator& it, const Tensor& target,
                 const Tensor& input) {
  Call call = Access::call_of(Call::Kind::Reduce, op, it.device, reinterpret_cast<AnyKernel>(kernel));
  call.reduce = std::make_unique<reduce::Iterator>(it);
  char* from = const_cast<char*>(it.input);
  const Use read = operand(call, input, from, false);
  call.reduce->input = from;
  call.uses = {operand(call, target, call.reduce->output, true), read};
  Access::run(std::move(call), [&] { kernel(it); });
}

namespace detail {

void host_read(const char* what) {
  Access::refuse(fmt::format("{} reads a value, and the program may go on by it", what));
}
void new_gradient(const Tensor& leaf, const Tensor& grad, bool replaces) {
  Access::gradient(leaf, grad, false, replaces);
}
void known_gradient(const Tensor& leaf, const Tensor& grad) { Access::gradient(leaf, grad, true); }
void generator_set(Generator& generator, uint64_t seed, uint64_t offset) {
  Access::generator_set(generator, seed, offset);
}
void drawn(Generator& generator, uint64_t n, PhiloxState state) { Access::drawn(generator, n, state); }
void node_ran(const void* node) { Access::ran(node); }
void value_read(std::string_view what, const Tensor& t, Condition::Kind kind, double other) {
  settle_numbers();
  Access::guard(what, t, {kind, std::bit_cast<uint64_t>(other), {}});
}

}  // namespace detail

void host_call(std::string name, std::vector<const void*> key, std::function<void()> run, bool repeatable,
               std::function<HostParts()> parts) {
  if (TG_LIKELY(!active())) return run();
  settle_numbers();
  Call call;
  call.kind = Call::Kind::Host;
  call.repeatable = repeatable;
  call.name = std::move(name);
  call.key = std::move(key);
  call.host = std::move(run);
  call.parts = std::move(parts);
  if (NativeTrace* trace = NativeTrace::now()) trace->host(call);
  if (!DryRun::active()) {
    const ModeGuard off(0, kModeRecord | kModeTrace);
    call.host();
  } else if (call.parts) {
    const ModeGuard off(0, kModeRecord);
    for (const HostPart& part : call.parts().parts)
      if (part.clears) part.leaf.set_grad({});
  }
  Access::host(std::move(call));
}

// What happens in it is its own: another recording may be made of it.
std::vector<Tensor> Access::nested(Call call, TensorSpan inputs) {
  if (now().trace_ != nullptr) now().trace_->refuse("it has branches or loops of its own (" + call.name + ")");
  for (const Tensor& t : inputs) call.inputs.push_back(keep(call, t, false));
  std::vector<uint32_t> versions;
  for (const Tensor& t : inputs) versions.push_back(t.version());
  const Generator& generator = default_generator();
  const uint64_t offset = generator.offset();
  std::vector<Tensor> made;
  {
    struct Apart {
      Recorder* const before = std::exchange(current, nullptr);
      ~Apart() { current = before; }
    } apart;
    const ModeGuard off(0, kModeRecord);
    made = call.nested->run(inputs);
  }
  now().nested_drew_ |= generator.offset() != offset;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].version() != versions[i]) refuse(fmt::format("{} writes to what it is given", call.name));
  for (Tensor& t : made) {
    if (!t.is_cpu()) {
      refuse(fmt::format("a result of {} is on {}: control flow is recorded on the CPU", call.name, t.device()));
      return made;
    }
    call.shares |= is_shared(t);
    {
      const ModeGuard off(kModeNoGrad, kModeRecord);
      t = raw::clone(t, MemoryFormat::Preserve);
    }
    born(t.impl()->storage());
    call.results.push_back(keep(call, t, true));
  }
  add(std::move(call));
  return made;
}

std::vector<Tensor> nested_call(std::string name, std::vector<const void*> key, TensorSpan inputs,
                                std::unique_ptr<Nested> nested) {
  if (!active()) return nested->run(inputs);
  settle_numbers();
  Call call;
  call.kind = Call::Kind::Nested;
  call.name = std::move(name);
  call.key = std::move(key);
  call.nested = std::move(nested);
  return Access::nested(std::move(call), inputs);
}

bool decide(std::string_view what, const Tensor& pred) {
  bool truth;
  {
    const ModeGuard off(0, kModeRecord);
    truth = pred.item().to<bool>();
  }
  note_read(what, pred, Condition::Kind::Truth);
  return truth;
}

bool follows_values() noexcept { return active() && current != nullptr && Access::follows_values(); }
bool has_recorder() noexcept { return current != nullptr; }

void Recorder::set_trace(NativeTrace* trace) noexcept { trace_ = trace; }

bool is_of_step(const Tensor& t) { return active() && Access::is_of_step(t.impl()->storage()); }

void refuse(std::string reason) {
  if (active()) Access::refuse(std::move(reason));
}

Recorder::Recorder(TensorSpan feeds, bool follows_values)
    : recording_(std::make_unique<Recording>()), guard_places_(follows_values ? new GuardPlaces : nullptr) {
  try {
    start(feeds);
  } catch (...) {  // no destructor runs
    stop();
    throw;
  }
}

void Recorder::start(TensorSpan feeds) {
  TG_CHECK(current == nullptr, Runtime, "record: this thread is recording already");
  current = this;
  running_ = true;
  recording_->calls.reserve(std::min(last_calls, kMostReserved));
  recording_->slots.reserve(std::min(last_slots, kMostReserved));
  for (const Tensor& t : feeds) {
    if (!Access::has_memory(t)) {
      refuse(fmt::format("an argument is on {}", t.device()));
      continue;
    }
    const int known = static_cast<int>(recording_->slots.size());
    const Use use = Access::use_of(t, t.data_ptr(), true);
    Slot& slot = recording_->slots[static_cast<size_t>(use.slot)];
    slot.written = false;
    if (use.slot == known) {
      slot.kind = Slot::Kind::Feed;
      slot.feed = static_cast<int>(recording_->feeds.size());
      slot.fed = t.impl()->storage().get();
    } else if (slot.kind != Slot::Kind::Feed) {
      refuse("a gradient shares memory with a tensor of the step");
    }
    recording_->feeds.push_back(
        {t.dtype(), DimVector(t.sizes()), DimVector(t.impl()->strides()), use.begin, use.end, use.slot});
  }
  tapegrad::detail::modes |= kModeRecord;
}

Recorder::~Recorder() { stop(); }

void Recorder::stop() noexcept {
  if (!std::exchange(running_, false)) return;
  drop_numbers();
  current = nullptr;
  tapegrad::detail::modes &= ~static_cast<uint32_t>(kModeRecord);
}

void Recorder::pause(TensorSpan outputs) {
  settle_numbers();
  add_outputs(outputs);
  Recording& r = *recording_;
  r.two_parts = true;
  r.first_calls = r.calls.size();
  r.first_outputs = r.outputs.size();
  r.first_feeds = r.feeds.size();
  for (DrawnFrom& g : r.generators) g.end[0] = g.generator->offset() - g.base[0];
  stop();
}

void Recorder::resume(TensorSpan feeds) {
  for (DrawnFrom& g : recording_->generators) g.base[1] = g.generator->offset();
  start(feeds);
}

void Recorder::refuse(std::string reason) {
  if (!recording_->reason.empty()) return;
  recording_->reason = std::move(reason);
  if (describe_line != nullptr) recording_->reason += describe_line();
}

bool Recorder::wrote(const Tensor& t) const noexcept {
  const int* found = slot_of_.find(t.impl()->storage().get());
  return found != nullptr && recording_->slots[static_cast<size_t>(*found)].written;
}

void Recorder::add_outputs(TensorSpan outputs) {
  Recording& r = *recording_;
  for (const Tensor& t : outputs) {
    Output& out = r.outputs.emplace_back();
    if (!Access::has_memory(t)) {
      refuse(fmt::format("a result is on {}", t.device()));
      continue;
    }
    output_uses_.push_back(Access::use_of(t, t.data_ptr(), false));
    out.slot = output_uses_.back().slot;
    Slot& slot = r.slots[static_cast<size_t>(out.slot)];
    out.needs_grad = t.requires_grad();
    out.tensor = Access::over_own(t, out.slot);
    if (slot.born)
      slot.kind = Slot::Kind::Result;
    else
      out.same = t;
  }
}

// An argument of a later call may be a tensor whose memory ends where its elements do.
void Recorder::refuse_outside_of_arguments() {
  Recording& r = *recording_;
  std::vector<std::pair<ptrdiff_t, ptrdiff_t>> extents(r.slots.size(), {PTRDIFF_MAX, PTRDIFF_MIN});  // of slots
  for (const FeedGeometry& f : r.feeds) {
    auto& known = extents[static_cast<size_t>(f.slot)];
    known = {std::min(known.first, f.offset), std::max(known.second, f.end)};
  }
  auto check = [&](const Use& use) {
    if (use.slot < 0 || r.slots[static_cast<size_t>(use.slot)].kind != Slot::Kind::Feed || use.begin == use.end) return;
    const auto& [begin, end] = extents[static_cast<size_t>(use.slot)];
    if (use.begin < begin || use.end > end) refuse("it reads memory of an argument beyond its elements");
  };
  for (const Call& call : r.calls)
    for (const Use& use : call.uses) check(use);
  for (const Use& use : output_uses_) check(use);
}

// A body may give what it is given, and the next time something else: neither may change afterwards.
void Recorder::check_writes_behind_nested() {
  std::unordered_map<int, const Call*> fixed;
  for (const Call& call : recording_->calls) {
    for (const Use& use : call.uses) {
      const auto found = use.written ? fixed.find(use.slot) : fixed.end();
      if (found == fixed.end()) continue;
      TG_CHECK(!found->second->shares, Runtime,
               "{}: a result of it shares memory with what it was given or with another result, and is written to in a "
               "recorded step\nreturn a clone()",
               found->second->name);
      refuse(fmt::format("what {} was given or gave is written to afterwards: clone() it", found->second->name));
    }
    if (call.kind == Call::Kind::Nested)
      for (const Use& use : call.uses) fixed.emplace(use.slot, &call);
  }
}

std::unique_ptr<Recording> Recorder::finish(TensorSpan outputs, std::span<const void* const> nodes) {
  Recording& r = *recording_;
  settle_numbers();
  if (pending_) refuse("random numbers are drawn for something that is not recorded");
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].requires_grad() && !nodes_run_.contains(nodes[i]))
      refuse("its result needs a gradient, and backward() is outside of it");
  add_outputs(outputs);
  for (DrawnFrom& g : r.generators) {
    const int part = r.two_parts ? 1 : 0;
    g.end[part] = g.generator->offset() - g.base[part];
    if (g.set_back && nested_drew_)
      refuse("a body of control flow draws random numbers, and the generator is set back");
  }
  stop();
  for (const Call& call : r.calls)
    if (call.kind == Call::Kind::Gradient && call.grad.defined()) {
      Slot& slot = r.slots[static_cast<size_t>(call.uses[0].slot)];
      if (slot.kind == Slot::Kind::Feed) refuse("an argument becomes a gradient");
      // Still the leaf's gradient at the end: another one in each step.
      if (const Tensor now = call.leaf.grad();
          slot.born && now.defined() && now.impl()->storage().get() == slot.seen.unsafe_get())
        slot.kind = Slot::Kind::Result;
    }
  refuse_outside_of_arguments();
  check_writes_behind_nested();
  last_calls = r.calls.size();
  last_slots = r.slots.size();
  for (KnownGradient& g : r.gradients)
    if (!slot_of_.contains(g.storage)) g.storage = nullptr;
  for (Slot& slot : r.slots) {
    slot.real = slot.seen.lock();
    if (slot.kind == Slot::Kind::Feed || slot.kind == Slot::Kind::Result) {
      slot.real.reset();
    } else if (!slot.born) {
      if (!slot.real) refuse("a tensor that it used was replaced by another one");
    } else {
      if (slot.real)
        refuse(fmt::format("{} bytes that it made are kept somewhere: give them back as a result", slot.nbytes));
      slot.kind = Slot::Kind::Temporary;
      slot.real.reset();
    }
    slot.seen.reset();
  }
  return std::move(recording_);
}

}  // namespace tapegrad::record
