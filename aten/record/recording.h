// A recording: the calls of kernels that one run of a step made, and the memory that they used, called slots.
//
// Recorder (a scope, on one thread) makes one while the step runs eagerly. Two recordings of a step are compared call
// by call; where they are equal, Step (step.h) replays the second. A recording owns what its calls need: tensors over
// storages of its own, which point to where the bytes of a slot are, and numbers by value. While it is recorded it owns
// no memory of the program, so that what eager code frees is freed; which slots are weights and which are results is
// known at the end. Used by one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <variant>

#include "tapegrad/aten/record/pointer_map.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/aten/record/value.h"

namespace tapegrad::dispatch {
struct Function;
}

namespace tapegrad::record {

// The bytes of one storage.
struct Slot {
  enum class Kind : uint8_t {
    Weight,     // was there before the step: stays where it is
    Feed,       // of an argument of the step: elsewhere in each call
    Result,     // made by the step, and there after it
    Temporary,  // made by the step, and gone at its end
    Constant,   // the same in each replay, made with the plan
  };
  Kind kind = Kind::Weight;
  weak_intrusive_ptr<StorageImpl> seen;  // what it was recorded with
  Storage real;                          // of a weight or constant; of a result while a replay runs
  Storage own;                           // what the recording's tensors lie on; owns no bytes
  Tensor view;                           // the last of these, which calls may share
  Tensor spare;                          // of a small result: the gradient that the last replay has made of it
  char* recorded = nullptr;              // where the bytes were
  size_t nbytes = 0;
  int feed = -1;                     // which of the feeds
  const StorageImpl* fed = nullptr;  // what that one was recorded with, an address only
  bool born = false;                 // made while the step ran
  bool written = false;              // by a recorded call
  bool written_second = false;       // in the second of two parts
  bool chained = false;              // only calls of one chain use it: it needs no memory of its own
  int first = -1, last = -1;         // calls that use it
  int inside = -1;                   // the slot whose memory it takes over
  int copy_of = -1;                  // made by a plan: the same values as this one
  std::vector<char>
      initial;  // what was there before the first call that reads it, where none has written it: made by the host
  std::vector<std::pair<char**, ptrdiff_t>> pointers;  // what points into it, beside the tensors, and by how many bytes
};

// What a call does with a slot: bytes [begin, end) of it, from `offset` on. slot -1: a number of the call's own.
struct Use {
  int slot = -1;
  ptrdiff_t offset = 0, begin = 0, end = 0;
  bool written = false;
  int was = -1;  // the slot that the program used, where a plan has the same values in another one
};

// A generator that the step draws from. Its offset may go back to numbers that were drawn before (checkpoints draw them
// once more), so draws are counted from where it stood when a part began.
struct DrawnFrom {
  intrusive_ptr<Generator> generator;
  uint64_t seed = 0;
  bool set_back = false;      // else the next numbers are always those that follow
  uint64_t base[2] = {0, 0};  // its offset at the beginning of each part
  uint64_t end[2] = {0, 0};   // and at the end, from base on
};

// The numbers of a random call come from the generator anew in each replay.
struct Draw {
  size_t from = 0;  // which generator
  uint64_t n = 0;
  int part = 0;  // that it counts from
  uint64_t delta = 0;
  PhiloxState state;
};

// What a step found of the values of a tensor, and went on by: a recording of it is valid where that is found again.
struct Condition {
  // All bits; or, of one element, whether it is true, or how it compares with a number.
  enum class Kind : uint8_t {
    Bits,
    Truth,
    Less,
    LessEqual,
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Finite,
    Infinite,
    Nan
  };
  bool operator==(const Condition&) const = default;
  // Of a tensor on the CPU.
  std::string find(const Tensor& t) const;
  Kind kind = Kind::Bits;
  uint64_t other = 0;  // the bits of a double: what it is compared with
  std::string found;
};

struct Chain;

// Whether something else has the tensor, or one on its memory.
inline bool is_shared(const Tensor& t) noexcept {
  return t.impl()->use_count() > 1 || t.impl()->storage().use_count() > 1;
}

// Code above the kernels that makes tensors of tensors: a body of control flow. Called at its turn in each replay, on
// the thread of the replay, below its modes.
struct Nested {
  virtual ~Nested() = default;
  // The inputs must not be kept. The results have the sizes and dtypes of those that were recorded.
  virtual std::vector<Tensor> run(TensorSpan inputs) = 0;
};

// What a host call does to one leaf, which may be done apart from the rest of it.
struct HostPart {
  Tensor leaf;
  std::vector<Tensor> written;  // besides the leaf
  std::function<void()> run;    // null: not apart
  bool clears = false;          // all it does is to drop the gradient
};
struct HostParts {
  std::vector<HostPart> parts;
  std::function<bool()> hold;  // whether the parts are still these, before a replay; null: they are
};

struct Call {
  enum class Kind : uint8_t {
    Kernel,
    Pointwise,
    Reduce,
    Gradient,
    Host,
    Nested,
    Guard,
    Allocate,
    Restore,
    Chain,
    Update
  };
  Kind kind = Kind::Kernel;
  bool dead = false;   // nobody reads what it writes: it is not made
  bool again = false;  // made once more, by a plan
  int number = 0;      // in the program, where a plan makes calls in another order
  float seconds = 0;   // that it took
  const OperatorEntry* entry = nullptr;
  AnyKernel kernel = nullptr;
  std::vector<Use> uses;
  // Kernel
  dispatch::Invoke invoke = nullptr;
  std::vector<dispatch::Argument> arguments;
  std::unique_ptr<Value[]> values;
  std::optional<Draw> draw;
  size_t philox = 0;               // the argument with its numbers
  const Value* repeats = nullptr;  // of a random call that is made again: the numbers of the first time
  // Kernel, in its place: a function with numbers that are read anew (numbers/given.h). Behind its arguments come the
  // tensors of the numbers, and its results; which argument each is, and which one its tensor
  const dispatch::Function* function = nullptr;
  std::vector<std::pair<size_t, size_t>> given;
  // Pointwise, Reduce
  std::unique_ptr<pointwise::Iterator> pointwise;
  std::unique_ptr<reduce::Iterator> reduce;
  std::vector<Tensor> numbers;  // operands that were numbers
  // Gradient: the leaf's `.grad` becomes `grad`, or undefined
  Tensor leaf, grad;
  bool replaces = false;  // an older gradient; else that one is added to
  bool consumed = false;  // by an Update, after which the leaf has no gradient; Host: Updates are parts of it
  // Host: code above the kernels that is called in each replay. Update: its part for `leaf`
  std::function<void()> host;
  bool repeatable = false;
  std::function<HostParts()> parts;
  std::string name;
  std::vector<const void*> key;  // equal for equal calls
  // Nested, with a name and a key, too; uses are those of the inputs, then of the results
  std::unique_ptr<Nested> nested;
  std::vector<Tensor> inputs, results;
  bool shares = false;  // a result was what it was given, or another result
  // Guard, with a name and one input
  Condition condition;
  size_t guard = 0;              // which one, in a plan
  int slot = -1;                 // Allocate, Restore
  std::shared_ptr<Chain> chain;  // Chain
};

// A tensor that the step gives back.
struct Output {
  int slot = -1;
  Tensor tensor;  // over the slot's own storage
  Tensor same;    // one that was there before the step is given back itself
  bool needs_grad = false;
};

// What an argument of the step must be like in a replay.
struct FeedGeometry {
  bool operator==(const FeedGeometry& o) const {
    return dtype == o.dtype && sizes == o.sizes && strides == o.strides && slot == o.slot;
  }
  DType dtype;
  DimVector sizes, strides;
  ptrdiff_t offset;  // of its first element in the slot, in bytes
  ptrdiff_t end;     // of its last one
  int slot;
};

// The state of a leaf's gradient before the step that the recorded calls count on: there is none, or there is one;
// where they read or write it, that on this storage.
struct KnownGradient {
  Tensor leaf;
  bool defined;
  const StorageImpl* storage;
};

// Of a step in two parts (a forward pass whose backward pass comes later), `calls` up to first_calls, the first
// first_outputs results and the first first_feeds arguments belong to the first one; the arguments of the second are
// gradients.
class TG_API Recording {
 public:
  std::vector<Slot> slots;
  std::vector<Call> calls;
  std::vector<Output> outputs;
  std::vector<KnownGradient> gradients;
  std::vector<DrawnFrom> generators;
  std::vector<Tensor> leaves;  // whose gradient the step sets
  std::vector<FeedGeometry> feeds;
  std::optional<Device> device;  // of all of its memory; none: it uses none
  bool two_parts = false;
  bool dry = false;  // its calls were not made, and have no times
  size_t first_calls = 0, first_outputs = 0, first_feeds = 0;
  std::vector<Condition> path;  // of its guards, in their order
  std::string read;             // what the last one was, with its line
  size_t copies = 0;            // slots that a plan has added, the last ones
  bool device_chains = false;   // whether it is time for them: a plan orders its calls first
  std::string no_chains;        // why there is one less than there might be
  std::vector<std::shared_ptr<struct AwaitedChain>> awaited;  // kernels that are being compiled
  std::string reason;                                         // why it cannot be replayed; empty: it can

