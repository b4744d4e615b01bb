#include "tapegrad/aten/record/native_step.h"

#include <algorithm>
#include <cstring>

#include "tapegrad/c10/threads/uninterrupted.h"

namespace tapegrad::record {

namespace {

constinit thread_local NativeTrace* tracing = nullptr;
constinit thread_local bool dry = false;

Tensor copy_of(const Tensor& t) {
  const ModeGuard plain(kModeNoGrad, kModeTrace | kModeRecord);
  Tensor copy(make_intrusive<TensorImpl>(allocate_storage(t.impl()->storage()->nbytes(), Device()), t.dtype(),
                                         t.sizes(), t.strides(), t.storage_offset()));
  std::memcpy(copy.impl()->storage()->data(), t.impl()->storage()->data(), t.impl()->storage()->nbytes());
  return copy;
}

DimVector answer_to(const Tensor& t, int which) {
  switch (which) {
    case kAskedSizes:
      return DimVector(t.sizes());
    case kAskedNdim:
      return {t.ndim()};
    case kAskedNumel:
      return {t.numel()};
    case kAskedGeometry: {
      DimVector all(t.sizes());
      for (int64_t stride : t.impl()->strides()) all.push_back(stride);
      all.push_back(t.impl()->offset());
      return all;
    }
    default:
      return {which < t.ndim() ? t.impl()->size(which) : -1};
  }
}

}  // namespace

// --- run ---

std::vector<Tensor> NativeStep::run(TensorSpan feeds) const {
  std::vector<Tensor> now(last_use.size());
  for (size_t i = 0; i < feeds.size(); ++i) now[static_cast<size_t>(inputs[i])] = feeds[i];
  for (const Constant& c : constants) now[static_cast<size_t>(c.value)] = c.made ? copy_of(c.tensor) : c.tensor;
  auto value = [&](int v) { return v < 0 ? Tensor() : now[static_cast<size_t>(v)]; };
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& o = operations[i];
    const ModeGuard as_recorded(o.modes, kModeGradMask);
    std::vector<Tensor> made;
    switch (o.kind) {
      case Operation::Kind::Function: {
        std::vector<Value> arguments = o.arguments;
        for (const Place& p : o.tensors) {
          Value& v = arguments[static_cast<size_t>(p.argument)];
          const Tensor& t = now[static_cast<size_t>(p.value)];
          if (p.item >= 0)
            std::get<ListValue>(v).tensors[static_cast<size_t>(p.item)] = t;
          else if (std::holds_alternative<Operand>(v))
            v = Operand(t);
          else
            v = t;
        }
        std::vector<dispatch::Argument> references;
        for (size_t k = 0; k < arguments.size(); ++k)
          references.push_back(refer_to(arguments[k], o.function->types[k]));
        dispatch::Results results;
        o.function->invoke(o.function->whole, references.data(), results);
        TG_CHECK(results.number == o.number, Runtime, "{} gives another number{}", o.function->name, o.line);
        if (o.function->form == dispatch::Form::Value) made.assign(results.tensors.begin(), results.tensors.end());
        break;
      }
      case Operation::Kind::Code: {
        std::vector<Tensor> operands;
        for (int v : o.operands) operands.push_back(value(v));
        made = o.code(operands);
        break;
      }
      case Operation::Kind::Host:
        host_call(o.name, o.key, o.host, o.repeatable, o.parts);
        break;
      case Operation::Kind::Size:
        TG_CHECK(answer_to(value(o.operands[0]), o.asked) == o.answer, Runtime, "it reads a size ({}{})", o.name,
                 o.line);
        break;
      case Operation::Kind::Gradient: {
        Tensor grad = o.leaf.grad();
        TG_CHECK(grad.defined() == o.defined, Runtime, "it asks whether a gradient is there{}", o.line);
        note_known_gradient(o.leaf, grad);
        made.push_back(std::move(grad));
        break;
      }
    }
    const bool same = made.size() == o.results.size();
    TG_CHECK(same, Runtime, "{} tensors come of a call that gave {}{}", made.size(), o.results.size(), o.line);
    for (size_t k = 0; k < made.size(); ++k) {
      TG_CHECK(made[k].defined() == (o.results[k] >= 0), Runtime, "a call gives another tensor{}", o.line);
      if (made[k].defined()) now[static_cast<size_t>(o.results[k])] = std::move(made[k]);
    }
    auto release = [&](int v) {
      if (v >= 0 && last_use[static_cast<size_t>(v)] == i) now[static_cast<size_t>(v)].reset();
    };
    for (const Place& p : o.tensors) release(p.value);
    for (int v : o.operands) release(v);
    for (int v : o.results) release(v);
  }
  std::vector<Tensor> results;
  for (int v : outputs) results.push_back(value(v));
  return results;
}

// --- NativeTrace ---

