// Makes a Program of what a thread calls: while a Tracer lives, each public function that is called from outside of
// another one is written down with its arguments (kModeTrace, a handler of calls), and runs.
//
// Kernels are recorded at the same time (Recorder), which tells what no program can repeat: values that are read on the
// host, and tensors that were computed by something that is no function of an operator.
#pragma once

#include "tapegrad/aten/dispatch/call.h"
#include "tapegrad/aten/record/program.h"
#include "tapegrad/aten/record/recording.h"

namespace tapegrad::record {

using NamedValues = std::vector<std::pair<std::string, Tensor>>;

class TG_API Tracer {
 public:
  // `inputs` are contiguous, at the start of their memory, and share none. `weights` give constants their names. Raises
  // Runtime where this thread records already.
  Tracer(const NamedValues& inputs, const NamedValues& weights);
  // Of a body, while another Tracer of this thread lives: what that one knows of becomes an input behind these. Raises
  // Runtime where there is none.
  explicit Tracer(TensorSpan inputs);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  struct Body {
    std::shared_ptr<Program> program;
    std::vector<Tensor> captured;  // its further inputs
  };
  Body finish_body(TensorSpan outputs);
  // Runs and writes down an operation with bodies. `first`: the predicate, which is what bodies[0] and bodies[1] do not
  // take, or what is carried; `operands`: what both take, of a choice. Raises Runtime where this thread traces nothing.
  static std::vector<Tensor> control(Program::Control control, std::vector<Body> bodies, TensorSpan first,
                                     TensorSpan operands);
  static bool active() noexcept;

  // Ends it. Raises Runtime where no program can repeat the run, with the line.
  std::unique_ptr<Program> finish(TensorSpan outputs);
  // Names a value. False where this thread traces nothing, or the tensor is unknown.
  static bool name(const Tensor& t, std::string name);

 private:
  friend struct TraceHandler;
  int add(const Tensor& t, std::string name);
  int value_of(const Tensor& t);
  void call(dispatch::Call& call, dispatch::Results& results);
  void stop() noexcept;
  std::string fresh_name(std::string base);
  bool knows(const Tensor& t) const;
  static Recorder& recorder_of_this_thread();
  void write_control(Program::Operation operation, const std::vector<Tensor>& results);

  std::unique_ptr<Program> program_;
  std::unordered_map<const TensorImpl*, int> value_of_;
  std::unordered_map<const StorageImpl*, int> memory_of_;
  std::unordered_map<std::string, int> named_;  // how often a name was asked for
  std::vector<Tensor> kept_;                    // so that addresses are not given to others
  std::unordered_set<const StorageImpl*> own_;  // of results
  std::unique_ptr<Recorder> own_recorder_;      // of the outermost one
  Recorder& recorder_;
  Tracer* const parent_ = nullptr;
  std::vector<Tensor> captured_;
  std::unordered_set<int>
      fixed_;  // memories that control flow was given or gave, where it may have passed on the one as the other
};

}  // namespace tapegrad::record
