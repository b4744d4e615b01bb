// A call that is not plain: a mode is on, or a tensor is of a kind that kernels do not take.
//
// Each public function tests one word, that of call_word() with the bits that concern it. If none is set it goes on
// itself: shape, allocation, kernel, tape. Else it describes the call (which function, the arguments in order, whether
// it comes from outside or from below the tape) and gives it to the handlers: autocast, sparse tensors, profiler, and
// below the tape vmap. A handler does the call in its own way or changes something and proceeds; behind the last one
// the function itself runs. Handlers know the properties of the op table and no operator by name.
//
// A new handler is one file with a Registration, a bit in c10/dispatch/modes.h, and that bit in
// aten/gen/emit_dispatch.py's masks. Handlers are registered while the library is loaded; calls may come from any
// thread at once.
#pragma once

#include <vector>

#include "tapegrad/aten/dispatch/function.h"
#include "tapegrad/aten/dispatch/owned.h"

namespace tapegrad::dispatch {

enum class Stage : uint8_t {
  Public,     // a call from outside: the tape comes behind the handlers
  BelowTape,  // a call of a raw:: function, also from the tape's part of a public one
};

class TG_API Call {
 public:
  Call(const Function& f, Stage at, Arguments with) noexcept : function(f), stage(at), arguments(with) {}

  const Function& function;
  const Stage stage;
  Arguments arguments;

  // Goes on with the next handler that a bit of the call concerns, at last with the function itself. Modes that a
  // handler has changed count; `results` is empty before.
  void proceed(Results& results);
  // Calls one of the function's steps with the arguments.
  void run(AnyFunction step, Results& results) const { function.invoke(step, arguments.data(), results); }

 private:
  size_t next_ = 0;  // among the handlers
};

struct Handler {
  int order;      // smaller ones are outside
  Stage stage;    // BelowTape: behind the tape of functions that have one
  uint32_t bits;  // of modes and kinds: any of them concerns it
  void (*handle)(Call& call, Results& results);
};
// The order of the handlers there are.
enum Order : int { kOrderAutocast = 10, kOrderTrace = 15, kOrderSparse = 20, kOrderProfiler = 30, kOrderBatch = 40 };

struct TG_API Registration {
  explicit Registration(const Handler& handler);
};

// The arguments of a call with some exchanged for values of its own.
class TG_API ChangedArguments {
 public:
  explicit ChangedArguments(Arguments of) : arguments_(of.begin(), of.end()), values_(of.size()) {}
  ChangedArguments(const ChangedArguments&) = delete;
  ChangedArguments& operator=(const ChangedArguments&) = delete;

  void set_tensor(size_t i, Tensor t);  // also in the place of an Operand
  void set_list(size_t i, std::vector<Tensor> list);
  void set_ints(size_t i, DimVector ints);  // in the place of Ints or OptionalInts
  template <class T>
  void set(size_t i, T value) {
    arguments_[i] = Argument(values_[i].emplace<T>(std::move(value)));
  }
  Arguments arguments() const noexcept { return arguments_; }

 private:
  using Value = std::variant<std::monostate, Tensor, Operand, OwnedTensors, OwnedInts, int64_t, std::optional<int64_t>,
                             std::optional<Device>, std::optional<MemoryFormat>>;
  std::vector<Argument> arguments_;
  std::vector<Value> values_;
};

// What a generated function does where its word is not plain. R: what it returns, void for one that writes.
template <class R, class... A>
TG_COLD TG_NOINLINE R call(const Function& function, Stage stage, const A&... values) {
  const std::array<Argument, sizeof...(A)> arguments{Argument(values)...};
  Results results;
  Call(function, stage, arguments).proceed(results);
  return results.take<R>();
}

}  // namespace tapegrad::dispatch