  // What is different from an earlier run of the step; empty: nothing. Settles which results are made anew in each run.
  std::string compare(const Recording& earlier);
};

// Records what this thread calls from its construction until finish() or its end. Between pause() and resume(), which
// may be on another thread, nothing is recorded.
class TG_API Recorder {
 public:
  // `follows_values`: the program may go on by values that it reads, and its recordings have guards; else they are
  // refused.
  explicit Recorder(TensorSpan feeds, bool follows_values = false);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Ends the first of two parts. `outputs`: the tensors that the step gives back, which the caller still holds.
  void pause(TensorSpan outputs);
  void resume(TensorSpan feeds);
  // Ends it. `nodes`: those of the outputs on the tape, or null. Raises Runtime where a nested call gave what it was
  // given, and one of both was written to.
  std::unique_ptr<Recording> finish(TensorSpan outputs, std::span<const void* const> nodes);
  void refuse(std::string reason);  // the first reason counts
  const std::string& reason() const noexcept { return recording_->reason; }
  const std::vector<FeedGeometry>& feeds() const noexcept { return recording_->feeds; }
  // Tells it of gradients and the like from now on.
  void set_trace(class NativeTrace* trace) noexcept;
  // Whether a recorded call has written to the memory of a tensor.
  bool wrote(const Tensor& t) const noexcept;
  // Whether its memory was made while the step ran.
  bool made(const Tensor& t) const noexcept { return born_.contains(t.impl()->storage().get()); }

