#include "tapegrad/aten/record/tracer.h"

#include <algorithm>

#include "tapegrad/aten/record/control.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/record/numbers/given.h"

namespace tapegrad::record {

namespace {

// The tracer of this thread, or null.
constinit thread_local Tracer* current = nullptr;

std::vector<Tensor> tensors_of(const NamedValues& named) {
  std::vector<Tensor> all;
  for (const auto& [name, t] : named) all.push_back(t);
  return all;
}

bool same_view(const TensorImpl& a, const TensorImpl& b) {
  return a.storage() == b.storage() && a.dtype() == b.dtype() && a.offset() == b.offset() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

}  // namespace

struct TraceHandler {
  static void handle(dispatch::Call& call, dispatch::Results& results) {
    if (current != nullptr) return current->call(call, results);
    if (take_numbers(call, results)) return;
    if (NativeTrace* trace = NativeTrace::now()) return trace->call(call, results);
    call.proceed(results);
  }
};

namespace {
const dispatch::Registration registration({dispatch::kOrderTrace, dispatch::Stage::Public, kModeTrace,
                                           &TraceHandler::handle});
}  // namespace

Tracer::Tracer(const NamedValues& inputs, const NamedValues& weights)
    : program_(std::make_unique<Program>()),
      own_recorder_(std::make_unique<Recorder>(tensors_of(inputs))),
      recorder_(*own_recorder_) {
  for (const auto& [name, t] : inputs) {
    TG_ASSERT(t.is_contiguous() && t.storage_offset() == 0 && !memory_of_.contains(t.impl()->storage().get()));
    program_->inputs.push_back(add(t, name));
  }
  for (const auto& [name, t] : weights)
    if (!value_of_.contains(t.impl())) program_->values[static_cast<size_t>(add(t, name))].constant = t;
  current = this;
  tapegrad::detail::modes |= kModeTrace;
}

Recorder& Tracer::recorder_of_this_thread() {
  TG_CHECK(current != nullptr, Runtime, "control flow: this thread traces nothing");
  return current->recorder_;
}

Tracer::Tracer(TensorSpan inputs)
    : program_(std::make_unique<Program>()), recorder_(recorder_of_this_thread()), parent_(current) {
  for (const Tensor& t : inputs) program_->inputs.push_back(add(t, "operand"));
  current = this;
}

bool Tracer::active() noexcept { return current != nullptr; }

bool Tracer::knows(const Tensor& t) const {
  return value_of_.contains(t.impl()) || memory_of_.contains(t.impl()->storage().get()) ||
         (parent_ != nullptr && parent_->knows(t));
}

Tracer::Body Tracer::finish_body(TensorSpan outputs) {
  for (const Tensor& t : outputs) program_->outputs.push_back(value_of(t));
  for (int v : program_->inputs)
    if (program_->values[static_cast<size_t>(v)].written)
      recorder_.refuse("a body of control flow writes to what it is given");
  stop();
  return {std::move(program_), std::move(captured_)};
}

std::vector<Tensor> Tracer::control(Program::Control control, std::vector<Body> bodies, TensorSpan first,
                                    TensorSpan operands) {
  TG_CHECK(current != nullptr, Runtime, "control flow: this thread traces nothing");
  Program::Operation operation;
  operation.control = control;
  std::vector<ListValue> lists(3);
  lists[0].tensors.assign(first.begin(), first.end());
  for (size_t k = 0; k < 2; ++k) {
    if (control == Program::Control::Cond) lists[k + 1].tensors.assign(operands.begin(), operands.end());
    for (const Tensor& t : bodies[k].captured) lists[k + 1].tensors.push_back(t);
    operation.bodies.push_back(std::move(bodies[k].program));
  }
  for (size_t k = 0; k < lists.size(); ++k) {
    ListValue absent;
    for (size_t i = 0; i < lists[k].tensors.size(); ++i) {
      operation.tensors.push_back({static_cast<int>(k), static_cast<int>(i), current->value_of(lists[k].tensors[i])});
      absent.tensors.emplace_back();
    }
    operation.arguments.emplace_back(std::move(absent));
  }
  std::vector<Tensor> results;
  if (current->recorder_.reason().empty()) {
    const ModeGuard off(0, kModeTrace | kModeRecord);
    results = run_control(operation, lists, {});
  }
  current->write_control(std::move(operation), results);
  return results;
}

namespace {
// Whether a result of a body may be what it was given, or another result.
bool passes_on(const Program& body) {
  std::unordered_set<int> known;
  for (int v : body.inputs) known.insert(body.values[static_cast<size_t>(v)].memory);
  for (const Program::ValueInfo& info : body.values)
    if (info.constant.defined()) known.insert(info.memory);
  return std::any_of(body.outputs.begin(), body.outputs.end(),
                     [&](int v) { return !known.insert(body.values[static_cast<size_t>(v)].memory).second; });
}
}  // namespace

void Tracer::write_control(Program::Operation operation, const std::vector<Tensor>& results) {
  if (describe_line != nullptr) operation.line = describe_line();
  for (const Tensor& t : results) operation.results.push_back(add(t, std::string(operation.id())));
  if (std::any_of(operation.bodies.begin(), operation.bodies.end(), [](const auto& b) { return passes_on(*b); })) {
    for (const Program::Place& p : operation.tensors)
      fixed_.insert(program_->values[static_cast<size_t>(p.value)].memory);
    for (int v : operation.results) fixed_.insert(program_->values[static_cast<size_t>(v)].memory);
  }
  program_->operations.push_back(std::move(operation));
}

Tracer::~Tracer() { stop(); }

void Tracer::stop() noexcept {
  if (current != this) return;
  current = parent_;
  if (parent_ != nullptr) return;
  tapegrad::detail::modes &= ~static_cast<uint32_t>(kModeTrace);
}

std::string Tracer::fresh_name(std::string base) {
  const int before = named_[base]++;
  return before == 0 ? base : fresh_name(fmt::format("{}_{}", base, before));
}

int Tracer::add(const Tensor& t, std::string name) {
  const int number = static_cast<int>(program_->values.size());
  Program::ValueInfo& info = program_->values.emplace_back();
  info.name = fresh_name(std::move(name));
  info.dtype = t.dtype();
  info.sizes = DimVector(t.sizes());
  info.memory = memory_of_.try_emplace(t.impl()->storage().get(), static_cast<int>(memory_of_.size())).first->second;
  value_of_[t.impl()] = number;
  kept_.push_back(t);
  return number;
}

int Tracer::value_of(const Tensor& t) {
  if (const auto found = value_of_.find(t.impl()); found != value_of_.end()) return found->second;
  if (parent_ != nullptr && !memory_of_.contains(t.impl()->storage().get()) && parent_->knows(t)) {
    const int outer = parent_->value_of(t);
    const int number = add(t, parent_->program_->values[static_cast<size_t>(outer)].name);
    program_->inputs.push_back(number);
    captured_.push_back(t);
    return number;
  }
  if (!t.is_cpu()) {
    recorder_.refuse(fmt::format("a tensor is on {}: programs run on the CPU", t.device()));
    return add(t, "unknown");
  }
  const bool known = memory_of_.contains(t.impl()->storage().get());
  if (known)
    for (size_t i = kept_.size(); i-- > 0;)  // the same view as another object: `.data`
      if (same_view(*kept_[i].impl(), *t.impl())) {
        const int number = value_of_.at(kept_[i].impl());
        kept_.push_back(t);
        return value_of_[t.impl()] = number;
      }
  if (known)
    recorder_.refuse("it uses a view that no operator made");
  else if (recorder_.wrote(t))
    recorder_.refuse("it uses a tensor that was computed by something that is no operator (a backward pass)");
  const int number = add(t, "constant");
  program_->values[static_cast<size_t>(number)].constant = known ? t : copy_of(t);
  return number;
}

void Tracer::call(dispatch::Call& call, dispatch::Results& results) {
  const dispatch::Function& f = call.function;
  Program::Operation operation;
  const auto n = static_cast<int>(call.arguments.size());
  for (int i = 0; i < n; ++i) {
    const dispatch::Argument& argument = call.arguments[static_cast<size_t>(i)];
    int item = argument.is_list() ? 0 : -1;
    auto keep = [&](const Tensor& t) -> Tensor {
      const int at = item < 0 ? -1 : item++;
      if (!t.defined()) return {};
      if (t.is_wrapped_number()) return Operand(t.item()).tensor();
      operation.tensors.push_back({i, at, value_of(t)});
      return {};
    };
    operation.arguments.push_back(record::value_of(argument, keep));
    if (argument.type() == dispatch::ArgumentType::Generator && argument.as<GeneratorPtr>())
      recorder_.refuse("it is given a random generator");
  }
  {
    const ModeGuard off(0, kModeTrace);
    call.proceed(results);
  }
  if (!std::holds_alternative<std::monostate>(results.number)) return;  // of sizes; values that are read are refused
  for (const Program::Place& place : operation.tensors) {
    const bool writes = f.form == dispatch::Form::InPlace ? place.argument == 0 : f.form == dispatch::Form::Out;
    Program::ValueInfo& info = program_->values[static_cast<size_t>(place.value)];
    if (!writes) continue;
    if (fixed_.contains(info.memory))
      recorder_.refuse("what control flow was given or gave is written to afterwards: clone() it");
    for (Program::ValueInfo& other : program_->values) other.written |= other.memory == info.memory;
  }
  operation.function = dispatch::find_function(dispatch::id_of(f));
  if (describe_line != nullptr) operation.line = describe_line();
  if (f.form == dispatch::Form::Value)
    for (size_t i = 0; i < results.tensors.size(); ++i)
      operation.results.push_back(results.tensors[i].defined() ? add(results.tensors[i], f.name) : -1);
  program_->operations.push_back(std::move(operation));
}

bool Tracer::name(const Tensor& t, std::string name) {
  if (current == nullptr) return false;
  const auto found = current->value_of_.find(t.impl());
  if (found == current->value_of_.end()) return false;
  current->program_->values[static_cast<size_t>(found->second)].name = current->fresh_name(std::move(name));
  return true;
}

std::unique_ptr<Program> Tracer::finish(TensorSpan outputs) {
  for (const Tensor& t : outputs) program_->outputs.push_back(value_of(t));
  for (const Tensor& t : kept_) {
    Program::ValueInfo& info = program_->values[static_cast<size_t>(value_of_.at(t.impl()))];
    // A constant of its own was copied when it was first seen; a weight is the program's.
    if (info.constant.is_same(t) && recorder_.wrote(t))
      recorder_.refuse(fmt::format("it writes to {}, which was there before (a module in training mode?)", info.name));
  }
  stop();
  for (int v : program_->inputs) program_->values[static_cast<size_t>(v)].written = false;  // as the code does it
  const std::string reason = recorder_.reason();
  TG_CHECK(reason.empty(), Runtime, "no program can be made of it: {}", reason);
  return std::move(program_);
}

}  // namespace tapegrad::record
