#include "tapegrad/aten/record/numbers/given.h"

#include <algorithm>
#include <bit>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/record/tracer.h"

namespace tapegrad::record {

constinit thread_local bool detail::numbers_wait = false;

namespace {

struct Given {
  Tensor tensor;
  Scalar value;
  std::string function;
};
// What was read for the next function of this thread.
thread_local std::vector<Given> waiting;
constinit thread_local bool listens = false;  // kModeTrace is on for them alone

std::vector<Given> take() noexcept {
  detail::numbers_wait = false;
  if (std::exchange(listens, false)) tapegrad::detail::modes &= ~static_cast<uint32_t>(kModeTrace);
  return std::exchange(waiting, {});
}

void count_as_read(const std::vector<Given>& all) {
  for (const Given& g : all) note_read("item", g.tensor);
}

std::string_view without_underscore(std::string_view name) {
  if (name.ends_with('_')) name.remove_suffix(1);
  return name;
}

bool is_number(const Value& v, const Scalar& number) {
  if (const auto* scalar = std::get_if<Scalar>(&v)) return same_number(*scalar, number);
  if (const auto* maybe = std::get_if<std::optional<Scalar>>(&v)) return *maybe && same_number(**maybe, number);
  const auto* real = std::get_if<double>(&v);
  const auto* maybe_real = std::get_if<std::optional<double>>(&v);
  if (maybe_real != nullptr && *maybe_real) real = &**maybe_real;
  if (real != nullptr)
    return !number.is_complex() && std::bit_cast<uint64_t>(*real) == std::bit_cast<uint64_t>(number.to<double>());
  const Operand* operand = number_operand(v);
  return operand != nullptr && same_number(operand->tensor().item(), number);
}

// A call whose arguments are taken apart: numbers and lists by value, and where its tensors belong.
struct Parts {
  std::vector<Value> arguments;
  std::vector<std::pair<size_t, int>> places;  // of tensors: the argument, and the item of a list
  std::vector<Tensor> tensors;
  std::vector<size_t> given;  // the argument of each number
};

// None where the call cannot be kept as one.
std::optional<Parts> take_apart(const dispatch::Call& call, const std::vector<Given>& numbers) {
  const dispatch::Function& f = call.function;
  for (const Given& g : numbers)
    if (without_underscore(f.name) != g.function) return {};
  if (f.form == dispatch::Form::Out || (modes() & ~uint32_t{kModeNoGrad | kModeRecord | kModeTrace}) != 0) return {};
  Parts parts;
  bool plain = true, sized = false;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const dispatch::Argument& argument = call.arguments[i];
    int item = argument.is_list() ? 0 : -1;
    parts.arguments.push_back(value_of(argument, [&](const Tensor& t) -> Tensor {
      const int at = item < 0 ? -1 : item++;
      if (!t.defined()) return {};
      if (t.is_wrapped_number()) return Operand(t.item()).tensor();
      plain &= t.is_cpu() && !t.is_sparse() && !t.is_batched() && !(grad_enabled() && t.impl()->needs_grad());
      parts.places.emplace_back(i, at);
      parts.tensors.push_back(t);
      return {};
    }));
    plain &= argument.type() != dispatch::ArgumentType::Generator;
    sized |= argument.type() == dispatch::ArgumentType::Ints;
  }
  // Else the numbers may say how large the result is (arange).
  if (!plain || !(sized || !parts.tensors.empty())) return {};
  for (const Given& g : numbers) {
    std::vector<size_t> places;
    for (size_t i = 0; i < parts.arguments.size(); ++i)
      if (is_number(parts.arguments[i], g.value)) places.push_back(i);
    size_t before = 0, all = 0;
    for (const Given& other : numbers) {
      if (!same_number(other.value, g.value)) continue;
      if (!other.tensor.is_same(g.tensor)) return {};
      before += &other < &g;
      ++all;
    }
    if (places.size() != all) return {};
    parts.given.push_back(places[before]);
  }
  return parts;
}

}  // namespace

Scalar detail::number_given(const Tensor& t, const char* function) {
  const bool paused = NativeTrace::lives() && NativeTrace::now() == nullptr;
  if (!follows_values() || Tracer::active() || paused || t.is_wrapped_number() || !t.is_cpu() || t.is_sparse() ||
      t.is_batched() || t.numel() != 1)
    return t.item();
  Scalar value;
  {
    const ModeGuard off(0, kModeRecord | kModeTrace);
    value = t.item();
  }
  waiting.push_back({t, value, std::string(without_underscore(function))});
  numbers_wait = true;
  if ((modes() & kModeTrace) == 0) {
    listens = true;
    tapegrad::detail::modes |= kModeTrace;
  }
  return value;
}

void detail::settle_numbers() { count_as_read(take()); }

void drop_numbers() noexcept {
  if (detail::numbers_wait) take();
}

bool take_numbers(dispatch::Call& call, dispatch::Results& results) {
  if (!detail::numbers_wait) return false;
  const std::vector<Given> numbers = take();
  std::optional<Parts> parts = take_apart(call, numbers);
  if (!parts) {
    count_as_read(numbers);
    return false;
  }
  std::vector<Tensor> operands = std::move(parts->tensors);
  const size_t tensors = operands.size();
  for (const Given& g : numbers) operands.push_back(g.tensor);
  auto made = native_call(
      call.function.name, std::move(operands),
      [&f = call.function, tensors, arguments = std::move(parts->arguments), places = std::move(parts->places),
       at = std::move(parts->given)](std::span<Tensor> given, std::span<const int64_t>) {
        std::vector<Value> now = arguments;
        for (size_t i = 0; i < tensors; ++i) set_tensor(now[places[i].first], places[i].second, given[i]);
        std::vector<GivenNumber> read;
        for (size_t k = 0; k < at.size(); ++k) read.push_back({at[k], given[tensors + k]});
        return detail::call_with_numbers(f, now, read);
      });
  for (Tensor& t : made) results.set(std::move(t));
  return true;
}

void run_with_numbers(Call& call) {
  for (const auto& [argument, tensor] : call.given) {
    const Scalar number = std::get<Tensor>(call.values[tensor]).item();
    Value& v = call.values[argument];
    if (std::holds_alternative<Scalar>(v))
      v = number;
    else if (std::holds_alternative<std::optional<Scalar>>(v))
      v = std::optional<Scalar>(number);
    else if (std::holds_alternative<double>(v))
      v = number.to<double>();
    else if (std::holds_alternative<std::optional<double>>(v))
      v = std::optional<double>(number.to<double>());
    else
      v = Operand(number);
  }
  dispatch::Results made;
  call.function->invoke(call.function->whole, call.arguments.data(), made);
  size_t at = call.arguments.size() - made.tensors.size();
  for (const Tensor& t : made.tensors) raw::copy_(std::get<Tensor>(call.values[at++]), t);
}

}  // namespace tapegrad::record
