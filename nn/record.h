// Record: a program from a file, served: without Python, from any number of threads over one copy of the weights.
//
//   const tapegrad::Record record = tapegrad::Record::load("model.tgrec");
//   std::vector<tapegrad::Tensor> results = record.run({x});
//
// The first call with inputs of some sizes runs the program operator by operator and records its kernels; later ones
// replay them with planned memory. Threads that call at once each have a plan of their own (temporaries; the weights
// are shared), so a Record holds as many plans as calls overlapped. Calls of a program that writes to its inputs are
// not slower for that, but inputs must not be shared between them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

namespace record {
class Program;
}

class TG_API Record {
 public:
  // Of a program that is kept alive with it.
  explicit Record(std::shared_ptr<const record::Program> program);
  // Raises Runtime if the file is none that tapegrad.export.save has written, is damaged, or calls operators that this
  // version lacks.
  static Record load(const std::string& path);

  // The results for these inputs, in the order of outputs(). Raises Type or Value, with the input's name, where one has
  // a dtype or size that the program is not valid for. Any number of threads may call it at once.
  std::vector<Tensor> run(TensorSpan inputs) const;
  std::vector<Tensor> run(std::initializer_list<Tensor> inputs) const {
    return run(TensorSpan(inputs.begin(), inputs.size()));
  }
  // What run() takes. Sizes are those of the example; of those that may change, too.
  struct Input {
    std::string name;
    DType dtype;
    std::vector<int64_t> sizes;
  };
  std::vector<Input> inputs() const;
  std::vector<std::string> outputs() const;
  const record::Program& program() const noexcept;
  // How many plans it holds.
  size_t num_plans() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tapegrad