NativeTrace::NativeTrace(TensorSpan feeds, Recorder& recorder)
    : step_(std::make_unique<NativeStep>()), recorder_(recorder) {
  for (const Tensor& t : feeds) {
    if (memory_.contains(t.impl()->storage().get())) refuse("arguments of it share memory");
    step_->inputs.push_back(add(t));
  }
  if (tracing != nullptr) refuse("it is recorded in another step");
  if (!reason_.empty()) return;
  tracing = this;
  recorder_.set_trace(this);
  tapegrad::detail::modes |= kModeTrace;
}

NativeTrace::~NativeTrace() { stop(); }

NativeTrace* NativeTrace::now() noexcept { return (modes() & kModeTrace) != 0 ? tracing : nullptr; }

void NativeTrace::stop() noexcept {
  if (tracing != this) return;
  tracing = nullptr;
  recorder_.set_trace(nullptr);
  tapegrad::detail::modes &= ~static_cast<uint32_t>(kModeTrace);
}

void NativeTrace::refuse(std::string reason) {
  if (!reason_.empty()) return;
  reason_ = std::move(reason);
  if (describe_line != nullptr) reason_ += describe_line();
}

NativeTrace::Info NativeTrace::info_of(const Tensor& t) {
  const TensorImpl& i = *t.impl();
  return {i.storage().get(), t.dtype(), i.offset(), DimVector(i.sizes()), DimVector(i.strides())};
}

int NativeTrace::add(const Tensor& t) {
  const int number = static_cast<int>(values_.size());
  values_.push_back(info_of(t));
  value_of_[t.impl()] = number;
  if (memory_.try_emplace(t.impl()->storage().get(), number).second) kept_.emplace_back(t.impl()->storage());
  return number;
}

NativeStep::Operation& NativeTrace::operation(NativeStep::Operation::Kind kind) {
  NativeStep::Operation& o = step_->operations.emplace_back();
  o.kind = kind;
  o.modes = modes() & kModeGradMask;
  if (describe_line != nullptr) o.line = describe_line();
  return o;
}

int NativeTrace::value_of(const Tensor& t) {
  if (!t.defined() || !reason_.empty()) return -1;
  if (!t.is_cpu() || t.is_sparse() || t.is_batched()) {
    refuse("a tensor of it is not a dense one on the CPU");
    return -1;
  }
  const Info info = info_of(t);
  // A tensor that is gone may have left its address to another one.
  if (const auto found = value_of_.find(t.impl());
      found != value_of_.end() && values_[static_cast<size_t>(found->second)] == info)
    return found->second;
  for (const Tensor& leaf : step_->leaves)
    if (const Tensor grad = leaf.grad(); grad.defined() && grad.impl() == t.impl()) {
      gradient(leaf, grad, true);
      return value_of_.at(t.impl());
    }
  if (memory_.contains(info.storage)) {
    const auto same = std::find(values_.rbegin(), values_.rend(), info);
    if (same == values_.rend() || t.requires_grad()) {
      refuse("it uses a view that no operator made");
      return -1;
    }
    auto& o = operation(NativeStep::Operation::Kind::Code);
    o.name = "detach";
    o.operands = {static_cast<int>(values_.rend() - same) - 1};
    o.code = [](std::span<Tensor> given) { return std::vector<Tensor>{given[0].detach()}; };
    const int number = add(t);
    step_->operations.back().results = {number};
    return number;
  }
  const bool made = is_of_step(t);
  if (made && recorder_.wrote(t)) {
    refuse("it uses a tensor that was computed by something that is no function of an operator");
    return -1;
  }
  const int number = add(t);
  step_->constants.push_back({number, made ? copy_of(t) : t, made});
  return number;
}

void NativeTrace::call(dispatch::Call& call, dispatch::Results& results) {
  using Kind = NativeStep::Operation::Kind;
  const dispatch::Function& f = call.function;
  NativeStep::Operation o;
  if ((modes() & ~uint32_t{kModeNoGrad | kModeRecord | kModeTrace}) != 0) refuse("a mode is on in it");
  if (reason_.empty()) {
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      const dispatch::Argument& argument = call.arguments[i];
      int item = argument.is_list() ? 0 : -1;
      auto keep = [&](const Tensor& t) -> Tensor {
        const int at = item < 0 ? -1 : item++;
        if (!t.defined()) return {};
        if (t.is_wrapped_number()) return Operand(t.item()).tensor();
        o.tensors.push_back({static_cast<int>(i), at, value_of(t)});
        return {};
      };
      o.arguments.push_back(record::value_of(argument, keep));
      if (argument.type() == dispatch::ArgumentType::Generator && argument.as<GeneratorPtr>())
        refuse("it is given a random generator");
    }
  }
  {
    const ModeGuard off(0, kModeTrace);
    try {
      call.proceed(results);
    } catch (...) {
      refuse(fmt::format("{} raises", f.name));
      throw;
    }
  }
  if (!reason_.empty()) return;
  auto& written = operation(Kind::Function);
  o.kind = written.kind;
  o.modes = written.modes;
  o.line = std::move(written.line);
  o.function = &f;
  o.number = results.number;
  if (f.form == dispatch::Form::Value)
    for (const Tensor& t : results.tensors) o.results.push_back(t.defined() ? add(t) : -1);
  else  // its geometry may be another one
    for (const NativeStep::Place& p : o.tensors)
      for (const dispatch::Argument& argument : call.arguments)
        if (argument.type() == dispatch::ArgumentType::Tensor)
          if (const Tensor& t = argument.as<Tensor>(); t.defined())
            if (const auto found = value_of_.find(t.impl()); found != value_of_.end() && found->second == p.value)
              values_[static_cast<size_t>(p.value)] = info_of(t);
  written = std::move(o);
}

