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
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

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

  std::unique_ptr<Program> program_;
  std::unordered_map<const TensorImpl*, int> value_of_;
  std::unordered_map<const StorageImpl*, int> memory_of_;
  std::unordered_map<std::string, int> named_;  // how often a name was asked for
  std::vector<Tensor> kept_;                    // so that addresses are not given to others
  std::unordered_set<const StorageImpl*> own_;  // of results
  Recorder recorder_;
};

}  // namespace tapegrad::record
