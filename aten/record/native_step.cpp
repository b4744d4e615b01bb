#include "tapegrad/aten/record/native_step.h"

#include <algorithm>
#include <atomic>

#include "tapegrad/c10/threads/uninterrupted.h"

namespace tapegrad::record {

namespace {

constinit thread_local NativeTrace* tracing = nullptr;
constinit thread_local bool dry = false;
constinit thread_local size_t last_operations = 0;  // of the last one: the next one is often as long
constinit std::atomic<int64_t> traces = 0;

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

int64_t computed(char rule, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fits = true;
  switch (rule) {
    case '+':
      fits = !__builtin_add_overflow(a, b, &result);
      break;
    case '-':
      fits = !__builtin_sub_overflow(a, b, &result);
      break;
    case '*':
      fits = !__builtin_mul_overflow(a, b, &result);
      break;
    case '/':
    case '%': {
      fits = b != 0 && !(b == -1 && a == INT64_MIN);
      if (!fits) break;
      const int64_t rest = a % b;
      const bool below = rest != 0 && (rest < 0) != (b < 0);  // as in Python
      result = rule == '/' ? a / b - (below ? 1 : 0) : rest + (below ? b : 0);
      break;
    }
    case '<':
      return a < b;
    case 'l':
      return a <= b;
    case '=':
      return a == b;
    case '!':
      return a != b;
    case '>':
      return a > b;
    case 'g':
      return a >= b;
  }
  TG_CHECK(fits, Runtime, "a number that it computes from sizes is none");
  return result;
}

// Which of these tensors the result is itself, or -1.
int which_of(const Tensor& result, std::span<const Tensor> operands) {
  const auto found =
      std::find_if(operands.begin(), operands.end(), [&](const Tensor& t) { return t.defined() && t.is_same(result); });
  return found == operands.end() ? -1 : static_cast<int>(found - operands.begin());
}

}  // namespace

// --- run ---

std::vector<Tensor> NativeStep::run(TensorSpan feeds) const {
  std::vector<Tensor> now(last_use.size());
  for (size_t i = 0; i < feeds.size(); ++i) now[static_cast<size_t>(inputs[i])] = feeds[i];
  for (const Constant& c : constants) now[static_cast<size_t>(c.value)] = c.made ? copy_of(c.tensor) : c.tensor;
  std::vector<int64_t> known(symbols);
  auto term = [&](const Term& t) { return t.symbol < 0 ? t.value : known[static_cast<size_t>(t.symbol)]; };
  auto value = [&](int v) { return v < 0 ? Tensor() : now[static_cast<size_t>(v)]; };
  for (size_t i = 0; i < operations.size(); ++i) {
    const Operation& o = operations[i];
    const ModeGuard as_recorded(o.modes, kModeGradMask);
    std::vector<Tensor> made, operands;
    for (const Place& p : o.tensors) operands.push_back(now[static_cast<size_t>(p.value)]);
    for (int v : o.operands) operands.push_back(value(v));
    switch (o.kind) {
      case Operation::Kind::Function: {
        std::vector<Value> arguments = o.arguments;
        for (const Place& p : o.tensors)
          set_tensor(arguments[static_cast<size_t>(p.argument)], p.item, now[static_cast<size_t>(p.value)]);
        for (const Followed& f : o.followed)
          set_integer(arguments[static_cast<size_t>(f.argument)], f.item, known[static_cast<size_t>(f.symbol)]);
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
        DimVector numbers = o.numbers;
        for (const Followed& f : o.followed)
          numbers[static_cast<size_t>(f.item)] = known[static_cast<size_t>(f.symbol)];
        made = o.code(operands, numbers);
        break;
      }
      case Operation::Kind::Host:
        host_call(o.name, o.key, o.host, o.repeatable, o.parts);
        break;
      case Operation::Kind::Size: {
        const DimVector answer = answer_to(value(o.operands[0]), o.asked);
        TG_CHECK(o.symbol >= 0 ? answer.size() == o.answer.size() : answer == o.answer, Runtime,
                 "it reads a size ({}{})", o.name, o.line);
        if (o.symbol >= 0) std::copy(answer.begin(), answer.end(), known.begin() + o.symbol);
        break;
      }
      case Operation::Kind::Number: {
        const int64_t result = computed(o.rule, term(o.terms[0]), term(o.terms[1]));
        TG_CHECK(o.symbol >= 0 || result == o.answer[0], Runtime, "it goes on by a size{}{}", o.line,
                 o.name.empty() ? "" : fmt::format(", {} of {}", o.terms[0].value, o.name));
        if (o.symbol >= 0) known[static_cast<size_t>(o.symbol)] = result;
        break;
      }
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
    for (size_t k = 0; tells_apart && k < o.same.size(); ++k)
      TG_CHECK(which_of(made[k], operands) == o.same[k], Runtime,
               "a function gives what it was given where it did not, or the reverse{}", o.line);
    operands.clear();
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
  bool same = std::all_of(given_back.begin(), given_back.end(),
                          [&](const auto& p) { return value(p.second).is_same(feeds[static_cast<size_t>(p.first)]); });
  for (const Tensor& t : results) same &= which_of(t, feeds) < 0;
  TG_CHECK(same, Runtime, "a result is an argument itself, or is none");
  return results;
}

// --- NativeTrace ---

NativeTrace::NativeTrace(TensorSpan feeds, Recorder& recorder)
    : step_(std::make_unique<NativeStep>()), recorder_(recorder), first_(traces++ << 32) {
  for (const Tensor& t : feeds) {
    if (memory_.contains(t.impl()->storage().get())) refuse("arguments of it share memory");
    step_->inputs.push_back(add(t));
    feeds_.push_back(t.impl());
  }
  step_->operations.reserve(std::min(last_operations, size_t{4096}));
  if (tracing != nullptr) refuse("it is recorded in another step");
  if (!reason_.empty()) return;
  tracing = this;
  recorder_.set_trace(this);
  tapegrad::detail::modes |= kModeTrace;
}

NativeTrace::~NativeTrace() { stop(); }

NativeTrace* NativeTrace::now() noexcept { return (modes() & kModeTrace) != 0 ? tracing : nullptr; }

bool NativeTrace::lives() noexcept { return tracing != nullptr; }

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
  value_of_.try_emplace(t.impl(), number).first = number;
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
  if (const int* found = value_of_.find(t.impl()); found != nullptr && values_[static_cast<size_t>(*found)] == info)
    return *found;
  for (const Tensor& leaf : step_->leaves)
    if (const Tensor grad = leaf.grad(); grad.defined() && grad.impl() == t.impl()) {
      gradient(leaf, grad, true);
      return *value_of_.find(t.impl());
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
    o.code = [](std::span<Tensor> given, std::span<const int64_t>) { return std::vector<Tensor>{given[0].detach()}; };
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
  std::vector<NativeStep::Followed> places;
  std::vector<int64_t> integers;
  std::vector<Tensor> operands;
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
        operands.push_back(t);
        return {};
      };
      o.arguments.push_back(record::value_of(argument, keep));
      if (!given_.empty())
        for_integers(o.arguments.back(), [&](int at, int64_t v) {
          places.push_back({static_cast<int>(i), at, -1});
          integers.push_back(v);
        });
      if (argument.type() == dispatch::ArgumentType::Generator && argument.as<GeneratorPtr>())
        refuse("it is given a random generator");
    }
  }
  if (!given_.empty()) {
    const std::vector<int> symbols = match(integers);
    for (size_t k = 0; k < places.size(); ++k)
      if (symbols[k] >= 0) o.followed.push_back({places[k].argument, places[k].item, symbols[k]});
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
    for (const Tensor& t : results.tensors) {
      o.same.push_back(which_of(t, operands));
      o.results.push_back(t.defined() ? add(t) : -1);
    }
  else  // its geometry may be another one
    for (const NativeStep::Place& p : o.tensors)
      for (const dispatch::Argument& argument : call.arguments)
        if (argument.type() == dispatch::ArgumentType::Tensor)
          if (const Tensor& t = argument.as<Tensor>(); t.defined())
            if (const int* found = value_of_.find(t.impl()); found != nullptr && *found == p.value)
              values_[static_cast<size_t>(p.value)] = info_of(t);
  written = std::move(o);
}

std::vector<Tensor> NativeTrace::code(std::string name, std::vector<Tensor> operands, DimVector numbers,
                                      NativeStep::Code code) {
  std::vector<int> given;
  for (const Tensor& t : operands) given.push_back(value_of(t));
  std::vector<NativeStep::Followed> followed;
  if (!given_.empty()) {
    const std::vector<int> symbols = match({numbers.begin(), numbers.end()});
    for (size_t k = 0; k < symbols.size(); ++k)
      if (symbols[k] >= 0) followed.push_back({0, static_cast<int>(k), symbols[k]});
  }
  std::vector<Tensor> made;
  {
    const ModeGuard off(0, kModeTrace);
    try {
      made = code(operands, numbers);
    } catch (...) {
      refuse(name + " raises");
      throw;
    }
  }
  if (!reason_.empty()) return made;
  auto& o = operation(NativeStep::Operation::Kind::Code);
  o.name = std::move(name);
  o.operands = std::move(given);
  o.followed = std::move(followed);
  o.numbers = std::move(numbers);
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

int NativeTrace::follow(const Tensor& t, const char* what, int which) {
  const size_t before = step_->operations.size();
  asked(t, what, which);
  if (!reason_.empty() || step_->operations.size() == before) return -1;
  NativeStep::Operation& o = step_->operations.back();
  o.symbol = next_symbol();
  symbols_.insert(symbols_.end(), o.answer.begin(), o.answer.end());
  origins_.resize(symbols_.size(), o.name + o.line);
  step_->symbols = symbols_.size();
  return o.symbol;
}

int NativeTrace::number(char rule, NativeStep::Term a, NativeStep::Term b) {
  const int64_t result = computed(rule, a.value, b.value);
  auto& o = operation(NativeStep::Operation::Kind::Number);
  o.rule = rule;
  o.terms[0] = a;
  o.terms[1] = b;
  o.answer = {result};
  if (std::string_view("+-*/%").find(rule) == std::string_view::npos) return -1;
  symbols_.push_back(result);
  origins_.push_back(std::string(1, rule) + o.line);
  step_->symbols = symbols_.size();
  return o.symbol = static_cast<int>(symbols_.size()) - 1;
}

void NativeTrace::pin(int symbol) {
  if (symbol < 0) return;
  const int64_t value = symbols_.at(static_cast<size_t>(symbol));
  number('=', {symbol, value}, {-1, value});
  step_->operations.back().name = origins_[static_cast<size_t>(symbol)];
}

void NativeTrace::pin_given() {
  for (const NativeStep::Term& t : std::exchange(given_, {})) pin(t.symbol);
}

void NativeTrace::given(NativeStep::Term number) { given_.push_back(number); }

// Which of a call's integers are the numbers that it was given. Where that cannot be told, because other integers have
// the same value, or the value is not there, these numbers must be the same.
std::vector<int> NativeTrace::match(const std::vector<int64_t>& integers) {
  std::vector<int> symbols(integers.size(), -1);
  const std::vector<NativeStep::Term> given = std::exchange(given_, {});
  for (size_t i = 0; i < given.size(); ++i) {
    const int64_t value = given[i].value;
    auto same = [&](const NativeStep::Term& t) { return t.value == value; };
    const auto before = std::count_if(given.begin(), given.begin() + static_cast<ptrdiff_t>(i), same);
    const bool clear =
        std::count_if(given.begin(), given.end(), same) == std::count(integers.begin(), integers.end(), value);
    if (!clear) {
      pin(given[i].symbol);
      continue;
    }
    ptrdiff_t skip = before;
    for (size_t k = 0; k < integers.size(); ++k)
      if (integers[k] == value && skip-- == 0) symbols[k] = given[i].symbol;
  }
  return symbols;
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
    o.code = [leaf](std::span<Tensor> operands, std::span<const int64_t>) {
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
  for (size_t i = 0; i < step_->inputs.size(); ++i)
    if (const int v = *value_of_.find(feeds_[i]); v != step_->inputs[i])
      step_->given_back.emplace_back(static_cast<int>(i), v);
  pin_given();
  stop();
  last_operations = step_->operations.size();
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
  for (const auto& [feed, v] : step_->given_back) last[static_cast<size_t>(v)] = step_->operations.size();
  for (int v : step_->outputs) last[static_cast<size_t>(v)] = step_->operations.size();
  return std::move(step_);
}

std::vector<Tensor> native_call(std::string name, std::vector<Tensor> operands, NativeStep::Code code,
                                DimVector numbers) {
  if (NativeTrace* trace = NativeTrace::now())
    return trace->code(std::move(name), std::move(operands), std::move(numbers), std::move(code));
  return code(operands, numbers);
}

void detail::size_asked(const Tensor& t, const char* what, int which) {
  if (NativeTrace* trace = NativeTrace::now()) trace->asked(t, what, which);
}

// --- DryRun ---

DryRun::DryRun(std::span<const Tensor> leaves, std::span<const DrawnFrom> generators) {
  for (const Tensor& leaf : leaves) gradients_.emplace_back(leaf, leaf.grad());
  for (const DrawnFrom& g : generators) offsets_.emplace_back(g.generator, g.generator->offset());
  // Of no elements nothing is drawn, and of others it is.
  offsets_.emplace_back(intrusive_ptr<Generator>(&default_generator()), default_generator().offset());
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
