// The profiler's recorder: operators, nodes of backward, modules and annotations record when they begin and end.
//
// Every public operator tests one bit of the mode word (c10/modes.h), which it has loaded anyway; there is no other
// cost while no profiler runs. With the bit set it calls `enter()`, opens a Scope and calls itself: the second
// `enter()`, that of the inner call, returns false. One session at a time; it holds a log per thread that takes part
// (the one that started it, and those that called `attach`). A log belongs to its thread, which writes without a lock;
// another thread that stops the session reads what has been published (profiler_log.h).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/modes.h"

namespace tapegrad::autograd::profiler {

enum class Kind : uint8_t {
  Operator,
  Engine,  // a node with its hooks and the routing of its gradients
  Node,    // its formulas
  Module,
  Annotation,
};

inline constexpr uint32_t kNone = ~uint32_t{0};

struct Event {
  const char* name;
  int64_t begin;     // ns of the steady clock
  int64_t end;       // -1: open
  int64_t bytes;     // allocated less freed by this thread in between
  int64_t sequence;  // of the node: made by an operator (0: none), run by a Node or Engine event
  uint32_t parent;   // index in the log, or kNone
  uint32_t site;     // call site, 0: unknown
  uint32_t stack;    // of call sites, 0: none
  uint32_t detail;   // Operator: where its inputs begin in `inputs`; Module: its number; else kNone
  Kind kind;
};

struct Options {
  bool shapes = false;
  bool memory = false;
  bool stack = false;
  bool modules = false;
};

// The record of one thread. `inputs` holds, per operator with shapes: the number of arguments, and for each its dtype
// and number of dimensions and sizes; dtype -1 for what is neither tensor nor integers, -2 and a count before the
// tensors of a list, -3 and a count before integers, -4 before an integer.
struct ThreadRecord {
  uint64_t thread = 0;
  std::vector<Event> events;
  std::vector<int64_t> inputs;
  uint64_t dropped = 0;
};

// Raises when a session runs already.
TG_API void start(const Options& options);
// Ends the session and returns the records of its threads. Raises when none runs.
TG_API std::vector<std::shared_ptr<ThreadRecord>> stop();
TG_API bool running() noexcept;
// The calling thread takes part in the running session, if any.
TG_API void attach();
TG_API Options options() noexcept;  // of the running session

// An argument of an operator.
struct Input {
  const Tensor* tensor = nullptr;
  TensorSpan list;
  IntSpan ints;
  int64_t number = 0;
  enum { kNothing, kTensor, kTensors, kInts, kInt } kind = kNothing;
  Input(const Tensor& t) noexcept : tensor(&t), kind(kTensor) {}
  Input(const Operand& o) noexcept : tensor(&o.tensor()), kind(kTensor) {}
  Input(TensorSpan l) noexcept : list(l), kind(kTensors) {}
  Input(IntSpan i) noexcept : ints(i), kind(kInts) {}
  Input(int64_t n) noexcept : number(n), kind(kInt) {}
  template <class T>
  Input(const T&) noexcept {}
};

// Whether this call is to be recorded: true for the outer call, false for the call that a Scope wraps.
TG_API bool enter() noexcept;

class TG_API Scope {
 public:
  Scope() noexcept = default;
  Scope(const char* name, std::initializer_list<Input> inputs) noexcept;                // an operator
  Scope(Kind kind, std::string_view name, int64_t sequence, uint32_t detail) noexcept;  // the others
  ~Scope() { close(); }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  void open(Kind kind, std::string_view name, int64_t sequence = 0, uint32_t detail = kNone) noexcept;
  void close() noexcept;

 private:
  uint64_t session_ = 0;  // 0: nothing to close
  uint32_t at_ = 0;
};

}  // namespace tapegrad::autograd::profiler
