// The profiler's recorder: operators, nodes of backward, modules and annotations record when they begin and end.
//
// A public operator's call is recorded by a handler (aten/dispatch/call.h), which kModeProfile in the mode word leads
// to; there is no other cost while no profiler runs. One session at a time; it holds a log per thread that takes part
// (the one that started it, and those that called `attach`). A log belongs to its thread, which writes without a lock;
// another thread that stops the session reads what has been published (profiler_log.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tapegrad/aten/dispatch/argument.h"
#include "tapegrad/c10/dispatch/modes.h"

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

class TG_API Scope {
 public:
  Scope() noexcept = default;
  Scope(const char* name, dispatch::Arguments inputs) noexcept;                         // an operator
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