 private:
  friend struct Access;
  void start(TensorSpan feeds);
  void stop() noexcept;
  void add_outputs(TensorSpan outputs);
  void refuse_outside_of_arguments();
  void check_writes_behind_nested();
  std::unique_ptr<Recording> recording_;
  PointerMap slot_of_, born_;                          // of storages
  std::vector<weak_intrusive_ptr<StorageImpl>> kept_;  // whose addresses must not be given to others
  std::vector<Use> output_uses_;
  std::unordered_set<const void*> nodes_run_;
  std::unordered_map<const Generator*, uint64_t> reached_;  // the largest offset of each
  std::optional<Draw> pending_;
  bool running_ = false, nested_drew_ = false;
  class NativeTrace* trace_ = nullptr;
  std::unordered_set<const TensorImpl*> cleared_;    // leaves whose gradients code above the kernels has dropped
  std::unique_ptr<class GuardPlaces> guard_places_;  // none: values that are read are refused
};

// Runs code that is not recorded but called again in each replay, at its turn: a step of an optimizer. Outside of a
// recording it is just run.
// `repeatable`: where the step begins once more it may be called again. `parts`: what it does to each leaf; none: it is
// not known.
TG_API void host_call(std::string name, std::vector<const void*> key, std::function<void()> run,
                      bool repeatable = false, std::function<HostParts()> parts = {});
// The results of nested->run(inputs), which is recorded as one call: what it does itself is not. `key` lives as long as
// `nested`. Refused are inputs that it writes to. Outside of a recording it is just run.
TG_API std::vector<Tensor> nested_call(std::string name, std::vector<const void*> key, TensorSpan inputs,
                                       std::unique_ptr<Nested> nested);
// The truth of a tensor of one element, by which the program goes on. A step that is recorded is valid for such calls
// alone, and must find that out before it does what cannot be undone: else it is refused.
TG_API bool decide(std::string_view what, const Tensor& pred);
namespace detail {
TG_API TG_COLD void value_read(std::string_view what, const Tensor& t, Condition::Kind kind, double other);
}
// The program goes on by the values of a tensor: all of them, or how the one compares with a number.
inline void note_read(std::string_view what, const Tensor& t, Condition::Kind kind = Condition::Kind::Bits,
                      double other = 0) {
  if (TG_UNLIKELY(active())) detail::value_read(what, t, kind, other);
}
// Whether a recorder of this thread lives, also while its mode is off.
TG_API bool has_recorder() noexcept;
// Whether this thread records a step that may go on by values.
TG_API bool follows_values() noexcept;
// Whether this thread records, and the tensor is an argument of the step or lies on memory that it made.
TG_API bool is_of_step(const Tensor& t);
// " at train.py:31", the line of the program that runs; set by the bindings.
TG_API extern std::string (*describe_line)();
// Why the step that this thread records cannot be replayed; nothing outside of a recording.
TG_API void refuse(std::string reason);

}  // namespace tapegrad::record