std::vector<Tensor> NativeTrace::code(std::string name, std::vector<Tensor> operands, NativeStep::Code code) {
  std::vector<int> given;
  for (const Tensor& t : operands) given.push_back(value_of(t));
  std::vector<Tensor> made;
  {
    const ModeGuard off(0, kModeTrace);
    try {
      made = code(operands);
    } catch (...) {
      refuse(name + " raises");
      throw;
    }
  }
  if (!reason_.empty()) return made;
  auto& o = operation(NativeStep::Operation::Kind::Code);
  o.name = std::move(name);
  o.operands = std::move(given);
  o.code = std::move(code);
  for (const Tensor& t : made) o.results.push_back(t.defined() ? add(t) : -1);
  return made;
}

void NativeTrace::host(const Call& call) {
  if (call.parts)
    for (const HostPart& part : call.parts().parts) add_leaf(part.leaf);
  auto& o = operation(NativeStep::Operation::Kind::Host);
  o.name = call.name;
  o.key = call.key;
  o.host = call.host;
  o.repeatable = call.repeatable;
  o.parts = call.parts;
}

void NativeTrace::asked(const Tensor& t, const char* what, int which) {
  if (!reason_.empty() || !is_of_step(t)) return;  // what was there before has its size
  const int value = value_of(t);
  if (value < 0) return;
  auto& o = operation(NativeStep::Operation::Kind::Size);
  o.name = what;
  o.operands = {value};
  o.asked = which;
  o.answer = answer_to(t, which);
}

void NativeTrace::add_leaf(const Tensor& leaf) {
  auto same = [&](const Tensor& t) { return t.is_same(leaf); };
  if (std::none_of(step_->leaves.begin(), step_->leaves.end(), same)) step_->leaves.push_back(leaf);
}

void NativeTrace::gradient(const Tensor& leaf, const Tensor& grad, bool known) {
  if (is_of_step(leaf)) return refuse("it takes the gradient of a tensor that it made");
  add_leaf(leaf);
  if (!reason_.empty() || NativeTrace::now() != this) return;  // the backward pass sets it
  if (!known) {
    const std::vector<int> given{value_of(grad)};
    auto& o = operation(NativeStep::Operation::Kind::Code);
    o.name = "grad";
    o.operands = given;
    o.code = [leaf](std::span<Tensor> operands) {
      leaf.set_grad(operands[0]);
      return std::vector<Tensor>();
    };
    return;
  }
  auto& o = operation(NativeStep::Operation::Kind::Gradient);
  o.leaf = leaf;
  o.defined = grad.defined();
  o.results = {grad.defined() ? add(grad) : -1};
}

std::unique_ptr<NativeStep> NativeTrace::finish(TensorSpan outputs) {
  for (const Tensor& t : outputs) step_->outputs.push_back(value_of(t));
  stop();
  if (!reason_.empty()) return nullptr;
  step_->last_use.assign(values_.size(), step_->operations.size());
  std::vector<size_t>& last = step_->last_use;
  for (size_t i = 0; i < step_->operations.size(); ++i) {
    const NativeStep::Operation& o = step_->operations[i];
    auto use = [&](int v) {
      if (v >= 0) last[static_cast<size_t>(v)] = i;
    };
    for (const NativeStep::Place& p : o.tensors) use(p.value);
    for (int v : o.operands) use(v);
    for (int v : o.results) use(v);
  }
  for (int v : step_->outputs) last[static_cast<size_t>(v)] = step_->operations.size();
  return std::move(step_);
}

std::vector<Tensor> native_call(std::string name, std::vector<Tensor> operands, NativeStep::Code code) {
  if (NativeTrace* trace = NativeTrace::now()) return trace->code(std::move(name), std::move(operands), std::move(code));
  return code(operands);
}

void detail::size_asked(const Tensor& t, const char* what, int which) {
  if (NativeTrace* trace = NativeTrace::now()) trace->asked(t, what, which);
}

// --- DryRun ---

DryRun::DryRun(std::span<const Tensor> leaves, std::span<const DrawnFrom> generators) {
  for (const Tensor& leaf : leaves) gradients_.emplace_back(leaf, leaf.grad());
  for (const DrawnFrom& g : generators) offsets_.emplace_back(g.generator, g.generator->offset());
  dry = true;
}

DryRun::~DryRun() {
  const Uninterrupted uninterrupted;
  dry = false;
  for (const auto& [leaf, grad] : gradients_) leaf.set_grad(grad);
  for (const auto& [generator, offset] : offsets_) generator->set_offset(offset);
}

bool DryRun::active() noexcept { return dry; }

}  // namespace tapegrad::record
