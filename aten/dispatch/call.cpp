#include "tapegrad/aten/dispatch/call.h"

#include <algorithm>

namespace tapegrad::dispatch {
namespace {

// Sorted; filled by static initialisers, so without one of its own.
constexpr size_t kMostHandlers = 16;
constinit Handler handlers[kMostHandlers]{};
constinit size_t num_handlers = 0;

}  // namespace

extern "C" {
// Set by the linker: where the section of TG_LIST_FUNCTION begins and ends.
extern const Listed first_listed[] __asm__("__start_tapegrad_functions") __attribute__((visibility("hidden")));
extern const Listed last_listed[] __asm__("__stop_tapegrad_functions") __attribute__((visibility("hidden")));
}

std::span<const Listed> all_functions() noexcept { return {first_listed, last_listed}; }

const Listed* find_function(std::string_view id) noexcept {
  for (const Listed& f : all_functions())
    if (id == f.id) return &f;
  return nullptr;
}

const char* id_of(const Function& function) noexcept {
  for (const Listed& f : all_functions())
    if (f.function == &function) return f.id;
  return "";
}

Registration::Registration(const Handler& handler) {
  TG_ASSERT(num_handlers < kMostHandlers);
  Handler* end = handlers + num_handlers++;
  Handler* at = std::find_if(handlers, end, [&](const Handler& h) { return h.order > handler.order; });
  std::move_backward(at, end, end + 1);
  *at = handler;
}

void Call::proceed(Results& results) {
  const uint32_t word = (modes() | kinds_of(arguments)) & function.bits;
  // Without a part of the tape a public call goes through the handlers behind it, too.
  const bool to_the_end = stage == Stage::Public && function.body == function.plain;
  while (next_ < num_handlers) {
    const Handler& handler = handlers[next_++];
    if ((handler.bits & word) && (handler.stage == stage || to_the_end)) return handler.handle(*this, results);
  }
  run(stage == Stage::Public ? function.body : function.plain, results);
}

void ChangedArguments::set_tensor(size_t i, Tensor t) {
  if (arguments_[i].type() == ArgumentType::Operand)
    set(i, Operand(std::move(t)));
  else
    set(i, std::move(t));
}

void ChangedArguments::set_list(size_t i, std::vector<Tensor> list) {
  auto& value = values_[i].emplace<OwnedTensors>();
  value.tensors = std::move(list);
  value.span = value.tensors;
  arguments_[i] = Argument(value.span);
}

void ChangedArguments::set_ints(size_t i, DimVector ints) {
  const bool optional = arguments_[i].type() == ArgumentType::OptionalInts;
  auto& value = values_[i].emplace<OwnedInts>();
  value.values = std::move(ints);
  value.span = value.values;
  value.optional = value.span;
  arguments_[i] = optional ? Argument(value.optional) : Argument(value.span);
}

}  // namespace tapegrad::dispatch
